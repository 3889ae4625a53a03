"""``fairbench eou`` and groups on the command line."""

import json

import pytest

from fairbench.training import train
from fairbench.training.recipe import parse_recipe

RECIPE = {
    "name": "small",
    "method": "standard",
    "architecture": "mlp",
    "dataset": "adult",
    "schedule": {"epochs": 1},
    "batch_size": 50,
    "validation_per_class": 0,
    "normalize": True,
}


@pytest.fixture
def model(small_adult, tmp_path):
    """A model for the small Adult."""
    train(parse_recipe(RECIPE, "test"), tmp_path / "model", data_dir=small_adult)
    return tmp_path / "model"


def test_the_table_and_the_files(cli, model, small_adult, tmp_path):
    out = tmp_path / "out"
    ran = cli("eou", "--model", model, "--attribute", "race", "--data-dir", small_adult, "--out", out)
    assert ran.code == 0, ran.err
    assert "mean confidence of >50K" in ran.out
    assert "left out, fewer than 20 examples: Other of <=50K" in ran.err
    assert f"written: {out / 'eou.csv'}\nwritten: {out / 'eou.png'}\n" in ran.err
    assert (out / "eou.png").stat().st_size > 5_000
    header, *rows = (out / "eou.csv").read_text().splitlines()
    assert header == "model,attack,attribute,measure,label,group,n,value,low,high"
    assert len(rows) == 2 * 2 + 2


def test_two_models_are_told_apart_on_the_same_rows(cli, model, small_adult, tmp_path):
    train(parse_recipe(RECIPE | {"name": "other", "seed": 1}, "test"), tmp_path / "b", data_dir=small_adult)
    arguments = ("eou", "--model", model, "--model", tmp_path / "b", "--attribute", "sex", "--data-dir", small_adult)
    ran = cli(*arguments, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "EOU minus that of small, on the same examples" in ran.out
    differences = json.loads(cli(*arguments, "--json").out)["other"]["minus_first"]
    assert differences["first"] == "small"
    lines = [row for row in (tmp_path / "out" / "eou.csv").read_text().splitlines() if "eou_minus_first" in row]
    for line, row in zip(lines, differences["labels"], strict=True):
        assert line == f"other,clean,sex,eou_minus_first,{row['label']},,," + ",".join(
            f"{row[key]:.6g}" for key in ("difference", "low", "high")
        )


def test_under_attack_and_as_json(cli, model, small_adult):
    arguments = ("eou", "--model", model, "--attribute", "sex", "--data-dir", small_adult, "--json")
    clean, attacked = (json.loads(cli(*arguments, *more).out)["small"] for more in ((), ("--attack", "pgd20")))
    assert (clean["attack"], attacked["attack"]) == ("clean", "pgd20")
    assert [row["n"] for row in clean["groups"]] == [row["n"] for row in attacked["groups"]]


def test_errors_by_group_are_printed_and_in_the_json(cli, model, small_adult):
    arguments = ("evaluate", "--model", model, "--data-dir", small_adult, "--group", "sex", "--group", "race")
    ran = cli(*arguments)
    assert ran.code == 0, ran.err
    assert "protocol sooksatra2022" in ran.out
    assert "pgd20 by sex" in ran.out
    assert "left out, fewer than 20 examples of race: Other (12)" in ran.out
    groups = json.loads(cli(*arguments, "--json").out)["groups"]
    assert [(found["attribute"], found["left_out"]) for found in groups] == [("sex", {}), ("race", {"Other": 12})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "--group", "gender"), "adult has no attribute 'gender'. Known: race, sex."),
        (("evaluate", "--group", "sex", "--format", "csv"), "--format csv has the classes alone"),
        (("evaluate", "--protocol", "standard"), "take --protocol sooksatra2022"),
        (("evaluate", "--transfer-from", "standard_lenet5_fashion_mnist"), "has 10 outputs"),
        (("eou", "--attribute", "gendre"), "adult has no attribute 'gendre'"),
        (("eou", "--attribute", "sex", "--epsilon", "3"), "go with --attack"),
        (("eou", "--attribute", "sex", "--attack", "least-epsilon"), "take pgd20"),
        (("curve", "--protocol", "standard"), "take --protocol sooksatra2022"),
    ],
)
def test_bad_input_is_one_line(cli, model, small_adult, arguments, message):
    command, *rest = arguments
    ran = cli(command, "--model", model, "--data-dir", small_adult, *rest)
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert message in ran.err
