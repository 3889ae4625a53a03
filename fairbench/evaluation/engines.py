"""Engines: who computes the shards, and in which order. No engine can change a result; a shard is always one batch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from fairbench.errors import ProtocolError
from fairbench.registry import Registry

Shard = tuple[dict[str, Any], dict[str, float], dict[str, Any]]
"""The columns of a shard's rows, the seconds each attack took, and the machine that computed it."""


class Engine(Protocol):
    """Computes shards by number and yields each as it is done, in any order.

    ``compute`` can be pickled and sent to another process, which then reports no progress within a shard.
    """

    def __call__(self, compute: Callable[[int], Shard], shards: Sequence[int]) -> Iterator[tuple[int, Shard]]:
        """Yield (number, shard) for each number in ``shards``."""
        ...


Job = Callable[[], tuple[Callable[[int], Shard], Sequence[int]]]
"""Begins an evaluation: returns what computes a shard, and the shards that are missing."""

Done = tuple[int, int, Shard | Exception]
"""The place of a job among the jobs, and a shard's number and the shard, or what the job failed of."""


def one_by_one(engine: Engine, jobs: Sequence[Job]) -> Iterator[Done]:
    """Compute the shards of many jobs, one job after the other; one that fails is left, and the others go on.

    An engine that has a method ``queue`` of this kind is asked for that instead.
    """
    for place, begin in enumerate(jobs):
        number = -1
        try:
            compute, shards = begin()
            found = iter(engine(compute, shards))
            del compute
        except Exception as error:  # of this job alone
            yield place, number, error
            continue
        while True:
            try:
                number, shard = next(found)
            except StopIteration:
                break
            except Exception as error:
                yield place, number, error
                break
            yield place, number, shard


def local(compute: Callable[[int], Shard], shards: Sequence[int]) -> Iterator[tuple[int, Shard]]:
    """Compute the shards one after the other in this process."""
    for number in shards:
        yield number, compute(number)


ENGINES = Registry(
    "engine", ProtocolError, {"local": f"{__name__}:local", "ray": "fairbench.evaluation.ray_engine:RAY"}
)
