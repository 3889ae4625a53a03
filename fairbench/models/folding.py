"""Batch norm folded into the convolution before it, in a copy that can be refreshed as the weights move.

In ``eval()`` mode batch norm is an affine map of what the convolution gives, so the two are one convolution. An attack
evaluates a model dozens of times between two changes of its weights; folding once and attacking the copy saves a pass
over every feature map.
"""

import copy
import inspect
import logging
import operator
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

logger = logging.getLogger(__name__)

_PAIRS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_one_at_a_time = threading.Lock()
"""Held while the tracer's replacements of torch's functions stand."""


class Folded:
    """A frozen copy of a module in ``eval()`` mode, batch norm folded where the graph allows it.

    Parameters
    ----------
    module
        The original; it stays as it is. A module that cannot be traced, that has hooks, or whose forward pass uses
        tensors of its own making, is copied without folding: nothing is lost but speed.
    dtype
        What the copy computes in; it takes and returns float32 all the same. Default: what the original does.
    fold
        False: a plain copy.

    Attributes
    ----------
    module
        The copy.
    pairs
        Names of the convolution and the batch norm that became one, in the original.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype | None = None, *, fold: bool = True) -> None:
        self._original = module
        self.module: nn.Module = copy.deepcopy(module).eval().requires_grad_(False)
        self.pairs: list[tuple[str, str]] = []
        has_norm = any(isinstance(m, tuple(_PAIRS.values())) for m in self.module.modules())
        if fold and has_norm and not any(map(_has_hooks, self.module.modules())):  # tracing loses hooks
            self._fold()
        self._sources = _tensors(module)
        if dtype is not None:
            self.module.to(dtype)
        self._targets = _tensors(self.module)
        if dtype is not None:
            self.module = _Cast(self.module, dtype)
        self.refresh()

    def refresh(self) -> None:
        """Bring the copy to the original's weights and statistics as they are now."""
        folded = {name for conv, norm in self.pairs for name in (f"{conv}.weight", f"{conv}.bias")}
        with torch.no_grad():
            for name, target in self._targets.items():
                if name not in folded:
                    target.copy_(self._sources[name])
            for conv_name, norm_name in self.pairs:
                weight, bias = self._folded_weights(conv_name, norm_name)
                self._targets[f"{conv_name}.weight"].copy_(weight)
                self._targets[f"{conv_name}.bias"].copy_(bias)

    def _fold(self) -> None:
        try:
            with warnings.catch_warnings(), _gradients_as_written():
                warnings.simplefilter("ignore")
                traced = fx.symbolic_trace(self.module)
        except Exception as error:  # control flow or Python code that the tracer cannot follow
            logger.info("batch norm not folded: %s", error)
            return
        modules = dict(traced.named_modules())
        read = {str(node.target) for node in traced.graph.nodes if node.op == "get_attr"}
        if made := sorted(read - set(_tensors(self.module))):  # constants, drawn at random perhaps
            logger.info("batch norm not folded: the forward pass makes tensors (%s)", ", ".join(made))
            return
        shared = _shared_parameters(traced)
        for node in list(traced.graph.nodes):
            pair = _foldable(node, modules)
            if pair is None or any(id(p) in shared for name in pair for p in modules[name].parameters()):
                continue
            if any(name.rpartition(".")[0] in pair for name in read):  # the forward pass reads what would be folded
                continue
            conv = modules[pair[0]]
            if conv.bias is None:
                conv.bias = nn.Parameter(torch.zeros(conv.out_channels).to(conv.weight), requires_grad=False)
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
            self.pairs.append(pair)
        _work_in_place(traced)
        traced.delete_all_unused_submodules()
        traced.recompile()
        self.module = traced.eval().requires_grad_(False)

    def _folded_weights(self, conv_name: str, norm_name: str) -> tuple[Tensor, Tensor]:
        conv: Any = self._original.get_submodule(conv_name)
        norm: Any = self._original.get_submodule(norm_name)
        return fuse_conv_bn_weights(
            conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )


@contextmanager
def _gradients_as_written() -> Iterator[None]:
    """Refuse to trace what decides on its own gradients: the tracer would record the forward pass, and lose them."""

    tracing = threading.get_ident()

    def refusing(before: Any) -> Any:
        def refuse(owner: Any, *arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == tracing:  # the replacement is everyone's, the refusal this thread's
                raise TypeError("the forward pass has gradients of its own making")
            bound = before.__get__(owner, type(owner)) if inspect.isfunction(before) else before.__get__(None, owner)
            return bound(*arguments, **named)

        return refuse if inspect.isfunction(before) else classmethod(refuse)

    with _one_at_a_time, ExitStack() as stack:
        for owner, name in (
            (torch.autograd.Function, "apply"),
            (torch.no_grad, "__enter__"),
            (torch.set_grad_enabled, "__init__"),
        ):
            stack.callback(setattr, owner, name, owner.__dict__[name])
            setattr(owner, name, refusing(owner.__dict__[name]))
        yield


class _Cast(nn.Module):
    """Computes in a type of its own between a float32 input and a float32 output."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module, self.dtype = module, dtype

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, ...) float32 to (B, K) float32 logits."""
        logits: Tensor = self.module(x.to(self.dtype))
        return logits.float()


def _has_hooks(module: nn.Module) -> bool:
    """Whether something is called before or after it, forward or backward."""
    return any(getattr(module, name, None) for name in _HOOKS)


def _work_in_place(traced: fx.GraphModule) -> None:
    """Let each ReLU write over what it reads, where nothing else does: a sum, or a convolution with frozen weights.

    The gradient to the input needs neither's output, and a pass over memory less is time.
    """
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op != "call_function" or node.target is not F.relu or not isinstance(node.args[0], fx.Node):
            continue
        source = node.args[0]
        convolution = source.op == "call_module" and isinstance(modules[str(source.target)], tuple(_PAIRS))
        addition = source.op == "call_function" and source.target in (operator.add, operator.iadd, torch.add)
        if len(source.users) == 1 and (convolution or addition):
            node.kwargs = {**node.kwargs, "inplace": True}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer by every name it has."""
    parameters = module.named_parameters(remove_duplicate=False)
    return dict(parameters) | dict(module.named_buffers(remove_duplicate=False))


def _shared_parameters(module: nn.Module) -> set[int]:
    """Return the ids of parameters that several modules have: folding one's batch norm would change the others."""
    ids = Counter(id(p) for m in module.modules() for p in m.parameters(recurse=False))
    return {key for key, count in ids.items() if count > 1}


def _foldable(node: fx.Node, modules: dict[str, nn.Module]) -> tuple[str, str] | None:
    """Return the names of a convolution and its batch norm, where nothing else reads the convolution."""
    if node.op != "call_module" or len(node.args) != 1 or not isinstance(node.args[0], fx.Node):
        return None
    source = node.args[0]
    norm = modules[str(node.target)]
    if source.op != "call_module" or len(source.users) != 1:
        return None
    conv = modules[str(source.target)]
    if _PAIRS.get(type(conv)) is not type(norm) or norm.running_mean is None:
        return None
    shared = [n for n in node.graph.nodes if n.op == "call_module" and n.target in (node.target, source.target)]
    return (str(source.target), str(node.target)) if len(shared) == 2 else None
