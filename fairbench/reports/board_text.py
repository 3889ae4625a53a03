"""Names and texts that the board's tables and its pages have in common."""

from fairbench.leaderboard.entries import Entry
from fairbench.leaderboard.ranking import Board, Row, range_text
from fairbench.reports.tables import with_ties
from fairbench.reports.values import epsilon_text, fraction, rate

NAMES = {
    "avg_std": "avg std",
    "worst_std": "worst std",
    "avg_bndy": "avg bndy",
    "worst_bndy": "worst bndy",
    "avg_rob": "avg rob",
    "worst_rob": "worst rob",
    "cau": "CAU",
    "cru_s": "CRU_s",
}
ATTACK_NAMES = {"autoattack": "AutoAttack", "pgd20": "PGD-20 *"}
MISLED = "†"
"""The mark of an entry whose robust error is known to be much too low."""
BF16 = "(bf16)"
"""The mark of a result whose gradients were computed in bf16."""


def file_stem(board: Board) -> str:
    """Return the name of a board's files: ``cifar10_linf_8-255``."""
    return f"{board.dataset}_linf_{epsilon_text(board.epsilon).replace('/', '-')}"


def title(board: Board) -> str:
    """Return the board's name for people."""
    return f"{board.dataset}, L-inf {epsilon_text(board.epsilon)}"


def rank_text(row: Row) -> str:
    """Return "3", "3-5", or nothing for what is not ranked."""
    return "" if row.ranks is None else range_text(row.ranks)


def attack_text(entry: Entry) -> str:
    """Return the attack's name, marked where it was misled, and where its gradients were not computed in float32."""
    marks = [MISLED] * entry.misled + [BF16] * (entry.precision != "float32")
    return " ".join([ATTACK_NAMES[entry.attack.attack], *marks])


def in_bf16(board: Board) -> bool:
    """Return whether any row is so marked."""
    return any(row.entry.precision != "float32" for row in (*board.ranked, *board.sample))


def misled_text(board: Board) -> str:
    """Return what the mark of misled entries means, with what is known of each; nothing where there are none."""
    found = [row.entry for row in (*board.ranked, *board.sample) if row.entry.misled]
    if not found:
        return ""
    known = "; ".join(dict.fromkeys(f"{entry.name}: {entry.found_more}" for entry in found))
    return (
        "a stronger attack finds much more, so PGD-20's figures mislead; by robust errors last, ahead of none, on no "
        f"front ({known})"
    )


def extra_data_text(entry: Entry) -> str:
    """Return the extra training data, nothing where there was none."""
    return "not stated" if entry.extra_data is None else entry.extra_data


def figure_text(row: Row, column: str) -> str:
    """Return a figure with its interval: "12.34 [11.8, 13.0]", or "n/a"."""
    value, interval = row.value(column), row.interval(column)
    return fraction(value, interval) if column == "cau" else rate(value, interval)


def worst_class(row: Row, column: str) -> str | None:
    """Return the class that a worst-class figure is of, and how many others are as bad."""
    name = getattr(row.entry.attack, f"{column}_class", None)
    if name is None:
        return None
    return with_ties(name, row.entry.attack.classes[column.removeprefix("worst_")], row.value(column))
