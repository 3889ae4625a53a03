"""Every refusal has its own line, all lines come at once, and no input makes the checker fail."""

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_submissions import CLASSES, LABELS, WEIGHTS, card, locked, manifest, table, truth, write

from fairbench import summarize
from fairbench.errors import OutcomesError
from fairbench.leaderboard.card import card_of
from fairbench.leaderboard.check import check_submission
from fairbench.leaderboard.checked import Latest, Rules, Truth, require_accepted
from fairbench.leaderboard.submission import LIMITS, pack
from fairbench.outcomes import Outcomes
from fairbench.outcomes.identity import run_identity
from fairbench.plain_yaml import dump_yaml
from fairbench.provenance import sha256_plain

Change = Callable[[dict[str, Any], dict[str, Any], pd.DataFrame], Any]


def assert_refused(problems: list[str], message: str) -> None:
    assert [p for p in problems if message in p], problems
    assert all(p.isprintable() for p in problems)


@pytest.mark.parametrize("protocol", ["leaderboard", "standard"])
def test_a_whole_submission_has_no_problem(whole, rules, protocol):
    checked = check_submission(whole(protocol=protocol), rules)
    assert checked.problems == []
    assert checked.accepted
    assert checked.labels_compared
    assert checked.card.protocol == protocol
    assert len(checked.outcomes) == 60
    assert [line.split(":")[0] for line in checked.not_made] == ["weights"]


def test_gradients_in_bf16_are_no_fault(tmp_path, rules):
    half = manifest() | {"precision": "bfloat16"}
    half["run"] = run_identity(half)
    made, _ = card_of(card())
    pack(tmp_path, made, Outcomes(table(), half), WEIGHTS)
    checked = check_submission(tmp_path, rules)
    assert checked.problems == []
    assert summarize(checked.outcomes).precision == "bfloat16"


def set_in(kind: str, value: Any, *keys: str) -> Change:
    def change(a_card, a_manifest, frame):
        place = a_card if kind == "card" else a_manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def put(column: str, row: int, value: Any) -> Change:
    def change(a_card, a_manifest, frame):
        frame.loc[row, column] = value

    return change


def put_broken(stage: str) -> Change:
    """Say of an example that AutoAttack broke that this stage did."""

    def change(a_card, a_manifest, frame):
        broken = (frame["autoattack_broken_by"] == "apgd-ce").fillna(False)
        frame.loc[int(np.flatnonzero(broken)[0]), "autoattack_broken_by"] = stage

    return change


def lucky(a_card, a_manifest, frame):
    a_manifest["protocol"]["seed"] = 7
    a_manifest["attacks"]["pgd20"]["seed"] = 7


def under_quick(a_card, a_manifest, frame):
    a_manifest["protocol"]["name"] = "quick"


def hides_pgd(a_card, a_manifest, frame):
    """Robust under AutoAttack, though PGD-20 broke it."""
    row = int(np.flatnonzero((frame["pgd20_pred"] != frame["label"]) & (frame["clean_pred"] == frame["label"]))[0])
    frame.loc[row, "autoattack_pred"] = frame.loc[row, "label"]
    frame.loc[row, "autoattack_broken_by"] = pd.NA


REFUSALS: dict[str, tuple[Change, str]] = {
    "another protocol": (under_quick, "protocol quick: submissions are made under leaderboard or standard"),
    "a modified protocol": (
        set_in("manifest", {"epsilon": 0.01}, "protocol", "modified"),
        "the protocol was modified ({'epsilon': 0.01})",
    ),
    "another epsilon": (set_in("manifest", 0.01, "attacks", "pgd20", "epsilon"), "pgd20 has epsilon 0.01, not"),
    "fewer steps": (set_in("manifest", 10, "attacks", "pgd20", "steps"), "pgd20 has steps 10, not 20"),
    "an attack without parameters": (set_in("manifest", None, "attacks", "pgd20"), "pgd20 has epsilon None, not"),
    "no AutoAttack": (set_in("manifest", {}, "attacks"), "attacks are [], not ['autoattack', 'pgd20']"),
    "a chosen seed": (lucky, "seed 7: it is fixed to 0"),
    "fewer examples said": (set_in("manifest", 59, "dataset", "n"), "59 examples; the test split has 60"),
    "the sample": (set_in("manifest", "sample", "dataset", "split"), "split sample: it is the test split"),
    "other classes": (set_in("manifest", ["cat", "fox", "dog"], "dataset", "classes"), "the classes are not those"),
    "other images": (set_in("manifest", "e" * 64, "dataset", "sha256"), "the images are not the dataset's test split"),
    "no shape": (set_in("manifest", [1, 10**9, 8], "dataset", "shape"), "is no (C, H, W) of at most 1,024"),
    "half precision": (set_in("manifest", "float16", "precision"), "precision is float16, not float32 or bfloat16"),
    "another label": (put("label", 4, 1), "label is not the dataset's: 1 example(s), 4"),
    "a label out of range": (put("label", 4, 9), "label outside 0..2: 1 example(s), 4"),
    "a row from nowhere": (put("index", 4, 60), "index outside 0..59: 1 example(s), 60"),
    "a row missing": (put("index", 4, 60), "1 of the 60 test examples missing: 4"),
    "a row twice": (put("index", 4, 5), "1 of the 60 test examples there more than once: 5"),
    "a prediction out of range": (put("clean_pred", 4, 3), "clean_pred outside 0..2, or missing: 1 example(s), 4"),
    "a negative prediction": (put("pgd20_pred", 4, -1), "pgd20_pred outside 0..2, or missing: 1 example(s), 4"),
    "a prediction missing": (put("autoattack_pred", 4, pd.NA), "autoattack_pred outside 0..2, or missing"),
    "no probability": (put("clean_confidence", 4, 1.5), "clean_confidence outside 1/K..1"),
    "no number": (put("clean_confidence", 4, np.nan), "clean_confidence outside 1/K..1"),
    "robust where PGD-20 breaks": (hides_pgd, "robust under AutoAttack, and broken by PGD-20: 1 example(s)"),
    "a stage that does not fit": (put("autoattack_broken_by", 4, "square"), "autoattack_broken_by does not go with"),
    "no stage": (put_broken("banana"), "autoattack_broken_by is no stage of apgd-ce: 1 example(s)"),
    "too many steps": (put("pgd20_broken_at", 4, 21), "pgd20_broken_at does not go with"),
    "other weights": (set_in("card", "0" * 64, "weights", "sha256"), "its SHA-256 is not the one in card.yaml"),
    "weights outside": (
        set_in("card", "../../weights.safetensors", "weights", "file"),
        "card.yaml: weights.file: the path '../../weights.safetensors' leaves the folder",
    ),
    "weights elsewhere": (set_in("card", "/etc/passwd", "weights", "file"), "the path '/etc/passwd' leaves the folder"),
    "a file of another name": (set_in("card", "x.pt", "weights", "file"), "are named weights.safetensors"),
    "weights in no place": (set_in("card", None, "weights", "file"), "give a file or a url, one of the two"),
    "an unsafe address": (
        set_in("card", {"url": "http://a.org/w", "sha256": "0" * 64}, "weights"),
        "card.yaml: weights.url: 'http://a.org/w' is not an address that begins with https",
    ),
    "a figure in the card": (set_in("card", 3.0, "worst_rob"), "card.yaml: worst_rob: Extra inputs are not permitted"),
    "a newer card": (set_in("card", 2, "version"), "card.yaml: version 2 is newer than this fairbench reads (1)"),
    "an older card": (set_in("card", 0, "version"), "card.yaml: version: Input should be 1"),
    "a name that is a path": (set_in("card", "../other", "name"), "card.yaml: name: '../other' is not small letters"),
    "a title of two lines": (set_in("card", "a\nb", "title"), "card.yaml: title: the character U+000A cannot be shown"),
    "a title that turns": (set_in("card", "a\u202eb", "title"), "title: the character U+202E cannot be shown"),
    "a title that hides": (set_in("card", "my\u200b", "title"), "title: the character U+200B cannot be shown"),
    "a title for a terminal": (set_in("card", "\x9b2J", "title"), "title: the character U+009B cannot be shown"),
    "a title of nothing": (set_in("card", " \u200d", "title"), "card.yaml: title: it is empty"),
    "an address for a terminal": (set_in("card", "https://a.org/\x1b[2J", "paper"), "is not an address that begins"),
    "an address that turns": (set_in("card", "https://a.org/\u202e", "paper"), "is not an address that begins"),
    "a key for a terminal": (set_in("card", 1, "\x1b[2J"), "card.yaml: \\x1b[2J: Extra inputs"),
    "attacks made for another": (
        set_in("manifest", {"name": "weak", "sha256": "e" * 64, "code_sha256": "f" * 64}, "transfer_from"),
        "transfer_from: the attacks were made for another model",
    ),
    "no licence": (set_in("card", None, "licence"), "card.yaml: licence: Input should be a valid string"),
    "another dataset said": (set_in("card", "digits", "dataset"), "dataset is digits, but manifest.json has toy"),
    "another architecture said": (set_in("card", "resnet18", "architecture"), "architecture is resnet18, but"),
    "another protocol said": (set_in("card", "standard", "protocol"), "protocol is standard, but manifest.json"),
    "an unknown dataset": (set_in("card", "my_data", "dataset"), "there is no board for the dataset my_data"),
    "a correction of nothing": (set_in("card", "mine.1", "replaces"), "replaces mine.1, but there is no entry mine"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal(kind, tmp_path, rules):
    change, message = REFUSALS[kind]
    a_card, a_manifest, frame = card(), manifest(), table()
    change(a_card, a_manifest, frame)
    checked = check_submission(write(tmp_path / "s", a_card, a_manifest, frame), rules)
    assert_refused(checked.problems, message)
    assert checked.outcomes is None
    with pytest.raises(OutcomesError, match="is refused"):
        require_accepted(checked, tmp_path)


def test_all_problems_come_at_once(tmp_path, rules):
    a_card, a_manifest, frame = card(), manifest(), table()
    for kind in ("a chosen seed", "a label out of range", "other weights", "no probability"):
        REFUSALS[kind][0](a_card, a_manifest, frame)
    checked = check_submission(write(tmp_path / "s", a_card, a_manifest, frame), rules)
    for kind in ("a chosen seed", "a label out of range", "other weights", "no probability"):
        assert_refused(checked.problems, REFUSALS[kind][1])


@pytest.mark.parametrize("rows", [slice(0, 59), slice(0, 0)])
def test_fewer_examples_than_the_test_split(tmp_path, rules, rows):
    checked = check_submission(write(tmp_path / "s", card(), manifest(), table().iloc[rows]), rules)
    assert_refused(checked.problems, "of the 60 test examples missing")


def test_columns_missing_or_not_of_the_protocol(tmp_path, rules):
    frame = table().drop(columns="clean_pred").assign(extra=1)
    problems = check_submission(write(tmp_path / "s", card(), manifest(), frame), rules).problems
    assert_refused(problems, "column clean_pred is missing")
    assert_refused(problems, "column 'extra' is none of the protocol's")


@pytest.mark.parametrize(
    "values", [["x"] * 60, [1.5] * 60, [[1]] * 60, [{"a": 1}] * 60, [pd.Timestamp(0)] * 60, [None] * 60, [True] * 60]
)
def test_a_column_of_another_type(tmp_path, rules, values):
    frame = table()
    frame["clean_pred"] = pd.Series(values)
    assert_refused(
        check_submission(write(tmp_path / "s", card(), manifest(), frame), rules).problems, "not whole numbers"
    )


def test_a_table_changed_after_the_evaluation(whole, rules):
    folder = whole()
    frame = pd.read_parquet(folder / "outcomes.parquet")
    frame.loc[3, "pgd20_pred"] = frame.loc[3, "label"]
    frame.to_parquet(folder / "outcomes.parquet", index=False)
    assert_refused(check_submission(folder, rules).problems, "not the table that manifest.json was written with")


def test_a_manifest_changed_after_the_evaluation(tmp_path, rules):
    a_manifest = manifest() | {"behaviour": "f" * 64}
    folder = write(tmp_path / "s", card(), a_manifest, table(), rehash=False)
    assert_refused(check_submission(folder, rules).problems, "changed by hand: its run is not the hash")


def test_a_summary_is_held_to_the_table(whole, rules):
    folder = whole()
    summary = summarize(Outcomes.read(folder)).to_dict()
    (folder / "summary.json").write_text(json.dumps(summary))
    assert check_submission(folder, rules).problems == []
    summary["attacks"]["autoattack"]["worst_rob"] -= 1.0
    (folder / "summary.json").write_text(json.dumps(summary))
    assert_refused(check_submission(folder, rules).problems, "summary.json: changed by hand")
    (folder / "summary.json").write_text("{")
    assert_refused(check_submission(folder, rules).problems, "summary.json: not readable JSON")


def test_a_name_that_is_taken_and_a_correction(whole, rules):
    held = replace(rules, taken={"mine": Latest(2)})
    assert_refused(check_submission(whole(), held).problems, "the name mine is taken")
    assert_refused(check_submission(whole(replaces="mine.1"), held).problems, "its latest version is mine.2")
    assert check_submission(whole(replaces="mine.2"), held).problems == []


def test_a_model_of_the_project_keeps_its_name(whole, rules):
    held = replace(rules, known_weights={"e" * 64: "mine"})
    assert_refused(check_submission(whole(), held).problems, "the name mine is that of a model of the project")


LINKS = ["outcomes.parquet", "card.yaml", "manifest.json", "weights.safetensors"]


@pytest.mark.parametrize("name", LINKS)
def test_a_symbolic_link_is_not_followed(whole, rules, tmp_path, name):
    folder = whole()
    outside = tmp_path / "outside"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    assert_refused(check_submission(folder, rules).problems, f"{name}: a symbolic link")


@pytest.mark.parametrize("name", LINKS[:3])
def test_a_file_that_is_missing_or_no_file(whole, rules, name):
    folder = whole()
    (folder / name).unlink()
    assert_refused(check_submission(folder, rules).problems, f"{name}: missing")
    (folder / name).mkdir()
    assert_refused(check_submission(folder, rules).problems, f"{name}: not a plain file")
    (folder / name).rmdir()
    os.mkfifo(folder / name)
    assert_refused(check_submission(folder, rules).problems, f"{name}: not a plain file")


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_file_over_its_limit_is_not_opened(whole, rules, name):
    folder = whole()
    os.truncate(folder / name, LIMITS[name] + 1) if (folder / name).exists() else (folder / name).touch()
    os.truncate(folder / name, LIMITS[name] + 1)  # a hole: it takes no room
    assert_refused(check_submission(folder, rules).problems, "over the limit of")


def test_other_files_have_no_place(whole, rules):
    folder = whole()
    (folder / "run\nme.py").write_text("")
    (folder / "more").mkdir()
    problems = check_submission(folder, rules).problems
    assert_refused(problems, "run\\nme.py: not a file of a submission")
    assert_refused(problems, "more: not a file of a submission")


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']",
        "a: &x [1]\nb: *x",
        "a: [",
        "\x00",
        "- 1",
        "",
        "{" * 5000,
        "? [a]\n: 1",
        "version: 1e999",
    ],
)
def test_yaml_that_is_not_plain_data(whole, rules, text):
    folder = whole()
    (folder / "card.yaml").write_text(text)
    problems = check_submission(folder, rules).problems
    assert problems
    assert all(p.startswith("card.yaml: ") for p in problems)


NO_MANIFESTS = ["", "[]", "{", '{"a": NaN}', '{"a": -1e999}', '{"a": "\\ud800"}', "[" * 100_000, "1" * 5000]


@pytest.mark.parametrize("text", [*NO_MANIFESTS, '{"format": 1}'])
def test_a_manifest_that_is_none(whole, rules, text):
    folder = whole()
    (folder / "manifest.json").write_text(text)
    assert_refused(check_submission(folder, rules).problems, "manifest.json: ")


def test_a_table_that_unpacks_to_more_than_the_limit(whole, rules):
    folder = whole()
    long = pa.table({"autoattack_broken_by": pa.array(["x" * 10_000] * 60)})
    pq.write_table(long, folder / "outcomes.parquet")
    assert_refused(check_submission(folder, rules).problems, "holds text longer than 64 bytes")
    pq.write_table(pa.table({"index": pa.array(np.zeros(1_000_001, dtype=np.int64))}), folder / "outcomes.parquet")
    assert_refused(check_submission(folder, rules).problems, "over the limit of 1,000,000")


def test_a_footer_of_many_columns_is_not_read(whole, rules):
    """A small file can name columns by the hundred thousand, each of which costs memory before it is counted."""
    folder = whole()
    schema = pa.schema([(f"c{i}", pa.int8()) for i in range(20_000)])
    pq.ParquetWriter(folder / "outcomes.parquet", schema, store_schema=False).close()
    problems = check_submission(folder, rules).problems
    assert_refused(problems, "over the limit of 262,144")


@pytest.mark.parametrize("what", ["half a character", "an infinite number"])
def test_what_no_page_can_show_is_refused_beside_what_the_run_hashes(whole, rules, what):
    folder = whole()
    text = (folder / "manifest.json").read_text().rstrip().removesuffix("}")
    more = {"half a character": '"notes": ["\\ud800"]', "an infinite number": '"seconds": {"pgd20": 1e999}'}[what]
    (folder / "manifest.json").write_text(f"{text}, {more}}}")
    assert_refused(check_submission(folder, rules).problems, "manifest.json: not readable JSON")


def test_names_that_pandas_would_give_columns_are_not_read(whole, rules):
    """The table's metadata says that the clean predictions are AutoAttack's: robust error would be standard error."""
    folder = whole()
    expected = Outcomes.read(folder).frame
    held = pq.read_table(folder / "outcomes.parquet")
    turned = {"autoattack_pred": "clean_pred", "clean_pred": "autoattack_pred"}
    columns = [
        {"name": turned.get(n, n), "field_name": n, "pandas_type": "int16", "numpy_type": "int16", "metadata": None}
        for n in held.column_names
    ]
    about = {"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    named = held.replace_schema_metadata({**held.schema.metadata, b"pandas": json.dumps(about).encode()})
    pq.write_table(named, folder / "outcomes.parquet")
    a_manifest = json.loads((folder / "manifest.json").read_text())
    a_manifest["table_sha256"] = sha256_plain((folder / "outcomes.parquet").read_bytes())
    (folder / "manifest.json").write_text(json.dumps(a_manifest))
    checked = check_submission(folder, rules)
    assert checked.problems == []
    pd.testing.assert_frame_equal(checked.outcomes.frame, expected)


@pytest.mark.parametrize("cut", [0, 4, 100, -8])
def test_a_table_cut_short(whole, rules, cut):
    folder = whole()
    data = (folder / "outcomes.parquet").read_bytes()
    (folder / "outcomes.parquet").write_bytes(data[:cut])
    assert_refused(check_submission(folder, rules).problems, "outcomes.parquet: not a whole Parquet table")


@pytest.mark.parametrize("kind", ["nowhere", "file", "link"])
def test_no_folder_is_another_error(tmp_path, rules, kind):
    if kind == "file":
        (tmp_path / "s").write_text("")
    if kind == "link":
        (tmp_path / "s").symlink_to(tmp_path)
    with pytest.raises(OutcomesError):
        check_submission(tmp_path / "s", rules)


def test_what_was_not_checked_is_not_passed(whole, rules):
    """With the shipped sample alone, a wrong label is found among its examples and the others are said to be open."""
    sample = Truth(CLASSES, 60, np.arange(0, 60, 2), LABELS[::2], "the full test split is not here")
    held = Rules(rules.attacks, lambda name: sample)
    checked = check_submission(whole(), held)
    assert checked.problems == []
    assert not checked.labels_compared
    assert "labels of 30 of 60 examples: the full test split is not here" in checked.not_made
    assert any(line.startswith("images: ") for line in checked.not_made)


def test_images_too_large_to_be_made_are_not_compared(whole, rules):
    held = Rules(rules.attacks, lambda name: replace(truth(name), sha256=lambda shape: None))
    checked = check_submission(whole(), held)
    assert checked.problems == []
    assert "images: at 8x8 they are too large to be made here and hashed" in checked.not_made


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@SLOW
@given(st.dictionaries(st.sampled_from([*card(), "replaces", "extra_data", "output", "input_size"]), PLAIN), st.data())
def test_no_card_makes_the_checker_fail(tmp_path_factory, changes, data):
    made, faults = card_of(card() | changes)
    assert (made is None) == bool(faults)
    folder = tmp_path_factory.mktemp("s")
    text = dump_yaml(card() | changes) if data.draw(st.booleans()) else data.draw(st.text(max_size=200))
    write(folder, text.encode("utf-8", "replace").decode(), manifest(), table())
    checked = check_submission(folder, Rules(lambda p, k: {}, lambda n: None))
    assert all(isinstance(p, str) and p.isprintable() for p in checked.problems)


@SLOW
@given(st.dictionaries(st.sampled_from([*manifest(), "extra"]), PLAIN, min_size=1))
def test_no_manifest_makes_the_checker_fail(tmp_path_factory, changes):
    folder = write(tmp_path_factory.mktemp("s"), card(), manifest(), table())
    held = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(held | changes))
    checked = check_submission(folder, Rules(locked, truth))
    assert all(isinstance(p, str) and p.isprintable() for p in checked.problems)


COLUMNS = st.sampled_from([*table(), "least-epsilon_pred", "pgd20_extra", "x\ny"])
VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**64 - 1) | st.none(), min_size=1, max_size=8),
    st.lists(st.floats() | st.none(), min_size=1, max_size=8),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=80) | st.none(), min_size=1, max_size=8),
    st.lists(st.booleans() | st.none(), min_size=1, max_size=8),
    st.lists(st.binary(max_size=8), min_size=1, max_size=8),
)


@SLOW
@given(st.dictionaries(COLUMNS, VALUES, max_size=4), st.booleans())
def test_no_table_makes_the_checker_fail(tmp_path_factory, changes, short):
    folder = write(tmp_path_factory.mktemp("s"), card(), manifest(), table())
    rows = 8 if short else 60
    columns = {n: pa.array(table()[n].iloc[:rows]) for n in table()}
    for name, values in changes.items():
        try:
            columns[name] = pa.array((values * 60)[:rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            continue
    pq.write_table(pa.table(columns), folder / "outcomes.parquet")
    checked = check_submission(folder, Rules(locked, truth))
    assert all(isinstance(p, str) and p.isprintable() for p in checked.problems)
    assert not checked.accepted  # the hash in the manifest is another table's


def packed(tmp_path_factory, a_manifest, frame):
    folder = tmp_path_factory.mktemp("s")
    made, _ = card_of(card())
    pack(folder, made, Outcomes(frame.reset_index(drop=True), a_manifest), WEIGHTS)
    return folder


DESCRIBES = ["hardware", "seconds", "notes", "warnings", "extra", "seed", "model", "dataset"]
"""Keys of a manifest that do not, or not as a whole, determine its run."""


@SLOW
@given(st.dictionaries(st.sampled_from(DESCRIBES), PLAIN | st.dictionaries(st.text(max_size=12), PLAIN, max_size=3)))
def test_no_manifest_whose_hashes_fit_makes_the_last_stage_fail(tmp_path_factory, changes):
    """Such a one passes all stages but the last, in which the folder is read as the board reads it."""
    folder = packed(tmp_path_factory, manifest(), table())
    held = json.loads((folder / "manifest.json").read_text())
    for key, value in changes.items():
        held[key] = held[key] | value if isinstance(value, dict) and isinstance(held.get(key), dict) else value
    with contextlib.suppress(KeyError, TypeError, ValueError):
        held["run"] = run_identity(held)
    (folder / "manifest.json").write_text(json.dumps(held))
    checked = check_submission(folder, Rules(locked, truth))
    assert all(isinstance(p, str) and p.isprintable() for p in checked.problems)
    assert checked.accepted == (checked.outcomes is not None)
    if checked.accepted:
        summarize(checked.outcomes)


@SLOW
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), min_size=60, max_size=60),
    st.permutations(range(60)),
)
def test_every_table_that_an_evaluation_can_give_is_accepted(tmp_path_factory, drawn, order):
    """Whatever it says of the model: all right, all wrong, a class that is never predicted."""
    frame = table()
    clean, weak, held = (np.array(column) for column in zip(*drawn, strict=True))
    label = frame["label"].to_numpy()
    strong = np.where(clean != label, clean, np.where(held & (weak == label), label, (label + 1) % 3))
    frame["clean_pred"], frame["pgd20_pred"] = clean.astype(np.int16), pd.array(weak, dtype="Int16")
    frame["pgd20_broken_at"] = pd.array(np.where(weak != label, 3, -1), dtype="Int16")
    frame["pgd20_broken_at"] = frame["pgd20_broken_at"].replace(-1, pd.NA)
    frame["autoattack_pred"] = pd.array(strong, dtype="Int16")
    stage = np.where(clean != label, "clean", np.where(strong != label, "apgd-ce", None))
    frame["autoattack_broken_by"] = pd.Series(stage, dtype="string")
    checked = check_submission(packed(tmp_path_factory, manifest(), frame.iloc[list(order)]), Rules(locked, truth))
    assert checked.problems == []
    assert len(checked.outcomes) == 60


def test_an_attack_that_mends_errors_is_noted(tmp_path, rules):
    """PGD-20 raises the loss: that it puts right what was wrong is for a person to look at, and no proof."""
    frame = table()
    wrong = frame["clean_pred"] != frame["label"]
    frame.loc[wrong, "pgd20_pred"] = frame.loc[wrong, "label"]
    frame.loc[wrong, "pgd20_broken_at"] = pd.NA
    made, _ = card_of(card())
    pack(tmp_path, made, Outcomes(frame, manifest()), WEIGHTS)
    checked = check_submission(tmp_path, rules)
    assert checked.accepted
    of = f"{wrong.sum()} of the {wrong.sum()} examples misclassified clean are correct under attack"
    assert checked.notes == [f"pgd20: {of}"]


@pytest.mark.parametrize(
    ("said", "noted"),
    [({"architecture": "torchvision:resnet18"}, False), ({}, True), ({"code": "https://example.org/nets"}, False)],
)
def test_code_of_ones_own_without_an_address_is_noted(whole, rules, said, noted):
    checked = check_submission(whole(**{"architecture": "mypkg.nets:build"} | said), rules)
    assert any("others cannot verify the entry" in note for note in checked.notes) == noted


@pytest.mark.parametrize("sha256", [sha256_plain(WEIGHTS), "a" * 64])
def test_weights_that_are_known_are_named_and_no_fault(whole, rules, sha256):
    """By the hash of the file, and by that of what was loaded from it."""
    checked = check_submission(whole(), replace(rules, known_weights={sha256: "bat", "0" * 64: "another"}))
    assert checked.accepted
    assert checked.notes == ["weights: they are those of bat, which fairbench has measured already"]


@pytest.mark.parametrize(
    ("latest", "message"),
    [
        (Latest(1, "other", "leaderboard"), "the name mine is taken, by an entry on other; choose another"),
        (Latest(1, "toy", "leaderboard"), "mine.1 was measured under protocol leaderboard; a correction of it is, too"),
    ],
)
def test_a_correction_stays_on_its_board_and_is_no_weaker(whole, rules, latest, message):
    held = replace(rules, taken={"mine": latest})
    assert_refused(check_submission(whole(protocol="standard", replaces="mine.1"), held).problems, message)


@pytest.mark.parametrize("before", ["standard", "leaderboard"])
def test_a_correction_may_be_under_a_stronger_protocol(whole, rules, before):
    held = replace(rules, taken={"mine": Latest(1, "toy", before)})
    assert check_submission(whole(replaces="mine.1"), held).problems == []
