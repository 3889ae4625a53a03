"""What the FRL methods of ``refrl2022`` share: class errors on held-out images, measured before every batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairbench.attacks.pgd import pgd
from fairbench.training.method import Context, Method, option
from fairbench.training.recent import RecentErrors


def violation_weights(errors: Tensor, average: float, tolerance: float, alpha: float) -> Tensor:
    """Return (K,) ``softmax(1 + alpha (err_c - err - tau))``; a class without an example counts as average."""
    violation = torch.nan_to_num(errors - average, nan=0.0) - tolerance
    return torch.softmax(1 + alpha * violation, dim=0).float()


@dataclass
class RefrlHeldOut(Method):
    """What both methods of the report share: errors measured on held-out images before every batch."""

    needs_start: ClassVar[bool] = True
    needs_validation: ClassVar[bool] = True

    held_out: int = option(
        100, "ours: held-out images attacked before each batch; the public notebooks take 20 batches", least=1
    )
    window: int = option(
        20, "batches pooled: as many held-out images as the public notebooks look at before each", least=1
    )

    def setup(self, context: Context) -> None:
        """Start with no measurement."""
        super().setup(context)
        self.recent = RecentErrors.empty(self.window, context.num_classes)

    def state(self) -> dict[str, Any]:
        """Return the window; what follows from it is made anew before the next batch."""
        return {"counts": self.recent.counts, "place": self.recent.place}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the window back."""
        self.recent = RecentErrors(state["counts"], state["place"])

    def measure(self, model: nn.Module, *, epsilon: float, step: float, steps: int) -> None:
        """Attack some held-out images and adapt to the errors of the window, which is full from the first batch on."""
        held = self.context.held
        if held is None:
            return
        attacked = self.context.attack_copy(model)
        for _ in range(max(1, self.window - self.recent.place)):
            rows = torch.randint(len(held), (self.held_out,), generator=self.context.generator)
            x, y = held.batch(rows.to(held.labels.device))
            noise = torch.rand(x.shape, generator=self.context.generator).to(x.device) * 2 - 1
            found = pgd(
                attacked, x, y, epsilon=epsilon, step=step, steps=steps, noise=noise, space=self.context.space
            ).last
            with torch.no_grad():
                clean, under_attack = attacked(x).argmax(1), attacked(found).argmax(1)
            self.recent.add(y, clean != y, under_attack != clean)
        self.adapt()

    def adapt(self) -> None:
        """Set weights, or radii, by the errors of the window."""
        raise NotImplementedError
