"""The loop on real digits: it learns, it resumes to the same weights, it never loses what it had."""

import io
import json
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from made_runs import FAST, THREE_CLASSES, read_history, recipe, train_on_two
from safetensors.torch import load_file

from fairbench import Protocol, evaluate, load_dataset, load_model, summarize
from fairbench.errors import FairbenchError, OutcomesError, RecipeError
from fairbench.training import train
from fairbench.training.data import TrainingData
from fairbench.training.hardware import Hardware
from fairbench.training.method import METHODS
from fairbench.training.recipe import load_recipe


def weights(out):
    return load_file(out / "model.safetensors")


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


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


class Stop(Exception):
    """Raised by a report to play a crash."""


def crash_after(epoch):
    def report(row):
        if "progress" in row and row["epoch"] > epoch:
            raise Stop

    return report


@pytest.mark.parametrize(
    "changes", [{}, {"ema": 0.9, "select": "worst_rob", "augmentation": {"crop": 1, "flip": True}}]
)
@pytest.mark.parametrize("name", ["pgd_at", "bat", "wat", "cfa"])
def test_a_run_that_was_interrupted_ends_with_the_same_weights(name, changes, tmp_path):
    averages = {"ema"} if name == "cfa" else set()  # by a rule of its own
    kept = {key: value for key, value in changes.items() if key not in averages}
    chosen = recipe(name, options=FAST, **kept, **THREE_CLASSES)
    train(chosen, tmp_path / "whole")
    with pytest.raises(Stop):
        train(chosen, tmp_path / "cut", report=crash_after(0))
    train(chosen, tmp_path / "cut")
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    drop = [{k: v for k, v in row.items() if k != "seconds"} for row in read_history(tmp_path / "cut")]
    assert drop == [{k: v for k, v in row.items() if k != "seconds"} for row in read_history(tmp_path / "whole")]


@pytest.mark.parametrize("name", ["frl", "refrl_reweight", "refrl_remargin"])
def test_an_interrupted_run_from_a_trained_model_ends_with_the_same_weights(name, start, tmp_path):
    options = FAST | ({} if name == "frl" else {"held_out": 20, "window": 3})
    chosen = recipe(name, options=options, start=str(start), schedule={"name": "cosine", "epochs": 2})
    train(chosen, tmp_path / "whole")
    with pytest.raises(Stop):
        train(chosen, tmp_path / "cut", report=crash_after(0))
    train(chosen, tmp_path / "cut")
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


def test_a_start_that_was_trained_again_makes_another_run(start, tmp_path):
    before = tmp_path / "before"
    shutil.copytree(start, before)
    chosen = recipe("pgd_at", options=FAST, start=str(before), schedule={"epochs": 1})
    train(chosen, tmp_path / "run")
    train(chosen, tmp_path / "run")
    shutil.rmtree(before)
    train(recipe("standard", seed=1, schedule={"epochs": 1}), before)
    with pytest.raises(RecipeError, match=r"another run \(it differs in start_sha256\)"):
        train(chosen, tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "changes"), [("frl", {}), ("pgd_at", {"select": "worst_rob"})], ids=["adapts", "chooses"]
)
def test_held_out_images_that_the_start_was_trained_on_are_refused(method, changes, start, tmp_path):
    kept = recipe("standard").validation_per_class
    common = {"options": FAST, "start": str(start), "schedule": {"epochs": 1}} | changes
    with pytest.raises(RecipeError, match=rf"validation_per_class {kept + 1}: .* it held out {kept} a class"):
        train(recipe(method, validation_per_class=kept + 1, **common), tmp_path / "more")
    train(recipe(method, validation_per_class=kept, **common), tmp_path / "as_many")


def test_classes_dropped_twice_or_in_another_order_are_the_same_recipe():
    assert recipe("standard", drop_classes=(3, 2, 3)) == recipe("standard", drop_classes=(2, 3))


def test_a_finished_run_asked_again_changes_nothing_wherever_it_is_asked(start, monkeypatch):
    before = {name: (start / name).read_bytes() for name in ("model.safetensors", "card.yaml", "history.csv")}
    monkeypatch.setattr("fairbench.provenance.hardware", lambda device: {"device": "another"})
    train(recipe("standard", schedule={"name": "cosine", "epochs": 4}), start)
    assert {name: (start / name).read_bytes() for name in before} == before


def test_a_run_resumed_elsewhere_names_both_machines(tmp_path, monkeypatch):
    with pytest.raises(Stop):
        train(recipe("standard"), tmp_path / "run", report=crash_after(0))
    monkeypatch.setattr("fairbench.provenance.hardware", lambda device: {"device": "another"})
    train(recipe("standard"), tmp_path / "run")
    training = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())["training"]
    assert training["hardware"]["device"] != "another"
    assert [place["hardware"]["device"] for place in training["resumed_with"]] == ["another"]


SCRIPT = textwrap.dedent("""
    import sys
    from fairbench.training import Recipe, train
    import json
    chosen = Recipe.model_validate(json.loads(sys.argv[1]))
    def report(row):
        if "progress" not in row:
            print("epoch", flush=True)
    train(chosen, sys.argv[2], report=report)
""")


def test_kill_9_and_run_again_ends_with_the_same_weights(tmp_path):
    chosen = recipe(schedule={"name": "cosine", "epochs": 6}, options={"steps": 3})
    arguments = [sys.executable, "-c", SCRIPT, chosen.model_dump_json(), str(tmp_path / "killed")]
    victim = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    train(chosen, tmp_path / "killed")
    train(chosen, tmp_path / "whole")
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


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
    train(chosen, tmp_path / "run", time_budget=4.0)
    history = read_history(tmp_path / "run")
    assert 1 < len(history) < 100
    assert 3.9 < float(history[-1]["seconds"]) < 4.3
    assert float(history[-1]["lr"]) < 0.001, "the schedule came down with the clock"
    assert yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())["training"]["time_budget"] == 4.0


def test_a_budget_that_is_over_before_the_first_step_is_an_error_not_an_untrained_model(tmp_path):
    with pytest.raises(RecipeError, match="over before the first step"):
        train(recipe("standard"), tmp_path / "run", time_budget=1e-9)
    assert not (tmp_path / "run" / "model.safetensors").exists()


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


def test_a_history_that_was_lost_comes_back_from_the_state(tmp_path):
    train(recipe("standard", schedule={"epochs": 2}), tmp_path / "run")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("history.csv", "classes.csv")}
    for name in before:
        (tmp_path / "run" / name).unlink()
    train(recipe("standard", schedule={"epochs": 2}), tmp_path / "run")
    assert {name: (tmp_path / "run" / name).read_bytes() for name in before} == before


def test_other_images_are_another_run(start, tmp_path):
    digits = load_dataset("digits", "train")
    with pytest.raises(RecipeError, match=r"another run .*data_sha256"):
        train(
            recipe("standard", schedule={"name": "cosine", "epochs": 4}),
            start,
            dataset=digits.subset(np.arange(1000)),
        )


def test_a_model_of_fewer_classes_is_evaluated_on_them(tmp_path):
    from fairbench.cli import main

    train(recipe("standard", drop_classes=(0, 9)), tmp_path / "run")
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", "--model", str(tmp_path / "run"), "--attacks", "pgd1", "--out", str(tmp_path / "r")])
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert [row["class"] for row in summary["attacks"]["pgd1"]["classes"]] == list("12345678")
    assert summary["notes"][0] == "without 0, 9"


def test_an_architecture_of_ones_own_trains_and_is_evaluated_by_name(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text(
        textwrap.dedent("""
        from torch import nn

        def net(num_classes, shape):
            c, h, w = shape
            return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, num_classes))
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = train(recipe("standard", architecture="own_net:net"), tmp_path / "run")
    assert model.architecture == "own_net:net"
    with pytest.raises(FairbenchError, match="a card runs no code of one's own; say so with --arch own_net:net"):
        load_model(tmp_path / "run")
    with pytest.raises(FairbenchError, match="is a own_net:net, its card says"):
        load_model(tmp_path / "run", arch="small_cnn")
    again = load_model(tmp_path / "run", arch="own_net:net", shape=(1, 8, 8))
    assert again.sha256 == model.sha256


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


def test_static_augmentation_trains_a_new_model_beside_its_source(start, tmp_path):
    before = weights(start)
    chosen = recipe("static_augmentation", start=str(start), options={"epsilon": 0.1, "steps": 3})
    train(chosen, tmp_path / "run")
    assert same(weights(start), before)
    card = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())
    assert card["training"]["training_images"] == 1437 - 200, "clean ones; as many adversarial beside them"
    with pytest.raises(Stop):
        train(chosen, tmp_path / "cut", report=crash_after(0))
    train(chosen, tmp_path / "cut")
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "run"))


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


def test_a_folder_of_another_run_is_left_alone(start):
    before = {p.name: p.read_bytes() for p in start.iterdir()}
    with pytest.raises(RecipeError, match=r"another run .*seed"):
        train(recipe("standard", schedule={"name": "cosine", "epochs": 4}, seed=2), start)
    assert {p.name: p.read_bytes() for p in start.iterdir()} == before


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RecipeError, match="not empty"):
        train(recipe(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_full_disk_leaves_the_last_whole_state(tmp_path, monkeypatch):
    chosen = recipe("standard")
    written = Path.write_bytes
    calls = []

    def full(path, data):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return written(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutcomesError, match="No space left"):
        train(chosen, tmp_path / "run")
    monkeypatch.undo()
    assert torch.load(tmp_path / "run" / "state.pt", weights_only=True)["epoch"] == 1
    train(chosen, tmp_path / "run")
    train(chosen, tmp_path / "whole")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


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
        ({"architecture": "no_such_package:net"}, "importing 'no_such_package' raised"),
    ],
)
def test_a_recipe_that_cannot_be_carried_out_is_one_clear_line(changes, message, start, tmp_path):
    changes = {k: str(start) if v == "START" else v for k, v in changes.items()}
    with pytest.raises(FairbenchError, match=message) as caught:
        train(recipe(**changes), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_dropped_classes_are_gone_and_the_others_numbered_anew(tmp_path):
    train(recipe("standard", drop_classes=(2, 3, 4, 5)), tmp_path / "run")
    card = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())
    assert card["num_classes"] == 6
    assert {row["worst_std_class"] for row in read_history(tmp_path / "run")} <= set("016789")


def test_a_method_of_ones_own_trains(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        from dataclasses import dataclass
        import torch.nn.functional as F
        from fairbench.training import Method, option

        @dataclass
        class Smooth(Method):
            name = "smooth"
            source = "mine"
            smoothing: float = option(0.1, "mine")

            def loss(self, model, x, y):
                return F.cross_entropy(model(x), y, label_smoothing=self.smoothing)
        """)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    train(recipe("mine:Smooth", options={"smoothing": 0.2}), tmp_path / "run")
    assert float(read_history(tmp_path / "run")[-1]["avg_std"]) < 60


def test_two_processes_give_the_same_loss_curves_as_one(tmp_path):
    """Four methods in turn, in one program: starting two processes takes longer than training in them."""
    cases = {
        "pgd_at": ({}, 0.005),
        "gairat": ({"burn_in": 0.0}, 0.005),
        # The first KL gradients are rounding, and so are their signs: fast weights make that 0.2 % in 2 epochs.
        "bat": ({}, 1e-5),
        "cfa": ({"warm_up": 0.0}, 1e-5),
    }
    short = {"name": "cosine", "epochs": 2}
    recipes = {
        name: recipe(name, options=FAST | options, optimizer={"name": "adam", "lr": lr}, schedule=short)
        for name, (options, lr) in cases.items()
    }
    train_on_two({tmp_path / f"{name}-on-two": chosen for name, chosen in recipes.items()}, tmp_path)
    for name, chosen in recipes.items():
        train(chosen, tmp_path / name)
        one, two = ([float(row["loss"]) for row in read_history(tmp_path / out)] for out in (name, f"{name}-on-two"))
        assert two == pytest.approx(one, rel=1e-5), name


FULL = textwrap.dedent("""
    from fairbench.errors import OutcomesError
    from fairbench.training import run_folder
    def full(path, state, check=None):
        raise OutcomesError("the disk is full")
    run_folder.RunFolder.save = full
""")


def test_what_one_process_cannot_write_all_processes_say(tmp_path):
    ran = train_on_two({tmp_path / "o": recipe("standard")}, tmp_path, FULL, check=False)
    assert ran.returncode
    raised = {line.partition("]: ")[2] or line for line in ran.stderr.splitlines() if "Error: " in line}
    assert raised == {"fairbench.errors.OutcomesError: the disk is full"}


def test_the_state_file_holds_no_code(start):
    state = torch.load(start / "state.pt", weights_only=True)
    assert json.loads(state["history"])[0]["epoch"] == 0


@pytest.mark.parametrize(("key", "option"), [("method", "--method"), ("architecture", "--arch")])
def test_a_recipe_file_runs_no_code(key, option, tmp_path, monkeypatch):
    (tmp_path / "payload.py").write_text("raise SystemExit('ran')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = {"method": "standard", "architecture": "small_cnn", "dataset": "digits", key: "payload:build"}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(RecipeError, match=f"a file runs no code of one's own; use {option}"):
        load_recipe(str(tmp_path / "r.yaml"))


@pytest.mark.parametrize("content", [b"", b"not a state", b"PK\x03\x04"])
def test_a_state_that_cannot_be_read_is_one_clear_line_and_stays(content, tmp_path):
    train(recipe("standard", schedule={"epochs": 1}), tmp_path / "run")
    (tmp_path / "run" / "state.pt").write_bytes(content)
    with pytest.raises(
        RecipeError, match=r"state\.pt is not a whole state of this run .*remove it to start the run again"
    ) as caught:
        train(recipe("standard", schedule={"epochs": 1}), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "run" / "state.pt").read_bytes() == content


OWN = textwrap.dedent("""
    from dataclasses import dataclass
    import numpy as np
    from torch import nn
    import torch.nn.functional as F
    from fairbench.training import Method, option

    class Base(Method):
        name, source = "own", "mine"

    class Vector(Base):
        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y, reduction="none")

    class Raises(Base):
        def loss(self, model, x, y):
            raise KeyError("it broke\\nbadly")

    class Exits(Base):
        def loss(self, model, x, y):
            raise SystemExit("enough")

    class Plain(Base):
        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y)

    class Nameless(Method):
        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y)

    class Setup(Plain):
        def setup(self, context):
            raise ValueError("it broke")

    class TrainingSet(Plain):
        def training_set(self, data):
            return None

    class Begin(Plain):
        def begin(self, validate):
            raise ValueError("it broke")

    class StartEpoch(Plain):
        def start_epoch(self, epoch):
            pass

    class EndEpoch(Plain):
        def end_epoch(self, validate):
            raise ValueError("it broke")

    class AverageDecay(Plain):
        def average_decay(self, validate):
            return "0.9"

    class State(Plain):
        state_fields = ("missing",)

    class Backward(Plain):
        def loss(self, model, x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

    @dataclass
    class Post(Plain):
        def __post_init__(self):
            raise ValueError("it broke")

    @dataclass
    class NoDefault(Plain):
        share: float = option(None, "mine")

    @dataclass
    class NamedEpsilon(Plain):
        epsilon: str = option("small", "mine")

    class NumpyState(Base):
        state_fields = ("w",)

        def setup(self, context):
            super().setup(context)
            self.w = np.ones(3)

        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y)

    @dataclass
    class PathOption(Base):
        layers: tuple = option((1, 2), "mine")

    @dataclass
    class BigEpsilon(Base):
        epsilon: float = option(8.0, "a slip of scale")

    class View(nn.Module):
        def __init__(self, num_classes):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, num_classes)

        def forward(self, x):
            x = self.conv(x)
            return self.head(x.view(x.size(0), -1))

    def twelve():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 12))

    def wide():
        return nn.Sequential(nn.Flatten(), nn.Linear(1024, 10))
""")


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "own_code:Vector"}, r"own_code:Vector failed at epoch 0, step 0 .*scalar tensor with a gradient"),
        ({"method": "own_code:Raises"}, r"own_code:Raises failed at epoch 0, step 0 .*KeyError: 'it broke"),
        ({"method": "own_code:Exits"}, r"own_code:Exits failed at epoch 0, step 0 .*SystemExit: enough"),
        ({"method": "own_code:Nameless"}, "the class states no name"),
        ({"method": "own_code:Setup"}, "own_code:Setup failed in setup: ValueError: it broke"),
        ({"method": "own_code:TrainingSet"}, "failed in training_set: TypeError"),
        ({"method": "own_code:Begin"}, "failed in begin: ValueError: it broke"),
        ({"method": "own_code:StartEpoch"}, "failed in start_epoch of epoch 0: TypeError"),
        ({"method": "own_code:EndEpoch"}, "failed at the end of epoch 0: ValueError: it broke"),
        ({"method": "own_code:AverageDecay"}, "failed at the end of epoch 0: TypeError"),
        ({"method": "own_code:State"}, "failed in state: AttributeError: .*missing"),
        ({"method": "own_code:Backward"}, "failed at epoch 0, step 0 on .*second time"),
        ({"method": "own_code:Post"}, "method own cannot be made: ValueError: it broke"),
        ({"method": "own_code:NoDefault", "options": {"share": 1}}, "share is a NoneType"),
        ({"method": "own_code:NamedEpsilon"}, "epsilon is 'small'; it must be a number"),
        ({"method": "own_code:NumpyState"}, r"its state \(w\) is not plain data"),
        ({"method": "own_code:PathOption"}, "option layers is a tuple"),
        ({"method": "own_code:BigEpsilon"}, "epsilon 8: pixels are in"),
        ({"architecture": "own_code:twelve"}, r"returns \(2, 12\) for 2 images of 10 classes"),
        ({"architecture": "own_code:wide"}, r"own_code:wide cannot take images of 1x8x8"),
        ({"method": "wat", "validation_per_class": 0}, "adapts to held-out training images"),
        ({"method": "frl", "start": "START", "options": {"halve_every": 0}}, "halve_every 0: it must be at least 1"),
        ({"method": "gairat", "options": {"steps": 0}}, "steps 0: it must be at least 1"),
        ({"method": "dafa", "options": {"strength": 1e4, "warm_up": 0.1}}, "is not positive: lower strength"),
    ],
)
def test_what_cannot_work_is_said_before_or_at_the_first_epoch_in_one_line(changes, message, start, tmp_path, own):
    changes = {k: str(start) if v == "START" else v for k, v in changes.items()}
    with pytest.raises(RecipeError, match=message) as caught:
        train(recipe(**{"method": "standard", **changes}), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "card.yaml").exists()


def flipped(content):
    content = bytearray(content)
    content[len(content) // 2] ^= 255
    return bytes(content)


def without(key):
    def changed(content):
        state = torch.load(io.BytesIO(content), weights_only=True)
        del state[key]
        whole = io.BytesIO()
        torch.save(state, whole)
        return whole.getvalue()

    return changed


@pytest.mark.parametrize("damage", [flipped, without("epoch"), without("seconds")])
def test_a_state_with_a_wrong_byte_or_a_part_less_makes_no_model(damage, tmp_path):
    chosen = recipe("standard", schedule={"epochs": 1})
    train(chosen, tmp_path / "run")
    state, before = tmp_path / "run" / "state.pt", weights(tmp_path / "run")
    state.write_bytes(damage(state.read_bytes()))
    with pytest.raises(RecipeError, match=r"state\.pt is not a whole state of this run"):
        train(chosen, tmp_path / "run")
    assert same(weights(tmp_path / "run"), before)


def test_what_a_killed_training_left_half_written_goes(tmp_path):
    (tmp_path / "run").mkdir()
    for name in (".state.pt.k1ll3d.tmp.pt", ".model.safetensors.k1ll3d.tmp.safetensors", ".mine.tmp"):
        (tmp_path / "run" / name).write_bytes(b"half")
    train(recipe("standard", schedule={"epochs": 1}), tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").glob("*.tmp*")} == {".mine.tmp"}


def test_an_edited_method_of_ones_own_is_another_run(tmp_path, own, monkeypatch):
    text = "from fairbench.training.methods.standard import Standard\n\nclass Mine(Standard):\n    name = 'mine'\n"
    (tmp_path / "mine_edited.py").write_text(text)
    train(recipe("mine_edited:Mine", schedule={"epochs": 1}), tmp_path / "run")
    train(recipe("mine_edited:Mine", schedule={"epochs": 1}), tmp_path / "run")
    (tmp_path / "mine_edited.py").write_text(text + "    # edited\n")
    monkeypatch.delitem(sys.modules, "mine_edited")
    with pytest.raises(RecipeError, match=r"another run \(it differs in method_sha256\)"):
        train(recipe("mine_edited:Mine", schedule={"epochs": 1}), tmp_path / "run")


def test_a_network_written_for_one_memory_layout_trains_and_is_evaluated(tmp_path, own):
    train(recipe("pgd_at", architecture="own_code:View", options=FAST, schedule={"epochs": 1}), tmp_path / "run")
    model = load_model(tmp_path / "run", arch="own_code:View")
    outcomes = evaluate(model, load_dataset("digits"), Protocol.named("quick", steps=2), runs=tmp_path / "runs")
    assert not any("disagreed" in text for text in outcomes.manifest["warnings"])


def test_a_folder_that_is_being_trained_in_is_refused(tmp_path):
    from filelock import FileLock

    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / ".lock"), pytest.raises(RecipeError, match="by another process"):
        train(recipe("standard"), tmp_path / "run")
    train(recipe("standard", schedule={"epochs": 1}), tmp_path / "run")


def test_a_run_whose_state_was_removed_starts_again(tmp_path):
    chosen = recipe("standard", schedule={"epochs": 1})
    train(chosen, tmp_path / "run")
    before = weights(tmp_path / "run")
    (tmp_path / "run" / "state.pt").unlink()
    train(chosen, tmp_path / "run")
    assert same(weights(tmp_path / "run"), before)


def test_a_run_folder_named_like_a_model_of_the_zoo_is_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = train(recipe("standard", schedule={"epochs": 1}), "natural_resnet18")
    assert model.architecture == "small_cnn"
    assert load_model("./natural_resnet18").sha256 == model.sha256


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


def test_a_run_killed_between_parts_of_a_pass_ends_with_the_same_weights(tmp_path):
    chosen = recipe(schedule={"name": "cosine", "epochs": 3, "epochs_per_pass": 3}, options=FAST)

    def stop(row: dict[str, object]) -> None:
        if "progress" in row and row["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(chosen, tmp_path / "killed", report=stop)
    for name in ("killed", "whole"):
        train(chosen, tmp_path / name)
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


def test_a_pass_is_not_cut_finer_than_its_batches(tmp_path):
    with pytest.raises(RecipeError, match="epochs_per_pass 13: a pass over 1237 images is 12 batches of 100"):
        train(recipe("standard", schedule={"epochs": 1, "epochs_per_pass": 13}), tmp_path / "run")
