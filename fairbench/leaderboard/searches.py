"""Kept searches for least epsilon: what is broken at every radius, beside what the board ranks at one."""

from pathlib import Path

from fairbench.leaderboard.results import read_result, result_names
from fairbench.outcomes import Outcomes

SEARCH = "least-epsilon"


def read_searches(folder: Path) -> dict[str, Outcomes]:
    """Return the search of each model that has one, by the model's name; that with the most examples counts.

    Raises
    ------
    OutcomesError
        A result is damaged.
    """
    found: dict[str, Outcomes] = {}
    for name in result_names(folder):
        if SEARCH not in name:
            continue
        outcomes = read_result(name, folder)
        model = str(outcomes.manifest["model"]["name"])
        if SEARCH in outcomes.attacks and (model not in found or len(found[model]) < len(outcomes)):
            found[model] = outcomes
    return found
