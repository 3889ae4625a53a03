"""The card of a submission: who made what, and how its weights are loaded. Plain data; no figure is in it."""

import unicodedata
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fairbench.errors import first_line, printable
from fairbench.plain_yaml import parse_yaml

CARD_VERSION = 1
WEIGHTS = "weights.safetensors"
"""Name of the weights' file in a submission."""

_ADDRESS = r"^https?://[!#-&(-;=?-\[\]^_a-z{}~]+$"
"""ASCII that can be seen, less quotation marks, <, >, | and backslash; of a name in another script, its punycode."""
_JOINERS = "\u200c\u200d"
"""Format characters that words of some scripts are written with."""


def _shown(text: str) -> str:
    """Return text whose every character shows, and none of which turns or hides the others."""
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and character not in _JOINERS:
            raise ValueError(f"the character U+{ord(character):04X} cannot be shown; leave it out")
    if not any(unicodedata.category(character)[0] in "LNPS" for character in text):
        raise ValueError("it is empty")
    return text


Line = Annotated[str, Field(max_length=300), AfterValidator(_shown)]
"""A line of text, not empty and without characters that control, hide or turn others."""
Address = Annotated[str, Field(max_length=500, pattern=_ADDRESS)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Plain(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SubmittedWeights(_Plain):
    """Weights in the folder, or where they are fetched from; either way with the SHA-256 of the file."""

    file: str | None = None
    url: Annotated[str, Field(max_length=500, pattern=_ADDRESS.replace("https?", "https"))] | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @field_validator("file")
    @classmethod
    def _inside(cls, name: str | None) -> str | None:
        if name is not None and (set(name) & set("/\\") or name in (".", "..")):
            raise ValueError(f"the path {name!r} leaves the folder")
        if name is not None and name != WEIGHTS:
            raise ValueError(f"weights in the folder are named {WEIGHTS}")
        return name

    @model_validator(mode="after")
    def _one_place(self) -> "SubmittedWeights":
        if (self.file is None) == (self.url is None):
            raise ValueError("give a file or a url, one of the two")
        return self


class SubmittedNormalization(_Plain):
    """Mean and standard deviation of each channel, in [0, 1] pixel units."""

    mean: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=4)]
    std: Annotated[tuple[Annotated[Finite, Field(gt=0)], ...], Field(min_length=1, max_length=4)]


class TrainedAgainst(_Plain):
    """What the model was trained against; norm "none" and epsilon 0 for natural training."""

    norm: Literal["none", "Linf", "L2", "L1", "other"]
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SubmissionCard(_Plain):
    """What ``card.yaml`` holds. Unknown keys are refused, so that no figure can stand in it.

    ``name`` is the key on the board and ``title`` what people read. ``replaces`` names the entry and version that a
    correction stands in for, such as ``my_method.1``. ``extra_data`` names data beyond the dataset's training split;
    None says that there was none. ``code`` is where an architecture of one's own can be had. ``trained_against`` and
    ``training_cost`` may be left unsaid.
    """

    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    title: Line
    authors: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    contact: Line
    paper: Address | None = None
    code: Address | None = None
    dataset: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    protocol: Literal["leaderboard", "standard"]
    architecture: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9_.:/-]+$")]
    normalization: SubmittedNormalization | None = None
    output: Annotated[str, Field(max_length=64), AfterValidator(_shown)] | None = None
    input_size: tuple[Annotated[int, Field(ge=1, le=512)], Annotated[int, Field(ge=1, le=512)]] | None = None
    weights: SubmittedWeights
    trained_against: TrainedAgainst | None = None
    extra_data: Line | None = None
    training_cost: Line | None = None
    licence: Line
    replaces: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}\.[1-9][0-9]{0,5}$")] | None = None


def next_version(card: SubmissionCard) -> int:
    """Return the version that a submission becomes: 1, or one more than what it replaces."""
    return 1 if card.replaces is None else int(card.replaces.rpartition(".")[2]) + 1


def read_submission_card(path: Path) -> tuple[SubmissionCard | None, list[str]]:
    """Read a card; return it, or None and a line for each thing that is wrong with it."""
    try:
        plain = parse_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        return None, [f"{path.name}: not plain YAML ({first_line(error)})"]
    return card_of(plain, path.name)


def card_of(plain: object, where: str = "card.yaml") -> tuple[SubmissionCard | None, list[str]]:
    """Make a card of plain data; return it, or None and a line for each fault."""
    if not isinstance(plain, dict):
        return None, [f"{where}: it holds no keys and values"]
    if isinstance(version := plain.get("version"), int) and version > CARD_VERSION:
        return None, [f"{where}: version {version} is newer than this fairbench reads ({CARD_VERSION}); upgrade it"]
    try:
        return SubmissionCard.model_validate(plain), []
    except ValidationError as error:
        return None, [_fault(where, fault) for fault in error.errors()]
    except (RecursionError, OverflowError) as error:
        return None, [f"{where}: not plain data ({first_line(error)})"]


_FORMS = {
    "name": "small letters, digits, - and _, 64 at most, the first a letter or a digit",
    "replaces": "the name of an entry, a point and its version: my_method.1",
    "dataset": "letters, digits, - and _",
    "architecture": "letters, digits and _ . : / -",
    "sha256": "64 hexadecimal digits",
    "paper": "an address that begins with https:// or http://, without spaces",
    "code": "an address that begins with https:// or http://, without spaces",
    "url": "an address that begins with https://, without spaces",
}
"""What a key's pattern asks for, in words."""


def _fault(where: str, fault: Any) -> str:
    place, message = fault["loc"], fault["msg"]
    key = ".".join(map(str, place))
    if fault["type"] == "string_pattern_mismatch":
        message = f"{fault['input']!r} is not {_FORMS[str(place[-1])]}"
    text = f"{where}: {key}: {message}" if key else f"{where}: {message}"
    return printable(" ".join(text.replace("Value error, ", "").split()))[:400]
