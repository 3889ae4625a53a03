"""Train the first epochs of a model again, by what its card recorded, and compare them with its recorded history."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairbench.datasets import load_dataset
from fairbench.errors import RecipeError, first_line
from fairbench.files import data_folder, user_path
from fairbench.models.cards import CARD_FILE, ModelCard, card_names, load_card, read_card
from fairbench.training.fit import Report
from fairbench.training.hardware import Hardware
from fairbench.training.recipe import Recipe, parse_recipe, without_own_code
from fairbench.training.run_folder import HISTORY
from fairbench.training.train import train_epochs

JUDGED = ("lr", "loss", "avg_std", "avg_rob")
"""Columns of a history that a reproduction is judged by; a worst class of few held-out examples says little more."""
_ALWAYS = ("lr", "loss")
"""Those that every epoch has."""


@dataclass(frozen=True)
class Reproduction:
    """What the recorded history says of some epochs, and what came out again."""

    recorded: list[dict[str, Any]]
    again: list[dict[str, Any]]
    notes: tuple[str, ...]
    """Hardware and versions that are others than the recorded ones, and what the card does not say."""

    def differences(self) -> list[dict[str, Any]]:
        """Return a row per epoch and judged column: recorded, again, and the difference (relative for lr and loss)."""
        rows = []
        for recorded, again in zip(self.recorded, self.again, strict=True):
            for column in JUDGED:
                if (old := recorded[column]) is None or (new := again[column]) is None:
                    continue
                apart = abs(new - old) / (abs(old) if column in ("lr", "loss") and old else 1.0)
                rows.append(
                    {"epoch": again["epoch"], "what": column, "recorded": old, "again": new, "difference": apart}
                )
        return rows

    def agrees(self, tolerance: float, points: float) -> bool:
        """Whether learning rate and loss agree to ``tolerance``, relative, and average errors to ``points`` percent."""
        limits = {"lr": tolerance, "loss": tolerance, "avg_std": points, "avg_rob": points}
        return all(row["difference"] <= limits[row["what"]] for row in self.differences())


def reproduce(
    name: str,
    out: str | Path,
    *,
    epochs: int = 1,
    data_dir: str | Path | None = None,
    device: str = "auto",
    report: Report | None = None,
) -> Reproduction:
    """Train the first ``epochs`` epochs of a model again and return them beside those that were recorded.

    Parameters
    ----------
    name
        A model of the zoo that has a history, or the folder of a finished run.
    out
        A new run's folder; it goes on where it stopped, up to the end of the recipe.

    Raises
    ------
    RecipeError
        The card records no training, or one that followed the clock; the data or the start are others than it says;
        there is no whole history of these epochs; or ``out`` is in the run itself, or holds a finished one.
    FairbenchError
        As ``train``.
    """
    card, history = _recorded(name)
    facts = card.training or {}
    recipe = _recipe(card)
    if facts.get("time_budget") is not None:
        raise RecipeError(f"{name} was trained under a time budget: its schedule followed the clock, not its epochs.")
    rows = _read_history(history, epochs)
    _check_elsewhere(user_path(out), history.parent)

    hardware = _hardware(card.name, facts, device)

    def checked(row: dict[str, Any]) -> None:
        if "note" in row:
            _check_same(name, facts, row, {"data_sha256": "training data", "start_sha256": f"start, {recipe.start},"})
        if report is not None:
            report(row)

    data = load_dataset(recipe.dataset, "train", data_dir=data_dir)
    fitted, _ = train_epochs(recipe, out, data, hardware=hardware, report=checked, stop_after=epochs)
    return Reproduction(rows, fitted.history[:epochs], (*_unsaid(recipe, facts), *_differs(facts, fitted.made_with[0])))


def _recorded(name: str) -> tuple[ModelCard, Path]:
    """Return the card and the path of the history."""
    folder = user_path(name)
    if name not in card_names() and (folder / CARD_FILE).is_file():
        return read_card(folder / CARD_FILE), folder / HISTORY
    if name not in card_names() and folder.is_dir():
        raise RecipeError(f"{name} holds no finished run: it has no {CARD_FILE}.")
    return load_card(name), data_folder("model_zoo") / "history" / f"{name}.csv"


def _recipe(card: ModelCard) -> Recipe:
    """Return the recipe that the card holds."""
    recipe = (card.training or {}).get("recipe")
    if not isinstance(recipe, dict):
        raise RecipeError(f"the card of {card.name} records no training by a recipe; nothing can be trained again.")
    return without_own_code(parse_recipe(recipe, f"in the card of {card.name}"), f"the card of {card.name}")


def _read_history(path: Path, epochs: int) -> list[dict[str, Any]]:
    """Read a history's first epochs, the judged columns; None where an epoch has no held-out errors."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = [{k: row[k] for k in JUDGED} for row in csv.DictReader(stream)]
        if not 1 <= epochs <= len(rows):
            raise RecipeError(f"--epochs {epochs}: {path} has {len(rows)} recorded epochs.")
        found = [{k: float(v) if v or k in _ALWAYS else None for k, v in row.items()} for row in rows[:epochs]]
        if not all(v is None or math.isfinite(v) for row in found for v in row.values()):
            raise ValueError("a number is not finite")
    except KeyError as error:
        raise RecipeError(f"{path} is no history: it has no column {error}.") from error
    except (OSError, ValueError, TypeError) as error:
        raise RecipeError(f"no recorded history to compare with: {path} ({first_line(error)})") from error
    return found


def _check_elsewhere(out: Path, recorded: Path) -> None:
    """Refuse a folder in which epochs lie that were not trained again."""
    inside = recorded.resolve() in (out.resolve(), *out.resolve().parents)
    if inside or (out / CARD_FILE).exists():
        what = "lies in the run that is trained again" if inside else "holds a finished run"
        raise RecipeError(f"--out {out} {what}; choose a new folder.")


def _hardware(name: str, facts: dict[str, Any], device: str) -> Hardware:
    processes, compiled = facts.get("processes", 1), facts.get("compiled", False)
    if type(processes) is not int or processes < 1 or type(compiled) is not bool:
        raise RecipeError(f"the card of {name}: training.processes is a number, and training.compiled true or false.")
    return Hardware(device, processes, compile=compiled)


def _unsaid(recipe: Recipe, facts: dict[str, Any]) -> list[str]:
    """Say what could not be compared because the card does not say it."""
    kinds = {"data_sha256": "on what data", **({} if recipe.start is None else {"start_sha256": "from what weights"})}
    return [
        f"the card does not say {what} it was trained; not compared"
        for key, what in kinds.items()
        if not facts.get(key)
    ]


def _check_same(name: str, recorded: dict[str, Any], found: dict[str, Any], of_what: dict[str, str]) -> None:
    for key, what in of_what.items():
        if recorded.get(key) not in (None, found[key]):
            raise RecipeError(f"{name} had other {what}: its card has {key} {recorded[key]}, and this is {found[key]}.")


def _differs(facts: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
    """Say which hardware and versions are not the recorded ones: other kernels round differently, and that grows."""
    found = []
    for part in ("hardware", "versions"):
        old, new = facts.get(part), now[part]
        if isinstance(old, dict):
            differing = [key for key in new if key in old and old[key] != new[key]]
            found += [f"{key} {new[key]}, and {old[key]} when it was recorded" for key in differing]
    return tuple(found)
