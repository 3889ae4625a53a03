"""``sun2023`` (Balance Adversarial Training): its tables, its observations on them, and its Figure 4."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pandas as pd

from fairbench.leaderboard.results import published_folder
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import Claim, Group, Paper, Row
from fairbench.reports.published import METRICS, PublishedTable
from fairbench.reports.readings import ATTACK, average, point_change, row_of, worst_class

RADIUS = "8/255"

PGD_AT, BAT = "pgd_at_resnet18", "bat_resnet18"
TRADES1, TRADES6 = "trades1_resnet18", "trades6_resnet18"
FRL005, FRL007 = "frl005_resnet18", "frl007_resnet18"
FAT, GAIRAT = "fat_resnet18", "gairat_resnet18"

ROWS = {
    "PGD-AT": PGD_AT,
    "TRADES(1/λ=1)": TRADES1,
    "TRADES(1/λ=6)": TRADES6,
    "FRL(Reweight+Remargin, 0.05)": FRL005,
    "FRL(Reweight+Remargin, 0.07)": FRL007,
    "BAT": BAT,
    "FAT": FAT,
    "GAIRAT": GAIRAT,
}
"""The model that stands for a method on CIFAR-10."""

_FROM = "sun2023 (Balance Adversarial Training, AAAI 2023)"
_HOW = "errors in percent, PGD-20 at 8/255, lower is better"

TABLE_1 = PublishedTable(
    "sun2023-1",
    f"{_FROM}, Table 1: ResNet-18; {_HOW}",
    "sun2023_table1.csv",
    ("method",),
    {("CIFAR-10", method): model for method, model in ROWS.items()},
)
TABLE_2 = PublishedTable(
    "sun2023-2",
    f"{_FROM}, Table 2: ablation of BAT, ResNet-18 on CIFAR-10; {_HOW}",
    "sun2023_table2.csv",
    ("row", "source_class_loss", "target_class_loss"),
    {("", "5, boundary pair, last clean + first adversarial"): BAT},
)
TABLE_3 = PublishedTable(
    "sun2023-3",
    f"{_FROM}, Table 3: FAT and GAIRAT, ResNet-18 on CIFAR-10; {_HOW}",
    "sun2023_table3.csv",
    ("method",),
    {("CIFAR-10", method): model for method, model in ROWS.items()},
)


def measure(results: Mapping[str, Outcomes]) -> tuple[Claim, ...]:
    """Measure the paper's observations on its Tables 1 and 3 with the results there are.

    Raises
    ------
    OutcomesError
        Results that are compared are not of the same images.
    """
    return (_gains(results), _frl(results), _trades(results), _balance(results))


def _gains(results: Mapping[str, Outcomes]) -> Claim:
    others = [name for name in ROWS if name != "BAT"]
    groups = [_group(results, name, "BAT", ["worst_std", "worst_bndy", "worst_rob"]) for name in others]
    return Claim(
        1,
        "BAT lowers the errors of the worst class",
        "The paper: the least worst-class errors of all methods, by some 6, 10 and 10 points against PGD-AT and 1.3, "
        "6.8 and 8.1 on average against FRL (observation 1; FAT and GAIRAT: Table 3).",
        tuple(groups),
        _NOTE,
    )


def _frl(results: Mapping[str, Outcomes]) -> Claim:
    metrics = ["worst_std", "worst_bndy", "worst_rob", "avg_std", "avg_rob"]
    groups = [_group(results, "PGD-AT", name, metrics, above={"avg_std", "avg_rob"}) for name in (_FRL5, _FRL7)]
    return Claim(
        2,
        "FRL pays for the worst class with the average",
        "The paper: FRL lowers the worst-class errors and raises the average standard and robust error (observation "
        "2). Its text has the average robust error of FRL 0.07 rise by 1.64; its table has it fall by 1.64, from 52.90 "
        "to 51.26. The claim is taken as the text has it.",
        tuple(groups),
        _NOTE,
    )


def _trades(results: Mapping[str, Outcomes]) -> Claim:
    metrics = ["avg_std", "worst_std", "avg_rob", "worst_rob"]
    group = _group(results, "TRADES(1/λ=1)", "TRADES(1/λ=6)", metrics, above={"avg_std", "worst_std"})
    return Claim(
        3,
        "TRADES with 1/λ = 6 buys robustness with standard error",
        "The paper: 1/λ = 1 is for standard accuracy, 6 for robustness (observation 3, Table 1).",
        (group,),
        _NOTE,
    )


def _balance(results: Mapping[str, Outcomes]) -> Claim:
    group = _group(results, "TRADES(1/λ=1)", "BAT", ["avg_std", "avg_rob", "worst_rob"], above={"avg_std"})
    return Claim(
        4,
        "BAT keeps nearly the standard error of TRADES 1, and is more robust",
        "The paper: the average standard error is 0.09 points higher, the robust error 8.42 lower (observation 3). By "
        "its table it is 7.25 lower; 8.42 is the distance to PGD-AT.",
        (group,),
        _NOTE,
    )


_FRL5, _FRL7 = "FRL(Reweight+Remargin, 0.05)", "FRL(Reweight+Remargin, 0.07)"
_NOTE = (
    "Values are errors in percent, from the first to the second model, and the difference in points. The worst class "
    "is each model's own; its interval is the paired bootstrap's. An average has McNemar's exact test beside it."
)
_QUANTITY = {"avg": average, "worst": worst_class}


def _group(
    results: Mapping[str, Outcomes], before: str, after: str, metrics: list[str], above: set[str] | None = None
) -> Group:
    """Compare two methods by some metrics, all claimed to fall but those in ``above``."""
    models = ROWS[before], ROWS[after]
    printed = _printed()
    row = partial(row_of, results, {RADIUS: [f"{model}.standard" for model in models]})
    rows: list[Row] = []
    for metric in metrics:
        quantity, _, rate = metric.partition("_")
        start, end = (float(printed[metric][method]) for method in (before, after))
        take = point_change(_QUANTITY[quantity], rate, above=metric in (above or ()))
        rows.append(row(METRICS[metric], f"{start:.2f} to {end:.2f}: {end - start:+.2f}", take))
    return Group(f"{after} against {before}", models, tuple(rows))


def _printed() -> pd.DataFrame:
    """Return the rows of Tables 1 and 3 for CIFAR-10, by method."""
    files = [pd.read_csv(published_folder() / table.file) for table in (TABLE_1, TABLE_3)]
    rows = pd.concat(files)
    return rows[rows["dataset"] == "CIFAR-10"].set_index("method")


def _draw(results: Mapping[str, Outcomes], folder: Path) -> list[Path]:
    """Draw Figure 4: class errors of PGD-AT, TRADES 6 and BAT."""
    from fairbench.files import make_folder
    from fairbench.metrics import summarize
    from fairbench.reports.figures import class_panels

    panels = {"PGD-AT": PGD_AT, "TRADES, 1/λ = 6": TRADES6, "BAT": BAT}
    if not all(f"{model}.standard" in results for model in panels.values()):
        return []
    path = make_folder(folder) / "sun2023_4.png"
    summaries = [(title, summarize(results[f"{m}.standard"]).attacks[ATTACK]) for title, m in panels.items()]
    class_panels(summaries, path, epsilon=RADIUS)
    return [path]


PAPER = Paper(
    key="sun2023",
    title="Balance Adversarial Training: the observations on Tables 1 and 3, ResNet-18 on CIFAR-10",
    results=tuple(f"{model}.standard" for model in ROWS.values()),
    radii=(RADIUS,),
    measure=measure,
    draw=_draw,
)
