"""Which kept results tell whether PGD-20 is misled on a model (:mod:`fairbench.metrics.misled`)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairbench.leaderboard.results import read_result, result_names
from fairbench.metrics.misled import FoundMore, found_more
from fairbench.outcomes import Outcomes


def by_the_protocol(outcomes: Outcomes) -> bool:
    """Return whether a result is of the protocol's own steps, restarts and seed, and attacks the model itself."""
    changed = set(outcomes.manifest["protocol"]["modified"]) - {
        "epsilon",
        "attacks",
    }  # which others were run changes none
    return not changed and "transfer_from" not in outcomes.manifest


def subject(outcomes: Outcomes) -> tuple[Any, ...]:
    """Return what was attacked: the weights, on which data, at which radii."""
    model, data = outcomes.manifest["model"], outcomes.manifest["dataset"]
    radii = {about.get("epsilon") for about in outcomes.manifest["attacks"].values()}
    return model["name"], model.get("sha256"), data["name"], frozenset(radii)


def comparable(outcomes: Outcomes, others: Iterable[Outcomes]) -> list[Outcomes]:
    """Return the others that attack the same by the same steps."""
    return [other for other in others if by_the_protocol(other) and subject(other) == subject(outcomes)]


def found_more_of(outcomes: Outcomes, folder: Path | None = None) -> FoundMore | None:
    """Return the most that a stronger attack, by kept results, breaks beyond PGD-20; None if none was run.

    Raises
    ------
    OutcomesError
        A result is damaged.
    """
    start = f"{outcomes.manifest['model']['name']}."
    others = (read_result(name, folder) for name in result_names(folder) if name.startswith(start))
    return found_more(outcomes, comparable(outcomes, others))


def misled_line(what: str, outcomes: Outcomes, folder: Path | None = None) -> str:
    """Return a sentence of ``what`` PGD-20 is misled on, as kept results show it; nothing where they do not."""
    more = found_more_of(outcomes, folder)
    return f"{what}: {more} than PGD-20, whose figures mislead." if more is not None and more.misled else ""
