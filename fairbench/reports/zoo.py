"""The zoo's models side by side, from their kept results."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path

from fairbench.errors import OutcomesError
from fairbench.leaderboard.misled import found_more_of
from fairbench.leaderboard.results import read_result, result_names
from fairbench.metrics import AttackSummary, summarize
from fairbench.metrics.misled import LIMIT, NAMES
from fairbench.outcomes import Outcomes
from fairbench.reports.board_text import MISLED
from fairbench.reports.figures import class_panels
from fairbench.reports.models import average_cell, worst_cell
from fairbench.reports.text_tables import tabulated
from fairbench.reports.values import fraction

_PGD = ("standard", "sooksatra2022", "quick")
"""Protocols with PGD-20: on the whole test split of images, and of features, and on a sample; the first is shown."""
_WITH_CW20 = ("pgd20-cw20", "cw20")
_BESIDE = {
    "cw20": tuple(f".{protocol}.attacks-{a}" for protocol in ("standard", "quick") for a in _WITH_CW20),
    "autoattack": (".leaderboard", ".quick.attacks-pgd20-autoattack", ".sooksatra2022.attacks-pgd20-autoattack"),
}
"""Attacks beside PGD-20, and results with them, on the whole test split first; the first there is, is shown."""
_NOTE_MISLED = (
    f"{MISLED}: another attack breaks over {LIMIT:g} points more of the same examples than PGD-20, "
    "whose figures mislead."
)
_HEADER = ("model", "images", "avg std", "worst std", "avg bndy", "avg rob", "worst rob", "CAU")


def zoo_table(dataset: str, folder: Path | None = None) -> str:
    """Return a Markdown table of the models with a result under PGD-20, least worst-class error first.

    Models measured on fewer classes than others are left out. Errors in percent with 95 % intervals. Those of a sample
    come after those of the whole test split, and the column "images" is there if there are any. CW-20 and AutoAttack
    have columns where they were run on a model, and their own number of images. Models that they break much more of are
    marked, and come after the others.

    Raises
    ------
    OutcomesError
        A result is damaged.
    """
    names = result_names(folder)
    rows: list[tuple[bool, bool, float, list[str]]] = []
    kept = _of_all_classes(dataset, names, folder)
    for model, (name, outcomes) in kept.items():
        found, more = summarize(outcomes).attacks["pgd20"], found_more_of(outcomes, folder)
        misled = more is not None and more.misled
        cells = [f"`{model}`{f' {MISLED}' if misled else ''}", f"{found.n:,}", *_cells(found)]
        cells += [cell for attack in _BESIDE for cell in _beside(model, attack, names, folder)]
        rows.append((name == f"{model}.{_PGD[-1]}", misled, found.worst_rob, cells))
    if not rows:
        return ""
    header = [*_HEADER, *(f"{what} ({NAMES[one]})" for one in _BESIDE for what in ("avg rob", "worst rob", "images"))]
    shown = [True, any(sample for sample, *_ in rows), *[True] * 6]
    shown += [any(row[start + 2] for *_, row in rows) for start in range(8, len(header), 3) for _ in range(3)]
    cells_shown = [[*compress(row, shown)] for *_, row in sorted(rows)]
    table = tabulated(cells_shown, [*compress(header, shown)], "github", "left")
    return f"{table}\n\n{_NOTE_MISLED}" if any(misled for _, misled, *_ in rows) else table


def _of_all_classes(dataset: str, names: Sequence[str], folder: Path | None) -> dict[str, tuple[str, Outcomes]]:
    """Return each model's result under PGD-20; one on fewer classes than others is of an easier task, and left out."""
    found = {}
    for model in sorted({name.partition(".")[0] for name in names}):
        name = next((f"{model}.{kind}" for kind in _PGD if f"{model}.{kind}" in names), None)
        if name is not None and (outcomes := read_result(name, folder)).manifest["dataset"]["name"] == dataset:
            found[model] = name, outcomes
    most = max((len(outcomes.classes) for _, outcomes in found.values()), default=0)
    return {model: (name, outcomes) for model, (name, outcomes) in found.items() if len(outcomes.classes) == most}


def draw_models(models: Sequence[str], path: Path, folder: Path | None = None) -> None:
    """Draw the class errors of models side by side, PGD-20 at 8/255 on the whole test split.

    Raises
    ------
    OutcomesError
        A model has no ``standard`` result, its classes are others', or the file cannot be written.
    """
    panels = []
    for model in models:
        found = read_result(f"{model}.standard", folder)
        panels.append((model, summarize(found).attacks["pgd20"]))
        if list(found.classes) != list(panels[0][1].classes["class"]):
            raise OutcomesError(f"{model} and {models[0]} have other classes; they do not go in one figure.")
    class_panels(panels, path, epsilon="8/255")


def _cells(found: AttackSummary) -> list[str]:
    cells = [average_cell(found, "avg_std"), worst_cell(found, "worst_std"), average_cell(found, "avg_bndy")]
    cells += [average_cell(found, "avg_rob"), worst_cell(found, "worst_rob")]
    return [*cells, fraction(found.cau, found.intervals["cau"])]


def _beside(model: str, attack: str, names: Sequence[str], folder: Path | None) -> list[str]:
    """Return a model's robust errors under another attack, and on how many images; the last is empty of none."""
    name = next((model + kind for kind in _BESIDE[attack] if model + kind in names), None)
    if name is None:
        return ["not measured", "not measured", ""]
    found = summarize(read_result(name, folder)).attacks[attack]
    return [average_cell(found, "avg_rob"), worst_cell(found, "worst_rob"), f"{found.n:,}"]
