"""The loop on real digits: every method learns, and model, card and history say what happened."""

import json

import numpy as np
import pytest
import torch
import yaml
from made_runs import FAST, THREE_CLASSES, read_history, recipe, same, weights
from safetensors.torch import load_file

from fairbench import Protocol, evaluate, load_dataset, load_model, summarize
from fairbench.training import train
from fairbench.training.data import TrainingData
from fairbench.training.hardware import Hardware
from fairbench.training.methods import METHODS


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_trains_on_digits_and_lowers_its_own_loss(name, start, tmp_path):
    options = {} if name == "standard" else FAST
    needs = {"start": str(start), "optimizer": {"name": "adam", "lr": 0.001, "weight_decay": 0.0}}
    chosen = recipe(name, options=options, **(needs if METHODS[name].needs_start else {}))
    train(chosen, tmp_path / "run")
    losses = [float(row["loss"]) for row in read_history(tmp_path / "run")]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    row = read_history(tmp_path / "run")[-1]
    assert 0 <= float(row["avg_std"]) < 60
    assert row["worst_rob_class"] in "0123456789"


def test_a_finished_run_is_a_model_and_its_card_says_what_happened(start, tmp_path):
    model = load_model(start)
    assert (model.architecture, model.dataset, model.name) == ("small_cnn", "digits", "test")
    digits = load_dataset("digits")
    found = summarize(evaluate(model, digits, Protocol.named("standard", steps=2), runs=tmp_path)).attacks["pgd2"]
    assert found.avg_std < 15
    card = yaml.safe_load((start / "card.yaml").read_text())
    training = card["training"]
    assert training["epochs"] == 4
    assert training["recipe"]["schedule"]["epochs"] == 4
    assert training["seconds"] > 0
    assert training["training_images"] + training["validation_images"] == 1437
    assert training["validation_images"] == 10 * training["recipe"]["validation_per_class"] > 0
    assert training["hardware"]["device"] in ("cpu", "cuda")


def test_adversarial_training_buys_robustness(start, tmp_path):
    train(
        recipe(schedule={"name": "cosine", "epochs": 6}, options={"epsilon": 0.2, "step": 0.05, "steps": 5}),
        tmp_path / "r",
    )
    protocol = Protocol.named("standard", epsilon=0.2, step=0.05, steps=10)
    robust = {}
    for name, out in (("standard", start), ("pgd_at", tmp_path / "r")):
        outcomes = evaluate(load_model(out), load_dataset("digits"), protocol, runs=tmp_path)
        robust[name] = summarize(outcomes).attacks["pgd10"].avg_rob
    assert robust["pgd_at"] < robust["standard"] - 10


class Ticking:
    """A clock that is 10 ms further whenever it is looked at."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 0.01
        return self.now


def test_a_time_budget_ends_the_run_on_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr("fairbench.training.schedule.time", Ticking())
    chosen = recipe("standard", schedule={"name": "one_cycle", "epochs": 1000})
    train(chosen, tmp_path / "run", time_budget=2.0)
    history = read_history(tmp_path / "run")
    assert 1 < len(history) < 100
    assert 1.9 < float(history[-1]["seconds"]) < 2.3
    assert float(history[-1]["lr"]) < 0.001, "the schedule came down with the clock"
    assert yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())["training"]["time_budget"] == 2.0


def test_a_training_that_collapsed_says_so_in_its_card_and_in_its_report(tmp_path):
    said = []
    chosen = recipe("standard", optimizer={"name": "sgd", "lr": 1e-9}, schedule={"epochs": 1})
    train(chosen, tmp_path / "run", report=lambda row: said.append(row.get("warning")))
    card = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())
    assert card["training"]["warnings"] == [text for text in said if text]
    assert "guessing" in card["training"]["warnings"][0]


def test_a_machine_that_emulates_bf16_is_warned_of_before_the_first_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr("fairbench.models.bfloat16.computes_in_bfloat16", lambda _device: False)
    said = []
    for precision in ("bf16", "32"):
        chosen = recipe("standard", precision=precision, schedule={"epochs": 1})
        train(chosen, tmp_path / precision, report=said.append)
    kinds = [next(iter(row)) for row in said]
    assert kinds[:3] == ["note", "warning", "epoch"]
    assert kinds.count("warning") == 1
    assert "--precision 32" in said[1]["warning"]


@pytest.mark.parametrize("first", [0, 1])
def test_labels_that_may_be_numbered_from_1_are_said_before_the_first_epoch(first, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", x_train=images, y_train=np.arange(60) % 3 + first)
    said = []
    chosen = recipe("standard", dataset=str(tmp_path / "own.npz"), validation_per_class=2, batch_size=10)
    train(chosen, tmp_path / "run", report=said.append)
    warned = [row["warning"] for row in said if "labels start at 0" in row.get("warning", "")]
    assert len(warned) == first
    assert "warning" not in said[0]
    assert ("warning" in said[1]) == bool(first)


def test_the_best_epoch_and_the_last_are_both_kept(tmp_path):
    chosen = recipe("standard", select="avg_rob", optimizer={"name": "adam", "lr": 0.02}, schedule={"epochs": 4})
    train(chosen, tmp_path / "run")
    card = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())
    history = [float(row["avg_rob"]) for row in read_history(tmp_path / "run")]
    assert card["training"]["chosen_epoch"] == history.index(min(history))
    last = load_file(tmp_path / "run" / "last.safetensors")
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    assert same(last, state["module"])
    assert same(weights(tmp_path / "run"), last) == (history.index(min(history)) == 3)


def test_the_history_by_class_agrees_with_the_history(start):
    import pandas as pd

    classes = pd.read_csv(start / "classes.csv", dtype={"class": str})
    for row in read_history(start):
        epoch = classes[classes["epoch"] == int(row["epoch"])]
        assert len(epoch) == 10
        for error in ("std", "rob"):
            assert epoch[error].mean() == pytest.approx(float(row[f"avg_{error}"]), abs=1e-3)
            worst = epoch[epoch["class"] == row[f"worst_{error}_class"]]
            assert worst[error].item() == pytest.approx(epoch[error].max())


def test_a_model_of_fewer_classes_is_evaluated_on_them(tmp_path):
    from fairbench.cli import main

    train(recipe("standard", drop_classes=(0, 9)), tmp_path / "run")
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", "--model", str(tmp_path / "run"), "--attacks", "pgd1", "--out", str(tmp_path / "r")])
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert [row["class"] for row in summary["attacks"]["pgd1"]["classes"]] == list("12345678")
    assert summary["notes"][0] == "without 0, 9"


@pytest.mark.parametrize("name", ["pgd_at", "bat"])
def test_bf16_trains_and_attacks_in_bf16_and_keeps_float32_weights(name, tmp_path):
    seen = []
    attack = METHODS[name].attack

    def spy(self, model, x, y, **options):
        copied = self.context.attack_copy(model)
        seen.append({p.dtype for p in copied.parameters()} | {copied(x).dtype})
        return attack(self, model, x, y, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(METHODS[name], "attack", spy)
        chosen = recipe(name, options=FAST, precision="bf16", schedule={"epochs": 3}, **THREE_CLASSES)
        train(chosen, tmp_path / "run")
    assert seen[0] == {torch.bfloat16, torch.float32}, "weights, and logits"
    assert {v.dtype for v in weights(tmp_path / "run").values() if v.is_floating_point()} == {torch.float32}
    history = read_history(tmp_path / "run")
    assert float(history[-1]["loss"]) < float(history[0]["loss"])


@pytest.mark.slow
def test_a_compiled_run_learns_what_a_plain_one_learns(tmp_path):
    chosen = recipe("bat", options=FAST)
    train(chosen, tmp_path / "plain")
    train(chosen, tmp_path / "compiled", hardware=Hardware("cpu", compile=True))
    plain, compiled = ([float(row["loss"]) for row in read_history(tmp_path / name)] for name in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=0.02)
    assert load_model(tmp_path / "compiled").architecture == "small_cnn"


def test_dropped_classes_are_gone_and_the_others_numbered_anew(tmp_path):
    train(recipe("standard", drop_classes=(2, 3, 4, 5)), tmp_path / "run")
    card = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())
    assert card["num_classes"] == 6
    assert {row["worst_std_class"] for row in read_history(tmp_path / "run")} <= set("016789")


@pytest.mark.parametrize("epochs", [4, 6])
def test_epochs_that_are_parts_of_a_pass_take_each_example_once(epochs, tmp_path, monkeypatch):
    """1,237 images in batches of 100: 12 batches a pass, 3 in each of 4 epochs."""
    taken: list[list[int]] = []

    def remember(data: TrainingData, rows: torch.Tensor):
        if len(rows) == 100:
            taken.append(rows.tolist())
        return whole(data, rows)

    whole = TrainingData.batch
    monkeypatch.setattr(TrainingData, "batch", remember)
    schedule = {"name": "cosine", "epochs": epochs, "epochs_per_pass": 4}
    train(recipe("standard", schedule=schedule), tmp_path / "run")
    assert len(read_history(tmp_path / "run")) == epochs
    rows = [row for batch in taken for row in batch]
    assert len(rows) == 300 * epochs
    assert len(set(rows[:1200])) == 1200  # the first pass
    assert len(set(rows[1200:])) == len(rows[1200:])  # what there is of the second
    assert rows[1200:] == [] or rows[1200:] != rows[: len(rows) - 1200]  # in another order
