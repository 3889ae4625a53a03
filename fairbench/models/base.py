"""A model as the evaluation sees it: a module from images in [0, 1] to logits, with its name and hashes."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from fairbench.errors import ModelError
from fairbench.loaded_state import spelt
from fairbench.models.cards import ModelCard
from fairbench.own_code import source_of, with_imports
from fairbench.provenance import sha256_bytes, sha256_state


@dataclass(frozen=True)
class Model:
    """A classifier ready to be evaluated.

    Parameters
    ----------
    module
        Maps (B, C, H, W) float32 in [0, 1], or (B, F) float32, to (B, K) logits; any mean/std normalisation is a layer
        inside.
    name
        What reports call it.
    architecture
        How it was built: a registry name, ``torchvision:NAME``, ``module:function`` or the module's class.
    input_size
        (height, width) the architecture demands, or None if it takes any.
    dataset
        The dataset it was trained for, if a card says so.
    card
        Its card, if it has one.
    notes
        What loading did that a reader of the result should know.
    """

    module: nn.Module
    name: str
    architecture: str
    input_size: tuple[int, int] | None = None
    dataset: str | None = None
    card: ModelCard | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def sha256(self) -> str:
        """Hash of the weights and buffers as they are now, normalisation included, whatever file they came from."""
        return sha256_state(self.module.state_dict())

    @cached_property
    def code_sha256(self) -> str:
        """Hash of what the weights do not say: module tree, plain attributes, classes' sources and what they import."""
        sources, settings = {}, []
        for name, module in self.module.named_modules():
            kept = {k: v for k, v in vars(module).items() if k[0] != "_" and k != "training"}
            said = {key: spelt(value, tensors=False) for key, value in kept.items()}  # a tensor: what a pass left
            settings += [f"{name}.{key}:{text}" for key, text in sorted(said.items()) if text is not None]
            source = source_of(type(module))
            if source is not None and "torch/nn/modules" not in source.as_posix():
                sources[source] = type(module).__module__
        described = [self.architecture, repr(self.module), *settings]
        files = set().union(*(with_imports(source, name) for source, name in sources.items()))
        return sha256_bytes("\n".join(described).encode(), *(file.read_bytes() for file in sorted(files)))


def as_model(module: "Model | nn.Module", name: str | None = None) -> Model:
    """Wrap a plain module; a :class:`Model` comes back as it is.

    Raises
    ------
    ModelError
        It is neither, or it is TorchScript.
    """
    if isinstance(module, Model):
        return module
    if not isinstance(module, nn.Module):
        raise ModelError(f"a model is a torch.nn.Module or what load_model returns, not {type(module).__name__}.")
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError("a TorchScript module cannot be frozen and copied: pass the network that it was made from.")
    return Model(module, name or type(module).__name__, type(module).__qualname__)


class Normalize(nn.Module):
    """``(x - mean) / std`` per channel, or per feature: as a layer, so that epsilon stays in the unit of the inputs."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], of_features: bool = False) -> None:
        super().__init__()
        if len(mean) != len(std):
            raise ModelError(f"--mean has {len(mean)} values and --std has {len(std)}; give one a channel to both.")
        if not all(map(math.isfinite, (*mean, *std))):
            raise ModelError("--mean and --std: every value must be a finite number.")
        if not all(s > 0 for s in std):
            raise ModelError(f"--std {','.join(map(str, std))}: every value must be greater than 0.")
        shape = (-1,) if of_features else (-1, 1, 1)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(shape))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, H, W), or (B, F)."""
        return (x - self.mean) / self.std


class PickOutput(nn.Module):
    """The logits out of a module that returns a tuple, a list or a dict (``--output``)."""

    def __init__(self, module: nn.Module, key: str) -> None:
        super().__init__()
        self.module = module
        self.key = key

    def extra_repr(self) -> str:
        """Name the output, also for the hash of what determines a run."""
        return f"key={self.key!r}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the picked output.

        Raises
        ------
        ModelError
            There is no such output.
        """
        output = self.module(x)
        try:
            if isinstance(output, dict):
                return output[self.key]
            if isinstance(output, tuple | list):
                return output[int(self.key)]
        except (KeyError, IndexError, ValueError) as error:
            raise ModelError(f"--output {self.key}: the model returns {describe_output(output)}.") from error
        raise ModelError(f"--output {self.key}: the model returns {describe_output(output)}; leave --output away.")


def describe_output(output: object) -> str:
    """Say in a few words what a model returned."""
    if isinstance(output, Tensor):
        return f"one tensor of shape {tuple(output.shape)}"
    if isinstance(output, dict):
        return f"a dict with {', '.join(map(str, output))}"
    if isinstance(output, tuple | list):
        shapes = ", ".join(str(tuple(o.shape)) if isinstance(o, Tensor) else type(o).__name__ for o in output)
        return f"a {type(output).__name__} of {len(output)} ({shapes})"
    return f"a {type(output).__name__}"
