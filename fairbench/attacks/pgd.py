"""The inner maximisation: projected gradient ascent with sign steps (Madry et al., 2018, arXiv:1706.06083).

There is one. Evaluation, every training method, least epsilon and least steps call :func:`pgd`; they differ in its
arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.attacks.base import PIXELS, Proposal, Space, ThreatModel, Tick, Verify
from fairbench.attacks.per_example import beside
from fairbench.attacks.per_example import margin as margin_of
from fairbench.randomness import Stream, uniform_noise

Loss = Literal["ce", "kl", "cw"]
"""What is ascended, see :func:`pgd`."""

GAUSSIAN_SCALE = 0.001
"""Standard deviation of the "gaussian" start (Zhang et al., 2019, arXiv:1901.08573)."""

OnStep = Callable[[int, Tensor], None]
"""Called with (k, logits of iterate k) for k = 0 .. steps - 1."""

_Height = Callable[[Tensor, Any], Tensor]
"""From the logits of some examples and their rows to the sum of what is ascended."""


@dataclass(frozen=True)
class PGDResult:
    """What :func:`pgd` found. The last three are None unless ``stop`` was set.

    Parameters
    ----------
    last
        (B, ...) where each example ended.
    first_wrong
        (B, ...) the first misclassified iterate; ``last`` where there was none.
    last_right
        (B, ...) the last iterate before ``first_wrong``, correctly classified; ``x`` where the start was wrong.
    steps_right
        (B,) int64 steps taken from correctly classified iterates, up to the first wrong one: 0..steps.
    broken
        (B,) bool, whether any iterate was misclassified.
    """

    last: Tensor
    first_wrong: Tensor | None = None
    last_right: Tensor | None = None
    steps_right: Tensor | None = None
    broken: Tensor | None = None


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float | Tensor,
    step: float | Tensor,
    steps: int,
    loss: Loss = "ce",
    init: Literal["uniform", "gaussian", "none"] = "uniform",
    noise: Tensor | None = None,
    stop: Literal["misclassified"] | None = None,
    tau: int = 0,
    settle: bool = False,
    jitter: float = 0.0,
    generator: torch.Generator | None = None,
    on_step: OnStep | None = None,
    space: Space = PIXELS,
) -> PGDResult:
    """Ascend the loss inside the L-inf ball around ``x`` and the space, with steps of fixed size along the sign.

    Parameters
    ----------
    model
        Maps (B, ...) to (B, K) logits; put it in ``eval()`` mode before, and freeze its parameters for speed.
    x, y
        (B, ...) float inputs in the space and (B,) int64 labels.
    epsilon, step
        Radius and step in the unit of the inputs; a float, or (B,) for one an example.
    steps
        Number of steps K.
    loss
        "ce": cross-entropy to ``y``. "kl": KL(f(x) || f(x_adv)), the clean prediction held fixed. "cw": the largest
        other logit less the label's (Carlini and Wagner, 2017, arXiv:1608.04644, f_6, untargeted and without a floor).
    init
        "uniform": uniform in the ball. "gaussian": x + 0.001 N(0, I). "none": x.
    noise
        (B, ...) the draw behind ``init``: uniform in [-1, 1], or standard normal. Default: torch's generator.
    stop
        "misclassified": an example stops ``tau`` steps after its first misclassified iterate and leaves the batch;
        one more forward pass judges the last iterate.
    settle
        With ``stop`` and without ``jitter``: an example whose next iterate is that of two steps ago leaves the batch
        too. It would go to and fro between the same two points for good, so no result depends on it.
    jitter, generator
        Standard deviation of Gaussian noise added to each step, before projection, and the CPU generator it comes from.
    on_step
        Called before each step with the iterate's logits; not together with ``stop``.
    space
        What inputs may be: pixels in [0, 1], or features.

    Returns
    -------
    PGDResult

    Examples
    --------
    >>> model = nn.Linear(2, 2, bias=False)
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> x, y = torch.tensor([[0.6, 0.4]]), torch.tensor([0])
    >>> result = pgd(model, x, y, epsilon=0.125, step=0.125, steps=1, init="none")
    >>> [round(v, 3) for v in result.last[0].tolist()]
    [0.475, 0.525]
    """
    epsilon, step = _broadcast(epsilon, x), _broadcast(step, x)
    lower, upper = space.bounds(x, epsilon)
    height = _height(loss, model, x, y)
    current = torch.clamp(_start(x, epsilon, init, noise), lower, upper)
    if stop is not None:
        move = partial(_move, jitter=jitter, generator=generator)
        bounds = lower, upper
        settle = settle and not jitter
        return _until_wrong(
            model, x, y, current, height, bounds=bounds, step=step, steps=steps, tau=tau, settle=settle, move=move
        )
    for k in range(steps):
        logits, gradient = _ascent(model, current, height, slice(None))
        if on_step is not None:
            on_step(k, logits)
        current = torch.clamp(_move(current, step, gradient, jitter=jitter, generator=generator), lower, upper)
    return PGDResult(current)


def _until_wrong(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    start: Tensor,
    height: _Height,
    *,
    bounds: tuple[Tensor, Tensor],
    step: float | Tensor,
    steps: int,
    tau: int,
    settle: bool,
    move: Callable[..., Tensor],
) -> PGDResult:
    """Run with ``stop="misclassified"``: ``rows`` are the examples still in the batch, ``current`` their iterates."""
    last, first_wrong, last_right = start.clone(), start.clone(), x.clone()
    steps_right = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    broken = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    slack = torch.full((len(x),), tau, dtype=torch.int64, device=x.device)
    rows, current = torch.arange(len(x), device=x.device), start
    before = torch.full_like(start, torch.nan) if settle else start  # the iterates of one step ago
    for k in range(steps + 1):
        if not len(rows):
            break
        if k < steps:
            logits, gradient = _ascent(model, current, height, rows)
        else:
            with torch.no_grad():
                logits, gradient = model(current), torch.empty_like(current)
        newly = (logits.argmax(1) != y[rows]) & ~broken[rows]
        first_wrong[rows[newly]] = current[newly]
        broken[rows[newly]] = True
        right = ~broken[rows]
        last_right[rows[right]] = current[right]
        steps_right[rows[right]] += int(k < steps)
        last[rows] = current
        stay = right | (slack[rows] > 0)
        slack[rows[~right]] -= 1
        if k < steps:
            rows, current, gradient = rows[stay], current[stay], gradient[stay]
            size = step[rows] if isinstance(step, Tensor) else step
            following = torch.clamp(move(current, size, gradient), bounds[0][rows], bounds[1][rows])
            if settle:
                settled = (following == before[stay]).flatten(1).all(1) & ~broken[rows]
                last[rows[settled]] = (current if (steps - k) % 2 == 0 else following)[settled]
                last_right[rows[settled]] = last[rows[settled]]
                steps_right[rows[settled]] = steps
                rows, before, following = rows[~settled], current[~settled], following[~settled]
            current = following
    return PGDResult(last, torch.where(beside(broken, last), first_wrong, last), last_right, steps_right, broken)


def _move(
    current: Tensor, step: float | Tensor, gradient: Tensor, *, jitter: float, generator: torch.Generator | None
) -> Tensor:
    moved = current + step * gradient.sign()
    if jitter:
        moved = moved + jitter * torch.randn(current.shape, generator=generator).to(current)
    return moved


def _height(loss: Loss, model: nn.Module, x: Tensor, y: Tensor) -> _Height:
    if loss == "kl":
        with torch.no_grad():
            clean = F.softmax(model(x), dim=1)
        return lambda logits, rows: F.kl_div(F.log_softmax(logits, dim=1), clean[rows], reduction="sum")
    if loss == "cw":
        return lambda logits, rows: -margin_of(logits, y[rows]).sum()
    if loss == "ce":
        return lambda logits, rows: F.cross_entropy(logits, y[rows], reduction="sum")
    raise ValueError(f"loss is 'ce', 'kl' or 'cw', not {loss!r}")


def _ascent(model: nn.Module, current: Tensor, height: _Height, rows: Any) -> tuple[Tensor, Tensor]:
    """Return the logits of some rows' iterates, and the gradient of their height with respect to them."""
    current = current.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(current)
        (gradient,) = torch.autograd.grad(height(logits, rows), current)
    return logits.detach(), gradient


def _start(x: Tensor, epsilon: float | Tensor, init: str, noise: Tensor | None) -> Tensor:
    if init == "uniform":
        return x + epsilon * (torch.rand_like(x) * 2 - 1 if noise is None else noise)
    if init == "gaussian":
        return x + GAUSSIAN_SCALE * (torch.randn_like(x) if noise is None else noise)
    if init == "none":
        return x.clone()
    raise ValueError(f"init is 'uniform', 'gaussian' or 'none', not {init!r}")


def _broadcast(value: float | Tensor, x: Tensor) -> float | Tensor:
    return beside(value.to(x), x) if isinstance(value, Tensor) and value.ndim else value


def _found(value: Tensor | None) -> Tensor:
    """Narrow what ``stop`` promises."""
    if value is None:
        raise TypeError("pgd returns its extras only when stop is set")
    return value


PIXEL_STEP = 2 / 255
"""The step of PGD-20 in [0, 1] pixels at radii between 8/255 and 16/255."""


def default_step(epsilon: float, *, pixels: bool = True) -> float:
    """Return the step where none is named (docs/definitions.md, "PGD-20").

    In [0, 1] ``pixels`` it is min(2/255, epsilon/4), and from 16/255 on an eighth of the radius, so that 20 steps cross
    the ball; in the unit of features a quarter of the radius.
    """
    return max(min(PIXEL_STEP, epsilon / 4), epsilon / 8) if pixels else epsilon / 4


@dataclass(frozen=True)
class PGDAttack:
    """PGD as an attack of the evaluation (docs/definitions.md, "PGD-20"): one uniform start a restart.

    Parameters
    ----------
    step, steps
        Step size, in the unit of the inputs, and number of steps.
    restarts
        An example is broken if any restart breaks it; a restart attacks those that are not broken yet.
    score
        "last": the last iterate is scored. "any": an example is broken by any misclassified iterate, and stops there.
    seed
        The start of an example depends on (seed, its index, the restart) alone.
    loss
        "ce": cross-entropy. "cw": the margin of logits.
    """

    threat_model: ThreatModel
    step: float
    steps: int = 20
    restarts: int = 1
    score: Literal["last", "any"] = "last"
    seed: int = 0
    loss: Literal["ce", "cw"] = "ce"

    @property
    def name(self) -> str:
        """Return "pgd20" for 20 steps on the cross-entropy, "cw20" on the margin."""
        return f"{'pgd' if self.loss == 'ce' else self.loss}{self.steps}"

    @property
    def cost(self) -> float:
        """Return the passes an example needs at most."""
        return float(self.steps * self.restarts)

    def parameters(self) -> dict[str, Any]:
        """Return every parameter as plain data."""
        return {
            **self.threat_model.parameters(),
            "step": self.step,
            "steps": self.steps,
            "restarts": self.restarts,
            "score": self.score,
            "loss": self.loss,
            "init": "uniform",
            "seed": self.seed,
        }

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, index: np.ndarray, *, verify: Verify, tick: Tick
    ) -> Proposal:
        """Return each example's last iterate; with restarts, that of the first restart that broke it, else the last.

        The extra ``broken_at`` counts the steps after which an iterate was first misclassified by the attacked copy
        (for the last one, by the harness's verdict), 0 for the random start; masked where none was. In a run scored by
        its last iterate it may have a value although the example withstood: the attack can lose what it had.
        """
        adversarial = x.clone()
        broken_at = np.ma.masked_all(len(x), dtype=np.int16)
        rows = np.arange(len(x))
        for restart in range(self.restarts):
            at = torch.from_numpy(rows).to(x.device)
            noise = uniform_noise(self.seed, index[rows], tuple(x.shape[1:]), stream=Stream.RESTARTS + restart)
            found, when = self._one_start(model, x[at], y[at], torch.from_numpy(noise).to(x.device), tick)
            adversarial[at] = found
            broken_at[rows] = when
            if restart + 1 < self.restarts:
                survived = ~verify(self.threat_model.project(found, x[at]), x[at], y[at])
                tick(float(self.steps) * int((~survived).sum()) * (self.restarts - restart - 1))
                rows = rows[survived.cpu().numpy()]
                if not len(rows):
                    break
        return Proposal(adversarial, {"broken_at": broken_at}, at_verdict={"broken_at": self.steps})

    def _one_start(
        self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor, tick: Tick
    ) -> tuple[Tensor, np.ma.MaskedArray]:
        common: dict[str, Any] = {"epsilon": self.threat_model.epsilon, "step": self.step, "steps": self.steps}
        common |= {"loss": self.loss, "noise": noise, "space": self.threat_model.space}
        if self.score == "any":
            result = pgd(model, x, y, stop="misclassified", **common)
            tick(float(self.steps * len(x)))
            return _found(result.first_wrong), np.ma.array(
                _found(result.steps_right).cpu().numpy().astype(np.int16), mask=~_found(result.broken).cpu().numpy()
            )
        never = self.steps + 1
        first = torch.full((len(x),), never, dtype=torch.int16, device=x.device)

        def record(k: int, logits: Tensor) -> None:
            wrong = (logits.argmax(1) != y) & (first == never)
            first.masked_fill_(wrong, k)
            tick(float(len(x)))

        last = pgd(model, x, y, on_step=record, **common).last
        steps_taken = first.cpu().numpy()
        return last, np.ma.array(steps_taken, mask=steps_taken == never)
