"""Checks that protect the user's conclusion: what about a model or its data makes a robust error misleading.

Each finding is one sentence; the report and the manifest carry them as warnings. ``docs/warnings.md`` says what to do.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.attacks.base import logits_of
from fairbench.datasets import Dataset
from fairbench.errors import ModelError
from fairbench.evaluation.attack_kinds import is_pgd
from fairbench.metrics import Summary
from fairbench.metrics.misled import LIMIT
from fairbench.models.base import Normalize
from fairbench.outcomes import Outcomes

SMALL_CLASS = 50
"""Below this many examples, a class's interval is about as wide as the differences one looks for."""
_MASKED_SHARE = 0.1
_NORMALISED_TWICE = 6.0
"""Mean/std normalisation takes [0, 1] to about [-3, 3.5] for common data sets; a second one takes that past this."""
_STRONGER = 10.0
_ROUNDING = 1e-3
"""Share of the largest logit that two passes may differ by: kernels that add in another order stay far below."""
_BROKEN = 95.0
_UNTOUCHED = 0.1


def check_model(
    module: nn.Module, batch: tuple[Tensor, Tensor, np.ndarray], num_classes: int, *, pixels: bool = True
) -> list[str]:
    """Return warnings about a model from one batch of clean examples.

    Raises
    ------
    ModelError
        The model does not return finite (B, K) logits, has no gradient at all, or changes its input.
    """
    x, y, index = batch
    refuse_in_place(module, x)
    logits = logits_of(module, x, index, num_classes)
    found = [
        _changes(logits, logits_of(module, x, index, num_classes)),
        _depends_on_batch(module, x, logits),
        _probabilities(logits),
        _masked(module, x, y, pixels),
        _normalised_twice(module, x) if pixels else None,
    ]
    return [warning for warning in found if warning]


def refuse_in_place(module: nn.Module, x: Tensor) -> None:
    """Refuse a model that writes into the batch it is given: the next pass, and the attack, would see other images.

    Raises
    ------
    ModelError
        It does.
    """
    given = x.clone()
    with torch.no_grad():
        module(given)
    if not torch.equal(given, x):
        raise ModelError(
            "the model changes its input in place, so each pass over the same images sees others: in forward write "
            "x = x - m instead of x -= m, or begin with x = x.clone()."
        )


def check_dataset(dataset: Dataset) -> list[str]:
    """Return warnings about the number of examples in each class."""
    counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
    absent = [dataset.classes[c] for c in np.flatnonzero(counts == 0)]
    small = [f"{dataset.classes[c]} ({counts[c]})" for c in np.flatnonzero((counts > 0) & (counts < SMALL_CLASS))]
    found = []
    if absent:
        found.append(f"no example of the class(es) {_some(absent)}: their errors are unknown, not 0.")
    if small:
        found.append(
            f"fewer than {SMALL_CLASS} examples in {_some(small)}: a worst class may be chance; see intervals."
        )
    if dataset.features is None and dataset.inputs.dtype != np.uint8 and dataset.inputs.max() <= 2 / 255:
        found.append("no pixel is above 2/255: the images look divided by 255 twice.")
    return found


def check_results(summary: Summary) -> list[str]:
    """Return warnings that need the finished table: attacks that disagree, and a model that is broken everywhere."""
    found = []
    autoattack = summary.attacks.get("autoattack")
    pgds = [attack for name, attack in summary.attacks.items() if is_pgd(name)]
    pgd = max(pgds, key=lambda attack: attack.avg_rob, default=None)
    if autoattack is not None and pgd is not None and (more := autoattack.avg_rob - pgd.avg_rob) > _STRONGER:
        found.append(
            f"AutoAttack breaks {more:.1f} points more than {pgd.attack}: gradients are likely masked; trust "
            "AutoAttack's figures."
        )
    for on_margin in pgds:
        on_entropy = summary.attacks.get(on_margin.attack.replace("cw", "pgd"), on_margin)
        if (more := round(on_margin.avg_rob - on_entropy.avg_rob, 9)) > LIMIT:
            found.append(
                f"{on_margin.attack} breaks {more:.1f} points more than {on_entropy.attack}: the cross-entropy "
                f"misleads PGD here; {'run' if autoattack is None else 'trust'} autoattack."
            )
    for attack in summary.attacks.values():
        least = attack.classes["rob"].min()
        if least >= _BROKEN > attack.avg_std:
            found.append(
                f"{attack.attack} breaks every class almost whole (robust errors from {least:.0f} %): a CRU_s near 0 "
                "is then no sign of fairness."
            )
    return found


def check_proposals(outcomes: Outcomes) -> list[str]:
    """Return warnings about attacks of one's own: points outside the ball, and examples that they did not touch."""
    found = []
    clean_right = (outcomes.frame["clean_pred"] == outcomes.frame["label"]).to_numpy()
    for attack in outcomes.attacks:
        if f"{attack}_distance" not in outcomes.frame:
            continue
        distance = outcomes.frame[f"{attack}_distance"].to_numpy()
        outside = outcomes.frame[f"{attack}_outside"].to_numpy()
        if outside.any():
            epsilon = outcomes.manifest["attacks"][attack]["epsilon"]
            found.append(
                f"{attack}: {outside.sum():,} of {len(distance):,} points were outside the ball, up to "
                f"{distance[outside].max():.3g} from the example where epsilon is {epsilon:.3g}, and were moved to its "
                "border: another scale, norm or epsilon?"
            )
        same = (distance == 0) & clean_right
        if same.sum() > _UNTOUCHED * clean_right.sum():
            found.append(
                f"{attack}: {same.sum():,} of {clean_right.sum():,} examples that are classified right came back as "
                "they were; they count as withstanding."
            )
    return found


def _changes(first: Tensor, second: Tensor) -> str | None:
    changed = int((first.argmax(1) != second.argmax(1)).sum())
    apart = float((first - second).abs().max())
    if not changed and apart <= _ROUNDING * (1 + float(first.abs().max())):
        return None
    what = f"{changed} of {len(first)} predictions change" if changed else f"logits change by up to {apart:.2g}"
    return (
        f"{what} between two clean passes: a layer is random or still in train "
        "mode; robust errors of such a model are overstated or understated by chance."
    )


def _depends_on_batch(module: nn.Module, x: Tensor, logits: Tensor) -> str | None:
    """Ask again in two halves: a layer that uses statistics of the batch answers otherwise."""
    if len(x) < 2:
        return None
    with torch.no_grad():
        halves = torch.cat([module(part) for part in x.chunk(2)]).float()
    changed = int((halves.argmax(1) != logits.argmax(1)).sum())
    if not changed or halves.shape != logits.shape:
        return None
    return (
        f"{changed} of {len(x)} predictions change with the batch an example rides in: a layer uses statistics of the "
        "batch (batch norm in train mode or without running statistics); errors depend on --batch-size."
    )


def _probabilities(logits: Tensor) -> str | None:
    sums = logits.sum(1)
    if bool(((logits >= 0) & (logits <= 1)).all()) and bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-3)):
        return (
            "outputs look like probabilities (in [0, 1], summing to 1), not logits: softmax flattens the gradients and "
            "attacks look weaker than they are; return logits."
        )
    return None


def _masked(module: nn.Module, x: Tensor, y: Tensor, pixels: bool) -> str | None:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = module(x)
        loss = F.cross_entropy(logits, y, reduction="sum")
        gradient = torch.autograd.grad(loss, x, allow_unused=True)[0] if loss.requires_grad else None
    if gradient is None:
        raise ModelError(
            "the model's outputs do not depend on its input by any gradient (a detach, no_grad or NumPy in forward): "
            "PGD and AutoAttack cannot attack it. Attack the part that has gradients."
        )
    right = logits.argmax(1) == y
    zero = right & (gradient.abs().flatten(1).amax(1) == 0)
    if not right.any() or zero.sum() <= _MASKED_SHARE * right.sum():
        return None
    return (
        f"the gradient is exactly zero for {int(zero.sum())} of {int(right.sum())} correctly classified examples: PGD "
        "cannot move them (masked gradients); "
        + ("run AutoAttack, whose Square stage needs no gradient." if pixels else "its robust error is a lower bound.")
    )


def _normalised_twice(module: nn.Module, x: Tensor) -> str | None:
    """Look at what reaches the first layer with weights."""
    seen: list[float] = []

    def record(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not seen:
            seen.append(float(inputs[0].detach().abs().max()))

    layers = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_pre_hook(record) for layer in layers]
    try:
        with torch.no_grad():
            module(x)
    finally:
        for hook in hooks:
            hook.remove()
    ours = [m for m in module.modules() if isinstance(m, Normalize)]
    once = max((float(torch.maximum(m.mean, 1 - m.mean).div(m.std).max()) for m in ours), default=_NORMALISED_TWICE)
    if seen and seen[0] > 1.01 * once:
        hint = "leave --mean and --std away" if ours else "its own normalisation, or a layer that scales by 255"
        return f"values up to {seen[0]:.1f} reach the first layer: the input looks normalised twice ({hint})."
    return None


def _some(names: list[str], shown: int = 5) -> str:
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
