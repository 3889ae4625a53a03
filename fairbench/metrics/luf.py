"""Leave-one-out unfairness: how far one training sample moves what the model says (``sooksatra2022``, Definition 3).

Pure functions of confidences: those of the model of the whole training set, and of one model without each sample that
was left out. All are "lower is better"; where no prediction depends on a single sample they are 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.metrics.intervals import BOOTSTRAP_SEED, DRAWS, Interval, percentile_interval
from fairbench.metrics.paired import Estimate

NAMES = ("luf_mean", "luf_t", "luf_l")
COLUMNS = ("index", "label", "full_pred", "luf", "flips")
"""What :func:`leave_one_out` reads of a table of test examples."""


@dataclass(frozen=True)
class LeaveOneOut:
    """LUF of a test set with n examples, by L models that each leave one sample out.

    ``luf_mean`` is the mean over the test examples of LUF(x), in [0, 1]; ``luf_t`` the mean over them of the number of
    models whose class differs from the full model's, in 0..L; ``luf_l`` the mean over left-out samples of the number of
    test examples whose class differs, in 0..n. ``intervals`` has the 95 % bootstrap interval of each: it resamples
    test examples, and says nothing of other left-out samples or another training seed.
    """

    n: int
    left_out: int
    luf_mean: float
    luf_t: float
    luf_l: float
    intervals: Mapping[str, Interval]

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists and numbers."""
        return {
            "n": self.n,
            "left_out": self.left_out,
            "luf_mean": self.luf_mean,
            "luf_t": self.luf_t,
            "luf_l": self.luf_l,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
        }


def luf(full: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return LUF(x) of each test example: the largest change of any class's confidence by any sample left out.

    Parameters
    ----------
    full
        (n, K) softmax confidences of the model of the whole training set.
    left
        (L, n, K), those of the models that leave a sample out.

    Returns
    -------
    numpy.ndarray
        (n,) float64 in [0, 1].

    Examples
    --------
    >>> full = np.array([[0.75, 0.25], [0.5, 0.5]])
    >>> left = np.array([[[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.125, 0.875]]])
    >>> luf(full, left).tolist()
    [0.25, 0.375]
    """
    _check(full, left)
    largest = np.zeros(len(full))
    for model in left:  # one at a time: all differences at once take as much memory again
        np.maximum(largest, np.abs(model.astype(np.float64) - full).max(-1), out=largest)
    return largest.clip(max=1)  # softmax in float32 can be a rounding above it


def flips(full: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return (L, n) bool: whether the class that the model without a sample predicts is not the full model's.

    Of equal confidences the first class is the prediction.

    Examples
    --------
    >>> flips(np.array([[0.75, 0.25]]), np.array([[[0.25, 0.75]], [[1.0, 0.0]]])).tolist()
    [[True], [False]]
    """
    _check(full, left)
    return left.argmax(-1) != full.argmax(-1)


def example_table(index: np.ndarray, label: np.ndarray, full: np.ndarray, left: np.ndarray) -> pd.DataFrame:
    """Return a row per test example: ``index``, ``label``, ``full_pred``, ``luf`` and ``flips``.

    ``full_pred`` is the full model's class, ``flips`` the number of leave-one-out models that predict another.

    Parameters
    ----------
    index, label
        (n,) integers: position in the test split, and true class.
    full, left
        (n, K) and (L, n, K) softmax confidences of the full model and of the L models that left a sample out.

    Raises
    ------
    OutcomesError
        Shapes that do not fit each other, or values that are no confidences.
    """
    table = {
        "index": np.asarray(index, dtype=np.int64),
        "label": np.asarray(label, dtype=np.int16),
        "full_pred": full.argmax(-1).astype(np.int16),
        "luf": luf(full, left),
        "flips": flips(full, left).sum(0).astype(np.int32),
    }
    return pd.DataFrame(table).sort_values("index", ignore_index=True)


def sample_table(samples: np.ndarray, label: np.ndarray, full: np.ndarray, left: np.ndarray) -> pd.DataFrame:
    """Return a row per left-out sample: ``sample``, ``label``, ``flips`` and ``largest_change``.

    ``sample`` is its position in the training set, ``flips`` the number of test examples whose class differs without
    it, ``largest_change`` the largest change of a confidence.

    Parameters
    ----------
    samples, label
        (L,) integers: position in the training split of the sample each model left out, and its class.
    full, left
        As of :func:`example_table`.

    Raises
    ------
    OutcomesError
        As :func:`example_table`.
    """
    _check(full, left)
    table = {
        "sample": np.asarray(samples, dtype=np.int64),
        "label": np.asarray(label, dtype=np.int16),
        "flips": flips(full, left).sum(1).astype(np.int32),
        "largest_change": [float(np.abs(model.astype(np.float64) - full).max()) for model in left],
    }
    return pd.DataFrame(table)


def leave_one_out(examples: pd.DataFrame, left_out: int) -> LeaveOneOut:
    """Summarise a table of test examples (:func:`example_table`).

    Parameters
    ----------
    left_out
        L, the number of models that leave a sample out.

    Raises
    ------
    OutcomesError
        The table lacks a column, is empty, or holds values that no L models give.

    Examples
    --------
    >>> rows = pd.DataFrame({"index": [0, 1], "label": [0, 1], "full_pred": [0, 1]})
    >>> found = leave_one_out(rows.assign(luf=[0.25, 0.75], flips=[0, 3]), left_out=4)
    >>> found.luf_mean, found.luf_t, found.luf_l
    (0.5, 1.5, 0.75)
    """
    missing = [column for column in COLUMNS if column not in examples]
    if missing or not len(examples) or left_out < 1:
        what = f"has no {missing[0]}" if missing else "has no rows" if not len(examples) else "leaves nothing out"
        raise OutcomesError(f"the table of leave-one-out unfairness {what}.")
    changes, counts = examples["luf"].to_numpy(dtype=float), examples["flips"].to_numpy(dtype=float)
    if not (((changes >= 0) & (changes <= 1)).all() and ((counts >= 0) & (counts <= left_out)).all()):
        raise OutcomesError(f"the table of leave-one-out unfairness holds values that {left_out} models cannot give.")
    found = _means(changes, counts, left_out)
    intervals = {name: estimate.interval for name, estimate in found.items()}
    mean, of_test, of_left = (found[name].value for name in NAMES)
    return LeaveOneOut(len(examples), left_out, mean, of_test, of_left, intervals)


def difference(first: pd.DataFrame, second: pd.DataFrame, left_out: int) -> dict[str, Estimate]:
    """Return by name how much more unfair the second is, on the same test examples, which are resampled for both.

    Parameters
    ----------
    first, second
        From :func:`example_table`, with the same number of samples left out, ``left_out``.

    Raises
    ------
    OutcomesError
        They are not of the same examples, or one is no such table.

    Examples
    --------
    >>> rows = pd.DataFrame({"index": [0, 1], "label": [0, 1], "full_pred": [0, 1], "flips": [0, 3]})
    >>> difference(rows.assign(luf=[0.25, 0.75]), rows.assign(luf=[0.5, 1.0]), left_out=4)["luf_mean"]
    Estimate(value=0.25, interval=(0.25, 0.25))
    """
    for table in (first, second):
        leave_one_out(table, left_out)
    if not first[["index", "label"]].equals(second[["index", "label"]]):
        raise OutcomesError("the two leave-one-out results are not of the same test examples.")
    changes, counts = (second[key].to_numpy(dtype=float) - first[key].to_numpy(dtype=float) for key in ("luf", "flips"))
    return _means(changes, counts, left_out)


def _means(changes: np.ndarray, counts: np.ndarray, left_out: int) -> dict[str, Estimate]:
    """Return the means by :data:`NAMES`, with their intervals."""
    scale = len(changes) / left_out  # LUF_t * n and LUF_l * L are both the sum of all flips
    drawn = _resampled_means(np.stack([changes, counts]))
    values = (changes.mean(), counts.mean(), counts.mean() * scale)
    resampled = (drawn[0], drawn[1], drawn[1] * scale)
    return {
        name: Estimate(float(value), percentile_interval(lambda means: means, means, float(value)))
        for name, value, means in zip(NAMES, values, resampled, strict=True)
    }


def _resampled_means(values: np.ndarray) -> np.ndarray:
    """Return (columns, draws) means of examples drawn with replacement, the same ones for every column."""
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    n = values.shape[1]
    return np.stack([values[:, generator.integers(n, size=n)].mean(1) for _ in range(DRAWS)], axis=1)


def _check(full: np.ndarray, left: np.ndarray) -> None:
    if full.ndim != 2 or left.ndim != 3 or left.shape[1:] != full.shape or not left.size:
        raise OutcomesError(
            f"confidences of shape {full.shape} and {left.shape}: the full model's are (n, K), the others' (L, n, K)."
        )
    for values in (full, left):
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1 + 1e-4:
            raise OutcomesError("confidences are outside [0, 1]; give softmax confidences, not logits.")
