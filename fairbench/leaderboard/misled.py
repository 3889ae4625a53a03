"""Which kept results tell whether PGD-20 is misled on a model (:mod:`fairbench.metrics.misled`)."""

from collections.abc import Hashable, Iterable
from pathlib import Path

from fairbench.leaderboard.results import read_result, result_names
from fairbench.metrics.misled import FoundMore, found_more
from fairbench.outcomes import Outcomes

_FREE = {"epsilon", "attacks"}
"""What may be changed of a protocol: the radius is compared, and which other attacks were run changes none."""


def by_the_protocol(outcomes: Outcomes) -> bool:
    """Return whether a result is of the protocol's own steps, restarts and seed, and attacks the model itself."""
    return set(outcomes.manifest["protocol"]["modified"]) <= _FREE and "transfer_from" not in outcomes.manifest


def subject(outcomes: Outcomes) -> Hashable:
    """Return what was attacked, whatever its name: the weights, on which data, at which radii; None if not known."""
    model, data = outcomes.manifest["model"], outcomes.manifest["dataset"]
    if model.get("sha256") is None or not by_the_protocol(outcomes):
        return None
    radii = {about.get("epsilon") for about in outcomes.manifest["attacks"].values()}
    return model["sha256"], data["name"], tuple(outcomes.classes), frozenset(radii)


def comparable(outcomes: Outcomes, others: Iterable[Outcomes]) -> list[Outcomes]:
    """Return the others that attack the same by the same steps."""
    about = subject(outcomes)
    return [] if about is None else [other for other in others if subject(other) == about]


def found_more_of(outcomes: Outcomes, folder: Path | None = None) -> FoundMore | None:
    """Return the most that a stronger attack, in the same table or a kept result, breaks beyond PGD-20.

    None if none was run.

    Raises
    ------
    OutcomesError
        A result is damaged.
    """
    start = f"{outcomes.manifest['model']['name']}."
    kept = (read_result(name, folder) for name in result_names(folder) if name.startswith(start))
    return found_more(outcomes, comparable(outcomes, [outcomes, *kept]))


def misled_line(what: str, outcomes: Outcomes, folder: Path | None = None) -> str:
    """Return a sentence of ``what`` PGD-20 is misled on; nothing where it is not known to be."""
    more = found_more_of(outcomes, folder)
    return f"{what}: {more} than PGD-20, whose figures mislead." if more is not None and more.misled else ""
