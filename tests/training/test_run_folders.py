"""The folder of a run: whose it is, what it may not lose, and what a state must be to be gone on from."""

import io
import json
import shutil

import numpy as np
import pytest
import torch
from made_runs import FAST, recipe, same, weights

from fairbench import load_dataset, load_model
from fairbench.errors import RecipeError
from fairbench.training import train


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


def test_other_images_are_another_run(start, tmp_path):
    digits = load_dataset("digits", "train")
    with pytest.raises(RecipeError, match=r"another run .*data_sha256"):
        train(
            recipe("standard", schedule={"name": "cosine", "epochs": 4}),
            start,
            dataset=digits.subset(np.arange(1000)),
        )


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


def test_a_folder_that_is_being_trained_in_is_refused(tmp_path):
    from filelock import FileLock

    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / ".lock"), pytest.raises(RecipeError, match="by another process"):
        train(recipe("standard"), tmp_path / "run")
    train(recipe("standard", schedule={"epochs": 1}), tmp_path / "run")


def test_a_finished_run_asked_again_changes_nothing_wherever_it_is_asked(start, monkeypatch):
    before = {name: (start / name).read_bytes() for name in ("model.safetensors", "card.yaml", "history.csv")}
    monkeypatch.setattr("fairbench.provenance.hardware", lambda device: {"device": "another"})
    train(recipe("standard", schedule={"name": "cosine", "epochs": 4}), start)
    assert {name: (start / name).read_bytes() for name in before} == before


def test_a_history_that_was_lost_comes_back_from_the_state(tmp_path):
    train(recipe("standard", schedule={"epochs": 2}), tmp_path / "run")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("history.csv", "classes.csv")}
    for name in before:
        (tmp_path / "run" / name).unlink()
    train(recipe("standard", schedule={"epochs": 2}), tmp_path / "run")
    assert {name: (tmp_path / "run" / name).read_bytes() for name in before} == before


def test_a_run_whose_state_was_removed_starts_again(tmp_path):
    chosen = recipe("standard", schedule={"epochs": 1})
    train(chosen, tmp_path / "run")
    before = weights(tmp_path / "run")
    (tmp_path / "run" / "state.pt").unlink()
    train(chosen, tmp_path / "run")
    assert same(weights(tmp_path / "run"), before)


def test_what_a_killed_training_left_half_written_goes(tmp_path):
    (tmp_path / "run").mkdir()
    for name in (".state.pt.k1ll3d.tmp.pt", ".model.safetensors.k1ll3d.tmp.safetensors", ".mine.tmp"):
        (tmp_path / "run" / name).write_bytes(b"half")
    train(recipe("standard", schedule={"epochs": 1}), tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").glob("*.tmp*")} == {".mine.tmp"}


def test_a_run_folder_named_like_a_model_of_the_zoo_is_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = train(recipe("standard", schedule={"epochs": 1}), "natural_resnet18")
    assert model.architecture == "small_cnn"
    assert load_model("./natural_resnet18").sha256 == model.sha256


def test_the_state_file_holds_no_code(start):
    state = torch.load(start / "state.pt", weights_only=True)
    assert json.loads(state["history"])[0]["epoch"] == 0


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
