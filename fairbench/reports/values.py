"""Numbers as they are printed: a value with its interval, and the names of radii."""

import math
from functools import partial

from fairbench.metrics.intervals import Interval
from fairbench.metrics.paired import Estimate


def number(value: float, decimals: int, sign: str = "") -> str:
    """Return a number that is known, never as "-0.00"; ``sign`` is "+" where positive ones show theirs."""
    return f"{round(float(value), decimals) + 0.0:{sign}.{decimals}f}"  # NumPy's own round is another


def measured(
    value: float, interval: Interval | None = None, decimals: int = 2, ends: int | None = None, unit: str = ""
) -> str:
    """Return "12.34 [11.81, 13.02]", or the value alone where its interval is not known; "n/a" if it is not either.

    Parameters
    ----------
    decimals
        Decimals of the value.
    ends
        Decimals of the interval's ends; default: as many.
    unit
        What follows the value, " %".

    Examples
    --------
    >>> measured(12.3, (11.84, 13.0)), measured(0.5, None, 3), measured(float("nan"), (0.0, 1.0))
    ('12.30 [11.84, 13.00]', '0.500', 'n/a')
    """
    if not math.isfinite(value):
        return "n/a"
    if interval is None or not all(map(math.isfinite, interval)):
        return f"{number(value, decimals)}{unit}"
    low, high = (number(end, decimals if ends is None else ends) for end in interval)
    return f"{number(value, decimals)}{unit} [{low}, {high}]"


rate = partial(measured, decimals=2, ends=1)
"""An error in percent, or points: "12.34 [11.8, 13.0]"."""
fraction = partial(measured, decimals=3)
"""A number between 0 and 1: "0.074 [0.063, 0.086]"."""
count = partial(measured, decimals=1)
"""A mean of counts: "12.3 [11.8, 13.0]"."""
radius = partial(measured, decimals=4)
"""A least epsilon: "0.0123 [0.0110, 0.0140]"."""


def signed(found: Estimate, decimals: int, unit: str = "") -> str:
    """Return a difference, "+1.2 [+0.4, +2.0]"; what is not known is "n/a".

    Examples
    --------
    >>> signed(Estimate(-25.0, (-29.94, -19.91)), 1, " %"), signed(Estimate(float("nan"), (0.0, 0.0)), 1)
    ('-25.0 % [-29.9, -19.9]', 'n/a')
    """
    known = (found.value, *found.interval)
    if not all(map(math.isfinite, known)):
        return "n/a"
    value, low, high = (number(v, decimals, "+") for v in known)
    return f"{value}{unit} [{low}, {high}]"


def epsilon_text(epsilon: float) -> str:
    """Return "8/255" where that is what it is and a decimal is not short, else a decimal.

    Examples
    --------
    >>> [epsilon_text(value) for value in (8 / 255, 0.01, 10.0, 0.0)]
    ['8/255', '0.01', '10', '0']
    """
    if float(f"{epsilon:g}") == epsilon:
        return f"{epsilon:g}"
    scaled = epsilon * 255
    return f"{round(scaled)}/255" if math.isclose(scaled, round(scaled), abs_tol=1e-9) else f"{epsilon:g}"
