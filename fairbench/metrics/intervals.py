"""95 % intervals (docs/definitions.md, "Intervals").

A rate carries Wilson's score interval; a boundary error, which is a difference of two rates on the same examples,
Newcombe's paired score interval, which is built from Wilson's; the worst class, CAU and CRU_s a bootstrap that
resamples examples within classes.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

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
    # Term for term as SciPy's binomtest has it, which first spends a hundred times as long on a p-value.
    successes, n = int(successes), int(n)
    p, z = successes / n, float(ndtri(0.5 + 0.5 * LEVEL))
    denominator = 2 * (n + z**2)
    centre = (2 * n * p + z**2) / denominator
    reach = z / denominator * math.sqrt(4 * n * p * (1 - p) + z**2)
    low, high = 0.0 if successes == 0 else centre - reach, 1.0 if successes == n else centre + reach
    return 100 * low, 100 * high


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


def rate_intervals(cells: np.ndarray) -> dict[str, Interval]:
    """Return the 95 % interval, in percent, of each of :data:`~fairbench.metrics.classwise.ERRORS` of one group.

    Parameters
    ----------
    cells
        (2, 2) integer counts: [wrong clean, wrong under attack].
    """
    n = int(cells.sum())
    return {
        "std": wilson(cells[1, :].sum(), n),
        "bndy": paired_difference(cells),
        "rob": wilson(cells[:, 1].sum(), n),
        "strict_bndy": wilson(cells[0, 1], n),
    }


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


def resampled_means(values: np.ndarray, stream: int, draws: int = DRAWS, seed: int = BOOTSTRAP_SEED) -> np.ndarray:
    """Return the means of samples with replacement from the examples of one class.

    Counts of the distinct rows are drawn, not examples.

    Parameters
    ----------
    values
        (n, C): C quantities of each example, resampled together; finite.
    stream
        The class: classes are drawn independently.

    Returns
    -------
    numpy.ndarray
        (draws, C); NaN for n = 0.
    """
    if not len(values):
        return np.full((draws, values.shape[1]), np.nan)
    distinct, counts = np.unique(values, axis=0, return_counts=True)
    drawn = np.random.default_rng([seed, stream]).multinomial(len(values), counts / len(values), size=draws)
    return drawn @ distinct / len(values)


def percentile_interval(
    statistic: Callable[[np.ndarray], np.ndarray], resampled: np.ndarray, found: float = float("nan")
) -> Interval:
    """Return the 95 % percentile interval of a statistic, in its unit; NaN where the statistic is not known.

    The largest of several classes, resampled, leans upwards, and for classes of nearly equal error the whole interval
    can lie above what was observed; it is widened to contain ``found``, the observed value.

    Parameters
    ----------
    statistic
        From resampled counts (draws, ...) to (draws,) values.
    resampled
        What :func:`resample` or :func:`resampled_means` returns.
    """
    values = statistic(resampled)
    if not np.isfinite(values).any():
        return UNKNOWN
    tail = 100 * (1 - LEVEL) / 2
    percentile = np.percentile if np.isfinite(values).all() else np.nanpercentile  # the same, and faster
    low, high = percentile(values, [tail, 100 - tail])
    return float(np.fmin(low, found)), float(np.fmax(high, found))
