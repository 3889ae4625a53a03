"""Attack some examples again, as often as wanted: what a claim about rows is held to."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairbench.attacks.base import logits_of
from fairbench.datasets import Dataset
from fairbench.evaluation.device import checked_device
from fairbench.evaluation.protocol import Protocol
from fairbench.evaluation.runner import BATCH_SIZE, evaluate
from fairbench.float32 import exact
from fairbench.models import Model
from fairbench.models.prepare import frozen


@dataclass(frozen=True)
class Again:
    """A model, the whole test split it is judged on (at the size it wants), and how to compute.

    ``options`` go to :func:`~fairbench.evaluation.runner.evaluate`: batch_size, device, runs, progress.
    """

    model: Model
    dataset: Dataset
    protocol: Protocol
    options: dict[str, Any]

    def attack(self, index: np.ndarray, seed: int, copies: int = 1) -> dict[str, np.ndarray]:
        """Attack examples under the protocol with another seed, each ``copies`` times from starts of its own.

        Copy 0 starts where (seed, index) says; the others where they would if they stood further on in the split.

        Parameters
        ----------
        index
            (M,) int64 positions in the test split.

        Returns
        -------
        dict
            Attack to (copies, M) bool, whether it broke the example.
        """
        order = np.argsort(self.dataset.index)
        rows = order[np.searchsorted(self.dataset.index[order], index)]
        stride = int(self.dataset.index.max()) + 1
        chosen = self.dataset.subset(rows) if copies == 1 else self._copied(rows, copies, stride)
        outcomes = evaluate(self.model, chosen, replace(self.protocol, seed=seed), **self.options)
        frame = outcomes.frame.set_index("index")
        wanted = (np.arange(copies)[:, None] * stride + index[None, :]).ravel()
        found = frame.loc[wanted]
        label = found["label"].to_numpy()
        return {
            attack: (found[f"{attack}_pred"].to_numpy(dtype=np.int64) != label).reshape(copies, len(index))
            for attack in outcomes.attacks
        }

    def _copied(self, rows: np.ndarray, copies: int, stride: int) -> Dataset:
        again = np.tile(rows, copies)
        shift = np.repeat(np.arange(copies), len(rows)) * stride
        return Dataset(
            self.dataset.name,
            self.dataset.inputs[again],
            self.dataset.labels[again],
            self.dataset.classes,
            self.dataset.index[again] + shift,
        )

    @exact()
    def clean(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Classify the whole split without attack.

        Returns
        -------
        tuple of numpy.ndarray
            In the order of ``index``, each (N,): int64 predicted class, float64 probability of it, and float64
            distance to the second largest probability.
        """
        device = checked_device(self.options.get("device"))
        module = frozen(self.model.module).to(device)
        size = self.options.get("batch_size", BATCH_SIZE)
        order = np.argsort(self.dataset.index)
        predicted, confidence, margin = [], [], []
        for start in range(0, len(order), size):
            x, _, index = self.dataset.batch(order[start : start + size])
            top = logits_of(module, x.to(device), index, self.dataset.num_classes).double().softmax(1).topk(2, dim=1)
            predicted.append(top.indices[:, 0].cpu().numpy())
            confidence.append(top.values[:, 0].cpu().numpy())
            margin.append((top.values[:, 0] - top.values[:, 1]).cpu().numpy())
        return np.concatenate(predicted), np.concatenate(confidence), np.concatenate(margin)
