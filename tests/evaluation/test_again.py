"""What a submission is held to is computed as its rows were."""

import numpy as np
import torch
from torch import nn

from fairbench.datasets import Dataset
from fairbench.evaluation import Protocol
from fairbench.evaluation.again import Again
from fairbench.models import Model


class Asked(nn.Module):
    """Remembers whether convolutions might have been rounded to TF32, which moves a confidence by more than 0.001."""

    rounded: bool | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Asked.rounded = torch.backends.cudnn.allow_tf32
        return x.flatten(1)[:, :3]


def test_clean_predictions_are_of_float32_proper() -> None:
    inputs = np.random.default_rng(0).integers(0, 256, (6, 1, 2, 2), dtype=np.uint8)
    data = Dataset("toy", inputs, np.arange(6) % 3, ("a", "b", "c"))
    again = Again(Model(Asked(), "m", "Asked"), data, Protocol.named("standard"), {"device": "cpu"})
    predicted, confidence, margin = again.clean()
    assert Asked.rounded is False
    np.testing.assert_array_equal(predicted, inputs.reshape(6, 4)[:, :3].argmax(1))
    assert ((confidence > 1 / 3) & (margin >= 0)).all()
