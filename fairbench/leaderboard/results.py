"""Kept results: what a model of the zoo did under a protocol, as its outcome table and the summary made from it.

A result is two files of one name: ``NAME.parquet``, the outcome table, and ``NAME.json``, its manifest and summary. The
table is the evidence; the summary is there to be read, and is never read back. A correction is a new version,
``NAME.v2``, that names the old one and says why; the old one stays, and the latest is what counts.
"""

import glob
import json
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from fairbench.errors import OutcomesError
from fairbench.files import make_folder, replacing, write_json
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.outcomes.table import read_table, table_bytes
from fairbench.provenance import sha256_file, sha256_plain
from fairbench.registry import suggest

_FORMAT = 1
_VERSION = re.compile(r"\.v([1-9][0-9]*)$")
_SHIPPED = Path(__file__).parent / "data"
_IN_A_CLONE = Path(__file__).parents[2] / "leaderboard"


def leaderboard_folder(kind: str) -> Path:
    """Return a folder of the board's data ("results"): in the installed package, or in ``leaderboard`` of a clone."""
    shipped = _SHIPPED / kind
    return shipped if shipped.is_dir() else _IN_A_CLONE / kind


def results_folder() -> Path:
    """Return where results are kept."""
    return leaderboard_folder("results")


def published_folder() -> Path:
    """Return where the numbers that papers print are kept, a CSV file each."""
    return leaderboard_folder("published")


def result_name(manifest: Mapping[str, Any]) -> str:
    """Return ``model.protocol``, what of the protocol was changed, and whom the attack was made for if not the model.

    Also what gradients were computed in, if not in float32.

    Examples
    --------
    >>> result_name({"model": {"name": "m"}, "protocol": {"name": "standard", "modified": {"epsilon": 16 / 255}}})
    'm.standard.epsilon-16-255'
    >>> quick = {"name": "quick", "modified": {"attacks": ["pgd20", "autoattack"]}}
    >>> result_name({"model": {"name": "m"}, "protocol": quick})
    'm.quick.attacks-pgd20-autoattack'
    """
    protocol = manifest["protocol"]
    changes = [f"{key}-{_plain(value)}" for key, value in sorted(protocol["modified"].items())]
    if "transfer_from" in manifest:
        changes.append(f"transfer-{manifest['transfer_from']['name']}")
    if manifest.get("precision", "float32") != "float32":
        changes.append(f"precision-{manifest['precision']}")
    return ".".join([manifest["model"]["name"], protocol["name"], *changes])


def _plain(value: Any) -> str:
    if isinstance(value, float):
        if float(f"{value:g}") == value:  # as it was typed
            return f"{value:g}"
        share = Fraction(value).limit_denominator(255)
        return f"{round(value * 255)}-255" if share == Fraction(round(value * 255), 255) else f"{value:g}"
    return "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def result_names(folder: Path | None = None) -> list[str]:
    """Return the names of all kept results, sorted; the versions of one have one name."""
    return sorted({_name_of(path) for path in (folder or results_folder()).glob("*.json")})


def result_path(name: str, folder: Path | None = None) -> Path:
    """Return the JSON file of the latest version of a result, whether there is one or not; its table lies beside it."""
    folder = folder or results_folder()
    held = [path for path in folder.glob(f"{glob.escape(name)}*.json") if _name_of(path) == name]
    return max(held, key=_version, default=folder / f"{name}.json")


def _name_of(path: Path) -> str:
    """Return the name that a file is a version of; one that replaces nothing may end in ".v2" by itself."""
    base = _VERSION.sub("", path.stem)
    if base == path.stem:
        return base
    try:
        replaces = _document(path).get("replaces")
    except OutcomesError:  # whose version it was is not known any more; who reads it is told
        return base
    return base if isinstance(replaces, str) and base in (replaces, _VERSION.sub("", replaces)) else path.stem


def _version(path: Path) -> int:
    found = _VERSION.search(path.stem)
    return 1 if found is None or _name_of(path) == path.stem else int(found[1])


def write_result(outcomes: Outcomes, folder: Path | None = None, *, correction: str | None = None) -> Path:
    """Keep a result and return its JSON file. The same result again changes nothing.

    Parameters
    ----------
    correction
        Why it takes the place of the one that has this name, which stays as it is.

    Raises
    ------
    OutcomesError
        Another result has this name, or other rows of the same run, and this is no correction; it corrects nothing; or
        the folder cannot be written.
    """
    folder = make_folder(folder or results_folder())
    name = result_name(outcomes.manifest)
    path = result_path(name, folder)
    data = table_bytes(outcomes.frame)
    replaces: dict[str, str] = {}
    if path.exists():
        there = _document(path)
        same_run = there["manifest"]["run"] == outcomes.manifest["run"]
        if not (same_run and there["table_sha256"] == sha256_plain(data)):
            if not correction:
                what = (
                    "has other rows of the same run, made elsewhere perhaps" if same_run else "is another run's result"
                )
                raise OutcomesError(
                    f"{path} {what}; results are never overwritten. A correction is a new version, and says why."
                )
            replaces = {"replaces": path.stem, "correction": correction}
            path = folder / f"{name}.v{_version(path) + 1}.json"
        elif _is_table(path.with_suffix(".parquet"), there):
            return path
        else:  # its table was lost
            replaces = {key: there[key] for key in ("replaces", "correction") if key in there}
    elif correction:
        raise OutcomesError(f"there is no {name} in {folder} to correct.")
    with replacing(path.with_suffix(".parquet")) as temporary:
        temporary.write_bytes(data)
    document = {
        "format": _FORMAT,
        **replaces,
        "table_sha256": sha256_plain(data),
        "manifest": outcomes.manifest,
        "summary": summarize(outcomes).to_dict(),
    }
    write_json(document, path)
    return path


def read_result(name: str, folder: Path | None = None) -> Outcomes:
    """Read the latest version of a kept result by its name.

    Raises
    ------
    OutcomesError
        There is none of this name (the nearest is suggested), or its files are damaged or do not belong together.
    """
    folder = folder or results_folder()
    path = result_path(name, folder)
    if not path.is_file():
        raise OutcomesError(f"no kept result '{name}'.{_near(name, result_names(folder))}")
    return read_result_file(path)


def _near(name: str, known: list[str]) -> str:
    """Suggest a result of the model, or a model that has such a result: two protocols' names say nothing of it."""
    model, _, how = name.partition(".")
    if own := [result for result in known if result.partition(".")[0] == model]:
        return suggest(name, own)
    like = [result.removesuffix(f".{how}") for result in known if result.endswith(f".{how}")]
    return f" No model '{model}' has one.{suggest(model, like, 'fairbench models')}"


def read_result_file(path: Path) -> Outcomes:
    """Read one version of a kept result by its JSON file.

    Raises
    ------
    OutcomesError
        Its files are damaged or do not belong together.
    """
    document = _document(path)
    table = path.with_suffix(".parquet")
    if not _is_table(table, document):
        raise OutcomesError(f"{table} is not the table that {path.name} names: missing, damaged, or changed since.")
    return Outcomes(read_table(table), document["manifest"])


def _is_table(path: Path, document: dict[str, Any]) -> bool:
    return path.is_file() and sha256_file(path) == document["table_sha256"]


def read_manifests(folder: Path | None = None) -> list[dict[str, Any]]:
    """Return the manifests of all kept results, old versions too, by name; their tables are not opened.

    Raises
    ------
    OutcomesError
        A file is damaged.
    """
    folder = folder or results_folder()
    return [dict(_document(path)["manifest"]) for path in sorted(folder.glob("*.json"))]


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != _FORMAT:
            raise OutcomesError(f"{path} has format {document['format']}; this fairbench reads {_FORMAT}.")
        if not isinstance(document["manifest"]["run"], str) or not isinstance(document["table_sha256"], str):
            raise TypeError("run and table_sha256 are text")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OutcomesError(f"{path} is no result ({error}).") from error
    return dict(document)
