"""Square, L-inf: random search by windows of one colour (Andriushchenko et al., 2020, arXiv:1912.00049).

The search is that of AutoAttack's "standard" version: margin loss, the authors' schedule of window sizes, windows and
signs drawn once for all examples. A query changes nothing but its window, so nothing but the window is computed and put
back, where pyautoattack builds and clips whole images.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fairbench.attacks.per_example import margin as margin_of

P_INIT = 0.8
"""Share of the image that the first windows cover."""
_HALVED_AFTER = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Queries after which that share is halved."""

OfRows = Callable[[Tensor], Callable[[Tensor], Tensor]]
"""From (M,) rows of the examples to a function that maps their inputs (M, C, H, W) to (M, K) logits."""


def window_side(query: int, height: int, width: int) -> int:
    """Return the side of the window of a query, in pixels."""
    share = P_INIT / 2 ** sum(query > after for after in _HALVED_AFTER)
    return min(max(round(math.sqrt(share * height * width)), 1), height, width)


@torch.no_grad()
def square(model: OfRows, x: Tensor, y: Tensor, *, epsilon: float, queries: int, stripes: Tensor, seed: int) -> Tensor:
    """Return for each example the input of the lowest margin found; the search for an example ends when it is broken.

    Parameters
    ----------
    model
        The model, for each set of rows that is left.
    x, y
        (B, C, H, W) float32 in [0, 1] and (B,) int64 labels.
    epsilon
        Radius of the L-inf ball.
    queries
        Queries after the first, an example.
    stripes
        (B, C, 1, W) signs of the start, vertical stripes.
    seed
        Of windows and signs, which are alike for every batch.
    """
    draw = torch.Generator().manual_seed(seed)
    found = (x + epsilon * stripes).clamp(0, 1)
    margin = margin_of(model(torch.arange(len(x), device=x.device))(found), y)
    at = (margin > 0).nonzero()[:, 0]
    best, low, high = found[at], (x[at] - epsilon).clamp(min=0), (x[at] + epsilon).clamp(max=1)
    least, labels = margin[at], y[at]
    channels, height, width = x.shape[1:]
    for query in range(queries):
        if not len(at):
            break
        side = window_side(query, height, width)
        top, left = (int((size - side) * torch.rand(1, generator=draw)) for size in (height, width))
        signs = (2 * torch.rand(channels, 1, 1, generator=draw) - 1).sign().to(x.device)
        window = (..., slice(top, top + side), slice(left, left + side))
        before = best[window].clone()
        best[window] = torch.clamp(before + 2 * epsilon * signs, low[window], high[window])
        margin = margin_of(model(at)(best), labels)
        worse = margin >= least
        best[window] = torch.where(worse[:, None, None, None], before, best[window])
        least = torch.minimum(margin, least)
        if bool((least <= 0).any()):
            found[at] = best
            left_over = least > 0
            at, best, low, high, least, labels = (t[left_over] for t in (at, best, low, high, least, labels))
    found[at] = best
    return found
