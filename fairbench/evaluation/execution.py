"""A run under way: shards that are computed in any order, by any process, and kept one by one until all are there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench.errors import FairbenchError, ModelError, OutcomesError, first_line
from fairbench.evaluation import diagnostics
from fairbench.evaluation.engines import Shard
from fairbench.evaluation.run import Run, out_of_memory
from fairbench.files import make_folder
from fairbench.memory import is_out_of_memory, keep_freed_memory
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.outcomes.table import read_table_and_metadata, write_table

Progress = Callable[[float, float], None]
"""Called with (work done, work in all)."""


class Execution:
    """A run under way: which shards are missing, how to compute one, and where it goes."""

    def __init__(self, run: Run, folder: Path, progress: Progress | None) -> None:
        self._run, self._folder = run, folder
        self._shards = make_folder(folder / "shards")
        keep_freed_memory()
        self._warnings = run.inspect()
        self._count = -(-len(run.dataset) // run.batch_size)
        kept = ((number, _read_shard(_shard_path(self._shards, number))) for number in range(self._count))
        self._done = {number: shard for number, shard in kept if shard}
        self._work = _Work(run, progress, self._examples())

    @property
    def compute(self) -> Callable[[int], Shard]:
        """What computes a shard by its number; it can be pickled."""
        return self._work.compute

    @property
    def missing(self) -> list[int]:
        """The numbers of the shards that are not there yet."""
        return [number for number in range(self._count) if number not in self._done]

    def add(self, number: int, shard: Shard) -> None:
        """Write a shard, in one step."""
        columns, seconds, machine = shard
        metadata = {f"seconds_{name}": repr(value) for name, value in seconds.items()}
        metadata["machine"] = json.dumps(machine)
        frame = pd.DataFrame(columns)
        write_table(frame, _shard_path(make_folder(self._shards), number), metadata)
        self._done[number] = frame, metadata
        self._work.settle(self._examples())

    def finish(self) -> Outcomes:
        """Write the table and remove the shards, all of which are there."""
        done = [self._done[number] for number in range(self._count)]
        frame = pd.concat([shard for shard, _ in done], ignore_index=True)
        outcomes = Outcomes(frame, self._run.manifest(self._warnings, [metadata for _, metadata in done]))
        outcomes.manifest["warnings"] += diagnostics.check_results(summarize(outcomes))
        outcomes.manifest["warnings"] += diagnostics.check_proposals(outcomes)
        outcomes.write(self._folder)
        shutil.rmtree(self._shards, ignore_errors=True)
        return outcomes

    def _examples(self) -> int:
        return sum(len(self._run.rows(number)) for number in self._done)


class _Work:
    """Computes shards and keeps the progress bar's sum."""

    def __init__(self, run: Run, progress: Progress | None, examples_done: int) -> None:
        self._run = run
        self._progress = progress
        self._cost = sum(attack.cost for attack in run.attacks)
        self._total = self._cost * len(run.dataset)
        self._done = self._cost * examples_done

    def compute(self, number: int) -> Shard:
        """Compute one shard.

        Raises
        ------
        ModelError
            The machine's memory does not hold the batch.
        """
        try:
            return self._run.compute(number, self._tick)
        except FairbenchError:
            raise
        except (Exception, SystemExit) as error:  # a user's own forward can raise anything
            if is_out_of_memory(error):
                raise out_of_memory(self._run.batch_size) from error
            where = f"shard {number} (batches of {self._run.batch_size})"
            raise ModelError(f"{self._run.model.name} failed on {where}: {first_line(error)}") from error

    def settle(self, examples_done: int) -> None:
        """Report what other processes did: they do not tick here."""
        self._tick(max(self._cost * examples_done - self._done, 0.0))

    def _tick(self, work: float) -> None:
        self._done += work
        if self._progress is not None:
            self._progress(self._done, self._total)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the progress bar here when a copy goes to another process."""
        return self.__dict__ | {"_progress": None}


def _shard_path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _read_shard(path: Path) -> tuple[pd.DataFrame, dict[str, str]] | None:
    try:
        return read_table_and_metadata(path) if path.is_file() else None
    except OutcomesError:
        return None
