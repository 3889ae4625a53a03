"""``sun2023`` (Balance Adversarial Training): its tables, its observations on them, and its Figure 4."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import pandas as pd

from fairbench.leaderboard.results import published_folder
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import Claim, Group, Paper, Row
from fairbench.reports.figures import method_bars
from fairbench.reports.paper_figure import PaperFigure
from fairbench.reports.published import METRICS, error_table
from fairbench.reports.readings import average, point_change, row_of, worst_class

RADIUS = "8/255"

METHODS = {
    "PGD-AT": "pgd_at",
    "TRADES(1/λ=1)": "trades1",
    "TRADES(1/λ=6)": "trades6",
    "FRL(Reweight+Remargin, 0.05)": "frl005",
    "FRL(Reweight+Remargin, 0.07)": "frl007",
    "BAT": "bat",
    "FAT": "fat",
    "GAIRAT": "gairat",
}
"""How a model of the zoo that is trained by a method begins."""

CIFAR10, FASHION = "CIFAR-10", "Fashion-MNIST"
NETWORKS = {
    CIFAR10: "resnet18",
    "CIFAR-100": "resnet18_cifar100",
    "Imagenette": "resnet18_imagenette",
    FASHION: "lenet5_fashion_mnist",
}
"""How it ends on a dataset. Fashion-MNIST is not in the paper."""

ROWS = {method: f"{start}_{NETWORKS[CIFAR10]}" for method, start in METHODS.items()}
"""The model that stands for a method on CIFAR-10."""

PGD_AT, BAT = ROWS["PGD-AT"], ROWS["BAT"]
TRADES1, TRADES6 = ROWS["TRADES(1/λ=1)"], ROWS["TRADES(1/λ=6)"]

_FROM = "sun2023 (Balance Adversarial Training, AAAI 2023)"
_HOW = "errors in percent, PGD-20 at 8/255, lower is better"
_OF_TABLE_3 = ("FAT", "GAIRAT")


def models_on(dataset: str) -> dict[str, str]:
    """Return the model that stands for each method on a dataset of :data:`NETWORKS`.

    Examples
    --------
    >>> models_on("CIFAR-10")["BAT"], models_on("Fashion-MNIST")["BAT"]
    ('bat_resnet18', 'bat_lenet5_fashion_mnist')
    """
    return {method: f"{start}_{NETWORKS[dataset]}" for method, start in METHODS.items()}


def _models(datasets: Iterable[str], methods: Iterable[str]) -> dict[tuple[str, ...], str]:
    return {(dataset, method): models_on(dataset)[method] for dataset in datasets for method in methods}


def _beyond(number: int) -> str:
    """Return the title of the rows that a table has not."""
    return f"Measured here, on {FASHION}, which the paper has not: methods of {_FROM}, Table {number}; LeNet-5; {_HOW}"


TABLE_1 = error_table(
    "sun2023-1",
    f"{_FROM}, Table 1",
    f"ResNet-18; {_HOW}",
    beyond=_beyond(1),
    file="sun2023_table1.csv",
    labels=("dataset", "method"),
    models=_models(NETWORKS, [method for method in METHODS if method not in _OF_TABLE_3]),
)
TABLE_2 = error_table(
    "sun2023-2",
    f"{_FROM}, Table 2",
    f"ablation of BAT, ResNet-18 on CIFAR-10; {_HOW}",
    file="sun2023_table2.csv",
    labels=("row", "source_class_loss", "target_class_loss"),
    models={
        ("1", "boundary pair", "none"): "bat_table2_row1_resnet18",
        ("2", "boundary pair", "last clean"): "bat_table2_row2_resnet18",
        ("3", "boundary pair", "first adversarial"): "bat_table2_row3_resnet18",
        ("4", "boundary pair", "10-step adversarial"): "bat_table2_row4_resnet18",
        ("5", "boundary pair", "last clean + first adversarial"): BAT,
        ("6", "clean + 10-step adversarial", "last clean + first adversarial"): "bat_table2_row6_resnet18",
    },
)
TABLE_3 = error_table(
    "sun2023-3",
    f"{_FROM}, Table 3",
    f"FAT and GAIRAT, ResNet-18 on CIFAR-10; {_HOW}",
    beyond=_beyond(3),
    file="sun2023_table3.csv",
    labels=("dataset", "method"),
    models=_models((CIFAR10, FASHION), _OF_TABLE_3),
)
TABLE_4 = error_table(
    "sun2023-4",
    f"{_FROM}, Table 4",
    f"PGD-AT without the classes that are worst or best otherwise, ResNet-18 on CIFAR-10; {_HOW}",
    file="sun2023_table4.csv",
    labels=("dataset", "method", "dropped_classes"),
    models={
        (CIFAR10, "PGD-AT", "2,3,4,5"): "pgd_at_resnet18_without2345",
        (CIFAR10, "PGD-AT", "1,6,8,9"): "pgd_at_resnet18_without1689",
    },
)


def measure(results: Mapping[str, Outcomes], dataset: str = CIFAR10) -> tuple[Claim, ...]:
    """Measure the paper's observations on its Tables 1 and 3 with the results there are.

    On a dataset that the paper has not, what it prints for CIFAR-10 stands beside.

    Raises
    ------
    OutcomesError
        Results that are compared are not of the same images.
    """
    group = partial(_group, results, dataset)
    return (_gains(group), _frl(group), _averages(group), _over_trades(group), _balance(group), _trades(group))


Compare = Callable[..., Group]
"""Two methods and what is compared, of :func:`_group`."""

_WORST, _AVERAGE = ["worst_std", "worst_bndy", "worst_rob"], ["avg_std", "avg_bndy", "avg_rob"]

NEARLY = 1.0
"""A rise of an average error below this counts as "nearly the same", in points: the paper calls 0.09 slight."""


def _gains(group: Compare) -> Claim:
    others = [name for name in ROWS if name != "BAT"]
    return Claim(
        1,
        "BAT lowers the errors of the worst class",
        "The paper: the least worst-class errors of all methods, on CIFAR-10 by some 6, 10 and 10 points against "
        "PGD-AT and 1.3, 6.8 and 8.1 on average against FRL (observation 1; FAT and GAIRAT: Table 3).",
        tuple(group(name, "BAT", _WORST) for name in others),
        _NOTE,
    )


def _frl(group: Compare) -> Claim:
    both = (_FRL5, _FRL7)
    against_at = [group("PGD-AT", name, [*_WORST, "avg_std", "avg_rob"], above={"avg_std", "avg_rob"}) for name in both]
    against_trades = [group(trades, name, _WORST) for trades in (_TRADES1, _TRADES6) for name in both]
    return Claim(
        2,
        "FRL pays for the worst class with the average",
        "The paper: FRL lowers the worst-class errors, against PGD-AT and TRADES, and raises the average standard and "
        "robust error (observation 2). Its text has the average robust error of FRL 0.07 rise by 1.64 on CIFAR-10; its "
        "table has it fall by 1.64, from 52.90 to 51.26. The claim is taken as the text has it.",
        (*against_at, *against_trades),
        _NOTE,
    )


def _averages(group: Compare) -> Claim:
    others = [name for name in ROWS if name != "BAT" and name not in _OF_TABLE_3]
    return Claim(
        3,
        "BAT has the best averages too",
        "The paper: BAT has the best average errors in almost all cases, and avoids FRL's drawback (observation 2).",
        tuple(group(name, "BAT", _AVERAGE) for name in others),
        _NOTE,
    )


def _over_trades(group: Compare) -> Claim:
    return Claim(
        4,
        "BAT is better than TRADES with 1/λ = 6 on all metrics",
        "The paper says so (observation 3).",
        (group(_TRADES6, "BAT", [*_AVERAGE, *_WORST]),),
        _NOTE,
    )


def _balance(group: Compare) -> Claim:
    nearly = f"{METRICS['avg_std']}, higher by less than {NEARLY:g}"
    return Claim(
        5,
        "BAT keeps nearly the standard error of TRADES 1, and is more robust",
        "The paper: on CIFAR-10 the average standard error is 0.09 points higher, which it calls slight, and the "
        "robust error 8.42 lower (observation 3). By its table it is 7.25 lower; 8.42 is the distance to PGD-AT.",
        (group(_TRADES1, "BAT", ["avg_std", "avg_rob", "worst_rob"], below={"avg_std": (NEARLY, nearly)}),),
        f"{_NOTE} The {NEARLY:g} point is ours.",
    )


def _trades(group: Compare) -> Claim:
    metrics = ["avg_std", "worst_std", "avg_rob", "worst_rob"]
    return Claim(
        6,
        "TRADES with 1/λ = 6 buys robustness with standard error",
        "Read off Table 1, which has both; the text does not compare them.",
        (group(_TRADES1, _TRADES6, metrics, above={"avg_std", "worst_std"}),),
        _NOTE,
    )


_TRADES1, _TRADES6 = "TRADES(1/λ=1)", "TRADES(1/λ=6)"
_FRL5, _FRL7 = "FRL(Reweight+Remargin, 0.05)", "FRL(Reweight+Remargin, 0.07)"
_NOTE = (
    "Values are errors in percent, from the first to the second model, and the difference in points. The worst class "
    "is each model's own; its interval is the paired bootstrap's. An average has McNemar's exact test beside it."
)
_QUANTITY = {"avg": average, "worst": worst_class}


def _group(
    results: Mapping[str, Outcomes],
    dataset: str,
    before: str,
    after: str,
    metrics: list[str],
    *,
    above: set[str] | None = None,
    below: Mapping[str, tuple[float, str]] | None = None,
) -> Group:
    """Compare two methods by some metrics, all claimed to fall but those in ``above``.

    Those in ``below`` are claimed to rise by less than so many points; the text names the row.
    """
    models = models_on(dataset)[before], models_on(dataset)[after]
    printed = _printed(dataset)
    row = partial(row_of, results, {RADIUS: [f"{model}.standard" for model in models]})
    rows: list[Row] = []
    for metric in metrics:
        quantity, _, rate = metric.partition("_")
        report = ""
        if before in printed.index and after in printed.index:
            start, end = (float(printed[metric][method]) for method in (before, after))
            report = f"{start:.2f} to {end:.2f}: {end - start:+.2f}"
            claimed_to_rise = metric in (above or ()) or metric in (below or {})
            if (end > start) != claimed_to_rise:
                report += f" (claimed: {'higher' if claimed_to_rise else 'lower'})"
        boundary, name = (below or {}).get(metric, (0.0, METRICS[metric]))
        take = point_change(_QUANTITY[quantity], rate, above=metric in (above or ()), boundary=boundary)
        rows.append(row(name, report, take))
    return Group(f"{after} against {before}", models, tuple(rows))


def _printed(dataset: str) -> pd.DataFrame:
    """Return the rows of Tables 1 and 3 by method; of CIFAR-10 for a dataset that the paper has not."""
    files = [pd.read_csv(published_folder() / f"sun2023_table{number}.csv") for number in (1, 3)]
    rows = pd.concat(files)
    of = dataset if dataset in set(rows["dataset"]) else CIFAR10
    return rows[rows["dataset"] == of].set_index("method")


FIGURE_4 = PaperFigure(
    "sun2023-4",
    f"{_FROM}, Figure 4: errors of each class, PGD-AT, TRADES 1/λ = 6 and BAT",
    {
        dataset: {method: f"{models_on(dataset)[method]}.standard" for method in ("PGD-AT", "TRADES(1/λ=6)", "BAT")}
        for dataset in NETWORKS
    },
    partial(method_bars, epsilon=RADIUS),
)


def _draw(results: Mapping[str, Outcomes], folder: Path, dataset: str = CIFAR10) -> list[Path]:
    """Draw Figure 4."""
    from fairbench.files import make_folder

    if FIGURE_4.missing(results, dataset):
        return []
    path = make_folder(folder) / "sun2023_4.png"
    FIGURE_4.draw(results, path, dataset)
    return [path]


def paper_on(dataset: str) -> Paper:
    """Return the paper's observations, measured on a dataset of :data:`NETWORKS`."""
    network = "LeNet-5" if dataset == FASHION else "ResNet-18"
    beside = "" if dataset != FASHION else ", beside what the paper prints for CIFAR-10"
    return Paper(
        key="sun2023",
        title=f"Balance Adversarial Training: the observations on Tables 1 and 3, {network} on {dataset}{beside}",
        results=tuple(f"{model}.standard" for model in models_on(dataset).values()),
        radii=(RADIUS,),
        measure=partial(measure, dataset=dataset),
        draw=partial(_draw, dataset=dataset),
    )


PAPER = paper_on(CIFAR10)
