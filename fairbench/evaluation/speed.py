"""How fast this machine is: its measured peak, a network's FLOPs, and how many images a pass takes at each batch size.

One home for what ``fairbench bench`` and ``benchmarks/`` measure. FLOPs are those of convolutions and matrix products,
a multiplication and an addition each, as ``torch.utils.flop_counter`` counts them.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench import memory
from fairbench.attacks.pgd import pgd
from fairbench.float32 import exact

MATRIX_PRODUCT, CONVOLUTION = PEAKS = ("matrix product", "3x3 convolution")
"""What the peak is measured with; the machine's is the larger of the two rates."""
_SIDES = (1024, 2048, 4096, 8192)
_BATCHES = (16, 64, 128, 512)
_CHANNELS, _SIDE = 256, 32
_EPSILON, _STEP = 8 / 255, 2 / 255
_LEAST, _MOST = 3, 30
"""Calls of which a median is made."""
_LONG_ENOUGH = 0.1
"""Seconds of a call from which the clock and what surrounds the steps no longer matter."""
_SAME = 0.02
"""Throughputs that differ by less are taken for equal, and the smaller batch for the better one."""
BATCH_SIZES = tuple(2**k for k in range(4, 13))

Run = Callable[[], Any]


@dataclass(frozen=True)
class Rate:
    """Images per second: the median of repeated runs, the slowest and the fastest of them, and how many there were."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, images: float, seconds: list[float]) -> "Rate":
        """Make rates of the seconds that so many images took, run by run."""
        rates = [images / taken for taken in seconds]
        return cls(median(rates), min(rates), max(rates), len(rates))


@dataclass(frozen=True)
class Flops:
    """FLOPs of one example: of a forward pass, and of the gradient with respect to the input that may follow it."""

    forward: int
    backward: int

    @property
    def step(self) -> int:
        """Return those of an attack step: both."""
        return self.forward + self.backward


@dataclass(frozen=True)
class BatchSpeed:
    """What a batch size gives: rates of a forward pass and of an attack step, and the process's peak memory in bytes.

    Memory is that of the device if it is a GPU. On a processor it is the most the process ever held, so what came
    before counts too; None where the system does not say.
    """

    batch: int
    forward: Rate
    step: Rate
    memory: int | None


def seconds_of(run: Run, device: str = "cpu") -> float:
    """Return the seconds of one call, until the device is done."""
    _settle(device)
    start = time.perf_counter()
    run()
    _settle(device)
    return time.perf_counter() - start


def repeated(run: Run, device: str = "cpu", *, budget: float, least: int = _LEAST, most: int = _MOST) -> list[float]:
    """Return the seconds of each call: ``least`` calls, then more until ``budget`` seconds are spent, ``most`` at most.

    The caller warms up.
    """
    taken: list[float] = []
    while len(taken) < least or (len(taken) < most and sum(taken) < budget):
        taken.append(seconds_of(run, device))
    return taken


def peak(dtype: torch.dtype = torch.float32, device: str = "cpu", *, budget: float = 3.0) -> dict[str, float]:
    """Return the FLOP/s of each of :data:`PEAKS`: the best of a few large ones, on all threads.

    Sizes grow until a call takes a third of ``budget`` seconds, so a machine that computes in ``dtype`` slowly is not
    kept for long. float32 is float32 proper: no TF32.
    """
    memory.keep_freed_memory()
    with torch.no_grad(), exact():
        return {
            MATRIX_PRODUCT: _best((_matrix_product(side, dtype, device) for side in _SIDES), device, budget),
            CONVOLUTION: _best((_convolution(batch, dtype, device) for batch in _BATCHES), device, budget),
        }


def _best(works: Iterator[tuple[int, Run]], device: str, budget: float) -> float:
    best = 0.0
    for flops, run in works:
        warm_up = seconds_of(run, device)
        best = max(best, flops / min(repeated(run, device, budget=budget / 3, least=2)))
        if warm_up > budget / 12:  # the next is at least four times as large
            break
    return best


def _matrix_product(side: int, dtype: torch.dtype, device: str) -> tuple[int, Run]:
    a, b = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3, lambda: torch.mm(a, b, out=out)


def _convolution(batch: int, dtype: torch.dtype, device: str) -> tuple[int, Run]:
    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, device=device).to(dtype).contiguous(memory_format=torch.channels_last)

    image, kernel = rand(batch, _CHANNELS, _SIDE, _SIDE), rand(_CHANNELS, _CHANNELS, 3, 3)
    return 2 * 9 * _CHANNELS**2 * batch * _SIDE**2, lambda: F.conv2d(image, kernel, padding=1)


def count_flops(module: nn.Module, x: Tensor) -> Flops:
    """Count the FLOPs of one example of ``x`` (B, ...).

    Give it a network as it was built: layers that were replaced by kernels of our own are not counted, or otherwise.
    """
    from torch.utils.flop_counter import FlopCounterMode

    x = x.detach().requires_grad_()
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        logits = module(1 * x)  # times one: the counter's hooks refuse a leaf of the graph as a module's input
        forward = counter.get_total_flops()
        torch.autograd.grad(logits.sum(), x)
    return Flops(round(forward / len(x)), round((counter.get_total_flops() - forward) / len(x)))


def measure_batch(module: nn.Module, x: Tensor, y: Tensor, *, budget: float) -> BatchSpeed:
    """Measure a forward pass and an attack step of PGD on ``x`` (B, ...) and ``y`` (B,), in ``budget`` seconds or so.

    ``module`` is the copy that attacks see (:func:`~fairbench.models.prepare.prepare`).
    """
    device = str(x.device)

    def forward() -> None:
        with torch.no_grad():
            module(x)

    def attack(steps: int) -> Run:
        return lambda: pgd(module, x, y, epsilon=_EPSILON, step=_STEP, steps=steps)

    memory.keep_freed_memory()
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(x.device)
    with exact():
        seconds_of(attack(1), device)  # warm-up: memory is asked for, kernels are chosen
        steps = _times(seconds_of(attack(1), device))
        stepped = Rate.of(len(x) * steps, repeated(attack(steps), device, budget=2 * budget / 3))
        forwards = _times(seconds_of(forward, device))
        passed = Rate.of(len(x) * forwards, repeated(_again(forward, forwards), device, budget=budget / 3))
    return BatchSpeed(len(x), passed, stepped, peak_memory(device))


def measure_batches(
    module: nn.Module,
    batch: Callable[[int], tuple[Tensor, Tensor]],
    *,
    budget: float,
    memory: float,
    sizes: tuple[int, ...] = BATCH_SIZES,
    tell: Callable[[float], None] = lambda _: None,
) -> list[BatchSpeed]:
    """Measure batch sizes from the smallest on, until time or memory is used up or larger ones gain nothing.

    Parameters
    ----------
    batch
        Returns ``x`` (B, ...) and ``y`` (B,) for a B.
    budget
        Seconds in all, or so.
    memory
        Bytes that a batch may take.
    tell
        Called with the share of the budget that is spent.
    """
    start, found = time.monotonic(), list[BatchSpeed]()
    for size in sizes:
        spent = time.monotonic() - start
        tell(min(spent / budget, 1.0))
        if found and not _worth_trying(size, found, budget - spent, memory):
            break
        x, y = batch(size)
        found.append(measure_batch(module, x, y, budget=budget / len(sizes)))
    tell(1.0)
    return found


def best_batch(found: list[BatchSpeed], memory: float) -> BatchSpeed:
    """Return the batch size of the largest throughput of attack steps within ``memory`` bytes.

    Of those within 2 % of it the smallest; where none fits, the smallest of all.
    """
    fitting = [one for one in found if (one.memory or 0) <= memory] or found[:1]
    largest = max(one.step.median for one in fitting)
    return next(one for one in fitting if one.step.median >= (1 - _SAME) * largest)


def _worth_trying(size: int, found: list[BatchSpeed], left: float, memory: float) -> bool:
    last = found[-1]
    if (_LEAST + 2) * 1.5 * size / last.step.median > left:
        return False
    if last.memory is not None and len(found) > 1 and found[-2].memory is not None:
        growth = (last.memory - found[-2].memory) / (last.batch - found[-2].batch)
        if last.memory + growth * (size - last.batch) > memory:
            return False
    best = max(one.step.median for one in found)
    return not (len(found) > 2 and all(one.step.median < 0.97 * best for one in found[-2:]))


def _times(seconds: float) -> int:
    return max(1, min(20, round(_LONG_ENOUGH / max(seconds, 1e-9))))


def _again(run: Run, times: int) -> Run:
    def all_of_them() -> None:
        for _ in range(times):
            run()

    return all_of_them


def _settle(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def peak_memory(device: str = "cpu") -> int | None:
    """Return the most bytes held so far, by torch on a GPU, else by this process; None where nobody says."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free_memory(device: str = "cpu") -> int | None:
    """Return the bytes that could still be had; None where nobody says."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    return memory.free_memory()
