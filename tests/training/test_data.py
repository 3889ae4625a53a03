"""Crops, flips and held-out errors: what a batch is made of, and what methods adapt to."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairbench import Protocol, evaluate, load_dataset, summarize
from fairbench.training.data import TrainingData, _augment
from fairbench.training.recipe import AugmentationRecipe
from fairbench.training.validation import class_errors


@pytest.mark.parametrize(("top", "left", "flip"), [(1, 1, False), (0, 2, False), (2, 0, True), (1, 0, True)])
def test_a_crop_is_a_window_of_the_padded_image_and_a_flip_turns_left_and_right(top, left, flip):
    x = torch.arange(1.0, 17.0).view(1, 1, 4, 4)
    draws = [torch.tensor([top]), torch.tensor([left]), torch.tensor([flip])]
    found = _augment(x, AugmentationRecipe(crop=1, flip=True), draws)
    expected = F.pad(x, [1] * 4)[:, :, top : top + 4, left : left + 4]
    assert torch.equal(found, expected.flip(3) if flip else expected)


@pytest.mark.parametrize("world", [1, 2, 5])
def test_augmentation_is_drawn_for_the_global_batch(world):
    data = TrainingData.of(load_dataset("digits", "train"), torch.device("cpu"))
    chosen = AugmentationRecipe(crop=1, flip=True)

    def batches(rank: int, of: int) -> list[torch.Tensor]:
        return [x for x, _ in data.batches(100, chosen, torch.Generator().manual_seed(4), rank=rank, world=of)]

    parts = [batches(rank, world) for rank in range(world)]
    whole = batches(0, 1)
    assert len(whole) == len(data) // 100
    for found, expected in zip(zip(*parts, strict=True), whole, strict=True):
        assert torch.equal(torch.cat(found), expected)


def test_held_out_errors_are_those_of_an_evaluation_under_pgd20():
    digits = load_dataset("digits")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    x, y, _ = load_dataset("digits", "train").batch(slice(None))
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    data = TrainingData.of(digits, torch.device("cpu"))
    found = class_errors(module.eval(), module, data, digits.index, num_classes=10, epsilon=0.1)
    evaluated = evaluate(module, digits, Protocol.named("standard", epsilon=0.1), device="cpu")
    rows = summarize(evaluated).attacks["pgd20"].classes
    assert (100 * found.std).tolist() == pytest.approx(rows["std"].tolist())
    assert (100 * found.rob).tolist() == pytest.approx(rows["rob"].tolist())
    assert 1 < 100 * found.avg_std < 30 < 100 * found.avg_rob < 95
