"""Kept leave-one-out results: what was trained, and what it did to each test example.

A result is two files of one name: ``NAME.parquet``, a row per test example, and ``NAME.json``, the manifest with a row
per left-out sample, and the summary made from the table. The table is the evidence; the summary is never read back.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.files import make_folder, replacing, write_json
from fairbench.leaderboard.results import leaderboard_folder
from fairbench.metrics.luf import LeaveOneOut, leave_one_out
from fairbench.outcomes.table import read_table, table_bytes
from fairbench.provenance import sha256_file, sha256_plain

_FORMAT = 1
LUF_FILE = "luf.json"
"""The result in the folder of a run."""


def luf_folder() -> Path:
    """Return where leave-one-out results are kept."""
    return leaderboard_folder("luf")


def write_luf(path: Path, examples: pd.DataFrame, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write a result: ``path`` (JSON), and the table beside it; return what the JSON holds.

    Parameters
    ----------
    examples
        :func:`fairbench.metrics.luf.example_table`.
    manifest
        What was trained; ``left_out`` has a row per left-out sample.

    Raises
    ------
    OutcomesError
        The folder cannot be written.
    """
    make_folder(path.parent)
    data = table_bytes(examples)
    with replacing(path.with_suffix(".parquet")) as temporary:
        temporary.write_bytes(data)
    document = {
        "format": _FORMAT,
        "table_sha256": sha256_plain(data),
        "manifest": dict(manifest),
        "summary": leave_one_out(examples, len(manifest["left_out"])).to_dict(),
    }
    write_json(document, path)
    return document


def read_luf(path: Path) -> tuple[LeaveOneOut, pd.DataFrame, dict[str, Any]]:
    """Read a result; return its summary, computed anew from the table, the table and the manifest.

    Raises
    ------
    OutcomesError
        It is missing or damaged, or its files do not belong together.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version, expected, manifest = document["format"], document["table_sha256"], document["manifest"]
        count = len(manifest["left_out"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OutcomesError(f"{path} is no leave-one-out result ({type(error).__name__}: {error}).") from error
    if version != _FORMAT:
        raise OutcomesError(f"{path} has format {version}; this fairbench reads {_FORMAT}.")
    table = path.with_suffix(".parquet")
    if not table.is_file() or sha256_file(table) != expected:
        raise OutcomesError(f"{table} is not the table that {path.name} names: missing, damaged, or changed since.")
    examples = read_table(table)
    return leave_one_out(examples, count), examples, manifest
