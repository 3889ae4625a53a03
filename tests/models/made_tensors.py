"""Random values that are the same in every run, and what a layer makes of them."""

import torch
from torch import Tensor, nn


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def value_and_gradient(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a layer's value, and the gradient that comes back to its input from random weights of the value."""
    x = x.detach().clone().requires_grad_()
    out = module(x)
    (gradient,) = torch.autograd.grad((out * normal(*out.shape, seed=3).to(out)).sum(), x)
    return out.detach(), gradient
