"""Many networks of one architecture as one module: every layer computes all of them at once.

Small networks leave a processor idle between operators. Here the weights of L networks are stacked, and their
activations travel as one batch of L * B examples, model after model, so that layers without weights run as they are; a
dense layer is a batched matrix product, a convolution a grouped one. What all models share (the images, up to the first
layer with weights) is not repeated. An ensemble of one is the network itself.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fairbench.errors import ModelError
from fairbench.models.base import Normalize
from fairbench.models.kernels import use_fast_kernels


@dataclass
class _Size:
    """How many models there are, and how many examples each has in the batch at hand; its layers share it."""

    models: int
    examples: int = 0


class Ensemble(nn.Module):
    """L networks that start with the same weights.

    Parameters
    ----------
    module
        The network; it stays as it is. Its only weights are those of convolutions and dense layers, and it has no
        dropout. A normalisation of the inputs is the same for all.
    models
        L.
    name
        What errors call the architecture.

    Raises
    ------
    ModelError
        It has a layer that cannot be stacked, batch norm above all, and which.
    """

    def __init__(self, module: nn.Module, models: int, name: str = "the network") -> None:
        super().__init__()
        _check(module, name)
        self._size = _Size(models)
        self.network = nn.Sequential(copy.deepcopy(module))  # a parent, for a network that is a single layer
        if models == 1:
            return
        for place, layer in list(self.network.named_modules()):
            stacked = _STACKED.get(type(layer))
            if stacked is not None:
                parent, _, leaf = place.rpartition(".")
                setattr(self.network.get_submodule(parent), leaf, stacked(layer, self._size))
        use_fast_kernels(self.network)

    @property
    def models(self) -> int:
        """L."""
        return self._size.models

    def common(self, x: Tensor) -> Tensor:
        """Map (B, ...), the same examples for all models, to (L, B, K) logits."""
        return self._run(x, len(x)).view(self.models, len(x), -1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (L * B, ...), each model's own examples, model after model, to (L * B, K) logits."""
        return self._run(x, len(x) // self.models)

    def _run(self, x: Tensor, examples: int) -> Tensor:
        self._size.examples = examples
        return self.network(x)

    def state_of(self, model: int) -> dict[str, Tensor]:
        """Return one model's weights, named and shaped as the network's own."""
        if self.models == 1:
            return self.network[0].state_dict()
        found: dict[str, Tensor] = {}
        for place, layer in self.network.named_modules():
            if isinstance(layer, _Stacked):
                _, _, own = place.partition(".")
                found |= {f"{own}.{key}".lstrip("."): value for key, value in layer.of(model).items()}
        return found


class _Stacked(nn.Module):
    """A layer of L models; ``weight`` and ``bias`` hold all of theirs."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, size: _Size) -> None:
        super().__init__()
        self.size = size

    def shared(self, x: Tensor) -> bool:
        """Whether these are the examples all models have in common."""
        return len(x) == self.size.examples

    def of(self, model: int) -> dict[str, Tensor]:
        """Return one model's weight and bias in the shapes of torch's layer."""
        raise NotImplementedError


class _Product(torch.autograd.Function):
    """(L, B, in) times the transpose of (L, out, in): the gradient of the weights comes as they lie, without a copy."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return rows @ weight.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_rows = gradients[0] @ weight if ctx.needs_input_grad[0] else None
        return of_rows, gradients[0].transpose(1, 2) @ rows if ctx.needs_input_grad[1] else None


class _Dense(_Stacked):
    """``nn.Linear``; ``weight`` is (L, out, in), ``bias`` (L, 1, out)."""

    def __init__(self, layer: nn.Linear, size: _Size) -> None:
        super().__init__(size)
        self.weight = _repeated(layer.weight, size)
        self.bias = None if layer.bias is None else _repeated(layer.bias[None], size)

    def forward(self, x: Tensor) -> Tensor:
        models = self.size.models
        rows = x.reshape(1, -1, x.shape[-1]).expand(models, -1, -1) if self.shared(x) else _by_model(x, models)
        out = _Product.apply(rows, self.weight)
        if self.bias is not None:
            out = out + self.bias
        return out.view(models * self.size.examples, *x.shape[1:-1], out.shape[-1])

    def of(self, model: int) -> dict[str, Tensor]:
        bias = {} if self.bias is None else {"bias": self.bias[model, 0]}
        return {"weight": self.weight[model], **bias}


class _Convolution(_Stacked):
    """``nn.Conv2d``; ``weight`` is (L * out, in, height, width), ``bias`` (L * out,)."""

    def __init__(self, layer: nn.Conv2d, size: _Size) -> None:
        super().__init__(size)
        self.layer: dict[str, Any] = {k: getattr(layer, k) for k in ("stride", "padding", "dilation")}
        self.groups, self.whole = layer.groups, _takes_all(layer)
        self.kernel = layer.kernel_size
        self.weight = nn.Parameter(_repeated(layer.weight, size).data.flatten(0, 1))
        self.bias = None if layer.bias is None else nn.Parameter(_repeated(layer.bias, size).data.flatten())

    def forward(self, x: Tensor) -> Tensor:
        models, examples = self.size.models, self.size.examples
        if self.shared(x) and self.groups == 1:  # one wide convolution
            out = F.conv2d(x, self.weight, self.bias, **self.layer)
        else:
            if self.shared(x):
                x = x.repeat(models, 1, 1, 1)
            if self.whole and x.shape[2:] == self.kernel:
                return self._product(x)
            beside = x.view(models, examples, *x.shape[1:]).transpose(0, 1).reshape(examples, -1, *x.shape[2:])
            out = F.conv2d(beside, self.weight, self.bias, groups=models * self.groups, **self.layer)
        by_model = out.view(examples, models, -1, *out.shape[2:]).transpose(0, 1)
        return by_model.reshape(models * examples, -1, *out.shape[2:])

    def _product(self, x: Tensor) -> Tensor:
        """Return what a kernel as large as its input gives: a matrix product."""
        models = self.size.models
        weight = self.weight.view(models, -1, self.weight[0].numel()).transpose(1, 2)
        out = _by_model(x.flatten(1), models) @ weight
        if self.bias is not None:
            out = out + self.bias.view(models, 1, -1)
        return out.view(len(x), -1, 1, 1)

    def of(self, model: int) -> dict[str, Tensor]:
        found = {"weight": self.weight, **({} if self.bias is None else {"bias": self.bias})}
        return {key: value.view(self.size.models, -1, *value.shape[1:])[model] for key, value in found.items()}


_STACKED: dict[type[nn.Module], Any] = {nn.Linear: _Dense, nn.Conv2d: _Convolution}


def _takes_all(layer: nn.Conv2d) -> bool:
    return layer.padding == (0, 0) and layer.stride == (1, 1) == layer.dilation and layer.groups == 1


def _by_model(x: Tensor, models: int) -> Tensor:
    return x.reshape(models, -1, x.shape[-1])


def _repeated(tensor: Tensor, size: _Size) -> nn.Parameter:
    return nn.Parameter(tensor.detach().repeat(size.models, *[1] * tensor.ndim).contiguous())


def _check(module: nn.Module, name: str) -> None:
    """Refuse what cannot be stacked."""
    for place, layer in module.named_modules():
        own = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
        kind = type(layer)
        fits = kind is Normalize or (kind in _STACKED and getattr(layer, "padding_mode", "zeros") == "zeros")
        if (own and not fits) or isinstance(layer, nn.modules.dropout._DropoutNd):
            raise ModelError(
                f"{name}: layer {place or 'itself'} ({kind.__name__}) cannot be computed for many models at once; take "
                "a network of convolutions and dense layers without batch norm, such as small_cnn, lenet5 or mlp."
            )
