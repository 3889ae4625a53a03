"""Two models side by side: found by name or path, printed, and drawn."""

import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from fairbench.errors import OutcomesError
from fairbench.files import make_folder, replacing, user_path, write_json
from fairbench.leaderboard.results import read_result, read_result_file, result_names
from fairbench.metrics.comparison import Comparison, same_attack
from fairbench.metrics.paired import Estimate
from fairbench.outcomes import Outcomes
from fairbench.outcomes.schema import is_search
from fairbench.outcomes.table import MANIFEST, read_table
from fairbench.registry import suggest
from fairbench.reports.board_text import BF16
from fairbench.reports.drawing import figure_file
from fairbench.reports.tables import precision_text, with_ties
from fairbench.reports.text_tables import stacked, tabulated
from fairbench.reports.values import epsilon_text, rate, signed

ATTACKS = ("autoattack", "pgd20")
_PREFERRED = ("leaderboard", "standard")
_NAMES = {"std": "standard error", "rob": "robust error"}


def find_both(a: str, b: str, attack: str | None) -> tuple[Outcomes, Outcomes, str]:
    """Return two outcome tables and the attack they are compared under.

    Parameters
    ----------
    a, b
        A model with kept results, a kept result (``MODEL.standard``), the folder of a run or submission, or its
        ``outcomes.parquet``.
    attack
        Column of the tables; None for the first of AutoAttack, PGD-20 and what else attacks at one radius that both
        have. More examples come first.

    Raises
    ------
    OutcomesError
        There is no such thing, or no attack that both were measured with.
    """
    found_a, found_b = _candidates(a), _candidates(b)
    others = [one for found in found_a for one in found.attacks if one not in ATTACKS and not is_search(one)]
    wanted = (attack,) if attack is not None else (*ATTACKS, *dict.fromkeys(others))
    shared = [
        (first, second, one)
        for one in wanted
        for first, second in product(found_a, found_b)
        if one in first.attacks and one in second.attacks
    ]
    both = [found for found in shared if _same_terms(*found)]
    if both:
        preferred = [found for found in both if found[2] in ATTACKS]
        return max(preferred or both, key=lambda found: len(found[0]))
    differing = next((change for found in shared if (change := _other_terms(*found))), "")
    has = "; ".join(f"{name} has {_described(found)}" for name, found in ((a, found_a), (b, found_b)))
    raise OutcomesError(
        f"{a} and {b} were not measured on the same examples by the same {attack or 'attack'}: {has}.{differing}"
    )


def _described(candidates: list[Outcomes]) -> str:
    """Say what there is of one side: number of examples, data, attacks."""
    said = [
        f"{len(found):,} of {found.manifest['dataset'].get('name', 'data')} ({', '.join(found.attacks) or 'no attack'})"
        for found in candidates
    ]
    return ", ".join(dict.fromkeys(said))


def _other_terms(a: Outcomes, b: Outcomes, attack: str) -> str:
    """Say in what the attacks of one name differ, if they do."""
    first, second = (outcomes.manifest.get("attacks", {}).get(attack, {}) for outcomes in (a, b))
    keys = [key for key in {**first, **second} if key != "seed" and first.get(key) != second.get(key)]
    return f" Their {attack} differ in {', '.join(keys)}." if keys else ""


def _same_terms(a: Outcomes, b: Outcomes, attack: str) -> bool:
    """Whether two tables can be compared: the same examples, and the same attack, made for the model or for another."""
    return same_attack(a, b, attack) and a.classes == b.classes and a.frame["index"].equals(b.frame["index"])


def _candidates(text: str) -> list[Outcomes]:
    """Return what a name or path stands for, results on the whole test split first."""
    path = user_path(text)
    if path.is_dir():
        return [Outcomes.read(path)]
    if path.suffix == ".parquet" and path.is_file():
        if (path.parent / MANIFEST).is_file():
            return [Outcomes.read(path.parent)]
        if path.with_suffix(".json").is_file():
            return [_beside(path)]
        read_table(path)  # says what is wrong with it, if that is it
        raise OutcomesError(f"{path}: beside the table is no {MANIFEST} that says what it is of.")
    names = result_names()
    if text in names:
        return [read_result(text)]
    own = [name for name in names if name.startswith(f"{text}.")]
    if not own:
        models = sorted({name.partition(".")[0] for name in names})
        near = suggest(text, models, "fairbench models")
        if path.is_file():
            near = f" Evaluate it first: fairbench evaluate --model {text} --out DIR, and compare DIR."
        raise OutcomesError(f"no kept result, run folder or table '{text}'.{near}")
    return [read_result(name) for name in sorted(own, key=_preference)]


def _beside(table: Path) -> Outcomes:
    """Read a table with the JSON file of its name: a kept result, or the manifest that the board's pages put there."""
    path = table.with_suffix(".json")
    try:
        is_result = "manifest" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise OutcomesError(f"{path} cannot be read ({error}).") from error
    return read_result_file(path) if is_result else Outcomes.read_files(table, path)


def _preference(name: str) -> tuple[int, str]:
    protocol = name.partition(".")[2]
    return (_PREFERRED.index(protocol) if protocol in _PREFERRED else len(_PREFERRED), name)


def as_table(found: Comparison, names: tuple[str, str], tablefmt: str) -> str:
    """Return the comparison as text: averages and worst classes, then every class."""
    a, b = names
    radius = "" if found.epsilon is None else f" at {epsilon_text(found.epsilon)}"
    lines = [f"{b} minus {a}, {found.attack}{radius}, {found.n:,} examples; below 0 the second errs less"]
    lines += [
        f"{name}: attacked with gradients in {precision_text(precision)}; the verdicts are float32's"
        for name, precision in zip((a, b), found.precisions, strict=True)
        if precision != "float32"
    ]
    if found.shapes is not None:
        first, second = ("x".join(map(str, shape)) for shape in found.shapes)
        lines.append(f"the same examples at two sizes, as each model takes them: {a} {first}, {b} {second}")
    lines.append("")
    rows = []
    for error, name in _NAMES.items():
        average, worst = found.average[error], found.worst[error]
        test = f"McNemar p {_p(average.p)}"
        rows.append(
            [
                f"average {name}",
                rate(average.a),
                rate(average.b),
                signed(Estimate(average.difference, average.interval), 2),
                test,
            ]
        )
        errors = found.classes[found.classes["error"] == error]
        cells = [
            f"{rate(worst.a)} {with_ties(worst.class_a, errors['a'], worst.a)}",
            f"{rate(worst.b)} {with_ties(worst.class_b, errors['b'], worst.b)}",
        ]
        rows.append([f"worst {name}", *cells, signed(worst.difference, 2), "bootstrap"])
    for name, estimate, digits in (("CAU", found.cau, 3), ("CRU_s", found.cru_s, 2), ("CRU_eps", found.cru_eps, 4)):
        if estimate is not None:
            rows.append([name, "", "", signed(estimate, digits), "bootstrap"])
    lines.append(_tabulate(rows, ["", a, b, "difference [95 % interval]", "test"], tablefmt))
    for error, name in _NAMES.items():
        header = [name, "n", a, b, "difference [95 % interval]", "only the first / second wrong", "p", "p (Holm)"]
        rows = [
            [
                *(row["class"], str(row["n"]), rate(row["a"]), rate(row["b"])),
                *(
                    signed(Estimate(row["difference"], (row["low"], row["high"])), 2),
                    f"{row['only_a']} / {row['only_b']}",
                ),
                *(_p(row["p"]), _p(row["p_holm"])),
            ]
            for row in found.classes[found.classes["error"] == error].to_dict("records")
        ]
        lines += ["", _tabulate(rows, header, tablefmt)]
    return "\n".join(lines)


def to_dict(found: Comparison, names: tuple[str, str], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return plain data; what was not measured is None."""
    plain: dict[str, Any] = json.loads(
        json.dumps({"a": names[0], "b": names[1], **found.to_dict(), "notes": [*notes]}), parse_constant=_none
    )
    return plain


def keep(found: Comparison, names: tuple[str, str], folder: Path, notes: Sequence[str] = ()) -> list[Path]:
    """Write ``comparison.json``, ``comparison.md`` and ``comparison.png`` into a folder and return their paths.

    ``notes`` is what else is known of the models, in sentences.

    Raises
    ------
    OutcomesError
        It cannot be written.
    """
    make_folder(folder)
    paths = [folder / f"comparison.{suffix}" for suffix in ("json", "md", "png")]
    write_json(to_dict(found, names, notes), paths[0])
    with replacing(paths[1]) as temporary:
        temporary.write_text("\n\n".join([as_table(found, names, "github"), *notes]) + "\n", encoding="utf-8")
    draw(found, names, paths[2])
    return paths


def draw(found: Comparison, names: tuple[str, str], path: Path) -> None:
    """Draw the robust errors of both models by class, and beside them the differences with 95 % intervals."""
    robust = found.classes[found.classes["error"] == "rob"]
    classes = list(robust["class"])
    places = range(len(classes))
    size = (12, 2.0 + 0.42 * len(classes))
    with figure_file(path, 1, 2, figsize=size, sharey=True, despine_left=True) as (figure, ((left, right),)):
        marked = [
            name if precision == "float32" else f"{name} {BF16}"
            for name, precision in zip(names, found.precisions, strict=True)
        ]
        for key, name, shift, colour, marker in (
            ("a", marked[0], -0.15, "#de8f05", "s"),
            ("b", marked[1], 0.15, "#0173b2", "o"),
        ):
            columns = robust[[key, f"{key}_low", f"{key}_high"]]
            _dots(left, [p + shift for p in places], columns, name=name, colour=colour, marker=marker)
        for error, shift, colour, marker in (("std", -0.15, "#777777", "D"), ("rob", 0.15, "#222222", "v")):
            columns = found.classes[found.classes["error"] == error][["difference", "low", "high"]]
            _dots(right, [p + shift for p in places], columns, name=_NAMES[error], colour=colour, marker=marker)
        left.set_yticks(list(places), classes)
        left.invert_yaxis()
        left.set_xlabel("robust error (percent, lower is better)")
        right.axvline(0, color="#333333", linewidth=1)
        right.set_xlabel("second minus first (points; below 0 the second errs less)")
        radius = "" if found.epsilon is None else f", epsilon {epsilon_text(found.epsilon)}"
        figure.suptitle(f"{found.attack}{radius}: {found.n:,} examples, 95 % intervals", fontsize=12)
        for axes in (left, right):
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=10)


def _dots(axes: Any, places: list[float], values: Any, *, name: str, colour: str, marker: str) -> None:
    middle, low, high = (values.iloc[:, i].to_numpy(dtype=float) for i in range(3))
    reach = [(middle - low).clip(min=0), (high - middle).clip(min=0)]
    axes.errorbar(middle, places, xerr=reach, fmt=marker, color=colour, label=name, markersize=6, elinewidth=1.2)


def _tabulate(rows: list[list[str]], header: list[str], tablefmt: str) -> str:
    return tabulated(rows, stacked(header, rows, tablefmt), tablefmt)


def _p(value: float) -> str:
    return "n/a" if math.isnan(value) else "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def _none(_text: str) -> None:
    return None
