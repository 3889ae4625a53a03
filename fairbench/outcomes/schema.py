"""Columns and types of the outcome table, and its format version.

=====================  ===========  ====================================================================================
column                 type         meaning
=====================  ===========  ====================================================================================
index                  int64        position in the test split; unique, ascending
label                  int16        true class, 0..K-1
(an attribute)         any          one column per attribute of the dataset
clean_pred             int16        predicted class without attack
clean_confidence       float32      softmax probability of the predicted class, without attack
clean_label_confidence float32      softmax probability of the true class; datasets with attributes only
<attack>_pred          int16, null  predicted class under attack; null: not measured
<attack>_label_conf... float32      that of the true class under attack (full name: ``<attack>_label_confidence``)
pgdN_broken_at         int16, null  (cwN, too) steps until the first misclassified iterate; null: none was
least-steps_broken_at  int16, null  the same, 0 if clean is wrong; null: it withstood all steps
least-steps_censored   bool         whether it did
autoattack_broken_by   text, null   stage that broke the example, "clean" if none was needed; null: withstood all
least-epsilon_epsilon  float32      least radius that breaks the example, 0 if clean is wrong; NaN: none tried did
least-epsilon_censored bool         whether it withstood the largest radius tried
<own>_distance         float32      largest change of an input that an attack of one's own proposed, before projection
<own>_outside          bool         whether that was outside the ball
=====================  ===========  ====================================================================================
"""

import re
from collections.abc import Sequence

import pandas as pd

from fairbench.errors import OutcomesError

FORMAT_VERSION = 1
"""Raised when a reader of an older version would misread a file; readers refuse newer files."""

PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}
"""What attacks may compute gradients in: as people say it, and as a manifest does. Verdicts are always in float32."""

UNION = "any"
"""What attacks together are called: a column that is computed from theirs, and never kept."""

BASE = {"index": "int64", "label": "int16", "clean_pred": "int16", "clean_confidence": "float32"}
_EXTRAS = {
    "broken_at": "Int16",
    "broken_by": "string",
    "epsilon": "float32",
    "distance": "float32",
    "label_confidence": "float32",
    "censored": "bool",
    "outside": "bool",
}
"""Types of what an attack says beside its prediction, by suffix of its name; an attribute may end so too."""

_PREDICTION = re.compile(r"^(?P<attack>[a-z][a-z0-9-]*)_pred$")


def is_search(attack: str) -> bool:
    """Whether an attack searches a model for its least radius or steps: of no one radius, and never by transfer."""
    return attack.startswith("least-")


def attacks_in(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the attacks that have a column, in column order."""
    matches = (_PREDICTION.match(str(column)) for column in frame.columns)
    return tuple(m["attack"] for m in matches if m and m["attack"] != "clean")


def conform(frame: pd.DataFrame, num_classes: int) -> pd.DataFrame:
    """Return the table in its column types, checked.

    Raises
    ------
    OutcomesError
        A base column is missing, an index stands twice, or a label or prediction is outside 0..K-1.
    """
    missing = [column for column in BASE if column not in frame.columns and column != "clean_confidence"]
    if missing:
        raise OutcomesError(f"the outcome table lacks the column(s) {', '.join(missing)}.")
    frame = frame.copy()
    predictions = [f"{attack}_pred" for attack in attacks_in(frame)]
    types = {c: t for c, t in BASE.items() if c in frame.columns} | dict.fromkeys(predictions, "Int16")
    extras = {f"{a}_{suffix}": t for a in ("clean", *attacks_in(frame)) for suffix, t in _EXTRAS.items()}
    types |= {column: extras[column] for column in frame.columns if column in extras}
    whole = ("index", "label", "clean_pred", *predictions)
    try:
        frame = frame.astype({c: "Int64" for c in whole if str(frame[c].dtype).lower() not in ("int16", "int64")})
        _check_classes(frame, ("label", "clean_pred", *predictions), num_classes)  # a cast to int16 would wrap them
        frame = frame.astype(types)
    except (TypeError, ValueError) as error:
        raise OutcomesError(f"the outcome table has values of another type ({error}).") from error
    if frame["index"].duplicated().any():
        twice = frame["index"][frame["index"].duplicated()].iloc[0]
        raise OutcomesError(f"the outcome table has example {twice} twice.")
    return frame.sort_values("index", ignore_index=True)


def _check_classes(frame: pd.DataFrame, columns: Sequence[str], num_classes: int) -> None:
    for column in columns:
        outside = ~frame[column].dropna().between(0, num_classes - 1)
        if outside.any():
            value = frame[column].dropna()[outside].iloc[0]
            raise OutcomesError(f"the outcome table has {column} {value}, outside 0..{num_classes - 1}.")
