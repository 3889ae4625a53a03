"""The leave-one-out ensemble: it is what training each model by itself gives, and a killed run goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import made_runs
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from fairbench import load_dataset
from fairbench.attacks.pgd import pgd
from fairbench.errors import FairbenchError, ModelError, RecipeError
from fairbench.models.building import new_module
from fairbench.training import Recipe, train
from fairbench.training import leave_one_out as running
from fairbench.training import leave_one_out_trainer as trainer
from fairbench.training.ensemble import Ensemble
from fairbench.training.fit import build_method
from fairbench.training.leave_one_out import draw_samples, leave_one_out
from fairbench.training.network import make_optimizer

SHAPES = {"small_cnn": (1, 8, 8), "mlp": (1, 8, 8), "lenet5": (1, 32, 32)}


def recipe(method="standard", **changes) -> Recipe:
    data = {
        "architecture": "mlp",
        "optimizer": {"name": "adam", "lr": 0.002, "weight_decay": 0.0},
        "schedule": {"name": "cosine", "epochs": 2},
        "batch_size": 20,
        "validation_per_class": 0,
    }
    return made_runs.recipe(method, **data | changes)


@pytest.fixture(scope="module")
def training():
    return load_dataset("digits", "train").subset(np.arange(110))


@pytest.fixture(scope="module")
def test():
    return load_dataset("digits").subset(np.arange(40))


def by_itself(chosen, training, test, left_out):
    """Train one model in plain PyTorch, without a sample, and return its confidences."""
    torch.manual_seed(chosen.seed)
    network, size = new_module(chosen.architecture, training.num_classes, training.shape)
    if size is not None:
        training, test = training.resized(*size), test.resized(*size)
    optimizer = make_optimizer(network, chosen.optimizer)
    x, y, _ = training.batch(slice(None))
    method, generator = build_method(chosen), torch.Generator()
    for epoch in range(chosen.schedule.epochs):
        generator.manual_seed((chosen.seed << 20) + epoch + 1)
        order = torch.randperm(len(y), generator=generator)
        for step in range(len(y) // chosen.batch_size):
            rows = order[step * chosen.batch_size : (step + 1) * chosen.batch_size]
            for _ in range(2):
                torch.randint(1, (len(rows),), generator=generator)  # crop and flip, which are not asked for
            torch.rand(len(rows), generator=generator)
            noise = torch.rand(x[rows].shape, generator=generator) * 2 - 1 if method.name == "pgd_at" else None
            progress = (epoch + step / (len(y) // chosen.batch_size)) / chosen.schedule.epochs
            optimizer.param_groups[0]["lr"] = chosen.optimizer.lr * 0.5 * (1 + np.cos(np.pi * progress))
            kept = rows != left_out
            batch, labels = x[rows][kept], y[rows][kept]
            if noise is not None:
                options = {"epsilon": method.epsilon, "step": method.step, "steps": method.steps}
                batch = pgd(network, batch, labels, noise=noise[kept], **options).last
            optimizer.zero_grad()
            F.cross_entropy(network(batch), labels).backward()
            optimizer.step()
    with torch.no_grad():
        return network(test.batch(slice(None))[0]).softmax(1).numpy()


@pytest.mark.parametrize(
    ("architecture", "method", "optimizer"),
    [
        ("mlp", "standard", "adam"),
        ("mlp", "standard", "sgd"),
        ("mlp", "pgd_at", "adam"),
        ("small_cnn", "standard", "adam"),
        ("small_cnn", "pgd_at", "sgd"),
        ("lenet5", "standard", "adam"),
    ],
)
def test_the_ensemble_equals_training_each_model_by_itself(architecture, method, optimizer, training, test, tmp_path):
    chosen = recipe(
        method,
        architecture=architecture,
        optimizer={"name": optimizer, "lr": 0.002 if optimizer == "adam" else 0.05, "weight_decay": 1e-3},
        options={"epsilon": 0.1, "step": 0.05, "steps": 2} if method == "pgd_at" else {},
    )
    samples = np.array([3, 17, 60])
    found = leave_one_out(chosen, training, test, samples, tmp_path / "run", chunk=3)
    expected = [by_itself(chosen, training, test, sample) for sample in (-1, *samples)]
    assert np.abs(found.full - expected[0]).max() < 1e-4
    for mine, theirs in zip(found.left, expected[1:], strict=True):
        assert np.abs(mine - theirs).max() < 1e-4
    moved = [np.abs(theirs - expected[0]).max() for theirs in expected[1:]]
    assert max(moved) > 20 * np.abs(found.left - np.stack(expected[1:])).max(), "the difference says nothing"


@pytest.mark.parametrize("method", ["standard", "pgd_at"])
def test_the_full_model_is_what_train_gives(method, training, test, tmp_path):
    chosen = recipe(method, architecture="small_cnn", options={"steps": 2} if method == "pgd_at" else {})
    found = leave_one_out(chosen, training, test, np.array([5]), tmp_path / "run")
    model = train(chosen, tmp_path / "one", dataset=training).module.eval()
    with torch.no_grad():
        expected = model(test.batch(slice(None))[0]).softmax(1).numpy()
    assert np.abs(found.full - expected).max() < 1e-4


def test_static_augmentation_leaves_out_the_adversarial_copy_too(training, test, tmp_path):
    source = tmp_path / "source"
    train(recipe(architecture="small_cnn"), source, dataset=training)
    chosen = recipe("static_augmentation", start=str(source), options={"steps": 2})
    seen = []
    batch_losses = trainer.batch_losses

    def watched(*arguments, kept, **options):
        seen.append(kept)
        return batch_losses(*arguments, kept=kept, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "batch_losses", watched)
        found = leave_one_out(chosen, training, test, np.array([5, 9]), tmp_path / "run", chunk=3)
    left = torch.stack([(1 - kept).sum(1) for kept in seen]).sum(0)
    assert left.tolist() == [0, 4, 4]  # twice an epoch, two epochs; 220 images are eleven whole batches
    assert np.abs(found.left - found.full).max() > 1e-4


def unlike(data):
    """Return a data set of unequal classes: every image of the last two goes, but for two of each."""
    rows = [*np.flatnonzero(data.labels < 8), *(np.flatnonzero(data.labels == c)[i] for c in (8, 9) for i in (0, 1))]
    return data.subset(np.sort(rows))


@pytest.mark.parametrize("method", ["standard", "pgd_at"])
def test_normalised_and_balanced_the_full_model_is_what_train_gives(method, training, test, tmp_path):
    options = {"steps": 2} if method == "pgd_at" else {}
    chosen = recipe(method, architecture="small_cnn", normalize=True, balance=True, options=options)
    found = leave_one_out(chosen, unlike(training), test, np.array([5]), tmp_path / "run")
    model = train(chosen, tmp_path / "one", dataset=unlike(training)).module.eval()
    with torch.no_grad():
        expected = model(test.batch(slice(None))[0]).softmax(1).numpy()
    assert np.abs(found.full - expected).max() < 1e-4
    plain = leave_one_out(chosen.changed({"balance": False}), unlike(training), test, np.array([5]), tmp_path / "plain")
    assert np.abs(found.full - plain.full).max() > 1e-2


def test_a_sample_that_is_repeated_is_left_out_each_time(training, test, tmp_path):
    data = unlike(training)
    counts = np.bincount(data.labels)
    rare, common = (int(np.flatnonzero(data.labels == c)[0]) for c in (9, counts.argmax()))
    largest = int(counts.max())
    seen = []
    batch_losses = trainer.batch_losses

    def watched(*arguments, kept, **options):
        seen.append(kept)
        return batch_losses(*arguments, kept=kept, **options)

    chosen = recipe(balance=True, batch_size=10 * largest, schedule={"name": "constant", "epochs": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "batch_losses", watched)
        leave_one_out(chosen, data, test, np.array(sorted([rare, common])), tmp_path / "run", chunk=3)
    left = dict(zip([-1, *sorted([rare, common])], torch.stack([(1 - k).sum(1) for k in seen]).sum(0), strict=True))
    assert left == {-1: 0, common: 1, rare: (largest + 1) // 2}


def test_models_that_leave_out_nothing_they_see_are_the_full_one(training, test, tmp_path):
    chosen = recipe(schedule={"name": "constant", "epochs": 1}, batch_size=100)
    order = torch.randperm(110, generator=torch.Generator().manual_seed((1 << 20) + 1))
    unseen = np.sort(order[100:].numpy())
    found = leave_one_out(chosen, training, test, unseen, tmp_path / "run", chunk=20)
    assert np.array_equal(found.left, np.broadcast_to(found.full, found.left.shape))


@pytest.mark.parametrize("memory", [2**30, 450_000, 0])
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("standard", {}),
        ("pgd_at", {"options": {"epsilon": 0.1, "step": 0.05, "steps": 2}, "augmentation": {"crop": 1, "flip": True}}),
        ("standard", {"balance": True, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}),
    ],
)
def test_what_a_model_shares_with_the_full_one_is_computed_once_and_changes_nothing(
    method, changes, memory, training, test, tmp_path, monkeypatch
):
    """One by one models start where the full one met their sample; a run that goes on has no such states."""
    chosen, samples = recipe(method, **changes), np.array([3, 17, 60, 61, 99])
    steps = []
    losses = trainer.batch_losses
    monkeypatch.setattr(trainer, "batch_losses", lambda *a, **k: steps.append(1) or losses(*a, **k))
    monkeypatch.setattr(running, "memory_for_models", lambda: memory)
    shared = leave_one_out(chosen, training, test, samples, tmp_path / "shared", chunk=1)
    taken = len(steps)
    leave_one_out(chosen, training, test, samples, tmp_path / "again", chunk=1)
    for path in (tmp_path / "again").glob("models_0000[1-5]-*"):
        path.unlink()
    steps.clear()
    again = leave_one_out(chosen, training, test, samples, tmp_path / "again", chunk=1)
    each = len(steps) // len(samples)
    assert np.array_equal(shared.full, again.full)
    assert np.array_equal(shared.left, again.left)
    assert (taken < 6 * each) == (memory > 0)
    assert taken > 6 * each * 0.6


@pytest.mark.parametrize("chunk", [1, 2, 4, None])
def test_the_chunk_changes_rounding_alone(chunk, training, test, tmp_path):
    samples = draw_samples(training, 4, seed=0)
    whole = leave_one_out(recipe(), training, test, samples, tmp_path / "whole", chunk=5)
    parts = leave_one_out(recipe(), training, test, samples, tmp_path / "parts", chunk=chunk)
    assert np.abs(whole.full - parts.full).max() < 1e-5
    assert np.abs(whole.left - parts.left).max() < 1e-5


def test_a_finished_run_is_read_back_and_a_removed_part_is_trained_again(training, test, tmp_path):
    samples = np.array([1, 2, 3, 4])
    first = leave_one_out(recipe(), training, test, samples, tmp_path / "run", chunk=2)
    assert sorted(p.name for p in (tmp_path / "run").glob("models*")) == [
        "models_00000-00001.safetensors",
        "models_00002-00003.safetensors",
        "models_00004-00004.safetensors",
    ]
    notes = []
    (tmp_path / "run" / "models_00002-00003.safetensors").unlink()
    again = leave_one_out(recipe(), training, test, samples, tmp_path / "run", chunk=1, report=notes.append)
    assert "(2 to train, 1 at once)" in notes[0]["note"]
    assert np.array_equal(first.full, again.full)
    assert np.abs(first.left - again.left).max() < 1e-5


def test_another_runs_folder_is_refused_and_says_where_it_differs(training, test, tmp_path):
    leave_one_out(recipe(), training, test, np.array([1]), tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()}
    with pytest.raises(RecipeError, match=r"holds another run \(it differs in seed\); nothing was overwritten"):
        leave_one_out(recipe(seed=2), training, test, np.array([1]), tmp_path / "run")
    with pytest.raises(RecipeError, match=r"differs in samples"):
        leave_one_out(recipe(), training, test, np.array([2]), tmp_path / "run")
    with pytest.raises(RecipeError, match="holds no run"):
        train(recipe(), tmp_path / "run", dataset=training)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()} == before


def test_a_start_that_was_trained_again_is_another_start(training, test, tmp_path):
    source = tmp_path / "source"
    chosen = recipe("static_augmentation", start=str(source), options={"steps": 2})
    train(recipe(architecture="small_cnn"), source, dataset=training)
    leave_one_out(chosen, training, test, np.array([5]), tmp_path / "run")
    shutil.rmtree(source)
    train(recipe(architecture="small_cnn", seed=3), source, dataset=training)
    with pytest.raises(RecipeError, match=r"holds another run \(it differs in start_sha256\)"):
        leave_one_out(chosen, training, test, np.array([5]), tmp_path / "run")


@pytest.mark.parametrize("damage", [b"", b"not weights"])
def test_a_damaged_part_is_one_clear_line(damage, training, test, tmp_path):
    leave_one_out(recipe(), training, test, np.array([1]), tmp_path / "run")
    (path,) = (tmp_path / "run").glob("models*")
    path.write_bytes(damage)
    with pytest.raises(RecipeError, match="remove it to train those models again"):
        leave_one_out(recipe(), training, test, np.array([1]), tmp_path / "run")


@pytest.mark.parametrize("damage", ["a flipped bit", "a file of other models"])
def test_a_part_that_is_not_what_was_written_is_refused(damage, training, test, tmp_path):
    samples = np.array([1, 2, 3])
    leave_one_out(recipe(), training, test, samples, tmp_path / "run", chunk=1)
    path, other = ((tmp_path / "run") / f"models_0000{n}-0000{n}.safetensors" for n in (2, 3))
    held = bytearray(path.read_bytes())
    held[-100] ^= 1
    path.write_bytes(bytes(held) if damage == "a flipped bit" else other.read_bytes())
    with pytest.raises(RecipeError, match="remove it to train those models again"):
        leave_one_out(recipe(), training, test, samples, tmp_path / "run", chunk=1)


def test_a_killed_run_goes_on_within_a_chunk_to_the_same_bytes(training, test, tmp_path):
    whole = leave_one_out(recipe(**LONG), training, test, np.array([1, 2, 3]), tmp_path / "whole", chunk=2)
    script = textwrap.dedent(
        f"""
        import numpy as np
        from fairbench import load_dataset
        from fairbench.training import Recipe, leave_one_out as module
        module._SAVE_EVERY = 0.0
        data, test = (load_dataset("digits", s).subset(np.arange(n)) for s, n in (("train", 110), ("test", 40)))
        recipe = Recipe.model_validate_json({recipe(**LONG).model_dump_json()!r})
        module.leave_one_out(recipe, data, test, np.array([1, 2, 3]), {str(tmp_path / "run")!r}, chunk=2)
        """
    )
    state, first = tmp_path / "run" / "state.pt", tmp_path / "run" / "models_00000-00001.safetensors"
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + 120
        while not (first.exists() and state.exists()) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    finally:
        process.wait()
    assert first.exists()
    assert not (tmp_path / "run" / "models_00002-00003.safetensors").exists(), "it was not killed in between"
    epoch = torch.load(state, weights_only=True)["epoch"]
    assert 0 < epoch < 60
    reports = []
    again = leave_one_out(
        recipe(**LONG), training, test, np.array([1, 2, 3]), tmp_path / "run", chunk=2, report=reports.append
    )
    assert min(row["progress"] for row in reports if "progress" in row) >= 0.5 + 0.5 * epoch / 60 - 1e-9
    assert np.array_equal(again.full, whole.full)
    assert np.array_equal(again.left, whole.left)


LONG = {"schedule": {"name": "constant", "epochs": 60}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "bat"}, "--method bat: leaving one sample out takes standard, pgd_at, static_augmentation"),
        ({"method": "static_augmentation"}, "name one with --from"),
        ({"start": "x"}, "--from x: all models start from the same new weights"),
        ({"batch_size": 1}, "batch size 1: without its sample a batch would be empty"),
        ({"batch_size": 111}, "batch size 111 is larger than the 110 training images"),
        ({"ema": 0.9}, "ema 0.9: the leave-one-out ensemble trains without it"),
        ({"precision": "bf16"}, "precision bf16"),
        ({"validation_per_class": 5}, "validation_per_class 5: the leave-one-out ensemble trains without it"),
        ({"architecture": "resnet18"}, r"resnet18: layer \S+ \(BatchNorm2d\) cannot be computed for many models"),
        ({"architecture": "small_cnm"}, "Did you mean 'small_cnn'"),
        ({"optimizer": {"name": "sgd", "lr": 1e30}}, "the loss is not finite at epoch"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(changes, message, training, test, tmp_path):
    with pytest.raises(FairbenchError, match=message) as caught:
        leave_one_out(recipe(**changes), training, test, np.array([1]), tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [0, -1, 110, 1000])
def test_the_number_left_out_is_within_the_training_set(count, training):
    with pytest.raises(RecipeError, match=f"--leave-out {count}: give 1 to 109; digits has 110 training images"):
        draw_samples(training, count, seed=0)


def test_the_samples_are_drawn_with_the_seed(training):
    assert np.array_equal(draw_samples(training, 20, 0), draw_samples(training, 20, 0))
    assert not np.array_equal(draw_samples(training, 20, 0), draw_samples(training, 20, 1))
    assert len(np.unique(draw_samples(training, 109, 0))) == 109


class Bits(nn.Module):
    """What an ensemble must keep: strides, groups, no bias, a kernel as large as its input."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.grouped = nn.Conv2d(4, 8, 3, padding="same", groups=2)
        self.whole = nn.Conv2d(8, 5, 4)
        self.last = nn.Linear(5, 3, bias=False)

    def forward(self, x):
        return self.last(self.whole(torch.relu(self.grouped(self.first(x)))).flatten(1))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("models", [1, 3])
def test_an_ensemble_computes_what_its_networks_do(own, models):
    torch.manual_seed(0)
    ensemble = Ensemble(Bits(), models)
    for parameter in ensemble.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    x = torch.randn(models, 6, 2, 8, 8) if own else torch.randn(6, 2, 8, 8)
    found = ensemble(x.flatten(0, 1)).view(models, 6, 3) if own else ensemble.common(x)
    for model in range(models):
        one = Bits()
        one.load_state_dict(ensemble.state_of(model))
        assert torch.allclose(found[model], one(x[model] if own else x), atol=1e-6)


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(4), nn.LayerNorm(4), nn.Dropout(), nn.Conv1d(2, 2, 1), nn.LSTM(4, 4), nn.PReLU()]
)
def test_other_layers_are_refused(layer):
    with pytest.raises(ModelError, match=rf"net: layer 1 \({type(layer).__name__}\) cannot be computed"):
        Ensemble(nn.Sequential(nn.Linear(4, 4), layer), 2, "net")


def test_a_run_file_says_what_was_trained(training, test, tmp_path):
    leave_one_out(recipe(), training, test, np.array([4]), tmp_path / "run")
    identity = json.loads((tmp_path / "run" / "leave_one_out.json").read_text())
    assert identity["samples"] == [4]
    assert identity["data_sha256"] == training.sha256
    assert set(load_file(next((tmp_path / "run").glob("models*")))) == {"confidence", "seconds", "digest"}


OWN = """
from fairbench.training.methods.standard import Standard

class Mine(Standard):
    def loss(self, model, x, y):
        raise ValueError("never called")
"""


def test_a_method_that_inherits_a_name_has_a_loss_of_its_own_and_is_refused(training, test, tmp_path, monkeypatch):
    (tmp_path / "own_loss.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RecipeError, match=r"own_loss:Mine: leaving one sample out takes .*; a method of one's own has"):
        leave_one_out(recipe("own_loss:Mine"), training, test, np.array([3]), tmp_path / "run")


def test_an_epoch_that_is_a_part_of_a_pass_is_refused(training, test, tmp_path):
    chosen = recipe(schedule={"name": "cosine", "epochs": 2, "epochs_per_pass": 2})
    with pytest.raises(RecipeError, match=r"schedule.epochs_per_pass 2: an epoch of the leave-one-out"):
        leave_one_out(chosen, training, test, np.array([3]), tmp_path / "run")
