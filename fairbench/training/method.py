"""What a training method is: an inner maximisation, a loss, and what it learns at the end of an epoch.

A method is a dataclass. Its fields are its hyper-parameters, with the paper's values as defaults and the source of each
beside it; :meth:`Method.loss` is the outer loss on one batch. ``docs/write_a_method.md`` builds one from nothing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairbench.attacks.base import PIXELS, Space
from fairbench.attacks.pgd import PGDResult, pgd
from fairbench.errors import FairbenchError, RecipeError, first_line
from fairbench.registry import suggest
from fairbench.training.data import TrainingData
from fairbench.training.methods import METHODS

_RADII = ("epsilon", "step", "measured_epsilon")
"""Options that are a distance in the space of the inputs, whoever's method they are of."""
_LEAST = {"steps": 1}
"""Of options whose name says it, whoever's method they are of."""


@dataclass(frozen=True)
class ClassErrors:
    """Errors of the model on the held-out training images, as fractions.

    ``std``, ``rob`` and ``bndy`` are (K,) float64 per class, NaN for a class without an example; ``avg_std``,
    ``avg_rob`` and ``avg_bndy`` are over all examples; ``rob_loss`` is the mean cross-entropy under attack, per class.
    """

    std: Tensor
    rob: Tensor
    rob_loss: Tensor
    avg_std: float
    avg_rob: float

    @property
    def bndy(self) -> Tensor:
        """Boundary error per class."""
        return self.rob - self.std

    @property
    def avg_bndy(self) -> float:
        """Boundary error over all examples."""
        return self.avg_rob - self.avg_std


Validate = Callable[[], ClassErrors]
"""Attacks the held-out training images with PGD-20 and returns their errors; computed when first called in an epoch.

It judges the weights of this moment, also where a running average of them will be the result.
"""


@dataclass(frozen=True)
class Context:
    """What a method may know of the run it is part of."""

    num_classes: int
    device: torch.device
    generator: torch.Generator
    """On the CPU; seeded anew for each epoch from the run's seed, so that a resumed run draws the same."""
    attack_copy: Callable[[nn.Module], nn.Module]
    """Returns the model as an attack wants it: eval, frozen, batch norm folded, weights as they are now."""
    held: TrainingData | None = None
    """The held-out training images, for methods that look at some of them while an epoch runs."""
    source: nn.Module | None = None
    """The trained model that the recipe starts from, frozen, where the method wants it beside a new one."""
    rank: int = 0
    world: int = 1
    """Which process this is, of how many; each has an equal part of the global batch."""
    mean: Callable[[Tensor], Tensor] = lambda value: value
    """Returns the mean of a tensor over the processes, without its gradient."""
    seed: int = 0
    """The run's."""
    space: Space = PIXELS
    """What inputs may be: pixels in [0, 1], or features of any size."""


def option(default: Any, source: str, *, least: float | None = None, most: float | None = None) -> Any:
    """Declare a hyper-parameter: its default, where the value is from, and the range of values that mean something."""
    return field(default=default, metadata={"source": source, "least": least, "most": most})


@dataclass
class Method:
    """Base of every method.

    A subclass declares hyper-parameters with :func:`option` and defines :meth:`loss`. State that changes while training
    (class weights, say) is made in :meth:`setup` and named in ``state_fields``, so that a resumed run has it.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    """Paper and equation."""
    needs_start: ClassVar[bool] = False
    """Whether it starts from a trained model (``--from``)."""
    trains_start: ClassVar[bool] = True
    """Whether that model is trained further; else a new one is, and ``context.source`` is the trained one."""
    needs_validation: ClassVar[bool] = False
    """Whether it adapts to held-out training images."""
    state_fields: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named sets of hyper-parameters that differ from the defaults."""

    def setup(self, context: Context) -> None:
        """Get ready for a run; called once, before a resumed state is loaded."""
        self.context = context
        self.epoch = 0
        self.progress = 0.0

    def training_set(self, data: TrainingData) -> TrainingData:
        """Return the images to train on; asked once in each run, resumed or not. Default: those that are there."""
        return data

    def begin(self, validate: Validate) -> None:
        """Adapt before the first epoch; not called again when a run is resumed. Default: nothing."""

    def start_epoch(self, epoch: int, progress: float) -> None:
        """Be told the number of the epoch that begins, from 0, and how much of the training is done, 0 to 1.

        When :meth:`end_epoch` is called, ``progress`` is that after the epoch.
        Papers name epochs of schedules of theirs; what a method does at one of them it does at that share of the run.
        """
        self.epoch, self.progress = epoch, progress

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the scalar loss of a batch.

        Parameters
        ----------
        model
            In ``train()`` mode.
        x, y
            (B, C, H, W) float32 in [0, 1], augmented, or (B, F) float32; and (B,) int64.
        """
        raise NotImplementedError

    def end_epoch(self, validate: Validate) -> None:
        """Adapt after an epoch; ``validate`` gives the errors of the weights as they are now. Default: nothing."""

    def average_decay(self, validate: Validate) -> float | None:
        """Return the decay with which this epoch's weights enter a running average, or None to leave them out.

        Asked after :meth:`end_epoch`; the average, where there is one, is the result of the training.
        """
        return None

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {name: getattr(self, name) for name in self.state_fields}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave, on the CPU; a tensor goes where :meth:`setup` made its counterpart."""
        for name in self.state_fields:
            setattr(self, name, _placed(state[name], getattr(self, name, None)))

    def attack(self, model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> PGDResult:
        """Run the inner maximisation (:func:`~fairbench.attacks.pgd.pgd`) on the model as it is now, in eval mode."""
        init = options.get("init", "uniform")
        if init != "none":
            options["noise"] = self.noise(x, gaussian=init == "gaussian")
        return pgd(self.context.attack_copy(model), x, y, space=self.context.space, **options)

    def noise(self, x: Tensor, *, gaussian: bool = False) -> Tensor:
        """Draw uniform noise in [-1, 1), or standard normal, of the shape of ``x`` from the run's generator.

        Every process draws for the global batch and keeps its part, so their number changes no example's noise.
        """
        draw = torch.randn if gaussian else torch.rand
        shape = (len(x) * self.context.world, *x.shape[1:])
        start = len(x) * self.context.rank
        drawn = draw(shape, generator=self.context.generator)[start : start + len(x)].to(x.device)
        return drawn if gaussian else drawn * 2 - 1

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the hyper-parameters and their defaults."""
        return {f.name: f.default for f in fields(cls) if f.init}

    @classmethod
    def configured(cls, options: Mapping[str, Any], variant: str | None = None, *, pixels: bool = True) -> "Method":
        """Build the method with some hyper-parameters set; radii of features, unlike ``pixels``, may be above 1.

        Raises
        ------
        RecipeError
            An unknown key or variant (the valid ones are named), or a value of another type.
        """
        if variant is not None and variant not in cls.variants:
            known = list(cls.variants)
            raise RecipeError(
                f"method {cls.name} has no variant '{variant}'.{suggest(variant, known) or ' It has none.'}"
            )
        chosen = {**(cls.variants[variant] if variant else {}), **options}
        _check_declared(cls)
        known_options = cls.options()
        kinds = {f.name: _kind(f) for f in fields(cls)}
        for key, value in chosen.items():
            if key not in known_options:
                valid = ", ".join(known_options) or "none"
                raise RecipeError(f"method {cls.name} has no option '{key}'; it has {valid}.")
            chosen[key] = _typed(cls.name, key, value, kinds[key], known_options[key])
        for f in fields(cls):
            if f.init:
                _check_range(cls.name, f, chosen.get(f.name, f.default), pixels)
        try:
            return cls(**chosen)
        except FairbenchError:
            raise
        except Exception as error:  # a method of one's own can raise anything
            raise RecipeError(f"method {cls.name} cannot be made: {first_line(error)}") from error


def method_class(name: str, option: str = "--method") -> type[Method]:
    """Return a method by name, or one's own by "package.module:Class"; ``option`` is where the user named it.

    Raises
    ------
    RecipeError
        No method has that name (the nearest is suggested), or the class is not a method.
    ModelError
        One's own cannot be imported.
    """
    from fairbench.own_code import own_attribute

    found: Any = own_attribute(name, option, "class") if ":" in name else METHODS[name]
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise RecipeError(f"{option} {name}: it is not a subclass of fairbench.training.Method.")
    if not isinstance(getattr(found, "name", None), str):
        raise RecipeError(f"{option} {name}: the class states no name; give it one, such as name = 'mine'.")
    return found


def _placed(value: Any, own: Any) -> Any:
    """Return plain data with its tensors on the devices of their counterparts in ``own``."""
    if isinstance(value, Tensor):
        return value.to(own.device) if isinstance(own, Tensor) else value
    if isinstance(value, dict):
        return {key: _placed(inner, own.get(key) if isinstance(own, dict) else None) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        beside = own if isinstance(own, list | tuple) and len(own) == len(value) else [None] * len(value)
        return type(value)(_placed(inner, other) for inner, other in zip(value, beside, strict=True))
    return value


def _check_declared(cls: type[Method]) -> None:
    """Refuse options that are declared in a class without ``@dataclass``: they would be no numbers."""
    for own in cls.__mro__:
        for key, value in vars(own).items():
            if isinstance(value, Field):
                raise RecipeError(
                    f"method {cls.name}: the class {own.__name__} declares the option {key} and is no dataclass; "
                    "write @dataclass above it."
                )


def _kind(known: "Field[Any]") -> type:
    """Return the type of an option: its default's, and float for a whole number that is annotated so."""
    whole = isinstance(known.default, int) and known.type in (float, "float")
    return float if whole else type(known.default)


def _typed(method: str, key: str, value: Any, kind: type, default: Any) -> Any:
    """Bring a value (text from the command line included) to the type of the option."""
    try:
        if kind is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if kind is float:
            above, slash, below = str(value).replace(" ", "").partition("/")
            return float(above) / float(below) if slash else float(above)
        if kind is int:
            return int(str(value))
        return kind(value)
    except (ValueError, TypeError, KeyError, ZeroDivisionError):
        raise RecipeError(f"method {method}: {key} is a {kind.__name__} (default {default}), not '{value}'.") from None


def _check_range(method: str, known: "Field[Any]", value: Any, pixels: bool) -> None:
    """Refuse a radius or step of pixels outside (0, 1], which is a slip of scale, and what the option rules out."""
    key = known.name
    if not isinstance(value, bool | int | float | str):
        raise RecipeError(
            f"method {method}: option {key} is a {type(value).__name__}; an option is a number, a text or true/false."
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"method {method}: {key} is {value}; give a finite number.")
    least, most = known.metadata.get("least"), known.metadata.get("most")
    if least is None:
        least = _LEAST.get(key)
    if isinstance(value, bool | str):
        if key in _RADII or (least, most) != (None, None):
            raise RecipeError(f"method {method}: {key} is '{value}'; it must be a number.")
        return
    if key in _RADII and not pixels and value <= 0:
        raise RecipeError(f"method {method}: {key} {value:g}: it must be greater than 0.")
    if key in _RADII and pixels and not 0 < value <= 1:
        raise RecipeError(
            f"method {method}: {key} {value:g}: pixels are in [0, 1] here; on the 0..255 scale it is x/255."
        )
    if least is not None and value < least:
        raise RecipeError(f"method {method}: {key} {value:g}: it must be at least {least:g}.")
    if most is not None and value > most:
        raise RecipeError(f"method {method}: {key} {value:g}: it must be at most {most:g}.")
