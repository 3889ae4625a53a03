"""Training on a fixed adversarial set beside the clean one (``sooksatra2022``): the robust models of that paper."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.attacks.pgd import pgd
from fairbench.training.data import TrainingData
from fairbench.training.method import Method, option

_BATCH = 500


@dataclass
class StaticAugmentation(Method):
    """``CE(f(x), y)`` on the union of the training images and of adversarial images made once, for another model.

    PGD attacks the finished model named by ``--from``; a new model is trained on both halves, which stay as they are.
    """

    name: ClassVar[str] = "static_augmentation"
    source: ClassVar[str] = "Sooksatra and Rivas, 2022 (sooksatra2022), Section IV"
    needs_start: ClassVar[bool] = True
    trains_start: ClassVar[bool] = False

    epsilon: float = option(0.01, "sooksatra2022, CIFAR-10")
    step: float = option(0.0025, "ours: a quarter of the radius; the paper states none")
    steps: int = option(10, "ours: the paper states none")

    def training_set(self, data: TrainingData) -> TrainingData:
        """Return the images, and after them the adversarial ones."""
        source = self.context.source
        if source is None:
            raise TypeError("static_augmentation needs the model that its examples are made for")
        self.context.generator.manual_seed(self.context.seed)  # a resumed run makes the same images
        space = self.context.space
        clean, adversarial = [], []
        for start in range(0, len(data), _BATCH):
            x, y = data.batch(torch.arange(start, min(start + _BATCH, len(data)), device=data.labels.device))
            noise = (torch.rand(x.shape, generator=self.context.generator) * 2 - 1).to(x.device)
            found = pgd(source, x, y, epsilon=self.epsilon, step=self.step, steps=self.steps, noise=noise, space=space)
            clean.append(x)
            adversarial.append(found.last)
        return TrainingData(torch.cat(clean + adversarial), data.labels.repeat(2), data.layout)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(model(x), y)
