"""``fairbench train``: a run that says what it is, goes on, and refuses in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Cli = Callable[..., Any]

RECIPE = {
    "name": "mine",
    "title": "small CNN, half",
    "method": "refrl_at",
    "options": {"steps": 1},
    "architecture": "small_cnn",
    "dataset": "digits",
    "optimizer": {"name": "adam", "lr": 0.005},
    "schedule": {"name": "constant", "epochs": 2},
    "batch_size": 100,
    "validation_per_class": 10,
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


def card(out: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((out / "card.yaml").read_text()))


@pytest.mark.parametrize(
    ("changes", "name", "title", "steps"),
    [
        ([], "mine", "small CNN, half", 1),
        (["--set", "steps=2", "--seed", "3"], "mine_changed", "small CNN, half; changed: steps=2, seed=3", 2),
        (["--set", "steps=2", "--set", "title=two"], "mine_changed", "two", 2),
        (["--set", "name=two"], "two", "small CNN, half; changed: name=two", 1),
    ],
)
def test_a_run_is_called_what_it_is(
    changes: list[str], name: str, title: str, steps: int, recipe: Path, cli: Cli, tmp_path: Path
) -> None:
    ran = cli("train", "--recipe", recipe, "--out", tmp_path / "run", "--device", "cpu", *changes)
    assert ran.code == 0, ran.err
    written = card(tmp_path / "run")
    assert (written["name"], written["title"]) == (name, title)
    assert written["training"]["recipe"]["options"] == {"steps": steps}
    assert f"evaluate --model {tmp_path / 'run'}" in ran.out
    assert "1337 images, 100 more held out, 2 epochs on cpu" in ran.err


def test_a_run_that_is_done_or_half_done_says_so(recipe: Path, cli: Cli, tmp_path: Path) -> None:
    command = ["train", "--recipe", recipe, "--out", tmp_path / "run"]
    cli(*command)
    assert "trained before, up to epoch 1; nothing is left to do" in cli(*command).err
    (tmp_path / "run" / "card.yaml").unlink()
    unfinished = cli("evaluate", "--model", tmp_path / "run")
    assert unfinished.code == 2
    assert "holds a training that is not finished; run its `fairbench train` command again" in unfinished.err
    assert cli(*command).code == 0
    assert (tmp_path / "run" / "card.yaml").is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--nodes", "2"], "start it on each machine with torchrun"),
        (["--variant", "x"], "method refrl_at has no variant 'x'. It has none."),
        (["--method", "pgd_at"], "has its method: leave --method pgd_at out"),
        (["--set", "epochs=2"], "no key 'epochs'. Did you mean 'schedule.epochs'?"),
        (["--set", "ema=0.9", "--set", "method=cfa"], "leave ema out"),
        (["--set", "batch_size=2020-13-45"], "batch_size: Input should be a valid integer"),
        (["--set", "batch_size=0x_"], "batch_size: Input should be a valid integer"),
        (["--set", "batch_size=!!timestamp x"], "batch_size: Input should be a valid integer"),
        (["--set", f"batch_size={'1' * 5000}"], "batch_size: "),
        (["--set", f"schedule.milestones={'[' * 3000}"], "schedule.milestones: "),
        (["--recipe", "nowhere/mine.yaml"], "no recipe file nowhere/mine.yaml"),
    ],
)
def test_what_cannot_be_trained_is_one_clear_line(
    changes: list[str], message: str, recipe: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    ran = cli("train", "--recipe", recipe, "--out", tmp_path / "run", *changes)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def aliases(depth: int) -> str:
    """Ten names, each of ten of the one before: small, and larger than memory when written out."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join(10 * [f'*a{n - 1}'])}]" for n in range(1, depth)]
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["recipe", "card"])
def test_yaml_that_unfolds_without_end_is_refused(kind: str, recipe: Path, cli: Cli, tmp_path: Path) -> None:
    if kind == "recipe":
        recipe.write_text(aliases(12))
        ran = cli("train", "--recipe", recipe, "--out", tmp_path / "run")
    else:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "card.yaml").write_text(aliases(12))
        ran = cli("evaluate", "--model", tmp_path / "run")
    assert ran.code == 2
    assert "it has an alias" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("value", ["2020-13-45", "0x_", "!!timestamp x", "!!bool x", "[" * 3000])
@pytest.mark.parametrize("kind", ["recipe", "card"])
def test_a_value_that_yaml_cannot_read_is_one_clear_line(
    kind: str, value: str, recipe: Path, cli: Cli, tmp_path: Path
) -> None:
    if kind == "recipe":
        recipe.write_text(f"{recipe.read_text()}seed: {value}\n")
        ran = cli("train", "--recipe", recipe, "--out", tmp_path / "run")
    else:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "card.yaml").write_text(f"name: {value}\n")
        ran = cli("evaluate", "--model", tmp_path / "run")
    assert ran.code == 2
    assert "not readable YAML" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("dropped", ["2,3", [2, "3"], [-1], [True]])
def test_a_card_whose_dropped_classes_are_none_is_refused(dropped: Any, recipe: Path, cli: Cli, tmp_path: Path) -> None:
    cli("train", "--recipe", recipe, "--out", tmp_path / "run", "--set", "schedule.epochs=1")
    edited = card(tmp_path / "run")
    edited["training"]["recipe"]["drop_classes"] = dropped
    (tmp_path / "run" / "card.yaml").write_text(yaml.safe_dump(edited))
    ran = cli("evaluate", "--model", tmp_path / "run")
    assert ran.code == 2
    assert "is not a list of class numbers" in ran.err


def test_weights_that_are_not_the_cards_are_refused(recipe: Path, cli: Cli, tmp_path: Path) -> None:
    cli("train", "--recipe", recipe, "--out", tmp_path / "run", "--set", "schedule.epochs=1")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"other")
    ran = cli("evaluate", "--model", tmp_path / "run")
    assert ran.code == 2
    assert "SHA-256 differs); put the file back, or train again" in ran.err


def test_every_key_of_a_recipe_is_documented() -> None:
    from fairbench.training import Recipe

    keys = []
    for name, field in Recipe.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        keys += [f"{name}.{leaf}" for leaf in inner] if inner else [name]
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_attacks_are_made_for_a_model_of_the_same_classes_alone(recipe: Path, cli: Cli, tmp_path: Path) -> None:
    once = ("--set", "schedule.epochs=1")
    for name, dropped in (("a", "[2, 3]"), ("b", "[1, 6]"), ("c", "[3, 2]")):
        cli("train", "--recipe", recipe, "--out", tmp_path / name, *once, "--set", f"drop_classes={dropped}")
    evaluate = ("evaluate", "--model", tmp_path / "a", "--steps", "1", "--json", "--transfer-from")
    refused = cli(*evaluate, tmp_path / "b")
    assert refused.code == 2
    assert f"{tmp_path / 'b'} was trained without classes 1, 6; leave out the same ones" in refused.err
    assert cli(*evaluate, tmp_path / "c").code == 0


def test_a_download_folder_without_a_model_for_it_is_refused(cli: Cli, tmp_path: Path) -> None:
    ran = cli("evaluate", "--model", "bat_lenet5_fashion_mnist", "--model-dir", tmp_path)
    assert ran.code == 2
    assert "--model-dir is where models robustbench:ID lie; none is asked for" in ran.err
