"""The kinds of attack that a protocol names: how each is written, what of the protocol it reads, how it is built.

Attacks are imported when they are built: a protocol is read, and printed, without torch.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fairbench.errors import ProtocolError
from fairbench.outcomes.schema import UNION, is_search
from fairbench.registry import is_own_code, own_code_spelling, plain_name, suggest

if TYPE_CHECKING:
    from fairbench.attacks.base import Attack, Space, ThreatModel
    from fairbench.evaluation.protocol import Protocol

MAX_STEPS = 10_000
_PGD = re.compile(r"^(pgd|cw)(0|-?[1-9][0-9]{0,5})$")
_LOSS: Mapping[str, Literal["ce", "cw"]] = {"pgd": "ce", "cw": "cw"}
_COLUMN = re.compile(r"^[a-z][a-z0-9-]*$")


@dataclass(frozen=True)
class Asked:
    """An attack to build: by which name, for which protocol, number of classes and space of inputs."""

    name: str
    protocol: "Protocol"
    num_classes: int
    space: "Space"

    def within(self, epsilon: float) -> "ThreatModel":
        """Return the ball of a radius in the space."""
        from fairbench.attacks.base import ThreatModel

        return ThreatModel(epsilon, self.space)


@dataclass(frozen=True)
class Kind:
    """A kind of attack.

    Parameters
    ----------
    written
        How it is named, for errors.
    reads
        The options of the protocol that it depends on, besides the seed.
    build
        Makes it.
    step
        The protocol's attribute that is its step; "" for none.
    """

    written: str
    reads: tuple[str, ...]
    build: "Callable[[Asked], Attack]"
    step: str = ""


def _pgd(asked: Asked) -> "Attack":
    from fairbench.attacks.pgd import PGDAttack

    p = asked.protocol
    family, steps = _pgd_parts(asked.name)
    return PGDAttack(asked.within(p.epsilon), p.pgd_step, steps, p.restarts, p.score, p.seed, _LOSS[family])


def _autoattack(asked: Asked) -> "Attack":
    from fairbench.attacks.autoattack import AutoAttack

    return AutoAttack(asked.within(asked.protocol.epsilon), asked.num_classes, asked.protocol.seed)


def _least_epsilon(asked: Asked) -> "Attack":
    from fairbench.attacks.least_epsilon import LeastEpsilon
    from fairbench.attacks.pgd import PIXEL_STEP

    p, pixels = asked.protocol, asked.protocol.inputs == "images"
    # on features what breaks at one radius need not break at a larger one, as bisection takes for granted
    search = "bisect" if pixels and asked.name == "least-epsilon" else "scan"
    step = PIXEL_STEP if pixels else math.inf
    ball = asked.within(p.max_epsilon)
    return LeastEpsilon(ball, p.resolution, search=search, seed=p.seed, largest_step=step, name=asked.name)


def _least_steps(asked: Asked) -> "Attack":
    from fairbench.attacks.least_steps import LeastSteps

    p = asked.protocol
    return LeastSteps(asked.within(p.epsilon), p.small_step, p.max_steps, p.seed)


def _own(asked: Asked) -> "Attack":
    from fairbench.attacks.own import OwnAttack

    return OwnAttack.named(
        asked.name, column_of(asked.name), asked.within(asked.protocol.epsilon), asked.num_classes, asked.protocol.seed
    )


_OF_PGD = Kind("pgdN or cwN", ("epsilon", "step", "steps", "restarts", "score"), _pgd, step="pgd_step")
_OF_LEAST_EPSILON = Kind("least-epsilon", ("max_epsilon", "resolution"), _least_epsilon)
_OF_ONES_OWN = Kind("package.module:function", ("epsilon",), _own)
_BY_NAME = {
    "autoattack": Kind("autoattack", ("epsilon",), _autoattack),
    "least-epsilon": _OF_LEAST_EPSILON,
    "least-epsilon-scan": _OF_LEAST_EPSILON,
    "least-steps": Kind("least-steps", ("epsilon", "step", "max_steps"), _least_steps, step="small_step"),
}
_KINDS = (_OF_PGD, *dict.fromkeys(_BY_NAME.values()), _OF_ONES_OWN)


def kind_of(name: str) -> Kind:
    """Return the kind of attack that a name means: "pgd20", "autoattack", "mypkg.attacks:mine".

    Raises
    ------
    ProtocolError
        There is none; what may have been meant is suggested.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    meant = _meant(name)
    if is_pgd(name):
        family, steps = _pgd_parts(name)
        if not 1 <= steps <= MAX_STEPS:
            hint = "" if meant is None else f" Did you mean '{meant}'?"
            raise ProtocolError(f"attack '{name}': PGD takes 1 to {MAX_STEPS:,} steps, written {family}N.{hint}")
        return _OF_PGD
    if is_own_code(name):
        _check_column(name)
        return _OF_ONES_OWN
    if (spelling := own_code_spelling(name, "FUNCTION")) not in ("", name):
        raise ProtocolError(f"unknown attack '{name}'. One's own is '{spelling}'.")
    near = suggest(name, ("pgd20", "cw20", *_BY_NAME)) if meant is None else f" Did you mean '{meant}'?"
    raise ProtocolError(f"unknown attack '{name}'.{near} pgdN is PGD with N steps, cwN the same on the margin loss.")


def spelled(attack: Any) -> str:
    """Return the name of an attack that is given as one, or as a function.

    Raises
    ------
    ProtocolError
        It is neither, or a function that cannot be imported by name.
    """
    if isinstance(attack, str):
        return attack.strip()
    home, name = getattr(attack, "__module__", None), getattr(attack, "__qualname__", "")
    if not callable(attack) or not home or not name.isidentifier():
        raise ProtocolError(
            f"attack {attack!r}: give a name such as 'pgd20' or 'my_attacks:mine', or a function that a module defines."
        )
    if getattr(sys.modules.get(home), name, None) is not attack:
        raise ProtocolError(
            f"attack {home}:{name}: that name means another function than the one given (it is wrapped, or its module "
            "was loaded again); give the module's own."
        )
    return f"{home}:{name}"


def is_pgd(name: str) -> bool:
    """Whether a name is written as PGD's with a number of steps, on either loss."""
    return _PGD.match(name) is not None


def with_steps(name: str, steps: int) -> str:
    """Return an attack with another number of steps, if it is one that :func:`is_pgd`.

    Examples
    --------
    >>> with_steps("cw20", 50), with_steps("autoattack", 50)
    ('cw50', 'autoattack')
    """
    return f"{_pgd_parts(name)[0]}{steps}" if is_pgd(name) else name


def _pgd_parts(name: str) -> tuple[str, int]:
    """Split "pgd20" into "pgd" and 20."""
    found = _PGD.match(name)
    if found is None:
        raise ValueError(f"'{name}' is not PGD's")
    return found[1], int(found[2])


def column_of(name: str) -> str:
    """Return what an attack of one's own is called in the outcome table.

    Examples
    --------
    >>> column_of("mypkg.attacks:feature_space")
    'feature-space'
    """
    return name.rpartition(":")[2].replace("_", "-").lower()


def check_names(names: Sequence[str]) -> None:
    """Raise unless every name means an attack, and no two one column.

    Raises
    ------
    ProtocolError
        As said.
    """
    if not names:
        raise ProtocolError("no attack: name one at least, such as pgd20.")
    for name in names:
        kind_of(name)
    if len({column_of(name) for name in names}) != len(names):
        raise ProtocolError(f"attacks {','.join(names)}: one stands twice, or two functions of one name.")


def check_read(given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise where an option is given that none of the attacks reads: a report would name it as if it had counted.

    Raises
    ------
    ProtocolError
        The option is named, and what it is for.
    """
    read = {option for name in names for option in kind_of(name).reads}
    for option in dict.fromkeys(option for kind in _KINDS for option in kind.reads):
        if given.get(option) is not None and option not in read:
            wanted = " or ".join(kind.written for kind in _KINDS if option in kind.reads and kind is not _OF_ONES_OWN)
            raise ProtocolError(
                f"--{option.replace('_', '-')} is for {wanted}, and the attacks are {','.join(names)}; leave it out."
            )


def _meant(name: str) -> str | None:
    """Return the attack that is surely meant by a name of another spelling, or by one of AutoAttack's parts."""
    plain = plain_name(name)
    if plain in ("aa", "fab", "fabt", "square") or plain.startswith("apgd"):
        return "autoattack"
    return plain if is_pgd(plain) and 1 <= _pgd_parts(plain)[1] <= MAX_STEPS else None


def _check_column(name: str) -> None:
    """Refuse a function whose column would be none, or that of something else."""
    column = column_of(name)
    if not column or name.startswith(":"):
        raise ProtocolError(f"attack '{name}': name one's own as package.module:function.")
    if not _COLUMN.match(column):
        raise ProtocolError(f"attack {name}: '{column}' is no column; name the function by letters a-z, digits and _.")
    if is_search(column):
        raise ProtocolError(f"attack {name}: columns 'least-...' are of searches; give the function another name.")
    if column in _BY_NAME or column in ("clean", UNION) or is_pgd(column):
        raise ProtocolError(f"attack {name}: '{column}' is a built-in column; give the function another name.")
