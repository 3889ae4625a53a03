"""What an attack is, and the harness around it.

An attack proposes adversarial inputs against the attack-ready copy of a model. The harness projects them onto the
threat model and scores them with the *original* model in float32, so no attack can claim a success that the model under
test does not show, and none can leave the ball.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fairbench.errors import ModelError

_BALL_TOLERANCE = 1e-6
"""Float32 rounding of ``x + delta`` for x in [0, 1], and times x for larger ones; further out is not in the ball."""


@dataclass(frozen=True, eq=False)
class Space:
    """What inputs may be, whatever epsilon is: pixels in [0, 1], or features, each with its range.

    Parameters
    ----------
    low, high
        The box: numbers, or (F,) tensors. An example outside it may stay as far out as it is, no further.
    free
        (F,) bool, which features may change; None: all.
    facts
        What the manifest says of it, as plain data; of pixels nothing.
    """

    low: float | Tensor = 0.0
    high: float | Tensor = 1.0
    free: Tensor | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def bounds(self, x: Tensor, epsilon: float | Tensor) -> tuple[Tensor, Tensor]:
        """Return the least and the largest value of each input within ``epsilon`` of ``x`` (B, ...)."""
        reach = epsilon if self.free is None else epsilon * self.free.to(x)
        low, high = self._box(x)
        return (x - reach).clamp(min=low), (x + reach).clamp(max=high)

    def contains(self, x_adv: Tensor, x: Tensor, epsilon: float) -> Tensor:
        """Return (B,) bool: within ``epsilon`` of ``x`` up to float32 rounding, and in the box."""
        low, high = self._box(x)
        inside = self._near(x_adv, x, epsilon) & (x_adv >= low) & (x_adv <= high)
        return inside.flatten(1).all(1)

    def leaves(self, x_adv: Tensor, x: Tensor, epsilon: float) -> Tensor:
        """Return (B,) bool: further than ``epsilon`` from ``x``, rounding aside, or changed where it may not be."""
        return ~self._near(x_adv, x, epsilon).flatten(1).all(1)

    def _near(self, x_adv: Tensor, x: Tensor, epsilon: float) -> Tensor:
        reach = epsilon if self.free is None else epsilon * self.free.to(x)
        return (x_adv - x).abs() <= reach + _BALL_TOLERANCE * x.abs().clamp(min=1)

    def _box(self, x: Tensor) -> tuple[Any, Any]:
        if isinstance(self.low, Tensor) and isinstance(self.high, Tensor):
            return torch.minimum(self.low.to(x), x), torch.maximum(self.high.to(x), x)
        return self.low, self.high


PIXELS = Space()
UNBOUNDED = Space(-math.inf, math.inf)
"""Features of any size."""


@dataclass(frozen=True)
class ThreatModel:
    """L-inf ball of radius ``epsilon``, in the unit of the inputs, within a space: by default pixels in [0, 1]."""

    epsilon: float
    space: Space = PIXELS

    def parameters(self) -> dict[str, Any]:
        """Return norm, radius and what there is to say of the space, as plain data."""
        return {"norm": "Linf", "epsilon": self.epsilon, **self.space.facts}

    def project(self, x_adv: Tensor, x: Tensor) -> Tensor:
        """Return the nearest point to ``x_adv`` in the ball around ``x`` and in the space; both (B, ...)."""
        return torch.clamp(x_adv, *self.space.bounds(x, self.epsilon))

    def contains(self, x_adv: Tensor, x: Tensor) -> Tensor:
        """Return (B,) bool: inside the ball (up to float32 rounding) and inside the space."""
        return self.space.contains(x_adv, x, self.epsilon)


@dataclass(frozen=True)
class Proposal:
    """Adversarial inputs (B, ...), and extra columns of the outcome table by suffix ("broken_at"), each of length B.

    A masked array marks rows where an extra has no value. ``at_verdict`` is what a row gets, by suffix, that has none
    and that the harness's verdict finds broken: the attack need not judge its last point itself.
    """

    adversarial: Tensor
    extras: Mapping[str, Any] = field(default_factory=dict)
    at_verdict: Mapping[str, Any] = field(default_factory=dict)


Verify = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x_adv, x, y) -> (B,) bool: inside the threat model and misclassified by the original model."""

Tick = Callable[[float], None]
"""Reports work done, in the unit of :attr:`Attack.cost` times examples."""


class Attack(Protocol):
    """An attack on a batch.

    One whose attribute ``foreign`` is true is code of others: each batch gets a copy of the original model of its own,
    in place of the attack-ready one, so what the code does to it is gone.
    """

    @property
    def name(self) -> str:
        """Column prefix in the outcome table."""
        ...

    @property
    def threat_model(self) -> ThreatModel:
        """What the harness holds proposals to."""
        ...

    @property
    def cost(self) -> float:
        """Work for one example, in forward-and-backward passes; only for the progress bar."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Return every parameter as plain data; the manifest keeps it and the run's hash depends on it."""
        ...

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, index: np.ndarray, *, verify: Verify, tick: Tick
    ) -> Proposal:
        """Propose adversarial inputs for ``x`` (B, ...) with labels ``y`` (B,) and split positions ``index`` (B,)."""
        ...


def logits_of(model: nn.Module, x: Tensor, index: np.ndarray, num_classes: int) -> Tensor:
    """Return (B, K) float32 logits without gradient, checked.

    Raises
    ------
    ModelError
        The output is no (B, K) tensor, or holds NaN or infinity (the example is named).
    """
    with torch.no_grad():
        logits = model(x)
    if not isinstance(logits, Tensor):
        from fairbench.models.base import describe_output

        raise ModelError(f"the model returns {describe_output(logits)}; pick the logits with --output (such as 0).")
    if logits.ndim != 2 or len(logits) != len(x):
        raise ModelError(
            f"the model maps a batch of shape {tuple(x.shape)} to {tuple(logits.shape)}; logits are "
            f"({len(x)}, {num_classes})."
        )
    if logits.shape[1] != num_classes:
        raise ModelError(f"the model has {logits.shape[1]} outputs, but the dataset has {num_classes} classes.")
    bad = ~torch.isfinite(logits).all(1)
    if bad.any():
        example = int(index[int(bad.nonzero()[0])])
        raise ModelError(f"the model's logits are NaN or infinite on example {example}.")
    return logits.float()


def run_attack(
    attack: Attack,
    original: nn.Module,
    prepared: nn.Module,
    batch: tuple[Tensor, Tensor, np.ndarray],
    *,
    num_classes: int,
    tick: Tick,
    judge: nn.Module | None = None,
    confidences: bool = False,
) -> dict[str, Any]:
    """Attack one batch and return its columns of the outcome table by full name.

    ``<name>_pred`` is what the original model says of the projected proposal; extras follow as the attack named them.

    Parameters
    ----------
    judge
        The model to be scored where the attack is made for another one (transfer): then ``original`` and ``prepared``
        are that other one's, which alone the attack sees, and what it says of its own success is left out.
    confidences
        Whether to add ``<name>_label_confidence``, the softmax probability of the true class.

    Of a foreign attack there are also ``<name>_distance``, the largest change of an input in its proposal, and
    ``<name>_outside``, whether that was outside the ball.
    """
    x, y, index = batch
    threat_model = attack.threat_model

    def verify(x_adv: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            wrong = original(x_adv).argmax(1) != y
        return wrong & threat_model.contains(x_adv, x)

    foreign = getattr(attack, "foreign", False)
    proposal = attack(_plain_copy(original) if foreign else prepared, x, y, index, verify=verify, tick=tick)
    adversarial = threat_model.project(proposal.adversarial.detach(), x)
    logits = logits_of(original if judge is None else judge, adversarial, index, num_classes)
    predictions = logits.argmax(1)
    columns: dict[str, Any] = {f"{attack.name}_pred": predictions.cpu().numpy().astype(np.int16)}
    if confidences:
        columns[f"{attack.name}_label_confidence"] = label_confidence(logits, y)
    if foreign:
        columns[f"{attack.name}_distance"] = (proposal.adversarial - x).abs().flatten(1).amax(1).cpu().numpy()
        outside = threat_model.space.leaves(proposal.adversarial, x, threat_model.epsilon)
        columns[f"{attack.name}_outside"] = outside.cpu().numpy()
    if judge is not None:
        return columns
    broken = (predictions != y).cpu().numpy()
    for suffix, value in proposal.at_verdict.items():
        extra = proposal.extras[suffix]
        extra[broken & np.ma.getmaskarray(extra)] = value
    columns.update({f"{attack.name}_{suffix}": values for suffix, values in proposal.extras.items()})
    return columns


def _plain_copy(module: nn.Module) -> nn.Module:
    """Return a copy for code that may do anything to it: modules and methods as written, weights in torch's layout."""
    return copy.deepcopy(module).requires_grad_(False).to(memory_format=torch.contiguous_format)


def label_confidence(logits: Tensor, y: Tensor) -> np.ndarray:
    """Return (B,) float32, the softmax probability of each example's label."""
    return logits.softmax(1).gather(1, y[:, None])[:, 0].cpu().numpy()
