"""Protocols: which examples, which attacks, with which numbers (docs/definitions.md, docs/evaluate.md)."""

import math
import numbers
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from fairbench.errors import ProtocolError
from fairbench.evaluation.attack_kinds import MAX_STEPS, Asked, check_names, check_read, kind_of, spelled, with_steps
from fairbench.outcomes.schema import is_search
from fairbench.randomness import MAX_RESTARTS, MAX_SEED
from fairbench.registry import suggest

if TYPE_CHECKING:
    from fairbench.attacks.base import Attack, Space

_MAX_LEVELS = 10_000
_LEAST_RADIUS = 1e-6
"""Of pixels: verdicts forgive rounding by as much (``attacks.base``)."""


@dataclass(frozen=True)
class Protocol:
    """What an evaluation does. The named ones: :data:`QUICK`, :data:`STANDARD`, :data:`LEADERBOARD`, and for features
    :data:`SOOKSATRA2022`.

    Parameters
    ----------
    name
        Name of the protocol it is, or that it was made from.
    examples
        "sample": the first 100 test images of each class (fewer from 11 classes on). "test": the whole test split.
    attacks
        "pgdN" (N steps), "cwN" (the same on the margin of logits), "autoattack", "least-epsilon" (by bisection; on
        features by scanning), "least-epsilon-scan", "least-steps", and one's own as a function, or its
        "package.module:function", in order; a text names several with commas, here and in ``protect``.
    epsilon
        L-inf radius in [0, 1] pixel units, or in the unit of the features.
    max_epsilon, resolution
        Largest radius that least epsilon tries, and the distance between radii.
    max_steps
        Most steps that least steps takes.
    step
        PGD's step; default 2/255, or a quarter of epsilon where that is smaller, or an eighth where that is larger; of
        features always a quarter. Also the step of least steps; default 0.4/255, or a twentieth of epsilon where that
        is smaller; of features always that. It and the radii may be texts such as "8/255".
    restarts, score
        PGD's random starts, and whether its last or any iterate is scored ("last", "any").
    seed
        Seed of every random start.
    inputs
        What it attacks, "images" or "features".
    protect, in_range
        Of features: columns of the table that stay as they are ("categorical": every one-hot), and whether each feature
        stays in the range it has in the training split.

    Raises
    ------
    ProtocolError
        A value is out of range; the message says what is allowed.
    """

    name: str = "quick"
    examples: Literal["sample", "test"] = "sample"
    attacks: tuple[str, ...] = ("pgd20",)
    epsilon: float = 8 / 255
    max_epsilon: float = 32 / 255
    resolution: float = 1 / 255
    max_steps: int = 1_000
    step: float | None = None
    restarts: int = 1
    score: Literal["last", "any"] = "last"
    seed: int = 0
    inputs: Literal["images", "features"] = "images"
    protect: tuple[str, ...] = ()
    in_range: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "attacks", tuple(map(spelled, _listed(self.attacks))))
        object.__setattr__(self, "protect", tuple(str(name).strip() for name in _listed(self.protect)))
        for radius in ("epsilon", "max_epsilon", "resolution", *(["step"] if self.step is not None else [])):
            value = getattr(self, radius)
            value = parse_fraction(value, radius) if isinstance(value, str) else value
            _check_radius(radius, value, pixels=self.inputs == "images")
            object.__setattr__(self, radius, float(value))
        for number in ("max_steps", "restarts", "seed"):
            object.__setattr__(self, number, parse_whole(getattr(self, number), number))
        if not self.max_epsilon / _MAX_LEVELS <= self.resolution <= self.max_epsilon:
            raise ProtocolError(
                f"resolution {self.resolution:g}: with max_epsilon {self.max_epsilon:g} it must be "
                f"{self.max_epsilon / _MAX_LEVELS:g} to {self.max_epsilon:g}."
            )
        if not 1 <= self.max_steps <= MAX_STEPS:
            raise ProtocolError(f"max_steps {self.max_steps}: it must be 1 to {MAX_STEPS:,}.")
        if not 1 <= self.restarts <= MAX_RESTARTS:
            raise ProtocolError(f"restarts {self.restarts}: it must be 1 to {MAX_RESTARTS}.")
        if self.score not in ("last", "any"):
            raise ProtocolError(f"score '{self.score}': it is 'last' or 'any'.")
        if not 0 <= self.seed < MAX_SEED:
            raise ProtocolError(f"seed {self.seed}: it must be 0 to 2**63 - 1.")
        check_names(self.attacks)
        if self.inputs == "images" and (self.protect or self.in_range):
            raise ProtocolError(f"--protect and --in-range are for features; protocol {self.name} attacks images.")

    @classmethod
    def named(cls, name: str, *, steps: int | None = None, **changes: Any) -> "Protocol":
        """Return a named protocol, with fields changed where a value is given (None keeps the protocol's own).

        ``steps`` makes every pgdN and cwN of it one of that many steps.

        Raises
        ------
        ProtocolError
            Unknown name or field, a value out of range, or one that none of the attacks reads.

        Examples
        --------
        >>> Protocol.named("standard", epsilon=4 / 255).modified
        {'epsilon': 0.01568627450980392}
        """
        steps = None if steps is None else parse_whole(steps, "steps")
        if steps is not None and steps < 1:
            raise ProtocolError(f"steps {steps}: PGD takes 1 to {MAX_STEPS:,} steps.")
        if name not in NAMED:
            raise ProtocolError(f"unknown protocol '{name}'.{suggest(str(name), list(NAMED))}")
        known = {f.name for f in fields(cls)} - {"name", "examples", "inputs"}
        for field in changes:
            if field not in known:
                raise ProtocolError(f"unknown protocol option '{field}'.{suggest(field, sorted(known))}")
        given = {field: value for field, value in changes.items() if value is not None}
        changed = replace(NAMED[name], **given)
        check_read({**given, "steps": steps}, changed.attacks)
        if steps is None:
            return changed
        return replace(changed, attacks=tuple(with_steps(attack, steps) for attack in changed.attacks))

    @property
    def together(self) -> tuple[str, ...]:
        """The attacks at one radius: what an example withstands is told by all of these (:func:`with_union`)."""
        return tuple(attack for attack in self.attacks if not is_search(attack))

    @property
    def pgd_step(self) -> float:
        """The step PGD takes."""
        if self.step is not None:
            return self.step
        from fairbench.attacks.pgd import default_step

        return default_step(self.epsilon, pixels=self.inputs == "images")

    @property
    def small_step(self) -> float:
        """The step that least steps takes."""
        if self.step is not None:
            return self.step
        return min(0.4 / 255, self.epsilon / 20) if self.inputs == "images" else self.epsilon / 20

    @property
    def modified(self) -> dict[str, Any]:
        """What differs from the named protocol, as plain data."""
        original = NAMED.get(self.name)
        changed = {} if original is None else {f: getattr(self, f) for f in _CHANGEABLE if f != "step"}
        differing: dict[str, Any] = {
            field: list(value) if isinstance(value, tuple) else value
            for field, value in changed.items()
            if value != getattr(original, field)
        }
        usual = replace(self, step=None)._step_sizes()
        if original is not None and not all(map(math.isclose, self._step_sizes(), usual)):
            differing["step"] = self.step
        return differing

    def _step_sizes(self) -> list[float]:
        return [getattr(self, kind.step) for kind in map(kind_of, self.attacks) if kind.step]

    def check_inputs(self, dataset: str, holds: str) -> None:
        """Raise unless a dataset holds what the protocol attacks ("images" or "features").

        Raises
        ------
        ProtocolError
            It does not; one that does is named.
        """
        if self.inputs != holds:
            fitting = "quick or standard" if holds == "images" else SOOKSATRA2022.name
            raise ProtocolError(
                f"protocol {self.name} attacks {self.inputs}, and {dataset} holds {holds}; take --protocol {fitting}."
            )

    def build_attacks(self, num_classes: int, space: "Space | None" = None) -> "list[Attack]":
        """Build the attacks for a dataset of ``num_classes`` classes whose inputs may be what ``space`` says."""
        from fairbench.attacks.base import PIXELS

        return [kind_of(name).build(Asked(name, self, num_classes, space or PIXELS)) for name in self.attacks]


def parse_fraction(text: str, what: str) -> float:
    """Read "8/255" or "0.03".

    Raises
    ------
    ProtocolError
        It is no number.
    """
    above, slash, below = text.replace(" ", "").partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise ProtocolError(f"{what} '{text}': give a number such as 8/255 or 0.031.") from None


def _listed(value: Any) -> list[Any]:
    """Return one or several: a text names several with commas."""
    several = value.split(",") if isinstance(value, str) else value
    several = several or () if isinstance(several, Iterable) or several is None else (several,)
    return [one for one in several if not isinstance(one, str) or one.strip()]


def parse_whole(value: int | str, what: str) -> int:
    """Read 20 or "20".

    Raises
    ------
    ProtocolError
        It is no whole number.
    """
    try:
        if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", value)):
            raise ValueError
        return int(value) if isinstance(value, str) else operator.index(value)
    except (ValueError, TypeError):
        raise ProtocolError(f"{what} '{value}': give a whole number, such as 20.") from None


def default_protocol(dataset: str) -> str:
    """Return the protocol that is taken where none is named: by what the dataset holds."""
    from fairbench.datasets.named import has_features

    return SOOKSATRA2022.name if has_features(dataset) else QUICK.name


def _check_radius(what: str, value: float, *, pixels: bool) -> None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ProtocolError(f"{what} {value!r}: give a number such as 8/255 or 0.031.")
    if not pixels and (not math.isfinite(value) or value <= 0):
        raise ProtocolError(f"{what} {value:g}: it must be finite and greater than 0, in the unit of the features.")
    if pixels and (not math.isfinite(value) or value <= 0):
        raise ProtocolError(f"{what} {value:g}: it must be greater than 0 and at most 1, such as 8/255.")
    if pixels and what in ("epsilon", "max_epsilon") and value < _LEAST_RADIUS:
        raise ProtocolError(f"{what} {value!r}: float32 pixels round by as much; give {_LEAST_RADIUS:g} or more.")
    if pixels and value > 1:
        raise ProtocolError(
            f"{what} {value:g}: pixels are in [0, 1] here, so it must be at most 1; "
            f"on the 0..255 scale you mean {value:g}/255."
        )


QUICK = Protocol()
STANDARD = Protocol("standard", examples="test")
LEADERBOARD = Protocol("leaderboard", examples="test", attacks=("pgd20", "autoattack"))
SOOKSATRA2022 = Protocol(
    "sooksatra2022", examples="test", epsilon=10.0, max_epsilon=40.0, resolution=1.0, inputs="features"
)
NAMED = {protocol.name: protocol for protocol in (QUICK, STANDARD, LEADERBOARD, SOOKSATRA2022)}
_CHANGEABLE = (  # as reports name them
    "attacks epsilon max_epsilon resolution max_steps step restarts score seed protect in_range".split()
)
