"""What a review broke once: each case keeps the right answer."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fairbench import Outcomes, Protocol, evaluate, load_dataset, load_model, summarize
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, ModelError, OutcomesError, ProtocolError
from fairbench.evaluation import diagnostics
from fairbench.evaluation.protocol import parse_fraction
from fairbench.evaluation.runner import identify
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.base import as_model
from fairbench.models.folding import Folded

STANDARD = Protocol.named("standard", steps=2)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


class Shifted(nn.Module):
    """A forward that depends on a plain tensor, a list, a hook or a buffer that is not saved."""

    def __init__(self, how, shift):
        super().__init__()
        self.inner = linear()
        self.how = "any"
        self.shift = torch.tensor(0.0)
        self.settings = [0.0]
        if how == "tensor":
            self.shift = torch.tensor(shift)
        elif how == "list":
            self.settings = [shift]
        elif how == "buffer":
            del self.shift
            self.register_buffer("shift", torch.tensor(shift), persistent=False)
        elif how == "hook":
            self.inner.register_forward_pre_hook(lambda _m, inputs: (inputs[0] + shift,))

    def forward(self, x):
        return self.inner((x + self.shift + self.settings[0]) ** 2)


@pytest.mark.parametrize("how", ["tensor", "list", "buffer", "hook"])
def test_models_that_answer_otherwise_are_never_the_same_run(how, digits, tmp_path):
    found = [evaluate(Shifted(how, shift), digits, STANDARD, runs=tmp_path) for shift in (0.0, 0.7)]
    assert found[0].manifest["run"] != found[1].manifest["run"]
    x, _, _ = digits.batch(slice(None))
    for outcomes, shift in zip(found, (0.0, 0.7), strict=True):
        expected = Shifted(how, shift)(x).argmax(1).numpy()
        assert (outcomes.frame["clean_pred"].to_numpy() == expected).all()


def test_a_table_with_a_flipped_bit_is_not_read(digits, tmp_path):
    outcomes = evaluate(linear(), digits, STANDARD, runs=tmp_path)
    path = next(tmp_path.glob("*/outcomes.parquet"))
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for position in generator.integers(4, len(whole) - 4, size=60):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged)
        try:
            frame = Outcomes.read(path.parent).frame
        except OutcomesError:
            continue
        pd.testing.assert_frame_equal(frame, outcomes.frame)
    again = evaluate(linear(), digits, STANDARD, runs=tmp_path)
    pd.testing.assert_frame_equal(again.frame, outcomes.frame)


def test_training_images_are_not_reported_as_test_images(tmp_path):
    with pytest.raises(ProtocolError, match="of the train split"):
        evaluate(linear(), load_dataset("digits", "train"), STANDARD, runs=tmp_path)


def test_a_layer_that_uses_statistics_of_the_batch_is_noticed(digits):
    model = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), linear()).eval()
    x, y, index = digits.batch(slice(0, 100))
    x = torch.cat([x[:50] * 0.2, x[50:]])  # halves of other brightness than the whole
    found = diagnostics.check_model(model, (x, y, index), 10)
    assert any("change with the batch an example rides in" in warning for warning in found)


def test_a_forward_that_fails_later_is_one_clear_error(digits, tmp_path):
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = linear(), 0

        def forward(self, x):
            if float(x[0].detach().sum()) == last:
                raise ZeroDivisionError("odd image")
            return self.inner(x)

    last = float(digits.batch(slice(300, 360))[0][0].sum())
    with pytest.raises(FairbenchError, match=r"failed on shard 5 .*ZeroDivisionError: odd image"):
        evaluate(Fails(), digits, STANDARD, runs=tmp_path, batch_size=60)


def test_the_worst_class_lies_in_its_own_interval():
    label = np.repeat(np.arange(10), 100)
    wrong = np.tile(np.arange(100) < 50, 10)
    frame = pd.DataFrame({"index": range(1000), "label": label})
    frame["clean_pred"] = frame["pgd20_pred"] = np.where(wrong, (label + 1) % 10, label)
    found = summarize(Outcomes(frame, {"dataset": {"classes": [str(c) for c in range(10)]}})).attacks["pgd20"]
    for name in ("worst_std", "worst_rob", "cau", "cru_s"):
        low, high = found.intervals[name]
        assert low <= getattr(found, name) <= high


def test_shared_weights_are_not_folded_into_each_other():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2 = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
            self.c2.weight = self.c1.weight
            self.b1, self.b2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.b2(self.c2(self.b1(self.c1(x))))

    torch.manual_seed(0)
    model = Tied()
    for norm in (model.b1, model.b2):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = torch.rand(2, 4, 8, 8)
    with torch.no_grad():
        assert torch.allclose(Folded(model.eval()).module(x), model(x), atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "preact_resnet18"])
def test_the_folded_copy_has_the_gradients_of_the_original(name):
    torch.manual_seed(0)
    model = ARCHITECTURES[name].build().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
    x = torch.rand(4, 3, 16, 16)
    gradients = []
    for candidate in (model, Folded(model).module):
        inputs = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(candidate(inputs).square().sum(), inputs)
        gradients.append(gradient)
    assert torch.allclose(*gradients, rtol=1e-3, atol=1e-5 * float(gradients[0].abs().max()))


@pytest.mark.parametrize(
    ("name", "message"),
    [("architecture: evil:build", "runs no code"), ("architecture: os:abort", "runs no code")],
)
def test_a_card_in_a_folder_runs_no_code(name, message, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\ndef build(): ...\n")
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"x")
    (tmp_path / "card.yaml").write_text(
        f"name: m\ntitle: m\n{name}\ndataset: digits\nnum_classes: 10\nmethod: standard\n"
        f"weights: {{file: w.safetensors, sha256: '{'0' * 64}'}}\nthreat_model: {{norm: none, epsilon: 0}}\n"
        "provenance: x\nlicence: x\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FairbenchError, match=message):
        load_model(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_folder_does_not_shadow_a_model_of_the_zoo(tmp_path, monkeypatch):
    (tmp_path / "natural_resnet18").mkdir()
    (tmp_path / "natural_resnet18" / "card.yaml").write_text("name: other")
    monkeypatch.chdir(tmp_path)
    assert load_model("natural_resnet18").architecture == "resnet18"


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999", "9" * 5000])
def test_an_absurd_number_does_not_hang(text):
    with pytest.raises(ProtocolError):
        Protocol.named("quick", epsilon=parse_fraction(text, "--epsilon"))


@pytest.mark.parametrize("attack", ["pgd02", "pgd٢", "pgd" + "9" * 5000])
def test_a_number_of_steps_has_one_spelling(attack):
    with pytest.raises(ProtocolError):
        Protocol.named("quick", attacks=(attack,))


class FarApart(nn.Module):
    """Two classes that change places where every pixel has moved by 0.29 in its direction."""

    def forward(self, x):
        score = x.flatten(1).mean(1) - 0.5
        return torch.stack((-score, score), 1)


def test_pgd_reaches_the_border_of_a_large_ball():
    inputs = np.full((40, 1, 4, 4), 0.5 + 0.29, dtype=np.float32)
    inputs[::2] = 0.5 - 0.29
    data = Dataset("far", inputs, np.arange(40) % 2, ("low", "high"))
    found = summarize(evaluate(FarApart(), data, Protocol.named("standard", epsilon=0.3))).attacks["pgd20"]
    assert (found.avg_std, found.avg_rob) == (0.0, 100.0)


class Rounded(torch.autograd.Function):
    """Rounds to tenths, and passes the gradient on or not."""

    passes = False

    @staticmethod
    def forward(ctx, x):
        return (10 * x).round() / 10

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0] if Rounded.passes else torch.zeros_like(gradients[0])


class Coarse(nn.Module):
    """What its logits are does not depend on what :class:`Rounded` passes back."""

    def __init__(self):
        super().__init__()
        self.inner = linear()

    def forward(self, x):
        return self.inner(Rounded.apply(x))


def test_a_change_of_gradients_alone_is_another_run(digits, monkeypatch):
    model, chosen = Coarse(), Protocol.named("standard", epsilon=0.1, steps=3)
    masked = evaluate(model, digits, chosen)
    assert evaluate(model, digits, chosen).manifest["run"] == masked.manifest["run"]
    monkeypatch.setattr(Rounded, "passes", True)
    straight_through = evaluate(model, digits, chosen)
    assert straight_through.manifest["run"] != masked.manifest["run"]
    before, after = (summarize(found).attacks["pgd3"].avg_rob for found in (masked, straight_through))
    assert after > before


def test_a_model_that_was_trained_on_is_another_run_also_as_a_source(digits):
    model, source = as_model(linear(), "target"), as_model(linear(), "source")
    chosen = Protocol.named("standard", steps=2)
    asked = {"transfer_from": source}
    before, alone = identify(model, digits, chosen, **asked), identify(source, digits, chosen)
    hashed = source.sha256
    with torch.no_grad():
        source.module[1].weight.neg_()
    assert source.sha256 != hashed
    assert identify(model, digits, chosen, **asked) != before
    assert identify(source, digits, chosen) != alone


def test_what_a_source_says_counts_where_no_look_at_its_code_tells(digits):
    model, chosen = as_model(linear(), "target"), Protocol.named("standard", steps=2)
    runs = {identify(model, digits, chosen, transfer_from=Shifted("list", shift)) for shift in (0.0, 3.0)}
    assert len(runs) == 2


@pytest.mark.parametrize("attack", ["least-steps", "least-epsilon"])
def test_a_search_of_a_model_is_not_transferred(digits, attack):
    with pytest.raises(ProtocolError, match=f"{attack} searches the model itself"):
        evaluate(linear(), digits, Protocol.named("standard", attacks=(attack,)), transfer_from=linear())


def test_a_layer_that_computes_its_weight_anew_cannot_be_copied_and_it_is_said(digits):
    with pytest.warns(FutureWarning):
        model = nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(64, 10)))
    with pytest.raises(ModelError, match=r"Sequential cannot be copied: .*torch\.nn\.utils\.parametrizations"):
        evaluate(model, digits, STANDARD)


MATMUL = """
import torch
from fairbench.evaluation.device import exact

def state():
    known = [getattr(torch.backends.cuda.matmul, "fp32_precision", None)]
    known += [getattr(torch.backends.mkldnn.matmul, "fp32_precision", None)] if known[0] else []
    try:
        return [*known, torch.get_float32_matmul_precision()]
    except RuntimeError:
        return known

{settings}
before = state()
with exact():
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
assert state() == before, (before, state())
"""


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "torch.set_float32_matmul_precision('high')",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    ],
)
def test_matrices_are_multiplied_in_float32_proper_whatever_the_caller_has_set(settings):
    """In a process of its own: torch keeps some of these for good."""
    if "fp32" in settings and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip(f"torch {torch.__version__} has no such setting")
    subprocess.run([sys.executable, "-c", MATMUL.format(settings=settings)], check=True, timeout=300)


def test_writing_into_what_a_pooling_layer_returns_is_allowed(digits):
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(128, 10))
    found = evaluate(nn.Sequential(*layers), digits, STANDARD)
    assert found.manifest["warnings"] == [w for w in found.manifest["warnings"] if "copy" not in w]
