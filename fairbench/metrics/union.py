"""Attacks together: an example withstands only if it withstands each of them."""

from collections.abc import Sequence

import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.outcomes import Outcomes
from fairbench.outcomes.schema import UNION, is_search
from fairbench.registry import suggest


def with_union(outcomes: Outcomes, attacks: Sequence[str] | None = None) -> Outcomes:
    """Return the table with one attack more, "any": what broke an example if anything did.

    It is broken where any of the attacks breaks the example, and holds the class that the first of these makes of it.
    A row is measured where all were.

    Parameters
    ----------
    attacks
        Which; default: all that attack at one radius (no search of a least radius or number of steps).

    Raises
    ------
    OutcomesError
        They are fewer than two, the table lacks one, or their radii differ.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": [0, 1, 2], "label": [0, 0, 1], "clean_pred": [0, 0, 1]})
    >>> frame["pgd20_pred"], frame["mine_pred"] = [1, 0, 1], [0, 0, 0]
    >>> with_union(Outcomes(frame, {"dataset": {"classes": ["cat", "dog"]}})).frame["any_pred"].tolist()
    [1, 0, 0]
    """
    own = [name for name in outcomes.attacks if not is_search(name) and name != UNION]
    names = own if attacks is None else list(attacks)
    for name in names:
        if name not in outcomes.attacks:
            raise OutcomesError(f"the outcomes have no attack '{name}'.{suggest(name, outcomes.attacks)}")
    if len(names) < 2:
        raise OutcomesError(f"attacks together are two or more, and here is {', '.join(names) or 'none'}.")
    terms = {name: outcomes.manifest.get("attacks", {}).get(name, {}) for name in names}
    radii = {name: held.get("epsilon") for name, held in terms.items()}
    if len(set(radii.values())) > 1:
        raise OutcomesError(f"attacks together have one epsilon, and these have {radii}.")
    frame = outcomes.frame.copy()
    label = frame["label"].to_numpy()
    found = pd.array(label, dtype="Int16")
    for name in reversed(names):
        broken = (frame[f"{name}_pred"] != frame["label"]).fillna(False).to_numpy(dtype=bool)
        found[broken] = frame[f"{name}_pred"].to_numpy(dtype="int16", na_value=-1)[broken]
    found[frame[[f"{name}_pred" for name in names]].isna().any(axis=1).to_numpy()] = pd.NA  # what breaks is no sample
    frame[f"{UNION}_pred"] = found
    together = {"epsilon": radii[names[0]], "any_of": names}
    manifest = {**outcomes.manifest, "attacks": {**outcomes.manifest.get("attacks", {}), UNION: together}}
    return Outcomes(frame, manifest)
