"""Model cards: plain data, checked, and bound to their weights by a hash."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fairbench.errors import FairbenchError, ModelError
from fairbench.files import data_folder
from fairbench.models import load_model, loading
from fairbench.models.cards import card_names, load_card, read_card
from fairbench.models.loading import own_dataset
from fairbench.models.weights import weights_path


def card(**changes: Any) -> dict[str, Any]:
    plain = load_card("natural_resnet18").model_dump(mode="json", exclude_none=True) | changes
    return {key: value for key, value in plain.items() if value is not None}


def write(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "card.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("name", card_names())
def test_every_card_of_the_zoo_is_whole_and_its_weights_are_the_ones_it_names(name: str) -> None:
    assert load_card(name).name == name
    assert weights_path(load_card(name)).is_file()


def test_a_card_survives_writing_and_reading(tmp_path: Path) -> None:
    assert read_card(write(tmp_path, card())) == load_card("natural_resnet18")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (card(licens="MIT"), "licens: Extra inputs are not permitted"),
        (card(weights={"file": "a", "sha256": "0" * 64, "mirror": "x"}), r"weights\.mirror: Extra inputs"),
        (card(weights={"file": "a", "sha256": "0" * 64, "url": "file:///a"}), r"weights\.url: String should match"),
        (
            card(weights={"package": "a", "path": "b", "sha256": "0" * 64, "url": "https://a.org/b"}),
            "an address goes with a file",
        ),
        (card(licence=None), "licence: Field required"),
        (card(num_classes=1), "num_classes: .*greater than or equal to 2"),
        (card(weights={"file": "../a.pt", "sha256": "0" * 64}), r"weights\.file: String should match"),
        (card(weights={"file": "/etc/passwd", "sha256": "0" * 64}), r"weights\.file: String should match"),
        (card(weights={"package": "a.b", "path": "x", "sha256": "0" * 64}), r"weights\.package: String should match"),
        (
            card(weights={"package": "a", "path": "x/../../y", "sha256": "0" * 64}),
            r"weights\.path: String should match",
        ),
        (card(weights={"sha256": "0" * 64}), "give a file, or a package"),
        (card(weights={"file": "a", "sha256": "abc"}), r"weights\.sha256"),
        (card(threat_model={"norm": "L7", "epsilon": 0.1}), r"threat_model\.norm"),
        (card(threat_model={"norm": "Linf", "epsilon": 8}), r"threat_model\.epsilon: .*less than or equal to 1"),
        ("name: [unclosed", "not readable YAML"),
        ("just text", "card"),
        ("", "card"),
        ("!!python/object/apply:os.system ['true']", "not readable YAML"),
    ],
)
def test_a_faulty_card_is_refused_by_its_first_fault(content: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ModelError, match=message) as caught:
        read_card(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("typed", ["natural_resnet", "natural-resnet18", "naturalresnet18", "Natural_ResNet18"])
def test_a_misspelt_model_gets_the_nearest(typed: str) -> None:
    with pytest.raises(ModelError, match=f"unknown model '{typed}'.*Did you mean 'natural_resnet18'"):
        load_model(typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("bat_lenet5", "Did you mean 'bat_lenet5_fashion_mnist'?"),  # not bat_resnet18, which is nearer by letters
        ("bat", "Did you mean 'bat_lenet5_fashion_mnist' or 'bat_resnet18'? `fairbench models` lists them."),
        ("zzz", "a model of the zoo. `fairbench models` lists them."),
    ],
)
def test_a_beginning_goes_before_what_is_alike_and_a_name_like_nothing_gets_the_command_that_lists(typed, said) -> None:
    with pytest.raises(ModelError) as caught:
        load_card(typed)
    assert str(caught.value).endswith(said)


def with_weights(**weights: str) -> Any:
    natural = load_card("natural_resnet18")
    return natural.model_copy(update={"weights": natural.weights.model_copy(update=weights)})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"sha256": "0" * 64}, r"model_test\.pt is not the file of its card \(SHA-256 differs\)"),
        ({"path": "examples/gone.pt"}, r"its weights file .*gone\.pt is missing"),
        ({"package": "a_package_nobody_has"}, "its weights come with the package a_package_nobody_has; install it"),
        (
            {"package": None, "file": "gone.safetensors"},
            r"its weights do not ship with the package, and its card has no address; put gone\.safetensors \(SHA-256 "
            r"[0-9a-f]{12}\.\.\.\) in \$FAIRBENCH_ZOO, or set that to model_zoo/weights of a clone",
        ),
    ],
)
def test_weights_other_than_the_cards_are_refused(weights: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError, match=f"natural_resnet18: .*{message}"):
        weights_path(with_weights(**weights))


def test_a_card_with_normalisation_puts_it_inside(monkeypatch: pytest.MonkeyPatch) -> None:

    natural = load_card("natural_resnet18")
    normalised = read_card(data_folder("model_zoo") / "cards" / "natural_resnet18.yaml").model_copy(
        update={
            "normalization": natural.model_validate(card(normalization={"mean": [0.5], "std": [2.0]})).normalization
        }
    )
    x = torch.rand(1, 3, 8, 8)
    with torch.no_grad():
        expected = load_model("natural_resnet18").module((x - 0.5) / 2)
        monkeypatch.setattr(loading, "load_card", lambda _name: normalised)
        assert torch.allclose(load_model("natural_resnet18").module(x), expected, atol=1e-5)


def test_a_model_of_the_zoo_knows_its_dataset_and_a_checkpoint_does_not(tmp_path: Path) -> None:
    assert own_dataset("natural_resnet18") == "cifar10"
    assert own_dataset("robustbench:Wong2020Fast") == "cifar10"
    checkpoint = tmp_path / "net.pt"
    checkpoint.touch()
    with pytest.raises(ModelError, match="a checkpoint does not say what it was trained on; pass --dataset"):
        own_dataset(str(checkpoint))


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
