"""What each example may become, as the unit box, for attacks that are written for pixels in [0, 1].

AutoAttack's searches clip to [0, 1] and look for windows of an image. Features of any size are attacked through
``x' = low + z (high - low)``, between the least and the largest value that radius and space allow each of them, with
``z`` a square of one channel in [0, 1]. Where only the radius binds, its centre is the example, and a step in ``z`` is
the same share of the radius as one in ``x'``; a feature that may not change has no gradient.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fairbench.attacks.base import ThreatModel

RADIUS = 0.5
"""Of the ball around the centre of the box."""


class UnitBall:
    """The balls of some examples.

    Parameters
    ----------
    threat_model
        Radius and space, in the unit of the inputs.
    x
        (B, F) float32, the examples.
    """

    def __init__(self, threat_model: ThreatModel, x: Tensor) -> None:
        self._low, self._high = threat_model.space.bounds(x, threat_model.epsilon)
        side = math.ceil(math.sqrt(x.shape[1])) + 1
        self.centre = torch.full((len(x), 1, side, side), RADIUS, dtype=x.dtype, device=x.device)
        """(B, 1, side, side); the last row and column, which Square's windows reach as part of larger ones alone, and
        what else is beyond F in it move nothing."""

    def inputs(self, z: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return (B, F) inputs at ``z`` (B, 1, side, side), of some rows of the examples or of all."""
        low, high = (t if rows is None else t[rows] for t in (self._low, self._high))
        found = low + z[:, 0, :-1, :-1].flatten(1)[:, : low.shape[1]] * (high - low)
        bounded = found.detach().clamp(low, high)  # rounding puts a corner one ulp outside
        return found + (bounded - found.detach())  # with the gradient of what was found

    def model(self, model: Callable[[Tensor], Tensor], rows: Tensor | None = None) -> Callable[[Tensor], Tensor]:
        """Return the model as a function of ``z``."""
        return lambda z: model(self.inputs(z, rows))
