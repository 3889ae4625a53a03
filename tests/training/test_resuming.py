"""A run that was cut short, killed or written to a full disk ends with the weights of one that was not."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import yaml
from made_runs import FAST, THREE_CLASSES, Stop, crash_after, read_history, recipe, same, weights

from fairbench.errors import OutcomesError
from fairbench.training import train
from fairbench.training.method import Method
from fairbench.training.run_folder import RunFolder


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


def test_a_run_killed_between_parts_of_a_pass_ends_with_the_same_weights(tmp_path):
    chosen = recipe(schedule={"name": "cosine", "epochs": 3, "epochs_per_pass": 3}, options=FAST, **THREE_CLASSES)

    def stop(row: dict[str, object]) -> None:
        if "progress" in row and row["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(chosen, tmp_path / "killed", report=stop)
    for name in ("killed", "whole"):
        train(chosen, tmp_path / name)
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


SCRIPT = textwrap.dedent("""
    import json, sys, time
    from fairbench.training import Recipe, train
    def report(row):
        if "progress" in row and row["epoch"] == 1:
            print("in the middle of epoch 1", flush=True)
            time.sleep(600)
    train(Recipe.model_validate(json.loads(sys.argv[1])), sys.argv[2], report=report)
""")


def test_kill_9_and_run_again_ends_with_the_same_weights(tmp_path):
    """It waits to be killed, so it cannot be over before."""
    chosen = recipe(options=FAST, **THREE_CLASSES)
    arguments = [sys.executable, "-c", SCRIPT, chosen.model_dump_json(), str(tmp_path / "killed")]
    victim = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    said = victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert (said, victim.returncode) == ("in the middle of epoch 1\n", -signal.SIGKILL)
    assert torch.load(tmp_path / "killed" / "state.pt", weights_only=True)["epoch"] == 1
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    train(chosen, tmp_path / "killed")
    train(chosen, tmp_path / "whole")
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


def test_a_full_disk_leaves_the_last_whole_state(tmp_path, monkeypatch):
    chosen = recipe("standard", **THREE_CLASSES)
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


def test_a_run_resumed_elsewhere_names_both_machines(tmp_path, monkeypatch):
    with pytest.raises(Stop):
        train(recipe("standard"), tmp_path / "run", report=crash_after(0))
    monkeypatch.setattr("fairbench.provenance.hardware", lambda device: {"device": "another"})
    train(recipe("standard"), tmp_path / "run")
    training = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())["training"]
    assert training["hardware"]["device"] != "another"
    assert [place["hardware"]["device"] for place in training["resumed_with"]] == ["another"]


class Keeps(Method):
    """A method whose state lies where the run computes."""

    name = "keeps"
    source = "test"
    state_fields = ("weights", "text")


def test_a_resumed_state_goes_where_setup_made_it():
    """On a GPU some methods keep their state there, some on the CPU; "meta" is the other device that is everywhere."""
    method = Keeps()
    method.weights, method.text = torch.zeros(3, device="meta"), "before"
    method.load_state({"weights": torch.ones(3), "text": "after"})
    assert (method.weights.device.type, method.text) == ("meta", "after")
    method.weights = {"a": [torch.zeros(3, device="meta"), 1]}
    method.load_state({"weights": {"a": [torch.ones(3), 2]}, "text": "after"})
    assert (method.weights["a"][0].device.type, method.weights["a"][1]) == ("meta", 2)
    method.weights = None
    method.load_state({"weights": torch.ones(3), "text": "after"})
    assert method.weights.device.type == "cpu"


def test_a_state_is_read_on_the_cpu_whatever_wrote_it(start, monkeypatch):
    asked = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **options: asked.append(options) or load(*args, **options))
    assert RunFolder(start).load() is not None
    assert asked == [{"map_location": "cpu", "weights_only": True}]
