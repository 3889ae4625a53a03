"""Columns of somebody else's table, read so that no file can cost more memory than its limit allows."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairbench.errors import first_line
from fairbench.outcomes.schema import BASE

ATTACK_COLUMNS: dict[str, tuple[str, ...]] = {"pgd20": ("broken_at",), "autoattack": ("broken_by",)}
"""What an attack of a locked protocol has beside its prediction."""
_TEXT = {"autoattack_broken_by"}
_REAL = {"clean_confidence"}
_KNOWN = {*BASE, *(f"{attack}_{c}" for attack, extras in ATTACK_COLUMNS.items() for c in ("pred", *extras))}
_MOST_ROWS, _MOST_COLUMNS, _MOST_BYTES, _LONGEST_TEXT = 1_000_000, 64, 2**28, 64
_LARGEST_FOOTER = 2**18
"""Bytes of what a file says of its columns, which is read before anything is known of them; in memory 70 times that."""


@dataclass
class Columns:
    """Columns by kind: ``whole`` int64 (-1 where missing), ``real`` float64, ``text`` (empty where missing).

    ``names`` are those of all columns in the file, also of those that were not read.
    """

    names: tuple[str, ...] = ()
    whole: dict[str, np.ndarray] = field(default_factory=dict)
    real: dict[str, np.ndarray] = field(default_factory=dict)
    text: dict[str, np.ndarray] = field(default_factory=dict)


def read_columns(path: Path) -> tuple[Columns | None, list[str]]:
    """Read the known columns of a Parquet file; return them, or None, and a line for each problem."""
    try:
        if (footer := _footer_bytes(path)) > _LARGEST_FOOTER:
            return None, [f"{path.name}: a footer of {footer:,} bytes, over the limit of {_LARGEST_FOOTER:,}"]
        held = sorted(_TEXT & set(pq.read_schema(path).names))
        with pq.ParquetFile(path, read_dictionary=held, page_checksum_verification=True) as file:
            return _read(file, path.name)
    except Exception as error:  # damaged bytes make the reader raise anything
        return None, [f"{path.name}: not a whole Parquet table ({first_line(error)})"[:300]]


def _footer_bytes(path: Path) -> int:
    """Return how long a Parquet file says that its footer is; 0 for another file, of which the reader says so."""
    with path.open("rb") as stream:
        if stream.seek(0, os.SEEK_END) < 8:
            return 0
        stream.seek(-8, os.SEEK_END)
        length, magic = stream.read(4), stream.read(4)
    return int.from_bytes(length, "little") if magic in (b"PAR1", b"PARE") else 0


def _read(file: pq.ParquetFile, where: str) -> tuple[Columns | None, list[str]]:
    about = file.metadata
    uncompressed = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if about.num_rows > _MOST_ROWS or about.num_columns > _MOST_COLUMNS or uncompressed > _MOST_BYTES:
        return None, [
            f"{where}: {about.num_rows:,} rows, {about.num_columns:,} columns, {uncompressed:,} bytes unpacked: over "
            f"the limit of {_MOST_ROWS:,}, {_MOST_COLUMNS:,} and {_MOST_BYTES:,}"
        ]
    names = file.schema_arrow.names
    columns = Columns(names=tuple(names))
    problems = [f"{where}: column {name!r} stands twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for name in [n for n in names if n in _KNOWN and names.count(n) == 1]:
        problem = _add(columns, name, file.read(columns=[name]).column(0))
        if problem:
            problems.append(f"{where}: column {name} {problem}")
    return columns, problems


def _add(columns: Columns, name: str, values: pa.ChunkedArray) -> str | None:
    """Add a column; return what is wrong with it, if anything."""
    if name in _TEXT:
        return _add_text(columns, name, values)
    if name in _REAL:
        if not pa.types.is_floating(values.type):
            return f"is {values.type}, not a float"
        columns.real[name] = np.asarray(pc.cast(values, pa.float64()).to_numpy(), dtype=np.float64)
    elif not pa.types.is_integer(values.type):
        return f"is {values.type}, not whole numbers"
    else:
        cast = pc.fill_null(pc.cast(values, pa.int64(), safe=False), -1)
        columns.whole[name] = np.asarray(cast.to_numpy(), dtype=np.int64)
    return None


def _add_text(columns: Columns, name: str, values: pa.ChunkedArray) -> str | None:
    kind = values.type
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(text):
        columns.text[name] = np.full(len(values), "", dtype=object)
        return None
    if not (pa.types.is_string(text) or pa.types.is_large_string(text)):
        return f"is {kind}, not text"
    chunks = [c.dictionary if pa.types.is_dictionary(kind) else c for c in values.chunks]
    if any((pc.max(pc.binary_length(chunk)).as_py() or 0) > _LONGEST_TEXT for chunk in chunks):
        return f"holds text longer than {_LONGEST_TEXT} bytes"
    columns.text[name] = np.array([v or "" for v in values.to_pylist()], dtype=object)
    return None
