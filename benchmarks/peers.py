"""The three packages we are measured against, each called as its own documentation says, and what the scripts share.

Only their PGD is used. ``benchmarks/README.md`` tells how to install them beside fairbench.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from fairbench import provenance
from fairbench.errors import FairbenchError

INSTALL = {
    "torchattacks": "pip install --no-deps --target build/peers torchattacks==3.5.1, and set PYTHONPATH=build/peers",
    "foolbox": "pip install 'foolbox>=3.3.4'",
    "art": "pip install adversarial-robustness-toolbox",
}
DISTRIBUTIONS = {"art": "adversarial-robustness-toolbox"}
"""What a peer is called where packages are installed from, if not by the name it is imported by."""

Craft = Callable[[Tensor, Tensor], Tensor]
"""(x, y) -> x_adv."""


@dataclass(frozen=True)
class Settings:
    """PGD in numbers, L-inf, one uniform random start; ``epsilon`` and ``step`` in [0, 1] pixel units."""

    epsilon: float = 8 / 255
    step: float = 2 / 255
    steps: int = 20

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return asdict(self)


def torchattacks_pgd(model: nn.Module, settings: Settings) -> Craft:
    """Return ``torchattacks.PGD`` on a model in ``eval()`` mode."""
    import torchattacks

    return torchattacks.PGD(model, eps=settings.epsilon, alpha=settings.step, steps=settings.steps, random_start=True)


def foolbox_pgd(model: nn.Module, settings: Settings) -> Craft:
    """Return foolbox's ``LinfPGD`` on a model in ``eval()`` mode; its call includes a verdict of its own."""
    import foolbox

    attack = foolbox.attacks.LinfPGD(abs_stepsize=settings.step, steps=settings.steps, random_start=True)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1))

    def craft(x: Tensor, y: Tensor) -> Tensor:
        _, clipped, _ = attack(wrapped, x, y, epsilons=settings.epsilon)
        return clipped

    return craft


def art_pgd(model: nn.Module, settings: Settings) -> Craft:
    """Return ART's ``ProjectedGradientDescentPyTorch`` on a model in ``eval()`` mode; it takes and returns arrays."""
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    def craft(x: Tensor, y: Tensor) -> Tensor:
        nonlocal attack
        if attack is None or attack.batch_size != len(x):
            classes = model(x[:1].detach()).shape[1]
            shape = tuple(x.shape[1:])
            loss = nn.CrossEntropyLoss()
            wrapped = PyTorchClassifier(model, loss, shape, classes, clip_values=(0.0, 1.0), device_type=x.device.type)
            numbers = {"eps": settings.epsilon, "eps_step": settings.step, "max_iter": settings.steps}
            attack = ProjectedGradientDescentPyTorch(
                wrapped, norm="inf", num_random_init=1, batch_size=len(x), verbose=False, **numbers
            )
        return torch.from_numpy(attack.generate(x.cpu().numpy(), y.cpu().numpy())).to(x.device)

    attack: ProjectedGradientDescentPyTorch | None = None
    return craft


PEERS: dict[str, Callable[[nn.Module, Settings], Craft]] = {
    "torchattacks": torchattacks_pgd,
    "foolbox": foolbox_pgd,
    "art": art_pgd,
}


def require_peers(names: Iterable[str] = PEERS) -> None:
    """Make sure that the peers are installed.

    Raises
    ------
    FairbenchError
        One is not; the message is how to install it.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        how = "; ".join(f"{name} is not installed: {INSTALL[name]}" for name in missing)
        raise FairbenchError(f"{how} (benchmarks/README.md says why).")


def environment() -> dict[str, Any]:
    """Describe the machine and every package that takes part, as plain data."""
    versions = provenance.versions()
    for name in filter(find_spec, PEERS):
        try:
            versions[name] = version(DISTRIBUTIONS.get(name, name))
        except PackageNotFoundError:  # a copy that pip does not know of
            versions[name] = "unknown"
    return {"hardware": provenance.hardware(), "versions": versions}


def positive(text: str) -> int:
    """Read a whole number from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def exit_with(main: Callable[[], int]) -> None:
    """Run a script's ``main`` and leave with its code; a user's mistake is one line and code 2."""
    try:
        sys.exit(main())
    except FairbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
