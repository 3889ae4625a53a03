"""An attack of one's own: a function from a batch to adversarial inputs, run and judged like the built-in ones.

The harness projects what the function proposes and scores it with the original model, so a function that leaves the
ball, or counts its successes otherwise, changes nothing.
"""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairbench.attacks.base import Proposal, ThreatModel, Tick, Verify
from fairbench.attacks.own_identity import identify_function
from fairbench.errors import FairbenchError, ProtocolError, first_line
from fairbench.float32 import exact
from fairbench.memory import is_out_of_memory
from fairbench.own_code import own_attribute
from fairbench.provenance import sha256_json
from fairbench.randomness import MAX_SEED

_GIVEN = ("model", "x", "y")
_OFFERED = ("epsilon", "index", "num_classes", "seed")
"""What a function may ask for beside them, by name."""
_ASSUMED_COST = 20.0


@dataclass(frozen=True)
class OwnAttack:
    """A function ``attack(model, x, y, ...)`` that returns adversarial inputs of the shape of ``x``.

    It gets a copy of the model, from (B, ...) float32 to (B, K) logits, of the inputs, and of the (B,) int64 labels,
    anew for each batch; and, by name, what it asks for of ``epsilon`` (float, in the unit of the inputs), ``index``
    ((B,) int64, each example's position in its split), ``num_classes`` and ``seed``. What it draws with torch, numpy or
    ``random`` is seeded by the run's seed and the batch, so a killed run that goes on draws the same.

    Parameters
    ----------
    name
        Its column prefix.
    function
        See above; :meth:`named` imports it.
    target
        Its ``package.module:function``.
    code_sha256, packages
        What of its code it depends on: see :func:`~fairbench.attacks.own_identity.identify_function`.
    """

    name: str
    threat_model: ThreatModel
    function: Callable[..., Any]
    target: str
    code_sha256: str
    packages: Mapping[str, str]
    num_classes: int
    seed: int = 0
    foreign: bool = True

    @classmethod
    def named(cls, target: str, name: str, threat_model: ThreatModel, num_classes: int, seed: int) -> "OwnAttack":
        """Import ``package.module:function``.

        Raises
        ------
        FairbenchError
            There is no such function, it lies in no file, or it cannot be called so.
        """
        function = own_attribute(target, "--attacks", "function")
        _check_signature(target, function)
        code, packages = identify_function(target, function)
        return cls(name, threat_model, function, target, code, packages, num_classes, seed)

    @property
    def cost(self) -> float:
        """Return what PGD-20 costs: nobody knows; only the progress bar depends on it."""
        return _ASSUMED_COST

    def parameters(self) -> dict[str, Any]:
        """Return every parameter as plain data."""
        return {
            **self.threat_model.parameters(),
            "function": self.target,
            "code_sha256": self.code_sha256,
            "packages": dict(self.packages),
            "seed": self.seed,
        }

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, index: np.ndarray, *, verify: Verify, tick: Tick
    ) -> Proposal:
        """Return what the function returns.

        Raises
        ------
        ProtocolError
            It raises, or returns something else than finite numbers in the shape of ``x``.
        """
        offered = {"epsilon": self.threat_model.epsilon, "index": index.copy()}
        offered |= {"num_classes": self.num_classes, "seed": self.seed}
        asked = {key: value for key, value in offered.items() if key in _asked(self.function)}
        with _kept_to_itself(self.seed, index, x.device):
            try:
                found = self.function(model, x.clone(), y.clone(), **asked)
            except FairbenchError:
                raise
            except (Exception, SystemExit) as error:
                if is_out_of_memory(error):
                    raise
                raise ProtocolError(f"attack {self.target} raised {first_line(error)}") from error
        tick(self.cost * len(x))
        return Proposal(self._checked(found, x, index))

    def _checked(self, found: Any, x: Tensor, index: np.ndarray) -> Tensor:
        if not isinstance(found, Tensor) or found.shape != x.shape or found.is_complex():
            what = f"a {type(found).__name__}"
            if isinstance(found, Tensor):
                what = f"a tensor of {tuple(found.shape)}, {str(found.dtype).removeprefix('torch.')}"
            raise ProtocolError(
                f"attack {self.target} returned {what}; return adversarial inputs in the shape of x, {tuple(x.shape)}."
            )
        found = found.detach().to(x)
        bad = ~torch.isfinite(found).flatten(1).all(1)
        if bad.any():
            example = int(index[int(bad.nonzero()[0])])
            raise ProtocolError(f"attack {self.target} returned NaN or infinity for example {example}.")
        return found


def _asked(function: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return _OFFERED if takes_any else tuple(parameters)[len(_GIVEN) :]


def _check_signature(target: str, function: Callable[..., Any]) -> None:
    written = f"def {target.rpartition(':')[2]}(model, x, y, epsilon)"
    if not inspect.isfunction(function):
        kind = "class" if inspect.isclass(function) else type(function).__name__
        raise ProtocolError(f"attack {target}: it is a {kind}; give a function, {written}.")
    given: list[Any] = [None] * len(_GIVEN)
    try:
        inspect.signature(function).bind(*given, **dict.fromkeys(k for k in _asked(function) if k in _OFFERED))
    except (TypeError, ValueError) as error:
        raise ProtocolError(
            f"attack {target}: it cannot be called with model, x, y and, by name, {', '.join(_OFFERED)} ({error}); "
            f"write {written}."
        ) from error


@contextmanager
def _kept_to_itself(seed: int, index: np.ndarray, device: torch.device) -> Iterator[None]:
    """Seed what a function may draw from by the run's seed and the batch; put back what it sets for all the process."""
    drawn = int(sha256_json([seed, index.tolist()])[:15], 16) % MAX_SEED
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the one that is drawn from)
    of_numbers, of_threads = torch.get_default_dtype(), torch.get_num_threads()
    of_algorithms = torch.get_deterministic_debug_mode()
    with exact(), torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        torch.manual_seed(drawn)
        random.seed(drawn)
        np.random.seed(drawn % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002
            torch.set_default_dtype(of_numbers)
            torch.set_num_threads(of_threads)
            torch.set_deterministic_debug_mode(of_algorithms)
