"""The models that ``fairbench paper sooksatra2022`` compares, in pairs of standard and robust, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass

STANDARD, PGD_AT, BAT = (f"{method}_lenet5_fashion_mnist" for method in ("standard", "pgd_at", "bat"))
CIFAR10 = CIFAR10_STANDARD, CIFAR10_STATIC, CIFAR10_PGD_AT = tuple(
    f"{method}_small_cnn_cifar10" for method in ("standard", "static_augmentation", "pgd_at")
)
"""The paper's network and training; static augmentation is its robust model, PGD-AT is not in it."""
PUBLIC_STANDARD, PUBLIC_ROBUST = "lenet5_fashion_natural", "lenet5_fashion_adversarial"
ZOO, PUBLIC = (STANDARD, PGD_AT, BAT), (PUBLIC_STANDARD, PUBLIC_ROBUST)
ADULT_STANDARD, ADULT_STATIC, ADULT_PGD_AT = (
    f"{method}_mlp_adult" for method in ("standard", "static_augmentation", "pgd_at")
)
"""The paper's network and training on feature vectors; PGD-AT is not in it."""
ADULT_RADII = ("10", "15", "20")
"""Those of the paper's Table II, the first the protocol's own."""
TITLES = {
    STANDARD: "zoo, standard training",
    PGD_AT: "zoo, PGD-AT",
    BAT: "zoo, BAT",
    PUBLIC_STANDARD: "public checkpoint, standard training",
    PUBLIC_ROBUST: "public checkpoint, adversarial training",
}
"""The models that are looked at one by one, and what they are."""

LE, PGD10, STEPS = "least-epsilon", "pgd10", "least-steps"
SEARCHED, CIFAR10_SEARCHED = 64, 0.04
"""Largest radius of the kept searches: of LeNet-5 in 1/255, of the small CNN in pixels."""

RADII = {f"{radius}/255": radius / 255 for radius in (4, 8, 16, 24, 32, 48)}
"""Radii at which CRU_s is read off the search for least epsilon, as written."""
CIFAR10_RADII = {f"{radius:g}": radius for radius in (0.004, 0.01, 0.012, 0.014, 0.02, 0.03)}
"""The same on CIFAR-10; those of the paper's Table I are among them."""
TABLE_1 = ("0.01", "0.012", "0.014")
READINGS = WHITE_BOX, TRANSFER = "white-box", "transfer"
"""An attack made for the model itself, and one made for the standard model."""


def whole_split(model: str) -> str:
    """Return the name of a model's result on all test images."""
    return f"{model}.standard.epsilon-0.01" if model in CIFAR10 else f"{model}.standard"


def sample(model: str) -> str:
    """Return the name of a model's result on the sample, with least epsilon, PGD-10 and (LeNet-5) least steps."""
    if model in CIFAR10:
        return f"{model}.quick.attacks-{PGD10}-{LE}.max_epsilon-{CIFAR10_SEARCHED:g}.resolution-0.0002"
    return f"{model}.quick.attacks-{PGD10}-{STEPS}-{LE}.max_epsilon-{SEARCHED}-255"


def on_adult(robust: str, radius: str, reading: str) -> list[str]:
    """Return the results of a pair on Adult, on all test rows at a radius of :data:`ADULT_RADII`."""
    changed = "" if radius == ADULT_RADII[0] else f".epsilon-{radius}"
    transfer = f".transfer-{ADULT_STANDARD}" if reading == TRANSFER else ""
    return [f"{ADULT_STANDARD}.sooksatra2022{changed}", f"{robust}.sooksatra2022{changed}{transfer}"]


@dataclass(frozen=True)
class Pair:
    """A standard and a robust model, and how they are compared.

    Parameters
    ----------
    radii
        On the sample, by the search for least epsilon: as written, and in pixels.
    whole
        Radii of PGD-20 on all test images, where they are the paper's: attacks made for the model, and for the standard
        one.
    decimals
        Of class means of least epsilon.
    """

    standard: str
    robust: str
    radii: Mapping[str, float]
    whole: tuple[str, ...] = ()
    decimals: int = 3

    @property
    def models(self) -> tuple[str, str]:
        """Return both."""
        return self.standard, self.robust

    @property
    def whole_split(self) -> list[str]:
        """Return their results on all test images."""
        return [whole_split(model) for model in self.models]

    @property
    def sample(self) -> list[str]:
        """Return their results on the sample."""
        return [sample(model) for model in self.models]

    def at(self, radius: str, reading: str) -> list[str]:
        """Return their results under PGD-20 on all test images at a radius of ``whole``."""
        transfer = f".transfer-{self.standard}" if reading == TRANSFER else ""
        return [f"{self.standard}.standard.epsilon-{radius}", f"{self.robust}.standard.epsilon-{radius}{transfer}"]

    @property
    def results(self) -> list[str]:
        """Return all results that are compared."""
        whole = [name for radius in self.whole for reading in READINGS for name in self.at(radius, reading)]
        return [*self.whole_split, *self.sample, *whole]


PAIRS = {
    "zoo, PGD-AT": Pair(STANDARD, PGD_AT, RADII),
    "zoo, BAT": Pair(STANDARD, BAT, RADII),
    "public checkpoints": Pair(PUBLIC_STANDARD, PUBLIC_ROBUST, RADII),
    "CIFAR-10, the paper's robust model": Pair(CIFAR10_STANDARD, CIFAR10_STATIC, CIFAR10_RADII, TABLE_1, 4),
    "CIFAR-10, PGD-AT": Pair(CIFAR10_STANDARD, CIFAR10_PGD_AT, CIFAR10_RADII, TABLE_1, 4),
}
