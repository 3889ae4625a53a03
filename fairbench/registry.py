"""One lazy registry for everything that is chosen by name, with collision checks and did-you-mean."""

from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from fairbench.errors import FairbenchError


def suggest(name: str, known: list[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, else the list of them."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f" Did you mean '{near[0]}'?"
    return f" Known: {', '.join(sorted(known))}." if known else ""


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
    accepts_own_code
        Whether ``package.module:attribute`` of the user's own may stand where a name does; see :func:`is_own_code`.
    """

    def __init__(
        self, kind: str, error: type[FairbenchError], targets: dict[str, str], *, accepts_own_code: bool = False
    ) -> None:
        self.kind = kind
        self.accepts_own_code = accepts_own_code
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
            raise self._error(f"unknown {self.kind} '{name}'.{suggest(name, list(self._targets))}{self._hint(name)}")
        return name

    def _hint(self, name: str) -> str:
        """Say how one's own code is named to whom that may have been meant."""
        home, dot, attribute = name.rpartition(".")
        if not (self.accepts_own_code and dot and all(part.isidentifier() for part in (*home.split("."), attribute))):
            return ""
        return f" One's own is '{home}:{attribute}'."

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._targets))


def is_own_code(name: str) -> bool:
    """Whether a name is ``package.module:attribute`` of the user's own; ``torchvision:NAME`` is not."""
    return ":" in name and not name.startswith("torchvision:")
