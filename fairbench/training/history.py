"""What a run keeps of each epoch: a row for people and cards, a row per class, the same for TensorBoard."""

import json
from functools import partial
from typing import Any

import numpy as np

from fairbench.errors import RecipeError
from fairbench.training.method import ClassErrors
from fairbench.training.run_folder import CLASSES, HISTORY, RunFolder

_COLUMNS = "epoch seconds lr loss avg_std worst_std worst_std_class avg_rob worst_rob worst_rob_class".split()
_CLASS_COLUMNS = ("epoch", "class", "std", "bndy", "rob")


class History:
    """The epochs of a run; errors are of held-out examples, in percent."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes
        self.rows: list[dict[str, Any]] = []
        self.class_rows: list[dict[str, Any]] = []
        self._board: Any = None

    def add(self, epoch: int, *, seconds: float, lr: float, loss: float, errors: ClassErrors | None) -> dict[str, Any]:
        """Add an epoch and return its row; without held-out examples its errors are None."""
        row: dict[str, Any] = dict.fromkeys(_COLUMNS)
        row |= {"epoch": epoch, "seconds": round(seconds, 3), "lr": lr, "loss": loss}
        by_class = [] if errors is None else self._of_classes(epoch, errors)
        if errors is not None:
            for name, values, average in (("std", errors.std, errors.avg_std), ("rob", errors.rob, errors.avg_rob)):
                worst = int(np.nanargmax(values.numpy()))
                row |= {f"avg_{name}": 100 * average, f"worst_{name}": 100 * float(values[worst])}
                row[f"worst_{name}_class"] = self.classes[worst]
        self.rows.append(row)
        self.class_rows += by_class
        self._log(row, by_class)
        return row

    def _of_classes(self, epoch: int, errors: ClassErrors) -> list[dict[str, Any]]:
        columns = zip(self.classes, errors.std.tolist(), errors.bndy.tolist(), errors.rob.tolist(), strict=True)
        return [
            dict(zip(_CLASS_COLUMNS, (epoch, name, *(round(100 * v, 4) for v in values)), strict=True))
            for name, *values in columns
        ]

    def state(self) -> dict[str, str]:
        """Return the rows as plain text."""
        return {"history": json.dumps(self.rows), "class_history": json.dumps(self.class_rows)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take the rows of :meth:`state`; ValueError where there are none."""
        self.rows, self.class_rows = json.loads(state["history"]), json.loads(state["class_history"])
        if not self.rows:
            raise ValueError("it holds no epoch")

    def write(self, folder: RunFolder) -> None:
        """Write what is in the state as CSV too, for people."""
        folder.write_csv(HISTORY, _COLUMNS, self.rows)
        folder.write_csv(CLASSES, _CLASS_COLUMNS, self.class_rows)

    def ask_for_board(self, folder: RunFolder, *, writes: bool) -> None:
        """Write for TensorBoard as well, from :meth:`open_board` on, in the process that writes; all refuse alike."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise RecipeError("--tensorboard needs the package tensorboard: pip install tensorboard.") from error
        if writes:
            self._board = partial(SummaryWriter, str(folder.path / "tensorboard"))

    def open_board(self, first_epoch: int) -> None:
        """Open the board once the folder is this run's; what was logged of an epoch cut short goes."""
        if self._board is not None:
            self._board = self._board(purge_step=first_epoch)

    def close_board(self) -> None:
        """Close the board, if there is one."""
        if self._board is not None:
            self._board.close()

    def _log(self, row: dict[str, Any], by_class: list[dict[str, Any]]) -> None:
        if self._board is None:
            return
        for name, value in row.items():
            if isinstance(value, float):
                self._board.add_scalar(name, value, row["epoch"])
        for of_class in by_class:
            for name in ("std", "rob"):
                self._board.add_scalar(f"{name}/{of_class['class']}", of_class[name], row["epoch"])
