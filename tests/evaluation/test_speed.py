"""Measured speed: FLOPs against a count by hand, rates that are rates, and the batch size that is chosen of them."""

import time

import pytest
import torch
from torch import nn

from fairbench.evaluation import speed
from fairbench.evaluation.speed import BatchSpeed, Flops, Rate, best_batch, count_flops


def at(batch: int, rate: float, memory: int | None = None) -> BatchSpeed:
    return BatchSpeed(batch, Rate(1, 1, 1, 3), Rate(rate, rate, rate, 3), memory)


def test_flops_of_a_dense_layer_and_a_convolution():
    """4x4 to 4x4 by 3 channels of 3x3 kernels: 2 * 9 * 16 * 3; then 48 to 5: 2 * 48 * 5. Back to the input as much."""
    module = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Flatten(), nn.Linear(48, 5)).requires_grad_(False)
    forward = 2 * 9 * 16 * 3 + 2 * 48 * 5
    assert count_flops(module, torch.rand(2, 1, 4, 4)) == Flops(forward, forward)
    assert count_flops(module, torch.rand(2, 1, 4, 4)).step == 2 * forward


def test_a_rate_is_a_median_and_a_spread():
    assert Rate.of(10, [1.0, 2.0, 5.0]) == Rate(5.0, 2.0, 10.0, 3)


@pytest.mark.parametrize(
    ("found", "memory", "chosen"),
    [
        ([at(8, 10, 100), at(16, 20, 200), at(32, 19, 300)], 1_000, 16),
        ([at(8, 10, 100), at(16, 20, 200), at(32, 20.2, 300)], 1_000, 16),  # within 2 %: the smaller
        ([at(8, 10, 100), at(16, 20, 200), at(32, 30, 300)], 250, 16),
        ([at(8, 10, 100), at(16, 20, 200)], 50, 8),
        ([at(8, 10), at(16, 20)], 50, 16),
    ],
)
def test_the_best_batch_size(found, memory, chosen):
    assert best_batch(found, memory).batch == chosen


def batches(module: nn.Module):
    return lambda size: (torch.rand(size, 1, 4, 4), torch.zeros(size, dtype=torch.int64))


def test_batch_sizes_are_measured_until_memory_is_used_up(monkeypatch):
    held = iter([100, 200, 400, 800, 1600])
    monkeypatch.setattr(speed, "peak_memory", lambda _: next(held))
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    said: list[float] = []
    found = speed.measure_batches(module, batches(module), budget=2, memory=500, sizes=(2, 4, 8, 16), tell=said.append)
    assert [one.batch for one in found] == [2, 4, 8]
    assert all(one.step.low <= one.step.median <= one.step.high and one.step.runs >= 3 for one in found)
    assert said == sorted(said)
    assert said[-1] == 1


def test_one_batch_size_is_measured_however_little_time_there_is():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    found = speed.measure_batches(module, batches(module), budget=0.001, memory=1e12)
    assert found[0].batch == speed.BATCH_SIZES[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_peak_is_measured_both_ways(dtype, monkeypatch):
    """On small ones: where bf16 is emulated, one of the real sizes takes seconds."""
    monkeypatch.setattr(speed, "_SIDES", (32, 64))
    monkeypatch.setattr(speed, "_BATCHES", (1, 4))
    monkeypatch.setattr(speed, "_CHANNELS", 16)
    monkeypatch.setattr(speed, "_SIDE", 8)
    found = speed.peak(dtype, budget=0.01)
    assert list(found) == list(speed.PEAKS)
    assert all(rate > 1e6 for rate in found.values())


@pytest.mark.parametrize(("budget", "measured"), [(0.01, 1), (1.0, len(speed._SIDES))])
def test_sizes_grow_until_one_takes_long(budget, measured, monkeypatch):
    """A twelfth of the budget: the next is four times as large or more. Here every size takes 2 ms."""
    sides = []

    def work(side, *_):
        sides.append(side)
        return 1, lambda: time.sleep(0.002)

    monkeypatch.setattr(speed, "_matrix_product", work)
    monkeypatch.setattr(speed, "_convolution", lambda *_: (1, lambda: None))
    found = speed.peak(budget=budget)
    assert tuple(sides) == speed._SIDES[:measured]
    assert found[speed.MATRIX_PRODUCT] <= 1 / 0.002


def test_memory_is_told_in_bytes():
    held, free = speed.peak_memory(), speed.free_memory()
    assert held is None or held > 10_000_000
    assert free is None or free > 1_000_000
