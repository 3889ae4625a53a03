"""``Outcomes``: the table and its manifest, in memory and on disk."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairbench.errors import OutcomesError
from fairbench.files import make_folder, replacing, write_json
from fairbench.outcomes.schema import FORMAT_VERSION, attacks_in, conform
from fairbench.provenance import sha256_file, sha256_plain
from fairbench.registry import suggest

TABLE = "outcomes.parquet"
MANIFEST = "manifest.json"
_VERSION_KEY = b"fairbench_format"
_TABLE_HASH = "table_sha256"
"""Key of the table's hash in a manifest on disk; pages have checksums, but Parquet's own footer has none."""


@dataclass(frozen=True)
class Outcomes:
    """What a model said of each test example, clean and under each attack.

    Parameters
    ----------
    frame
        One row per example; :mod:`fairbench.outcomes.schema` has the columns. Sorted by ``index``.
    manifest
        Plain data: model, dataset (with ``classes``), protocol (with ``seed``), versions, hardware, seconds, warnings.

    Raises
    ------
    OutcomesError
        The table does not fit the schema.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": [0, 1], "label": [0, 1], "clean_pred": [0, 0], "pgd20_pred": [1, 0]})
    >>> Outcomes(frame, {"dataset": {"classes": ["cat", "dog"]}}).attacks
    ('pgd20',)
    """

    frame: pd.DataFrame
    manifest: dict[str, Any]

    def __post_init__(self) -> None:
        dataset = self.manifest.get("dataset")
        classes = dataset.get("classes") if isinstance(dataset, dict) else None
        if not isinstance(classes, list | tuple) or len(classes) < 2:
            raise OutcomesError("the manifest names no classes (dataset.classes).")
        _check_shape(self.manifest)
        object.__setattr__(self, "frame", conform(self.frame, len(classes)))

    def __repr__(self) -> str:
        model = self.manifest.get("model", {}).get("name", "a model")
        data = self.manifest["dataset"].get("name", "data")
        return f"<Outcomes of {model} on {data}: {len(self):,} examples, {', '.join(self.attacks) or 'no attack'}>"

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names of the attacks that have a column."""
        return attacks_in(self.frame)

    @property
    def classes(self) -> tuple[str, ...]:
        """The K class names."""
        return tuple(self.manifest["dataset"]["classes"])

    @property
    def precision(self) -> str:
        """What attacks computed gradients in, "float32" or "bfloat16"; every verdict is the float32 model's."""
        return str(self.manifest.get("precision", "float32"))

    def metric_frame(self, by: str | Sequence[str] = "label", attack: str | None = None, metrics: Any = None) -> Any:
        """Hand the table to fairlearn: a ``MetricFrame`` of predictions against labels, by class or by attribute.

        Parameters
        ----------
        by
            "label", or an attribute; several give the groups of all their combinations.
        attack
            Whose predictions; default: those without attack. Rows that were not measured are left out.
        metrics
            What fairlearn takes: a function of (y_true, y_pred), or a dict of such. Default: ``{"error": ...}``, the
            share of wrong predictions, a fraction.

        Raises
        ------
        OutcomesError
            fairlearn is not installed, or the table has no such column or attack.
        """
        try:
            from fairlearn.metrics import MetricFrame
        except ImportError as error:
            raise OutcomesError("metric_frame needs fairlearn: pip install fairlearn.") from error
        columns = [by] if isinstance(by, str) else list(by)
        known = ["label", *self.manifest["dataset"].get("attributes", [])]
        for name in columns:
            if name not in known:
                raise OutcomesError(f"the outcomes have no attribute '{name}'.{suggest(name, known)}")
        prediction = "clean_pred" if attack is None else f"{attack}_pred"
        if prediction not in self.frame:
            raise OutcomesError(f"the outcomes have no attack '{attack}'.{suggest(str(attack), list(self.attacks))}")
        rows = self.frame[self.frame[prediction].notna()]
        groups = rows[columns].copy()
        if "label" in columns:
            groups["label"] = [self.classes[label] for label in groups["label"]]
        return MetricFrame(
            metrics={"error": _error} if metrics is None else metrics,
            y_true=rows["label"].to_numpy(dtype="int64"),
            y_pred=rows[prediction].to_numpy(dtype="int64"),
            sensitive_features=groups,
        )

    def write(self, folder: str | Path) -> Path:
        """Write ``outcomes.parquet`` and ``manifest.json`` into a folder, each whole or not at all; return the folder.

        Raises
        ------
        OutcomesError
            The folder cannot be written.
        """
        folder = make_folder(Path(folder))
        data = table_bytes(self.frame)
        manifest = {**self.manifest, _TABLE_HASH: sha256_plain(data)}
        write_json(manifest, folder / MANIFEST)  # first: it says whose folder this is
        with replacing(folder / TABLE) as temporary:
            temporary.write_bytes(data)
        return folder

    @classmethod
    def read(cls, folder: str | Path) -> "Outcomes":
        """Read what :meth:`write` wrote.

        Raises
        ------
        OutcomesError
            Files are missing or damaged, or a newer version of fairbench wrote them.
        """
        folder = Path(folder)
        return cls._of(folder / TABLE, read_manifest(folder))

    @classmethod
    def read_files(cls, table: Path, manifest: Path) -> "Outcomes":
        """Read a table and its manifest by their files.

        Raises
        ------
        OutcomesError
            As :meth:`read`.
        """
        return cls._of(table, read_manifest_file(manifest))

    @classmethod
    def _of(cls, path: Path, manifest: dict[str, Any]) -> "Outcomes":
        expected = manifest.pop(_TABLE_HASH, None)
        if expected is not None and path.is_file() and sha256_file(path) != expected:
            raise OutcomesError(f"{path} is not the table its manifest was written with: damaged, or changed since.")
        return cls(read_table(path), manifest)


def _check_shape(manifest: dict[str, Any]) -> None:
    """Refuse a manifest that somebody has edited into another shape, as far as anything reads it."""
    attacks = manifest.get("attacks", {})
    text = {"dataset.sha256": manifest["dataset"].get("sha256", ""), "precision": manifest.get("precision", "")}
    tables = {key: manifest.get(key) or {} for key in ("model", "protocol", "transfer_from", "versions")}
    tables |= {"attacks": attacks}
    tables |= {f"attacks.{name}": of for name, of in attacks.items()} if isinstance(attacks, dict) else {}
    for key, value in {**text, **tables}.items():
        if not isinstance(value, str if key in text else dict):
            raise OutcomesError(f"the manifest is damaged: {key} is {json.dumps(value, default=str)[:60]}.")


def _error(y_true: Any, y_pred: Any) -> float:
    return float((y_true != y_pred).mean())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest in a folder.

    Raises
    ------
    OutcomesError
        It is missing or damaged, or a newer version of fairbench wrote it.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise OutcomesError(
            f"{folder} holds no outcomes (it has no {MANIFEST}): name what `fairbench evaluate --out` wrote."
        )
    return read_manifest_file(path)


def read_manifest_file(path: Path) -> dict[str, Any]:
    """Read a manifest by its file.

    Raises
    ------
    OutcomesError
        It is damaged, or a newer version of fairbench wrote it.
    """
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OutcomesError(f"{path} cannot be read ({error}).") from error
    if not isinstance(manifest, dict):
        raise OutcomesError(f"{path} holds no manifest.")
    _check_version(manifest.get("format"), path)
    return manifest


def write_table(frame: pd.DataFrame, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a table as Parquet; see :func:`table_bytes`."""
    with replacing(path) as temporary:
        temporary.write_bytes(table_bytes(frame, metadata))


def table_bytes(frame: pd.DataFrame, metadata: dict[str, str] | None = None) -> bytes:
    """Return a table as Parquet, the same bytes for equal tables, every page with its checksum."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    named = {
        _VERSION_KEY: str(FORMAT_VERSION).encode(),
        **{k.encode(): v.encode() for k, v in (metadata or {}).items()},
    }
    stream = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(named), stream, compression="zstd", write_page_checksum=True)
    return stream.getvalue().to_pybytes()


def read_table(path: Path) -> pd.DataFrame:
    """Read a table; integer columns with missing values stay integers.

    Raises
    ------
    OutcomesError
        It cannot be read, or a newer version wrote it.
    """
    return read_table_and_metadata(path)[0]


def read_table_and_metadata(path: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Read a table and what was kept beside it; see :func:`read_table`."""
    nullable = {pa.int16(): pd.Int16Dtype(), pa.string(): pd.StringDtype(), pa.large_string(): pd.StringDtype()}
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        metadata = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        # Without the metadata: pandas' own part of it can give columns other names, or make them the index.
        frame = table.replace_schema_metadata(None).to_pandas(types_mapper=nullable.get)
    except Exception as error:  # damaged bytes make the reader raise anything
        raise OutcomesError(f"{path} is not a whole outcome table ({error}).") from error
    _check_version(metadata.pop(_VERSION_KEY.decode(), None), path)
    return frame, metadata


def _check_version(version: Any, path: Path) -> None:
    try:
        number = int(version)
    except (TypeError, ValueError):
        raise OutcomesError(f"{path} has no format version; fairbench did not write it.") from None
    if number > FORMAT_VERSION:
        raise OutcomesError(
            f"{path} has format {number}, newer than this fairbench reads ({FORMAT_VERSION}); upgrade fairbench."
        )
