"""A recipe that cannot be carried out: one line that says what is wrong, and no model."""

import sys

import pytest
import yaml
from made_runs import recipe

from fairbench.errors import FairbenchError, RecipeError
from fairbench.training import train
from fairbench.training.recipe import load_recipe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "frl"}, "name one with --from"),
        ({"method": "frl", "start": "natural_resnet18"}, "is a resnet18, and its weights do not fit small_cnn"),
        ({"method": "pdg_at"}, "Did you mean 'pgd_at'"),
        ({"batch_size": 5000}, "larger than the"),
        ({"validation_per_class": 1000}, "leaves none of class"),
        ({"method": "frl", "validation_per_class": 0, "start": "START"}, "adapts to held-out"),
        ({"drop_classes": [10]}, r"classes are 0\.\.9"),
        ({"drop_classes": list(range(9))}, "two at least"),
        ({"select": "worst_rob", "validation_per_class": 0}, "select worst_rob needs held-out"),
        ({"method": "static_augmentation"}, "name one with --from"),
        ({"architecture": "small_cn"}, "Did you mean 'small_cnn'"),
        ({"architecture": "no_such_package:net"}, "there is no module 'no_such_package'"),
    ],
)
def test_a_recipe_that_cannot_be_carried_out_is_one_clear_line(changes, message, start, tmp_path):
    changes = {k: str(start) if v == "START" else v for k, v in changes.items()}
    with pytest.raises(FairbenchError, match=message) as caught:
        train(recipe(**changes), tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("schedule.milestones", "[75, 90]", "less than 1"),
        ("optimizer.lr", "inf", "finite"),
        ("validation_epsilon", "300/255", "less than or equal to 1"),
    ],
)
def test_settings_out_of_range_are_refused(key, text, message):
    with pytest.raises(RecipeError, match=message):
        recipe().changed({key: text})
    assert recipe().changed({"validation_epsilon": "16/255"}).validation_epsilon == 16 / 255


def test_keys_are_those_of_the_method_that_is_set_with_them():
    assert recipe("trades").changed({"target": "full", "method": "bat"}).options == {"target": "full"}
    with pytest.raises(RecipeError, match="no key 'beta'"):
        recipe("trades").changed({"method": "pgd_at", "beta": "1"})


@pytest.mark.parametrize("said", ["32", 32, "fp32"])
def test_float32_may_be_said_as_evaluations_and_as_yaml_say_it(said):
    assert recipe("standard", precision=said).precision == "32"


def test_classes_dropped_twice_or_in_another_order_are_the_same_recipe():
    assert recipe("standard", drop_classes=(3, 2, 3)) == recipe("standard", drop_classes=(2, 3))


@pytest.mark.parametrize(("key", "option"), [("method", "--method"), ("architecture", "--arch")])
def test_a_recipe_file_runs_no_code(key, option, tmp_path, monkeypatch):
    (tmp_path / "payload.py").write_text("raise SystemExit('ran')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = {"method": "standard", "architecture": "small_cnn", "dataset": "digits", key: "payload:build"}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(RecipeError, match=f"a file runs no code of one's own; use {option}"):
        load_recipe(str(tmp_path / "r.yaml"))


def test_a_pass_is_not_cut_finer_than_its_batches(tmp_path):
    with pytest.raises(RecipeError, match="epochs_per_pass 13: a pass over 1237 images is 12 batches of 100"):
        train(recipe("standard", schedule={"epochs": 1, "epochs_per_pass": 13}), tmp_path / "run")


def test_a_budget_that_is_over_before_the_first_step_is_an_error_not_an_untrained_model(tmp_path):
    with pytest.raises(RecipeError, match="over before the first step"):
        train(recipe("standard"), tmp_path / "run", time_budget=1e-9)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_tensorboard_without_its_package_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RecipeError, match="pip install tensorboard"):
        train(recipe("standard"), tmp_path / "run", tensorboard=True)


def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(tmp_path):
    chosen = recipe("standard", optimizer={"name": "sgd", "lr": 1e9, "momentum": 0.9})
    with pytest.raises(RecipeError, match=r"loss is (nan|inf) at epoch \d+, step \d+: lower optimizer\.lr"):
        train(chosen, tmp_path / "run")


@pytest.mark.parametrize(
    ("held", "decay", "message"),
    [(20, 0.0, "loss on held-out examples is NaN or infinite"), (0, 1e30, "weight is NaN or infinite after epoch 0")],
)
def test_what_the_last_step_made_infinite_is_no_result_and_no_state(held, decay, message, tmp_path):
    fast = {"name": "sgd", "lr": 1e30, "weight_decay": decay}
    chosen = recipe("standard", optimizer=fast, batch_size=1200, validation_per_class=held, schedule={"epochs": 1})
    with pytest.raises(RecipeError, match=rf"{message}: lower optimizer\.lr"):
        train(chosen, tmp_path / "run")
    assert not any((tmp_path / "run" / name).exists() for name in ("state.pt", "model.safetensors", "card.yaml"))
