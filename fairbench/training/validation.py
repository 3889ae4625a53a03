"""Class-wise errors on held-out training images: what methods adapt to and checkpoints are chosen by."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fairbench.attacks.base import PIXELS, Space
from fairbench.attacks.pgd import default_step, pgd
from fairbench.randomness import uniform_noise
from fairbench.training.data import TrainingData
from fairbench.training.method import ClassErrors

_STEPS = 20
_BATCH = 500


def class_errors(
    attacked: nn.Module,
    judge: nn.Module,
    data: TrainingData,
    index: np.ndarray,
    *,
    num_classes: int,
    epsilon: float,
    space: Space = PIXELS,
) -> ClassErrors:
    """Attack the held-out examples with PGD-20 and return the errors of each class, as fractions.

    Parameters
    ----------
    attacked, judge
        The copy that is attacked, which may compute in bfloat16, and the model itself, which gives the verdicts; both
        in ``eval()`` mode, on the device of ``data``.
    index
        (N,) positions in the training set; the random starts depend on them alone.
    """
    step = default_step(epsilon, pixels=space is PIXELS)
    seen: dict[str, list[torch.Tensor]] = {"std": [], "rob": [], "loss": []}
    for start in range(0, len(data), _BATCH):
        rows = torch.arange(start, min(start + _BATCH, len(data)), device=data.labels.device)
        x, y = data.batch(rows)
        noise = torch.from_numpy(uniform_noise(0, index[rows.cpu().numpy()], tuple(x.shape[1:]))).to(x)
        found = pgd(attacked, x, y, epsilon=epsilon, step=step, steps=_STEPS, noise=noise, space=space).last
        with torch.no_grad():
            logits = judge(found)
            seen["std"].append(judge(x).argmax(1) != y)
        seen["rob"].append(logits.argmax(1) != y)
        seen["loss"].append(F.cross_entropy(logits, y, reduction="none"))
    values = {name: torch.cat(parts).cpu().double() for name, parts in seen.items()}
    labels = data.labels.cpu()
    counts = torch.bincount(labels, minlength=num_classes).double()
    by_class = {  # 0 / 0 is NaN
        name: torch.zeros(num_classes, dtype=torch.float64).index_add_(0, labels, value) / counts
        for name, value in values.items()
    }
    return ClassErrors(
        std=by_class["std"],
        rob=by_class["rob"],
        rob_loss=by_class["loss"],
        avg_std=float(values["std"].mean()),
        avg_rob=float(values["rob"].mean()),
    )
