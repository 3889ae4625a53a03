"""The folder a training lives in: whose it is, and files that are there whole or not at all.

``recipe.json`` says which run it is, ``state.pt`` holds all that a resumed one needs, and the CSV files say the same to
people. A lock keeps a second training out.
"""

import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from fairbench.errors import RecipeError
from fairbench.files import make_folder, replacing, temporary_names, write_json
from fairbench.models.cards import CARD_FILE, RUN_FILE, WEIGHTS_FILE
from fairbench.models.checkpoints import safetensors_bytes

STATE, HISTORY, CLASSES = "state.pt", "history.csv", "classes.csv"
LAST = "last.safetensors"
"""The last epoch's weights, where the result is another's."""


class RunFolder:
    """A run's files.

    Parameters
    ----------
    path
        The folder; made when it is claimed.
    name
        The file in it that says which run it is.
    """

    def __init__(self, path: Path, name: str = RUN_FILE) -> None:
        self.path, self.name = path, name
        self._lock: FileLock | None = None

    def claim(self, identity: Mapping[str, Any], *, begun: bool = False) -> None:
        """Make the folder this run's own, or find that it is, and keep other trainings out until :meth:`release`.

        ``begun`` says that there are results of the run that is in it, beside a state and a card.

        Raises
        ------
        RecipeError
            It holds another run or other files, or is being trained in; nothing was overwritten.
        OutcomesError
            It cannot be written.
        """
        make_folder(self.path)
        recipe = self.path / self.name
        if not recipe.exists() and any(p.name[0] != "." for p in self.path.iterdir()):
            raise RecipeError(f"{self.path} is not empty and holds no run; choose another --out.")
        self._acquire()
        self._remove_leftovers()
        held = _read_identity(recipe)
        if held == identity:
            return  # goes on, or starts again where its state was removed
        if held is not None and (begun or any((self.path / name).exists() for name in (STATE, CARD_FILE))):
            differs = sorted(k for k in {*held, *identity} if held.get(k) != identity.get(k))
            raise RecipeError(
                f"{self.path} holds another run (it differs in {', '.join(differs)}); nothing was overwritten. "
                "Choose another --out."
            )
        if any(p.name[0] != "." and p.name != self.name for p in self.path.iterdir()):
            raise RecipeError(f"{self.path} is not empty and holds no run; choose another --out.")
        write_json(identity, recipe)

    def release(self) -> None:
        """Let others in, if they were kept out."""
        if self._lock is not None:
            self._lock.release()

    def _acquire(self) -> None:
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise RecipeError(f"{self.path} is being trained in by another process; choose another --out.") from error
        self._lock = lock

    def _remove_leftovers(self) -> None:
        """Remove the half-written files of trainings that were killed."""
        for name in (self.name, STATE, HISTORY, CLASSES, LAST, CARD_FILE, WEIGHTS_FILE):
            for left in self.path.glob(temporary_names(name)):
                left.unlink(missing_ok=True)

    def save(self, state: Mapping[str, Any], *, check: str | None = None) -> None:
        """Write the state in one step.

        Parameters
        ----------
        check
            Where given, make sure first that the state can be read back without running code; this names what may not.

        Raises
        ------
        RecipeError
            It could never be resumed.
        OutcomesError
            The disk is full; the last state stays.
        """
        whole = io.BytesIO()  # torch.save hides what kept it from writing to a file
        torch.save(dict(state), whole)
        if check is not None:
            whole.seek(0)
            try:
                torch.load(whole, weights_only=True)
            except Exception as error:
                raise RecipeError(f"{check} is not plain data; use tensors, numbers, text, lists and dicts.") from error
        with replacing(self.path / STATE) as temporary:
            temporary.write_bytes(whole.getbuffer())

    def load(self) -> dict[str, Any] | None:
        """Read the last whole state, on the CPU; None where there is none yet. Nothing in it is executed."""
        path = self.path / STATE
        if not path.exists():
            return None
        try:
            with zipfile.ZipFile(path) as archive:  # torch does not look at the checksums that it writes
                if (damaged := archive.testzip()) is not None:
                    raise zipfile.BadZipFile(f"{damaged} is damaged")
            return dict(torch.load(path, map_location="cpu", weights_only=True))
        except Exception as error:  # damaged bytes make the reader raise anything
            raise self.unusable(error) from error

    def unusable(self, error: Exception) -> RecipeError:
        """Return what to say of a state that is damaged, or of something else."""
        return RecipeError(
            f"{self.path / STATE} is not a whole state of this run ({type(error).__name__}); remove it to start the "
            "run again."
        )

    def write_csv(self, name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows as CSV, for people."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with replacing(self.path / name) as temporary:
            temporary.write_text(stream.getvalue(), encoding="utf-8")


def write_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Write weights as safetensors, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(safetensors_bytes(state))


def _read_identity(path: Path) -> dict[str, Any] | None:
    """Return what recipe.json says the run is; None where there is none."""
    if not path.exists():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            raise TypeError(f"it holds a {type(held).__name__}")
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise RecipeError(f"{path} cannot be read ({error}); choose another --out.") from error
    return held
