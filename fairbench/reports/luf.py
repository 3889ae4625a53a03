"""Leave-one-out unfairness in words: what was run, and what it gave."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fairbench.errors import OutcomesError, printable
from fairbench.guessing import collapsed
from fairbench.metrics.intervals import wilson
from fairbench.metrics.luf import LeaveOneOut, difference
from fairbench.reports.values import measured, rate, signed

Result = tuple[LeaveOneOut, pd.DataFrame, Mapping[str, Any]]
"""What :func:`~fairbench.leaderboard.luf.read_luf` returns."""

_TITLES = {"luf_mean": "LUF_mean", "luf_t": "LUF_t", "luf_l": "LUF_l"}
NOTE = (
    "Intervals: 95 %, bootstrap over test examples. They do not cover other left-out samples, another seed, or another "
    "training."
)


def what_was_run(manifest: Mapping[str, Any]) -> str:
    """Return method, architecture, data, epochs, models and seed of a result in a line."""
    epochs, left_out, recipe = manifest["epochs"], len(manifest["left_out"]), manifest["recipe"]
    marks = {"balance": ", balanced classes", "normalize": ", normalised inputs"}
    options = ", ".join(f"{key} {_short(value)}" for key, value in manifest["options"].items())
    return printable(
        f"{manifest['method']}{f' ({options})' if options else ''}, {manifest['architecture']}, {manifest['dataset']}: "
        f"{epochs} epoch{'s' if epochs != 1 else ''}, {manifest['training_images']:,} training examples, "
        f"1 + {left_out} models (all images, and one left out), seed {manifest['seed']}, batch {recipe['batch_size']}, "
        f"learning rate {recipe['optimizer']['lr']:g}{''.join(text for key, text in marks.items() if recipe.get(key))}"
    )


def lines(found: LeaveOneOut, examples: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    """Return a result as lines for a terminal."""
    wrong = int((examples["label"] != examples["full_pred"]).sum())
    names = {
        "luf_mean": "largest change of a confidence by any one sample, mean over test examples",
        "luf_t": f"of {found.left_out} models without a sample predict another class, mean over test examples",
        "luf_l": f"of {found.n:,} test examples get another class, mean over left-out samples",
    }
    rows = [
        f"{_TITLES[name]:8}  "
        f"{measured(getattr(found, name), found.intervals[name], 4 if name == 'luf_mean' else 2)}  {text}"
        for name, text in names.items()
    ]
    error = rate(100 * wrong / found.n, wilson(wrong, found.n))
    warning = collapsed(100 * wrong / found.n, len(manifest["classes"]), "test images, of the full model,")
    warned = [] if warning is None else [f"warning: {warning}"]
    return "\n".join([what_was_run(manifest), f"full model: standard error {error} percent", *rows, NOTE, *warned])


def refuse_unlike(other: Mapping[str, Any], hashes: tuple[str, str], samples: Sequence[int]) -> None:
    """Refuse to compare with a result, by its manifest, that cannot be compared.

    Parameters
    ----------
    hashes
        SHA-256 of the training and of the test examples.
    samples
        Those that are left out.

    Raises
    ------
    OutcomesError
        It is of other examples, leaves out other samples, or its manifest is damaged.
    """
    try:
        what_was_run(other)
        held = [row["sample"] for row in other["left_out"]]
        data = (other["data_sha256"], other["test_sha256"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OutcomesError(f"--against: its luf.json is damaged ({type(error).__name__}).") from error
    if held != list(samples) or data != hashes:
        raise OutcomesError(
            "--against: that result is of other data, or leaves out other samples; LUF grows with their number."
        )


def against(found: Result, other: Result) -> str:
    """Return in lines how much more unfair a result is than another, which :func:`refuse_unlike` let through."""
    rows = [
        f"{_TITLES[name]:8}  {signed(estimate, 4 if name == 'luf_mean' else 2)}"
        for name, estimate in difference(other[1], found[1], found[0].left_out).items()
    ]
    return "\n".join([f"minus that of {what_was_run(other[2])}", *rows])


def minus(found: Result, other: Result) -> dict[str, Any]:
    """Return the same as plain data."""
    estimates = difference(other[1], found[1], found[0].left_out)
    values = {name: {"value": e.value, "interval": list(e.interval)} for name, e in estimates.items()}
    return {"of": what_was_run(other[2]), **values}


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
