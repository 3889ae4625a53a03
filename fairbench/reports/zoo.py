"""The zoo's models side by side, from their kept results."""

from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from fairbench.errors import OutcomesError
from fairbench.leaderboard.results import read_result, result_names
from fairbench.metrics import AttackSummary, summarize
from fairbench.reports.figures import class_panels
from fairbench.reports.models import average_cell, worst_cell

_WHOLE = ("standard", "sooksatra2022")
"""Protocols that attack the whole test split by PGD-20: of images, and of features."""
_AUTOATTACK = (".leaderboard", ".quick.attacks-pgd20-autoattack")
"""Results with AutoAttack, on the whole test split and on the sample; the first that is there is shown."""
_HEADER = (
    "model",
    "avg std",
    "worst std",
    "avg bndy",
    "avg rob",
    "worst rob",
    "CAU",
    "avg rob (AutoAttack)",
    "worst rob (AutoAttack)",
    "images (AutoAttack)",
)


def zoo_table(dataset: str, folder: Path | None = None) -> str:
    """Return a Markdown table of the models with a result on a whole test split, least worst-class error first.

    Errors in percent with 95 % intervals: PGD-20 on the whole test split, AutoAttack on as many images as the last
    column says, the whole split or the sample; PGD-20 alone where AutoAttack was run on none.

    Raises
    ------
    OutcomesError
        A result is damaged.
    """
    names = result_names(folder)
    rows = []
    for name in names:
        model, _, rest = name.partition(".")
        if rest not in _WHOLE:
            continue
        outcomes = read_result(name, folder)
        if outcomes.manifest["dataset"]["name"] != dataset:
            continue
        found = summarize(outcomes).attacks["pgd20"]
        stronger = next((model + kind for kind in _AUTOATTACK if model + kind in names), None)
        strong = None if stronger is None else summarize(read_result(stronger, folder)).attacks["autoattack"]
        rows.append((found.worst_rob, _row(model, found, strong), strong is not None))
    if not rows:
        return ""
    shown = len(_HEADER) if any(strong for *_, strong in rows) else _HEADER.index("avg rob (AutoAttack)")
    cells = [row[:shown] for _, row, _ in sorted(rows)]
    return tabulate(cells, _HEADER[:shown], tablefmt="github", disable_numparse=True)


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


def _row(model: str, found: AttackSummary, strong: AttackSummary | None) -> list[str]:
    cells = [average_cell(found, "avg_std"), worst_cell(found, "worst_std"), average_cell(found, "avg_bndy")]
    cells += [average_cell(found, "avg_rob"), worst_cell(found, "worst_rob"), f"{found.cau:.2f}"]
    if strong is None:
        return [f"`{model}`", *cells, "not measured", "not measured", ""]
    return [f"`{model}`", *cells, average_cell(strong, "avg_rob"), worst_cell(strong, "worst_rob"), f"{strong.n:,}"]
