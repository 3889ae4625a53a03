"""One lazy registry for everything that is chosen by name, with collision checks and did-you-mean."""

import re
import sys
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from importlib import import_module
from pathlib import Path
from typing import Any

from fairbench.errors import FairbenchError

_NAMED = 4
"""At most this many names are suggested."""
_LISTED = 12
"""At most this many known names are listed where none is near."""
_ALIKE = 0.95
"""Likeness from which it is, whatever else begins so: a letter too many."""
_NEAR = 0.6
"""Likeness, of :mod:`difflib`, from which a name may be what was meant."""


def suggest(name: str, known: Iterable[str], listing: str = "") -> str:
    """Say which known names may have been meant, else which there are; nothing where there is none.

    A name that differs by a letter is meant, else those that begin with what was typed, else the nearest. Upper case
    and what is between words do not count.

    Parameters
    ----------
    name
        What was typed.
    known
        The names that there are.
    listing
        Command that lists them: it is named where several may be meant, or where they are too many for a line.

    Examples
    --------
    >>> suggest("lenet_5", ["lenet5", "resnet18"])
    " Did you mean 'lenet5'?"
    >>> suggest("bat", ["bat_lenet5", "bat_resnet18", "trades_lenet5"])
    " Did you mean 'bat_lenet5' or 'bat_resnet18'?"
    >>> suggest("zzz", ["lenet5", "resnet18"])
    ' Known: lenet5, resnet18.'
    """
    names = sorted(set(known))
    lists = f" `{listing}` lists them." if listing else ""
    if meant := _meant(plain_name(name), names):
        more = len(meant) - _NAMED
        if more > 0:
            return f" Did you mean one of {_quoted(meant[:_NAMED])} and {more} more?{lists}"
        if len(meant) == 1:
            return f" Did you mean '{meant[0]}'?"
        return f" Did you mean {_quoted(meant[:-1])} or '{meant[-1]}'?{lists}"
    if len(names) > _LISTED:
        return lists or f" Known: {', '.join(names[:_NAMED])} and {len(names) - _NAMED} more."
    return f" Known: {', '.join(names)}." if names else ""


def plain_name(name: str) -> str:
    """Return a name without upper case and what is between words: "CIFAR-10" and "cifar_10" are one."""
    return re.sub(r"[-_\s]", "", name.casefold())


def _meant(typed: str, names: list[str]) -> list[str]:
    likeness = {name: SequenceMatcher(None, plain_name(name), typed).ratio() for name in names}
    best = max(likeness.values(), default=0.0)
    nearest = [name for name in names if likeness[name] == best >= _NEAR]
    begun = [name for name in names if typed and plain_name(name).startswith(typed)]
    return nearest if best >= _ALIKE else begun or nearest


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def import_attribute(target: str) -> Any:
    """Import ``"package.module:attribute"`` and return the attribute."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


class Registry:
    """Names mapped to ``"module:attribute"`` targets that are imported when first asked for.

    Parameters
    ----------
    kind
        What an entry is, as errors name it ("architecture").
    error
        The :class:`FairbenchError` subclass an unknown name raises.
    listing
        Command that lists them, as errors name it.
    own_code
        What ``package.module:attribute`` of the user's own, which may stand where a name does, names: "FUNCTION",
        "CLASS"; "" where none may. See :func:`is_own_code`.
    """

    def __init__(
        self,
        kind: str,
        error: type[FairbenchError],
        targets: dict[str, str],
        *,
        listing: str = "",
        own_code: str = "",
    ) -> None:
        self.kind = kind
        self.listing = listing
        self.own_code = own_code
        self._error = error
        self._targets: dict[str, str] = {}
        for name, target in targets.items():
            self.add(name, target)

    def add(self, name: str, target: str) -> None:
        """Register ``name``; a second target under the same name is a :class:`ValueError`."""
        if self._targets.get(name, target) != target:
            raise ValueError(f"{self.kind} '{name}' is already {self._targets[name]}")
        self._targets[name] = target

    def __getitem__(self, name: str) -> Any:
        return import_attribute(self._targets[self.known(name)])

    def known(self, name: str) -> str:
        """Return the name if there is such an entry; else raise the registry's error, with the nearest name."""
        if name not in self._targets:
            spelled = own_code_spelling(name, self.own_code) if self.own_code else ""
            hint = f" One's own is '{spelled}'." if spelled else ""
            raise self._error(f"unknown {self.kind} '{name}'.{suggest(name, self._targets, self.listing)}{hint}")
        return name

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._targets))


def is_own_code(name: str) -> bool:
    """Whether a name is ``package.module:attribute`` of the user's own; ``torchvision:NAME`` is not."""
    return ":" in name and not name.startswith("torchvision:")


def own_code_spelling(typed: str, attribute: str) -> str:
    """Return how code of one's own is named that was typed as a path or without a colon; "" where it may be none.

    Parameters
    ----------
    typed
        "mypkg/nets.py:build", "mypkg.nets" or "mypkg.nets.build".
    attribute
        What stands for the name that was left out, such as "FUNCTION".

    Examples
    --------
    >>> own_code_spelling("mypkg/nets.py:build", "FUNCTION"), own_code_spelling("mypkg.nets", "FUNCTION")
    ('mypkg.nets:build', 'mypkg.nets:FUNCTION')
    """
    home, _, named = typed.partition(":")
    if is_path := "/" in home or home.endswith(".py"):
        path = Path(home)
        inside = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        parts = (inside.name if inside.is_absolute() else str(inside)).removesuffix(".py").split("/")
        home = ".".join(part for part in parts if part not in ("..", "."))
    if not all(part.isidentifier() for part in home.split(".")):
        return ""
    before, dot, last = home.rpartition(".")
    if named or is_path or _is_module(home):
        return f"{home}:{named or attribute}"
    if dot and (_is_module(before) or last[0].isupper()):
        return f"{before}:{last}"
    return f"{home}:{attribute}" if dot else ""


def _is_module(name: str) -> bool:
    """Whether a module of that name lies in the current folder or where modules are; looks only, imports nothing."""
    files = [Path(folder, *name.split(".")) for folder in ("", *sys.path)]
    try:
        return any(file.with_suffix(".py").is_file() or (file / "__init__.py").is_file() for file in files)
    except OSError:  # a name too long for a file
        return False
