"""FAB, the L-inf attack that looks for the smallest perturbation (Croce and Hein, 2020, arXiv:1907.02044).

The walk is the authors', step for step, from the example itself; what differs is how the projection onto a hyperplane
inside the box is found: Newton's method on the piecewise linear equation for its radius, where pyautoattack sorts every
coordinate. Both are exact; sorting took most of the attack's time on small networks.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fairbench.attacks.per_example import beside

ALPHA_MAX = 0.1
"""Largest weight of the step back towards the example."""
ETA = 1.05
"""Overshoot past the hyperplane."""
BETA = 0.9
"""How far an adversarial point stays from the example before the walk goes on."""
_NEWTON_STEPS = 50
"""A bound that is not met: the steps end before, by _EXACT; about 6 are usual."""
_EXACT = 1e-6
"""Share of the gap at which the radius is found: the rounding of the sum."""

Model = Callable[[Tensor], Tensor]


def fab(model: Model, x: Tensor, y: Tensor, *, iterations: int, rank: int | None = None) -> Tensor:
    """Return the nearest misclassified input found for each example, at any distance, or the example itself.

    Parameters
    ----------
    model
        Maps (B, ...) to (B, K) logits.
    x, y
        (B, ...) float32 in [0, 1] and (B,) int64 labels.
    iterations
        Steps of the walk.
    rank
        Towards the class that the clean logits rank so: 2 is the runner-up (FAB-T). None: each step goes towards the
        class whose linearised boundary is nearest, at the cost of a gradient for every class.

    Returns
    -------
    Tensor
        Like ``x``. That a point is within epsilon is for the caller to see.
    """
    target = None
    if rank is not None:
        with torch.no_grad():
            target = model(x).argsort(1)[:, -rank]
    start, point = x.flatten(1), x.clone()
    nearest, shortest = x.clone(), torch.full((len(x),), torch.inf, device=x.device)
    for _ in range(iterations):
        difference, normal = _boundary(model, point, y, target)
        at = point.flatten(1)
        offset = (normal * at).sum(1) - difference
        both = project(torch.cat((at, start)), normal.repeat(2, 1), offset.repeat(2))
        step, from_start = both[: len(x)], both[len(x) :]
        length, other = (d.abs().amax(1, keepdim=True).clamp(min=1e-8) for d in (step, from_start))
        alpha = (length / (length + other)).clamp(max=ALPHA_MAX)
        at = torch.lerp(at + ETA * step, start + ETA * from_start, alpha).clamp(0, 1)
        point = at.view_as(x)
        with torch.no_grad():
            crossed = model(point).argmax(1) != y
        distance = (at - start).abs().amax(1)
        better = beside(crossed & (distance < shortest), x)
        nearest = torch.where(better, point, nearest)
        shortest = torch.where(better.flatten(), distance, shortest)
        point = torch.where(beside(crossed, x), torch.lerp(x, point, BETA), point)
    return nearest


def project(points: Tensor, normal: Tensor, offset: Tensor) -> Tensor:
    """Return the smallest change in L-inf that brings points of the box [0, 1] onto hyperplanes, staying in the box.

    The change is ``sign * min(radius, room)``, room being the way a coordinate has left; the radius solves
    ``sum |normal| min(radius, room) = gap``, concave and piecewise linear. Newton's method from below does not pass the
    root and ends on it after finitely many steps.

    Parameters
    ----------
    points, normal
        (B, F) float32.
    offset
        (B,): the plane is ``<normal, z> = offset``.

    Returns
    -------
    Tensor
        (B, F) changes. A plane that does not meet the box is approached as far as the box allows.
    """
    gap = offset - (normal * points).sum(1)
    direction = normal.sign().mul_(torch.where(gap > 0, 1.0, -1.0)[:, None])
    weight, gap = normal.abs(), gap.abs()[:, None]
    room = (direction.clamp(min=0) - points).abs_()
    radius, part = torch.zeros_like(gap), torch.empty_like(room)
    for _ in range(_NEWTON_STEPS):
        slope = torch.gt(room, radius, out=part).mul_(weight).sum(1, keepdim=True)
        missing = gap - torch.minimum(room, radius, out=part).mul_(weight).sum(1, keepdim=True)
        on = (missing > _EXACT * gap) & (slope > 0)
        if not bool(on.any()):
            break
        radius = torch.where(on, radius + missing / slope, radius)
    out_of_reach = torch.mul(weight, room, out=part).sum(1, keepdim=True) <= gap
    return direction.mul_(torch.minimum(room, radius.masked_fill_(out_of_reach, 1.0)))


def _boundary(model: Model, point: Tensor, y: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (B,) logit differences, a class's minus the label's, and their gradients (B, F): the linearised boundary.

    The class is the target's, or the nearest: the least ``|difference| / |gradient|_1``.
    """
    point = point.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(point)
        if target is not None:
            difference = (logits.gather(1, target[:, None]) - logits.gather(1, y[:, None]))[:, 0]
            (gradient,) = torch.autograd.grad(difference.sum(), point)
            return difference.detach(), gradient.flatten(1)
        gradients = torch.stack(
            [torch.autograd.grad(one.sum(), point, retain_graph=True)[0].flatten(1) for one in logits.unbind(1)], 1
        )
    rows = torch.arange(len(y), device=y.device)
    logits = logits.detach()
    differences = logits - logits[rows, y][:, None]
    gradients = gradients - gradients[rows, y][:, None]
    away = differences.abs() / (gradients.abs().sum(2) + 1e-12)
    away[rows, y] = torch.inf
    at = away.argmin(1)
    return differences[rows, at], gradients[rows, at]
