"""95 % intervals (PROTOCOL.md, "Uncertainty").

A rate carries Wilson's score interval; a boundary error, which is a difference of two rates on the same examples,
Newcombe's paired score interval, which is built from Wilson's; the worst class, CAU and CRU_s a bootstrap that
resamples examples within classes.
"""

from collections.abc import Callable

import numpy as np
from scipy.stats import binomtest

LEVEL = 0.95
DRAWS = 1_000
BOOTSTRAP_SEED = 0

Interval = tuple[float, float]
UNKNOWN: Interval = (float("nan"), float("nan"))


def wilson(successes: int, n: int) -> Interval:
    """Wilson's score interval of a rate, in percent (Wilson, 1927); NaN for n = 0.

    Examples
    --------
    >>> [round(v, 2) for v in wilson(0, 100)]
    [0.0, 3.7]
    """
    if n == 0:
        return UNKNOWN
    found = binomtest(int(successes), int(n)).proportion_ci(LEVEL, method="wilson")
    return 100 * float(found.low), 100 * float(found.high)


def paired_difference(cells: np.ndarray) -> Interval:
    """Interval of the robust minus the standard error, in percentage points.

    Newcombe's method 10 for paired proportions (Statistics in Medicine 17, 2635-2650, 1998): the Wilson limits of both
    rates, combined with their correlation on the same examples, which is corrected for continuity where positive.

    Parameters
    ----------
    cells
        (2, 2) counts [wrong clean, wrong under attack].
    """
    n = int(cells.sum())
    if n == 0:
        return UNKNOWN
    rob, std = int(cells[:, 1].sum()), int(cells[1, :].sum())
    (rob_low, rob_high), (std_low, std_high) = wilson(rob, n), wilson(std, n)
    p, q = 100 * rob / n, 100 * std / n
    spread = np.sqrt(float(rob) * (n - rob) * std * (n - std))
    product = float(cells[1, 1] * cells[0, 0] - cells[0, 1] * cells[1, 0])
    phi = (product if product < 0 else max(product - n / 2, 0.0)) / spread if spread > 0 else 0.0
    down, up = (p - rob_low, std_high - q), (rob_high - p, q - std_low)
    low, high = (np.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0)) for a, b in (down, up))
    return p - q - float(low), p - q + float(high)


def resample(cells: np.ndarray, draws: int = DRAWS, seed: int = BOOTSTRAP_SEED) -> np.ndarray:
    """Resample examples with replacement within each class.

    Drawing n_c examples of class c with replacement gives multinomial counts over the four cells, so the counts are
    drawn, not the examples.

    Parameters
    ----------
    cells
        (K, 2, 2) counts.

    Returns
    -------
    numpy.ndarray
        (draws, K, 2, 2).
    """
    generator = np.random.default_rng(seed)
    sizes = cells.sum(axis=(1, 2))
    shares = np.divide(
        cells.reshape(len(cells), 4), sizes[:, None], where=sizes[:, None] > 0, out=np.full((len(cells), 4), 0.25)
    )
    return generator.multinomial(sizes, shares, size=(draws, len(cells))).reshape(draws, *cells.shape)


def percentile_interval(
    statistic: Callable[[np.ndarray], np.ndarray], resampled: np.ndarray, found: float = float("nan")
) -> Interval:
    """Percentile interval of a statistic over resampled cells; NaN where the statistic is not known.

    The largest of several classes, resampled, leans upwards, and for classes of nearly equal error the whole interval
    can lie above what was observed; it is widened to contain ``found``, the observed value.
    """
    values = statistic(resampled)
    if not np.isfinite(values).any():
        return UNKNOWN
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.nanpercentile(values, [tail, 100 - tail])
    return float(np.fmin(low, found)), float(np.fmax(high, found))


def resampled_means(values: np.ndarray, stream: int) -> np.ndarray:
    """Return the means of samples with replacement, (draws,); NaN where there is no value.

    Counts of the distinct values are drawn, not examples. ``stream`` tells the samples of one table apart.
    """
    if not len(values):
        return np.full(DRAWS, np.nan)
    distinct, counts = np.unique(values, return_counts=True)
    generator = np.random.default_rng([BOOTSTRAP_SEED, stream])
    drawn = generator.multinomial(len(values), counts / len(values), size=DRAWS)
    return drawn @ distinct / len(values)
