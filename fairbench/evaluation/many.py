"""Many models, one queue: each is a run as :func:`~fairbench.evaluation.runner.evaluate` does it, kept and resumed.

A model that fails costs its own result and no other's.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, first_line
from fairbench.evaluation.engines import ENGINES, Engine, Shard, one_by_one
from fairbench.evaluation.execution import Execution, Progress
from fairbench.evaluation.protocol import Protocol
from fairbench.evaluation.runner import BATCH_SIZE, begin, plan
from fairbench.models import Model
from fairbench.outcomes import Outcomes

Asked = tuple[Model, Dataset, Protocol, Model | None]
"""A model, its data, the protocol, and the model that attacks are made for if it is another."""


@dataclass
class Evaluated:
    """What came of a model: a table, or the reason why there is none. ``cached``: nothing had to be computed."""

    name: str
    outcomes: Outcomes | None = None
    failed: str | None = None
    cached: bool = False


def evaluate_many(
    models: Mapping[str, Callable[[], Asked]],
    *,
    batch_size: int = BATCH_SIZE,
    device: str | None = None,
    engine: str | Engine = "local",
    runs: str | Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    precision: str = "fp32",
    finished: Callable[[str, Outcomes], None] | None = None,
) -> list[Evaluated]:
    """Attack many models, in the order given, and return what came of each.

    Parameters
    ----------
    models
        Name to a function that loads the model and all it needs; it is called when the model's turn comes.
    finished
        Called with name and table as soon as a model is done.
    batch_size, device, engine, runs, resume, progress, precision
        As of :func:`~fairbench.evaluation.runner.evaluate`; progress is counted in models.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "device": device, "precision": precision}
    kept: dict[str, Any] = {"runs": runs, "resume": resume}
    queue = _Queue(models, options, kept, progress, finished)
    chosen: Any = ENGINES[engine] if isinstance(engine, str) else engine
    compute_all: Callable[..., Any] = getattr(chosen, "queue", None) or partial(one_by_one, chosen)
    jobs = [partial(queue.begin, place) for place in range(len(models))]
    with closing(compute_all(jobs)) as done:  # whoever interrupts finds the cluster as it was
        for place, number, found in done:
            if isinstance(found, Exception):
                queue.fail(place, found)
            else:
                queue.add(place, number, found)
    return queue.results


class _Queue:
    """The runs under way, and what came of those that are not any more."""

    def __init__(
        self,
        models: Mapping[str, Callable[[], Asked]],
        options: dict[str, Any],
        kept: dict[str, Any],
        progress: Progress | None,
        finished: Callable[[str, Outcomes], None] | None,
    ) -> None:
        self.results = [Evaluated(name) for name in models]
        self._loaders = list(models.values())
        self._options, self._kept = options, kept
        self._progress, self._finished = progress, finished
        self._under_way: dict[int, Execution] = {}
        self._shares = [0.0] * len(models)

    def begin(self, place: int) -> tuple[Callable[[int], Shard], list[int]]:
        """Load a model, look at what is there of its run, and return what is missing; nothing where it is finished."""
        model, dataset, protocol, source = self._loaders[place]()
        run = plan(model, dataset, protocol, transfer_from=source, **self._options)
        execution = begin(run, progress=partial(self._report, place), **self._kept)
        if isinstance(execution, Outcomes):
            self.results[place].cached = True
            self._end(place, execution)
            return _nothing, []
        self._under_way[place] = execution
        missing = execution.missing
        if not missing:  # killed between its last shard and the table
            self._close(place)
        return execution.compute, missing

    def add(self, place: int, number: int, shard: Shard) -> None:
        """Keep a shard; the last one ends the run."""
        execution = self._under_way.get(place)
        if execution is None:  # it failed meanwhile
            return
        try:
            execution.add(number, shard)
            if not execution.missing:
                self._close(place)
        except FairbenchError as error:
            self.fail(place, error)

    def fail(self, place: int, error: Exception) -> None:
        """Give a model up, with the reason."""
        self._under_way.pop(place, None)
        self.results[place].failed = str(error) if isinstance(error, FairbenchError) else first_line(error)
        self._report(place, 1.0, 1.0)

    def _close(self, place: int) -> None:
        self._end(place, self._under_way.pop(place).finish())

    def _end(self, place: int, outcomes: Outcomes) -> None:
        if self._finished is not None:
            self._finished(self.results[place].name, outcomes)
        self.results[place].outcomes = outcomes
        self._report(place, 1.0, 1.0, worked=not self.results[place].cached)

    def _report(self, place: int, done: float, total: float, *, worked: bool = True) -> None:
        self._shares[place] = done / total
        if self._progress is not None and worked:
            self._progress(sum(self._shares), len(self._shares))


def _nothing(_number: int) -> Shard:
    raise AssertionError("a finished run has no shard to compute")
