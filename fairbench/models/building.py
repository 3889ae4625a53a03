"""Architectures built to fit: from the registry, from torchvision, or from a user's own function."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fairbench.errors import CheckpointError, ModelError
from fairbench.models.architectures import ARCHITECTURES, Architecture
from fairbench.models.checkpoints import strip_names
from fairbench.own_code import own_attribute
from fairbench.registry import suggest

_OFFERED = ("num_classes", "in_channels", "shape")
"""What of the data a builder may ask for."""
_SHOWN = 5
"""At most this many keys of each kind are named when a state_dict does not fit."""


def build(
    arch: str, state: Mapping[str, Tensor], source: str, *, num_classes: int | None, shape: tuple[int, ...] | None
) -> tuple[nn.Module, tuple[int, int] | None]:
    """Build ``arch``, load ``state`` into it and return it with the (height, width) it demands, if any.

    Parameters
    ----------
    arch
        A registry name, ``torchvision:NAME`` or ``package.module:function``.
    source
        Where the weights are from, for errors.
    num_classes, shape
        Class count and (C, H, W) or (F,) of the data, offered to a builder that takes ``num_classes``, ``in_channels``
        or ``shape``; a registry architecture reads them off the weights instead.

    Raises
    ------
    ModelError
        The architecture is unknown or cannot be built.
    CheckpointError
        The weights do not fit: which keys, and which architectures they would fit.
    """
    if arch in ARCHITECTURES or ":" not in arch:
        known: Architecture = ARCHITECTURES[arch]
        module = _build_known(known, state, num_classes, shape)
        size = known.input_size
    else:
        module, size = _build_external(arch, num_classes, shape)
    faults = mismatch(module.state_dict(), state)
    if faults and not mismatch(module.state_dict(), stripped := strip_names(state)):
        faults, state = [], stripped
    if faults:
        raise CheckpointError(f"{source} does not fit {arch}: {'; '.join(faults)}.{_advice(arch, state)}")
    module.load_state_dict({key: state[key] for key in module.state_dict() if key in state}, strict=False)
    return module, size


def new_module(arch: str, num_classes: int, shape: tuple[int, ...]) -> tuple[nn.Module, tuple[int, int] | None]:
    """Build an architecture with fresh weights, and return it with the (height, width) it demands, if any.

    Parameters
    ----------
    arch
        A registry name, ``torchvision:NAME`` or ``package.module:function``.
    num_classes, shape
        Class count and (C, H, W) or (F,) of the data, offered to a builder that takes them.

    Raises
    ------
    ModelError
        The architecture is unknown or cannot be built.
    """
    if arch in ARCHITECTURES or ":" not in arch:
        known: Architecture = ARCHITECTURES[arch]
        return known.build(**accepted(known.build, num_classes, shape)), known.input_size
    return _build_external(arch, num_classes, shape)


def fitting(state: Mapping[str, Tensor]) -> list[str]:
    """Return the registry architectures that a state_dict fits exactly."""
    fits = []
    state = strip_names(state)
    for name in ARCHITECTURES:
        known: Architecture = ARCHITECTURES[name]
        try:
            with torch.device("meta"):
                module = known.build(**known.infer(state))
        except (KeyError, ValueError, IndexError):
            continue
        if not mismatch(module.state_dict(), state):
            fits.append(name)
    return fits


def mismatch(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """Name the keys that are missing, unexpected or of another shape, at most five of each; empty when it fits.

    Batch norm's ``num_batches_tracked`` may be missing: it is not used in ``eval()`` and old checkpoints lack it.
    """
    expected = {k: tensor for k, tensor in expected.items() if isinstance(tensor, Tensor)}  # a module may keep more
    missing = [k for k in expected if k not in given and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in given if k not in expected]
    both = [k for k in expected if k in given]
    shapes = [
        f"{k} {tuple(given[k].shape)} instead of {tuple(expected[k].shape)}"
        for k in both
        if given[k].shape != expected[k].shape
    ]
    types = [
        f"{k} {given[k].dtype} instead of {expected[k].dtype}"
        for k in both
        if given[k].is_floating_point() != expected[k].is_floating_point() or given[k].is_complex()
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes, "of another type": types}
    return [f"{kind}: {_some(keys)}" for kind, keys in kinds.items() if keys]


def _some(keys: list[str]) -> str:
    rest = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(keys[:_SHOWN]) + rest


def _advice(arch: str, state: Mapping[str, Tensor]) -> str:
    fits = [name for name in fitting(state) if name != arch]
    return f" It fits {', '.join(fits)}: pass --arch {fits[0]}." if fits else " It fits no built-in architecture."


def _build_known(
    known: Architecture, state: Mapping[str, Tensor], num_classes: int | None, shape: tuple[int, ...] | None
) -> nn.Module:
    try:
        return known.build(**known.infer(strip_names(state)))
    except (KeyError, ValueError, IndexError):  # other weights: build the default, and let the comparison speak
        return known.build(**accepted(known.build, num_classes, shape))


def _build_external(
    arch: str, num_classes: int | None, shape: tuple[int, ...] | None
) -> tuple[nn.Module, tuple[int, int] | None]:
    home, _, name = arch.partition(":")
    builder = _torchvision_builder(name) if home == "torchvision" else own_attribute(arch, "--arch")
    try:
        known = accepted(builder, num_classes, shape)
        _check_arguments(arch, builder, known)
        module = builder(**known)
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"--arch {arch}: building it raised {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"--arch {arch}: it returned a {type(module).__name__}, not a torch.nn.Module.")
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            f"--arch {arch}: it returned a TorchScript module, which cannot be copied: return the network."
        )
    if any(isinstance(tensor, Tensor) and tensor.is_meta for tensor in module.state_dict().values()):
        raise ModelError(f"--arch {arch}: weights on the meta device hold no numbers: build it on the cpu.")
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise ModelError(f"--arch {arch}: it has lazy layers: pass a batch through the network before returning it.")
    size: Any = getattr(builder, "input_size", None)  # of a class it may be anything: an MLP's number of inputs
    pair = isinstance(size, tuple | list) and len(size) == 2 and all(type(n) is int for n in size)
    return module, (size[0], size[1]) if pair else None


def _torchvision_builder(name: str) -> Callable[..., nn.Module]:
    from torchvision.models import get_model, list_models

    if name not in list_models():
        raise ModelError(f"torchvision has no model '{name}'.{suggest(name, list_models())}")

    def builder(num_classes: int = 1000) -> nn.Module:
        return get_model(name, weights=None, num_classes=num_classes)

    return builder


def _check_arguments(arch: str, builder: Callable[..., Any], known: Mapping[str, Any]) -> None:
    """Raise, with what to do, where a builder needs an argument that is not known."""
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY)
    parameters = inspect.signature(builder).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind in plain and p.name not in known]
    if unknown := [name for name in needed if name not in _OFFERED]:
        raise ModelError(
            f"--arch {arch}: it needs {', '.join(unknown)}, and only {', '.join(_OFFERED)} can be given to it; give "
            f"{'it a default' if len(unknown) == 1 else 'them defaults'}."
        )
    if needed:
        wanted = dict.fromkeys("num_classes=" if name == "num_classes" else "shape=" for name in needed)
        raise ModelError(
            f"--arch {arch}: it needs {', '.join(needed)} of the data: pass {' and '.join(wanted)} to load_model."
        )


def accepted(builder: Callable[..., Any], num_classes: int | None, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """Return those of num_classes, in_channels and shape that are known and that the builder names."""
    in_channels = shape[0] if shape and len(shape) == 3 else None
    offered = dict(zip(_OFFERED, (num_classes, in_channels, shape), strict=True))
    named = inspect.signature(builder).parameters
    return {key: value for key, value in offered.items() if value is not None and key in named}
