"""docs/scaling.md quotes what benchmarks/scaling.py kept, and nothing else."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def scaling():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import scaling

        yield scaling
    for name in ("scaling", "peers"):
        sys.modules.pop(name, None)


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*)<!-- /{name} -->", PAGE, flags=re.DOTALL)
    assert found, f"docs/scaling.md has no block {name}"
    return found[1].strip()


def read(name: str):
    path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def test_the_plan_is_what_was_counted(scaling):
    document = read("scaling_plan.json")
    assert block("passes") == scaling.passes_table(document), "run benchmarks/scaling.py --plan and paste its tables"
    assert block("plan") == scaling.plan_table(document), "run benchmarks/scaling.py --plan and paste its tables"
    for name, size in document["bytes_per_row"].items():
        assert f"{size} " in PAGE, name


def test_predictions_are_what_was_measured(scaling):
    document = read("scaling.json")
    expected = "Not measured yet on a quiet machine." if document is None else scaling.measured_table(document)
    assert block("measured") == expected, "paste the table of benchmarks/scaling.py into docs/scaling.md"


def test_bytes_per_row_are_those_of_the_kept_files(scaling):
    kept = read("scaling_plan.json")["bytes_per_row"]
    for attack, size in kept.items():
        assert scaling.bytes_per_row(attack) == pytest.approx(size, rel=0.1)
