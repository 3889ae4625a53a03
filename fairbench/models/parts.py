"""A batch cut into parts, and a thread for each: layers are too small to be shared by several threads without loss.

Sharing a layer, threads wait for each other at its end, and transforms of a few megabytes are not shared at all
(winograd.py). Parts of a batch have nothing to wait for but the end of the network. How a batch is cut depends on its
length alone, so results do not depend on the number of threads.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.function import once_differentiable

from fairbench.models.kernels import applies

_PROBE = 8
_FEWEST = 32
"""Examples of a part: fewer read the weights too often. There are 2, 4, 8 ... parts, which cores share evenly."""

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_lock = threading.Lock()
os.register_at_fork(after_in_child=_pools.clear)  # a child has none of the threads


def in_parts(module: nn.Module, x: Tensor) -> nn.Module:
    """Return an attack-ready copy so computed; the copy itself where a pass may keep something, or examples mix.

    Parameters
    ----------
    module
        In ``eval()`` mode, frozen.
    x
        (B, ...) real inputs in its layout, two of them or more; its first half alone must give what it gives in ``x``.
    """
    if not isinstance(module, fx.GraphModule):  # a graph alone is known to keep nothing
        return module
    few = x[:_PROBE]
    with torch.no_grad():
        together, alone = module(few), module(few[: len(few) // 2])
    return InParts(module) if torch.allclose(together[: len(alone)], alone, rtol=1e-3, atol=1e-4) else module


class InParts(nn.Module):
    """A frozen network in ``eval()`` mode whose float32 batches on a processor are computed in parts.

    Parameters
    ----------
    module
        Maps (B, ...) to (B, ...), each example by itself, and keeps nothing of a pass. Gradients go to the input alone,
        and cannot be differentiated again.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Return what the network does."""
        size = _size(len(x)) if x.ndim and applies(x) else 0
        if not size or len(x) == size:
            out: Tensor = self.module(x)
            return out
        if torch.is_grad_enabled() and x.requires_grad:
            computed: Tensor = _Parts.apply(x, self.module, size)
            return computed
        return torch.cat(_in_threads(_without_gradient(self.module), x.split(size)))


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, module: nn.Module, size: int) -> Tensor:
        def compute(part: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                part = part.detach().requires_grad_()
                return part, module(part)

        ctx.parts = _in_threads(compute, x.split(size))
        return torch.cat([out.detach() for _, out in ctx.parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        def back(part: tuple[tuple[Tensor, Tensor], Tensor]) -> Tensor:
            (x, out), gradient = part
            (found,) = torch.autograd.grad(out, x, gradient, retain_graph=True)  # the caller may ask again
            return found

        pieces = gradients[0].split([len(out) for _, out in ctx.parts])
        return torch.cat(_in_threads(back, zip(ctx.parts, pieces, strict=True))), None, None


def _without_gradient(module: nn.Module) -> Callable[[Tensor], Tensor]:
    @torch.no_grad()  # a thread starts with gradients on
    def compute(part: Tensor) -> Tensor:
        out: Tensor = module(part)
        return out

    return compute


def _size(count: int) -> int:
    """Return how many examples a part of a batch has, but for the last, which may have fewer."""
    parts = 1
    while count >= 2 * parts * _FEWEST:
        parts *= 2
    return -(-count // parts)


def _in_threads(compute: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """Map ``compute`` over parts, in order: in turn with one thread, else with as many at once as there are threads."""
    parts, threads = list(parts), torch.get_num_threads()
    at_once = min(threads, len(parts))
    if at_once == 1:
        return [compute(part) for part in parts]
    return list(_pool(at_once, threads // at_once).map(compute, parts))


def _pool(workers: int, threads: int) -> ThreadPoolExecutor:
    """Return threads that use so many threads each within a layer; torch counts them by the thread that computes."""
    with _lock:
        if (workers, threads) not in _pools:
            pool, ready = (
                ThreadPoolExecutor(workers, thread_name_prefix="fairbench-part"),
                threading.Barrier(workers + 1),
            )

            def prepare() -> None:
                torch.get_num_threads()  # settles the number that the thread begins with, or that comes later
                torch.set_num_threads(threads)
                ready.wait()

            before = torch.get_num_threads()
            for _ in range(workers):
                pool.submit(prepare)
            ready.wait()
            torch.set_num_threads(before)  # the last number set, by whatever thread, is what new threads begin with
            _pools[workers, threads] = pool
        return _pools[workers, threads]
