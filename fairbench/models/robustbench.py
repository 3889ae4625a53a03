"""Models of RobustBench (Croce et al., 2021, arXiv:2010.09670), loaded by its own code.

robustbench 1.1.1 does not import by itself: it asks for a module ``autoattack``, while the package it depends on is
called ``pyautoattack``. :func:`_alias_autoattack` gives that module both names. (It also needs setuptools below 81,
which this package's requirements see to.)
"""

import contextlib
import importlib
import importlib.util
import sys
import warnings
from pathlib import Path

from fairbench.errors import ModelError
from fairbench.files import user_path
from fairbench.models.base import Model
from fairbench.models.checkpoints import read_state, weights_only_loading
from fairbench.registry import suggest

DATASETS = ("cifar10", "cifar100")
_THREAT_MODEL = "Linf"


def load_robustbench(model_id: str, dataset: str = "cifar10", model_dir: str | Path | None = None) -> Model:
    """Load an L-inf model of RobustBench; a file already in its download folder is used without network.

    Raises
    ------
    ModelError
        Unknown id (the nearest is suggested), a dataset RobustBench has no models for, or a download that failed (the
        message says which file to put where).
    """
    if dataset not in DATASETS:
        raise ModelError(f"robustbench:{model_id}: RobustBench models are for {' or '.join(DATASETS)}, not {dataset}.")
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):  # it reports downloads with print
        warnings.simplefilter("ignore")  # its imports and its dependencies' warn of their own age
        _alias_autoattack()
        utils = importlib.import_module("robustbench.utils")
        known = sorted(utils.all_models[utils.BenchmarkDataset(dataset)][utils.ThreatModel(_THREAT_MODEL)])
        if model_id not in known:
            raise ModelError(
                f"RobustBench has no {dataset} {_THREAT_MODEL} model '{model_id}'.{_near(model_id, known)}"
            )
        folder = user_path(model_dir or "./models")
        addresses = utils.all_models[utils.BenchmarkDataset(dataset)][utils.ThreatModel(_THREAT_MODEL)][model_id]
        files = _files(folder / dataset / _THREAT_MODEL / f"{model_id}.pt", addresses.get("gdrive_id"))
        for file in files:
            if file.is_file():
                read_state(file)  # weights-only whatever the environment says, and a clear line where it is no weights
        made = [path for path in files[0].parents if not path.exists()] if files else []
        try:
            with weights_only_loading():
                module = utils.load_model(model_id, model_dir=folder, dataset=dataset, threat_model=_THREAT_MODEL)
        except Exception as error:  # its downloader lets through whatever its transport raised
            for path in made:  # it makes them first
                with contextlib.suppress(OSError):  # not empty, or never made
                    path.rmdir()
            raise ModelError(
                f"robustbench:{model_id} could not be loaded ({type(error).__name__}: {error}). {_advice(files)}"
            ) from error
    return Model(module, f"robustbench:{model_id}", f"robustbench:{model_id}", dataset=dataset)


def _files(file: Path, address: str | list[str] | None) -> list[Path]:
    """Return the files it is loaded from: one, one a member of an ensemble, or none (timm downloads it by itself)."""
    if isinstance(address, list):
        return [file.with_name(f"{file.name}_m{i}.pt") for i in range(len(address))]
    return [file] if address else []


def _advice(files: list[Path]) -> str:
    if not files:
        return "Its weights come from timm's hub: check the network."
    more = f" (and so on up to {files[-1].name})" if len(files) > 1 else ""
    return f"Put its weights in {files[0]}{more} (address: RobustBench's model table), or check the network."


def _near(model_id: str, known: list[str]) -> str:
    hint = suggest(model_id, known)
    return hint if "Did you mean" in hint else f" It has {len(known)}; see RobustBench's model table."


def _alias_autoattack() -> None:
    """Make ``import autoattack`` find pyautoattack, unless a real ``autoattack`` is installed."""
    if "autoattack" in sys.modules:
        return
    if importlib.util.find_spec("autoattack") is not None:
        return
    for submodule in ("", ".autopgd_base", ".fab_base", ".fab_pt", ".square", ".checks", ".state", ".other_utils"):
        sys.modules[f"autoattack{submodule}"] = importlib.import_module(f"pyautoattack{submodule}")
