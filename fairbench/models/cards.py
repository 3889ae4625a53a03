"""Model cards: what a model of the zoo is, where its weights are, and what they hash to.

A card is plain YAML in ``model_zoo/cards``; nothing in it is executed.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fairbench.errors import ModelError, first_line
from fairbench.files import data_folder
from fairbench.plain_yaml import parse_yaml
from fairbench.registry import suggest


class _Plain(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Weights(_Plain):
    """Where weights are: a file beside the card or of the zoo, which may have an address, or one of another package.

    A card may come from anybody, so names are plain: none leaves its folder, and no package is imported to find a file.
    """

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")] | None = None
    package: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")] | None = None
    url: Annotated[str, Field(pattern="^https://")] | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @model_validator(mode="after")
    def _one_place(self) -> "Weights":
        if (self.file is None) == (self.package is None) or (self.package is None) != (self.path is None):
            raise ValueError("give a file, or a package and the path in it")
        if self.url is not None and self.file is None:
            raise ValueError("an address goes with a file")
        return self


class Normalization(_Plain):
    """Mean and standard deviation of each channel, in [0, 1] pixel units, or of each feature."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class CardThreatModel(_Plain):
    """What the model was trained against; ``epsilon`` 0 with norm "none" for natural training."""

    norm: Literal["none", "Linf"]
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]


CARD_FILE, WEIGHTS_FILE = "card.yaml", "model.safetensors"
"""What makes the folder of a training run a model."""

RUN_FILE = "recipe.json"
"""What makes a folder a training run, finished or not."""


class ModelCard(_Plain):
    """A model of the zoo, or of a training run. Unknown keys are refused.

    It takes images of ``in_channels``, or rows of ``in_features``. ``training`` says how it was really made: recipe,
    data, epochs, seconds, hardware, versions, code revision.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
    title: str
    architecture: str
    dataset: str
    num_classes: Annotated[int, Field(ge=2)]
    in_channels: Annotated[int, Field(ge=1)] | None = 3
    in_features: Annotated[int, Field(ge=1)] | None = None
    method: str
    weights: Weights
    normalization: Normalization | None = None
    threat_model: CardThreatModel
    training: dict[str, Any] | None = None
    provenance: str
    licence: str

    @model_validator(mode="after")
    def _pixels(self) -> "ModelCard":
        if self.in_features is None and self.threat_model.epsilon > 1:
            raise ValueError("threat_model.epsilon: it should be less than or equal to 1, because pixels are in [0, 1]")
        return self


def card_names() -> list[str]:
    """Return the names of all cards, sorted."""
    return sorted(path.stem for path in (data_folder("model_zoo") / "cards").glob("*.yaml"))


@cache
def load_card(name: str) -> ModelCard:
    """Read a card by the model's name.

    Raises
    ------
    ModelError
        No such card (the nearest name is suggested), or the card does not fit the schema.
    """
    if name not in card_names():
        raise ModelError(
            f"unknown model '{name}': neither a file nor a model of the zoo."
            f"{suggest(name, card_names(), 'fairbench models')}"
        )
    card = read_card(data_folder("model_zoo") / "cards" / f"{name}.yaml")
    if card.name != name:
        raise ModelError(f"the card of {name} is named '{card.name}'; install fairbench again.")
    return card


def read_card(path: Path) -> ModelCard:
    """Read a card file.

    Raises
    ------
    ModelError
        It is not YAML, or not a card; the first fault is named.
    """
    try:
        return ModelCard.model_validate(parse_yaml(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise ModelError(f"card {path}: not readable YAML ({first_line(error)})") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelError(f"card {path}: {'.'.join(map(str, first['loc'])) or 'card'}: {first['msg']}.") from error
