"""Shards as tasks of a Ray cluster: any number of machines, and any of them may go away while the evaluation runs.

What all tasks share (the model, the data, the attacks) is put into the cluster's object store once; a task is a shard's
number. Ray runs a task again when its worker or its machine dies. A shard that fails for a reason of its own (logits
that are not finite, say) is not tried again: the run stops with that reason. The driver alone writes, shard by shard as
they come, so a driver that is killed goes on where it stopped.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from fairbench.errors import ProtocolError, first_line
from fairbench.evaluation.engines import Done, Job, Shard

_TRIES_AGAIN = 5
"""How often a shard is given to another worker after its own died."""

_AHEAD = 2
"""Tasks that are handed out for each one that can run: enough that no worker waits."""

_LOOK, _GRACE = 5.0, 60.0
"""Seconds after which the machines are looked at while nothing comes, and that one may take to come back."""

Compute = Callable[[int], Shard]


@dataclass(frozen=True)
class RayEngine:
    """Compute shards on a Ray cluster, or on this machine's cores if no address is given.

    Parameters
    ----------
    address
        HOST:PORT of the cluster, or "local" for one on this machine that ends with the evaluation. None: that of
        ``$RAY_ADDRESS``, else the one this machine is part of, else "local". A Ray that the program has started is
        used as it is.
    cpus
        Cores of a task, and its threads.
    gpus
        GPUs of a task; 0.25 lets four tasks share one.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise ProtocolError(f"{self.cpus} cores for a task: give 1 or more.")
        if not 0 <= self.gpus < math.inf or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ProtocolError(f"{self.gpus:g} GPUs for a task: give a share of one, or a whole number.")

    def __call__(self, compute: Compute, shards: Sequence[int]) -> Iterator[tuple[int, Shard]]:
        """Yield (number, shard) as the shards are done.

        Raises
        ------
        ProtocolError
            Ray is missing, the cluster does not answer, or it has no machine for such a task.
        FairbenchError
            Whatever a shard raises.
        """
        if not shards:
            return
        with closing(self.queue([lambda: (compute, shards)])) as done:
            for _, number, found in done:
                if isinstance(found, Exception):
                    raise found
                yield number, found

    def queue(self, jobs: Sequence[Job]) -> Generator[Done, None, None]:
        """Compute the shards of many jobs in one queue; a job is begun when its turn comes, and sent out once.

        A job that fails leaves the queue, and the others go on. See :data:`~fairbench.evaluation.engines.Job`.
        """
        with _connected(self.address) as ray:
            self._check_resources(ray)
            yield from self._collect(ray, jobs)

    def _collect(self, ray: Any, jobs: Sequence[Job]) -> Iterator[Done]:
        task = ray.remote(_compute).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=_TRIES_AGAIN, retry_exceptions=False
        )
        failed: set[int] = set()
        todo = _in_turn(ray, jobs, failed)
        running: dict[Any, tuple[int, int]] = {}
        try:
            more = True
            while more or running:
                while more and len(running) < self._slots(ray) * _AHEAD:
                    following = next(todo, None)
                    if following is None:
                        more = False
                    elif isinstance(following[2], Exception):
                        yield following
                    else:
                        place, number, shared = following
                        running[task.remote(shared, number, self.cpus)] = place, number
                if not running:
                    continue
                for reference in self._first_done(ray, list(running)):
                    place, number = running.pop(reference)
                    if place in failed:
                        continue
                    try:
                        yield place, number, _result(ray, reference)
                    except Exception as error:
                        failed.add(place)
                        for other in [r for r, (theirs, _) in running.items() if theirs == place]:
                            ray.cancel(other)
                        yield place, number, error
        finally:  # an error, or a caller that has had enough
            for reference in running:
                ray.cancel(reference, force=True)

    def _first_done(self, ray: Any, running: list[Any]) -> list[Any]:
        """Wait for a task to end; when the last machine that can hold one has left, Ray would wait without end."""
        fitted_at = time.monotonic()
        while True:
            done: list[Any] = ray.wait(running, num_returns=1, timeout=_LOOK)[0]
            if done:
                return done
            if self._fits(ray):
                fitted_at = time.monotonic()
            elif time.monotonic() - fitted_at > _GRACE:
                self._check_resources(ray)

    def _slots(self, ray: Any) -> int:
        """Return how many tasks fit on the cluster as it is now."""
        has = ray.cluster_resources()
        fits = [has.get("CPU", 0) // self.cpus]
        if self.gpus:
            fits.append(has.get("GPU", 0) // self.gpus)
        return max(int(min(fits)), 1)

    def _fits(self, ray: Any) -> bool:
        """Return whether a machine can hold a task."""
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return any(has.get("CPU", 0) >= self.cpus and has.get("GPU", 0) >= self.gpus for has in alive)

    def _check_resources(self, ray: Any) -> None:
        """Refuse a task that no machine can hold: Ray would wait for one without end."""
        if not self._fits(ray):
            raise ProtocolError(
                f"no machine of the Ray cluster has {self.cpus} cores and {self.gpus:g} GPUs, as a task wants; "
                "ask for less, or add a machine. What is done is kept."
            )


def _in_turn(ray: Any, jobs: Sequence[Job], failed: set[int]) -> Iterator[tuple[int, int, Any]]:
    """Yield (place of the job, shard, reference to what computes it), or the error that beginning the job raised."""
    for place, begin in enumerate(jobs):
        try:
            compute, shards = begin()
            shared = ray.put(compute) if shards else None
        except Exception as error:  # of this job alone
            failed.add(place)
            yield place, -1, error
            continue
        del compute
        for number in shards:
            if place in failed:
                break
            yield place, number, shared


def _compute(compute: Compute, number: int, threads: int) -> Shard:
    """Compute one shard in a worker."""
    import torch

    torch.set_num_threads(threads)
    return compute(number)


def _result(ray: Any, reference: Any) -> Shard:
    """Return a task's shard; what it raised is raised here as if there were no cluster between."""
    try:
        shard: Shard = ray.get(reference)
        return shard
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RayError):  # before the shard began: the task could not be read
            raise ProtocolError(
                f"a worker of the Ray cluster cannot read the task: {_reason(error.cause)} Every machine needs the "
                "same packages, and your own code where Python finds it."
            ) from error
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise ProtocolError(
            f"the Ray cluster lost a shard {_TRIES_AGAIN + 1} times: {first_line(error)} What is done is kept; run it "
            "again to go on."
        ) from error


def _reason(error: Exception) -> str:
    """Return what kept a worker from reading a task: the last line of the traceback that Ray sends as text."""
    return f"{str(error).strip().splitlines()[-1].strip().rstrip('.')}."


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to the cluster, and leave it as it was found."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do anyway; else it warns
    try:
        import ray
    except ImportError as error:
        raise ProtocolError("engine ray needs the package ray: pip install ray.") from error
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"include_dashboard": False} if address in (None, "local") else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ProtocolError(f"Ray at {address or 'this machine'}: {first_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


RAY = RayEngine()
"""What the name "ray" stands for: the cluster there is, or else this machine's cores."""
