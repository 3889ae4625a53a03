"""Training data: 8-bit on the device, shuffled and augmented a batch at a time.

Decoding image by image is what makes small-image training slow, so nothing is decoded: the whole set lies on the device
as bytes. Order and augmentation come from a CPU generator that is seeded for each epoch, and are drawn for the global
batch before it is cut into the parts of several processes, so neither a resume nor the number of processes changes
them (but with FAT, whose jitter draws from the same generator, as often as examples of a process are attacked).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairbench.datasets import Dataset
from fairbench.datasets.base import plain_tensor
from fairbench.errors import RecipeError
from fairbench.training.recipe import AugmentationRecipe


@dataclass(frozen=True)
class TrainingData:
    """A dataset on the device; ``inputs`` (N, C, H, W) uint8 or float32, or (N, F) float32; ``labels`` (N,) int64."""

    inputs: Tensor
    labels: Tensor
    layout: torch.memory_format = torch.contiguous_format
    """Memory format of the batches."""

    @classmethod
    def of(
        cls, dataset: Dataset, device: torch.device, layout: torch.memory_format = torch.contiguous_format
    ) -> "TrainingData":
        """Put a dataset on the device."""
        inputs = plain_tensor(dataset.inputs)
        return cls(inputs.to(device), torch.from_numpy(dataset.labels).to(device), layout)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (B, ...) float32, pixels in [0, 1], in the layout, and (B,) int64."""
        x = self.inputs[rows]
        x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        return x.contiguous(memory_format=self.layout), self.labels[rows]

    def part_of_pass(self, part: int, parts: int, batch_size: int, generator: torch.Generator) -> Tensor:
        """Return (n,) int64 the rows of one part of a pass: whole batches, in an order that the generator draws.

        Raises
        ------
        RecipeError
            A pass has fewer batches than parts.
        """
        order = torch.randperm(len(self), generator=generator)
        batches = len(order) // batch_size
        size = batches // parts * batch_size
        if not size:
            raise RecipeError(
                f"schedule.epochs_per_pass {parts}: a pass over {len(order)} images is {batches} batches of "
                f"{batch_size}; lower one of them."
            )
        return order[part * size : (part + 1) * size]

    def balanced(self) -> "TrainingData":
        """Return it with the examples of smaller classes repeated, in turn, until each has as many as the largest.

        Examples
        --------
        >>> data = TrainingData(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([0, 0, 0, 1]))
        >>> data.balanced().inputs[:, 0].tolist()
        [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]
        """
        return self.taken(self.balanced_rows())

    def taken(self, rows: Tensor) -> "TrainingData":
        """Return the examples of these rows, (n,) int64, in their order and as often as they are named."""
        return TrainingData(self.inputs[rows], self.labels[rows], self.layout)

    def balanced_rows(self) -> Tensor:
        """Return (n,) int64, which examples :meth:`balanced` holds, class by class."""
        labels = self.labels.cpu().numpy()
        counts = np.bincount(labels)
        of_class = [np.flatnonzero(labels == c) for c in np.flatnonzero(counts)]
        rows = torch.from_numpy(np.concatenate([np.resize(found, counts.max()) for found in of_class]))
        return rows.to(self.labels.device)

    def batches(
        self,
        batch_size: int,
        augmentation: AugmentationRecipe,
        generator: torch.Generator,
        *,
        rank: int = 0,
        world: int = 1,
        order: Tensor | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this process's part of each shuffled, augmented global batch; the last, smaller batch is left out.

        ``order`` (n,) int64 names the rows to take, in their order; all, shuffled by the generator, where it is None.

        Raises
        ------
        RecipeError
            The data do not fill one batch, or a batch cannot be cut into equal parts.
        """
        if batch_size > len(self):
            raise RecipeError(f"batch size {batch_size} is larger than the {len(self)} training images.")
        if batch_size % world:
            raise RecipeError(f"batch size {batch_size} cannot be cut into {world} equal parts.")
        if order is None:
            order = torch.randperm(len(self), generator=generator)
        part = slice(rank * batch_size // world, (rank + 1) * batch_size // world)
        for start in range(0, len(order) - batch_size + 1, batch_size):
            draws = _draw(augmentation, batch_size, generator)
            x, y = self.batch(order[start : start + batch_size][part].to(self.labels.device))
            x = _augment(x, augmentation, [d[part] for d in draws])
            yield x.contiguous(memory_format=self.layout), y


def _draw(augmentation: AugmentationRecipe, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """Draw the crop's row and column and whether to flip, for each image of the global batch."""
    places = 2 * augmentation.crop + 1
    top, left = (torch.randint(places, (batch_size,), generator=generator) for _ in range(2))
    flip = torch.rand(batch_size, generator=generator) < 0.5
    return [top, left, flip]


def _augment(x: Tensor, augmentation: AugmentationRecipe, draws: list[Tensor]) -> Tensor:
    if not augmentation.crop and not augmentation.flip:
        return x
    top, left, flip = (draw.to(x.device) for draw in draws)
    height, width = x.shape[2:]
    if augmentation.crop:
        padded = F.pad(x, [augmentation.crop] * 4)
        rows = (top[:, None] + torch.arange(height, device=x.device))[:, None, :, None]
        columns = (left[:, None] + torch.arange(width, device=x.device))[:, None, None, :]
        image = torch.arange(len(x), device=x.device)[:, None, None, None]
        channel = torch.arange(x.shape[1], device=x.device)[None, :, None, None]
        x = padded[image, channel, rows, columns]
    if augmentation.flip:
        x = torch.where(flip[:, None, None, None], x.flip(3), x)
    return x


def split_validation(dataset: Dataset, per_class: int) -> tuple[Dataset, Dataset | None]:
    """Cut a training set in two: the rest, and the last ``per_class`` images of each class (``xu2021``: 300), or None.

    Raises
    ------
    RecipeError
        A class has no image left to train on.
    """
    if not per_class:
        return dataset, None
    held = [np.flatnonzero(dataset.labels == c)[-per_class:] for c in range(dataset.num_classes)]
    rows = np.sort(np.concatenate(held))
    rest = np.setdiff1d(np.arange(len(dataset)), rows)
    counts = np.bincount(dataset.labels[rest], minlength=dataset.num_classes)
    present = np.bincount(dataset.labels, minlength=dataset.num_classes) > 0
    if (counts[present] == 0).any():
        name = dataset.classes[int(np.flatnonzero(present & (counts == 0))[0])]
        raise RecipeError(
            f"holding out {per_class} images a class leaves none of class {name} to train on; lower "
            "validation_per_class."
        )
    return dataset.subset(rest), dataset.subset(rows)
