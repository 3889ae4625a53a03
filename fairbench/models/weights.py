"""Where a card's weights are on this machine, and how they come here if they are not."""

import os
from importlib.util import find_spec
from pathlib import Path

from fairbench.download import fetch
from fairbench.errors import DownloadError, ModelError
from fairbench.files import cache_folder, data_folder, make_folder, user_path
from fairbench.models.cards import ModelCard
from fairbench.provenance import sha256_file


def weights_path(card: ModelCard, folder: Path | None = None) -> Path:
    """Return the file of a card's weights, after checking its SHA-256.

    Weights of the zoo that do not ship with the package are looked for in the clone that the package lies in, in
    ``$FAIRBENCH_ZOO``, in the user's cache and in a clone that is the current folder, and else downloaded into the
    cache from the card's address.

    Parameters
    ----------
    folder
        Of a training run, whose weights lie in it; default: a model of the zoo.

    Raises
    ------
    ModelError
        The file is nowhere and cannot be downloaded, or is not the one the card names.
    """
    weights = card.weights
    if weights.package is not None:
        return _checked(card, _in_package(card))
    if folder is not None:
        path = folder / str(weights.file)
        if not path.is_file():
            raise ModelError(f"{card.name}: its weights file {path} is missing; run its `fairbench train` again.")
        return _checked(card, path, "put the file back, or train again in another folder")
    for path in (place / str(weights.file) for place in _places()):
        if path.is_file():
            return _checked(card, path)
    here = Path("model_zoo") / "weights" / str(weights.file)  # nobody named it: what is not the card's is passed over
    if here.is_file() and sha256_file(here) == weights.sha256:
        return here
    return _checked(card, _downloaded(card))


def _places() -> list[Path]:
    own = os.environ.get("FAIRBENCH_ZOO")
    return [data_folder("model_zoo") / "weights", *([user_path(own)] if own else []), cache_folder("zoo")]


def _in_package(card: ModelCard) -> Path:
    try:
        spec = find_spec(str(card.weights.package))
    except (ValueError, ImportError):  # no name of a package: __main__, or a part of one that is not there
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"{card.name}: its weights come with the package {card.weights.package}; install it.")
    path = Path(spec.submodule_search_locations[0]) / str(card.weights.path)
    if not path.is_file():
        raise ModelError(f"{card.name}: its weights file {path} is missing; install {card.weights.package} again.")
    return path


def _downloaded(card: ModelCard) -> Path:
    """Fetch the weights into the cache; the file is there whole, with the right SHA-256, or not at all."""
    weights = card.weights
    put = (
        f"put {weights.file} (SHA-256 {weights.sha256[:12]}...) in $FAIRBENCH_ZOO, or set that to model_zoo/weights of "
        "a clone, which has it"
    )
    if weights.url is None:
        raise ModelError(f"{card.name}: its weights do not ship with the package, and its card has no address; {put}.")
    path = make_folder(cache_folder("zoo")) / str(weights.file)
    try:
        return fetch(weights.url, path, weights.sha256)
    except DownloadError as error:
        raise ModelError(f"{card.name}: its weights {error}; {put}.") from error


def _checked(card: ModelCard, path: Path, mend: str = "install it again, or remove it") -> Path:
    if sha256_file(path) != card.weights.sha256:
        raise ModelError(f"{card.name}: {path} is not the file of its card (SHA-256 differs); {mend}.")
    return path
