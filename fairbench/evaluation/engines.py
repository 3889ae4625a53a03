"""Engines: who computes the shards, and in which order. No engine can change a result; a shard is always one batch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from fairbench.errors import ProtocolError
from fairbench.registry import Registry

Shard = tuple[dict[str, Any], dict[str, float]]
"""The columns of a shard's rows, and the seconds each attack took."""


class Engine(Protocol):
    """Computes shards by number and yields each as it is done, in any order.

    ``compute`` can be pickled and sent to another process, which then reports no progress within a shard.
    """

    def __call__(self, compute: Callable[[int], Shard], shards: Sequence[int]) -> Iterator[tuple[int, Shard]]:
        """Yield (number, shard) for each number in ``shards``."""
        ...


def local(compute: Callable[[int], Shard], shards: Sequence[int]) -> Iterator[tuple[int, Shard]]:
    """Compute the shards one after the other in this process."""
    for number in shards:
        yield number, compute(number)


ENGINES = Registry(
    "engine", ProtocolError, {"local": f"{__name__}:local", "ray": "fairbench.evaluation.ray_engine:RAY"}
)
