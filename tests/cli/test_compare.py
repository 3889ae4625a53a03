"""``fairbench compare``: names, folders and tables; what it prints, keeps and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairbench.leaderboard.results import read_result, results_folder
from fairbench.leaderboard.zoo_card import trained_note

Cli = Callable[..., Any]
A, B = "pgd_at_lenet5_fashion_mnist", "bat_lenet5_fashion_mnist"


def test_models_are_compared_on_the_whole_split_by_default(cli: Cli) -> None:
    ran = cli("compare", A, B)
    assert (ran.code, ran.err) == (0, "")
    assert f"{B} minus {A}, autoattack at 8/255, 10,000 examples" in ran.out
    assert "McNemar p" in ran.out
    assert ran.out.splitlines()[-1].startswith("Trained here: ")


def test_autoattack_where_it_was_run(cli: Cli) -> None:
    sampled = (f"{name}.quick.attacks-pgd20-autoattack" for name in (A, B))
    assert "autoattack at 8/255, 1,000 examples" in cli("compare", *sampled, "--attack", "autoattack").out


def test_results_folders_and_tables_are_the_same_thing(cli: Cli, tmp_path: Any) -> None:
    folder = read_result(f"{A}.standard").write(tmp_path / "run")
    expected = json.loads(cli("compare", f"{A}.standard", f"{B}.standard", "--json").out)
    for name in (f"{A}.standard", folder, folder / "outcomes.parquet", results_folder() / f"{A}.standard.parquet"):
        found = json.loads(cli("compare", name, f"{B}.standard", "--json").out)
        assert found["classes"] == expected["classes"]
        assert found["b"].startswith(B)


def test_out_keeps_the_numbers_the_page_and_the_figure(cli: Cli, tmp_path: Any) -> None:
    ran = cli("compare", A, B, "--markdown", "--out", tmp_path / "out")
    assert (tmp_path / "out" / "comparison.md").read_text() == ran.out
    assert ran.err == "".join(f"written: {tmp_path / 'out' / 'comparison'}.{kind}\n" for kind in ("json", "md", "png"))
    document = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert document["n"] == 10_000
    assert document["notes"] == [ran.out.splitlines()[-1]] == [trained_note([A, B])]
    assert (tmp_path / "out" / "comparison.png").read_bytes()[:4] == b"\x89PNG"


def test_a_model_attacked_in_bf16_is_marked(cli: Cli, tmp_path: Any) -> None:
    outcomes = read_result(f"{A}.standard")
    outcomes.manifest["precision"] = "bfloat16"
    ran = cli("compare", outcomes.write(tmp_path / "coarse"), f"{B}.standard")
    assert ran.out.splitlines()[1] == "coarse: attacked with gradients in bf16; the verdicts are float32's"
    assert "bf16" not in cli("compare", f"{A}.standard", f"{B}.standard").out


def test_a_name_is_no_mathematics_and_no_column(cli: Cli, tmp_path: Any) -> None:
    names = ("$\\frac$", "a|b")
    folders = [
        read_result(f"{model}.standard").write(tmp_path / name) for name, model in zip(names, (A, B), strict=True)
    ]
    ran = cli("compare", *folders, "--markdown", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    head, line = ran.out.splitlines()[2:4]
    assert r"$\frac$ | a\|b |" in " ".join(head.split())
    assert head.replace(r"\|", "").count("|") == line.count("|")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((A, "bat_lenet5_fashion_mnis"), f"Did you mean '{B}'"),
        (
            (A, "lenet5_fashion_adversarial.standard.epsilon-16-255"),
            "has 10,000 of fashion_mnist (pgd20). Their pgd20 differ in epsilon.",
        ),
        (
            ("standard_mlp_adult.sooksatra2022", "pgd_at_mlp_adult.sooksatra2022.transfer-standard_mlp_adult"),
            "were not measured on the same examples by the same attack",
        ),
        (
            (A, B, "--attack", "pgd7"),
            "bat_lenet5_fashion_mnist has 10,000 of fashion_mnist (pgd20, autoattack), ",
        ),
        ((A, "nowhere/outcomes.parquet"), "no kept result, run folder or table"),
        ((A, str(Path(__file__).parent)), "holds no outcomes (it has no manifest.json)"),
    ],
)
def test_what_cannot_be_compared_is_one_line(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    ran = cli("compare", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_models_of_features_are_compared_by_autoattack_too(cli: Cli) -> None:
    """PGD-20's last iterate makes one of these look robust; both have a table of it that comes first by name."""
    ran = cli("compare", "standard_mlp_adult", "pgd_at_mlp_adult")
    assert "autoattack at 10, 15,060 examples" in ran.out
    pgd20 = cli("compare", "standard_mlp_adult", "pgd_at_mlp_adult", "--attack", "pgd20")
    assert "pgd20 at 10, 15,060 examples" in pgd20.out


def test_classes_that_tie_for_the_worst_are_counted(cli: Cli) -> None:
    """Both classes of Adult break entirely."""
    assert "100.00 <=50K (and 1 more)" in cli("compare", "standard_mlp_adult", "pgd_at_mlp_adult").out


def test_more_examples_come_before_the_stronger_attack(cli: Cli) -> None:
    names = [f"{method}_lenet5_fashion_mnist" for method in ("cfa", "dafa")]
    assert "pgd20 at 8/255, 10,000 examples" in cli("compare", *names).out


def test_tables_are_named_so_that_they_are_told_apart(cli: Cli, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = results_folder()
    found = json.loads(cli("compare", folder / f"{A}.standard.parquet", folder / f"{B}.standard.parquet", "--json").out)
    assert (found["a"], found["b"]) == (f"{A}.standard", f"{B}.standard")
    runs = [read_result(f"{name}.standard").write(tmp_path / name / "run") for name in (A, B)]
    found = json.loads(cli("compare", *runs, "--json").out)
    assert (found["a"], found["b"]) == (f"{A}/run", f"{B}/run")
    monkeypatch.chdir(runs[0])
    for first in (".", "outcomes.parquet"):
        ran = cli("compare", first, f"{B}.standard", "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["a"] == "run"
    tables = [run / "outcomes.parquet" for run in runs]
    found = json.loads(cli("compare", *tables, "--json").out)
    assert (found["a"], found["b"]) == (f"{A}/run", f"{B}/run")


def test_a_table_beside_its_manifest_as_the_boards_pages_have_them(cli: Cli, tmp_path: Any) -> None:
    for name in (A, B):
        run = read_result(f"{name}.standard").write(tmp_path / "run")
        (run / "outcomes.parquet").rename(tmp_path / f"{name}.parquet")
        (run / "manifest.json").rename(tmp_path / f"{name}.json")
    ran = cli("compare", tmp_path / f"{A}.parquet", tmp_path / f"{B}.parquet", "--json")
    assert ran.code == 0, ran.err
    expected = json.loads(cli("compare", f"{A}.standard", f"{B}.standard", "--json").out)
    assert json.loads(ran.out)["classes"] == expected["classes"]
    (tmp_path / f"{A}.json").write_text("{")
    ran = cli("compare", tmp_path / f"{A}.parquet", tmp_path / f"{B}.parquet")
    assert ran.code == 2
    assert f"{A}.json cannot be read" in ran.err


def test_a_model_that_pgd_is_misled_on_is_told(cli):
    said = "gairat_lenet5_fashion_mnist: AutoAttack breaks 7.4 points more of 1,000 examples than PGD-20, whose "
    models = "bat_lenet5_fashion_mnist", "gairat_lenet5_fashion_mnist"
    ran = cli("compare", *models, "--attack", "pgd20")
    assert said in ran.out
    assert any(said in note for note in json.loads(cli("compare", *models, "--attack", "pgd20", "--json").out)["notes"])
    assert "mislead" not in cli("compare", *models, "--attack", "autoattack").out
