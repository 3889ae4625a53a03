"""``precision="bf16"``: gradients change, verdicts do not; the precision is part of a run's name."""

import numpy as np
import pytest
import torch
from torch import nn

from fairbench import Protocol, evaluate, load_dataset, summarize
from fairbench.attacks import ThreatModel
from fairbench.attacks import base as harness
from fairbench.attacks.autoattack import AutoAttack
from fairbench.attacks.pgd import PGDAttack
from fairbench.errors import ProtocolError
from fairbench.evaluation import runner
from fairbench.leaderboard.results import result_name
from fairbench.models.prepare import prepare
from fairbench.reports import tables

CHANGES = {"epsilon": 0.15, "step": 0.05, "steps": 5}
STANDARD = Protocol.named("standard", **CHANGES)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def network(width):
    """A small network, whose dense layer may be wide."""
    head = nn.Linear(288, width), nn.ReLU(), nn.Linear(width, 10)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), *head)


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    model = network(128)
    x, y, _ = load_dataset("digits", "train").batch(slice(None))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


def run(classifier, digits, folder, precision, **options):
    options.setdefault("protocol", STANDARD)
    return evaluate(
        classifier, digits, runs=folder, device="cpu", batch_size=120, **({"precision": precision} | options)
    )


def test_bf16_is_another_run_and_says_so_everywhere(classifier, digits, tmp_path):
    default = evaluate(classifier, digits, STANDARD, runs=tmp_path, device="cpu", batch_size=120)
    exact, half = (run(classifier, digits, tmp_path, precision) for precision in ("fp32", "bf16"))
    assert exact.manifest["run"] == default.manifest["run"] != half.manifest["run"]
    assert exact.manifest["precision"] == "float32"
    assert half.manifest["precision"] == "bfloat16"
    assert any(note.startswith("gradients in bf16") for note in half.manifest["notes"])
    assert tables.headline(summarize(half)).endswith("; gradients in bf16")
    assert "bf16" not in tables.headline(summarize(exact))
    assert summarize(half).to_dict()["precision"] == "bfloat16"
    assert "precision" not in summarize(exact).to_dict()
    assert result_name(half.manifest) == result_name(exact.manifest) + ".precision-bfloat16"


def test_a_narrow_network_is_evaluated_in_float32_and_its_manifest_says_that(digits, tmp_path):
    torch.manual_seed(0)
    narrow = network(16).eval()
    exact, asked = (run(narrow, digits, tmp_path, precision) for precision in ("fp32", "bf16"))
    assert asked.manifest["run"] == exact.manifest["run"]
    assert asked.manifest["precision"] == "float32"
    assert not any("bf16" in note for note in asked.manifest["notes"])


def test_clean_columns_are_the_same_and_attacks_about_as_strong(classifier, digits, tmp_path):
    protocol = Protocol.named(
        "standard", attacks=("pgd5", "least-epsilon"), max_epsilon=0.3, resolution=0.02, **CHANGES
    )
    exact, half = (
        run(classifier, digits, tmp_path, precision, protocol=protocol).frame for precision in ("fp32", "bf16")
    )
    assert exact["clean_pred"].equals(half["clean_pred"])
    assert exact["clean_confidence"].equals(half["clean_confidence"])
    broken = [(frame["pgd5_pred"] != frame["label"]).to_numpy(dtype=bool) for frame in (exact, half)]
    assert 20 < broken[0].sum() < 340
    assert (broken[0] != broken[1]).sum() <= 4
    levels = (exact["least-epsilon_epsilon"] - half["least-epsilon_epsilon"]).abs() / 0.02
    assert (levels > 0.5).mean() < 0.03


@pytest.mark.parametrize("attack", ["pgd20", "pgd20, any", "autoattack"])
def test_every_broken_row_is_one_that_the_float32_model_gets_wrong(attack, classifier, digits, monkeypatch):
    """Through the harness: what it scores is kept, and asked of the model itself once more."""
    sample = digits.first_per_class(2)
    x, y, index = sample.batch(slice(None))
    threat_model = ThreatModel(0.1)
    score = "any" if attack.endswith("any") else "last"
    made = AutoAttack(threat_model, 10) if attack == "autoattack" else PGDAttack(threat_model, 0.02, score=score)
    if attack == "autoattack":
        monkeypatch.setattr("fairbench.attacks.autoattack.QUERIES", 50)
        monkeypatch.setattr("fairbench.attacks.autoattack.ITERATIONS", 10)
    scored = []
    asked = harness.logits_of
    monkeypatch.setattr(harness, "logits_of", lambda m, x, *rest: scored.append((m, x)) or asked(m, x, *rest))
    prepared = prepare(classifier, x, "bf16").module
    batch = (x, y, index)
    found = harness.run_attack(made, classifier, prepared, batch, num_classes=10, tick=lambda _work: None)
    ((judge, adversarial),) = scored
    assert judge is classifier
    with torch.no_grad():
        predicted = classifier(adversarial).argmax(1).numpy()
    assert (found[f"{made.name}_pred"] == predicted).all()
    assert 0 < (predicted != y.numpy()).sum() < len(y)
    assert threat_model.contains(adversarial, x).all()


class Sure(nn.Module):
    """Always right, by its first pixel, which says the label."""

    def forward(self, x):
        return nn.functional.one_hot((x.flatten(1)[:, 0] > 0.5).long(), 2).float() + 0 * x.sum()


class Mistaken(nn.Module):
    """An attacked copy that believes every example broken."""

    def forward(self, x):
        return 1 - Sure()(x) + x.flatten(1)[:, 1:2] * torch.tensor([1e-3, 0.0])


@pytest.mark.parametrize("score", ["last", "any"])
def test_a_success_that_only_the_copy_sees_does_not_count(score):
    x = torch.tensor([[0.0, 0.5], [1.0, 0.5]]).view(2, 1, 1, 2)
    attack = PGDAttack(ThreatModel(0.1), 0.05, score=score, restarts=2)
    batch = (x, torch.tensor([0, 1]), np.arange(2))
    found = harness.run_attack(attack, Sure(), Mistaken(), batch, num_classes=2, tick=lambda _work: None)
    assert found["pgd20_pred"].tolist() == [0, 1]


def test_features_are_attacked_in_bf16_too(small_adult, tmp_path):
    data = load_dataset("adult", data_dir=small_adult)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(data.shape[0], 16), nn.Tanh(), nn.Linear(16, 2))
    found = evaluate(model, data, Protocol.named("sooksatra2022"), runs=tmp_path, precision="bf16", device="cpu")
    assert found.manifest["precision"] == "bfloat16"
    assert len(found) == len(data)


@pytest.mark.parametrize("call", [evaluate, runner.identify])
def test_an_unknown_precision_is_one_clear_line(call, classifier, digits):
    with pytest.raises(ProtocolError, match="unknown precision"):
        call(classifier, digits, STANDARD, precision="bf61")
