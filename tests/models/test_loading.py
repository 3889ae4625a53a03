"""``load_model`` on checkpoints: architectures found or named, normalisation and outputs, and what does not fit."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fairbench.errors import CheckpointError, FairbenchError, ModelError
from fairbench.models import load_model
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.base import as_model

NETS = """
import warnings

import torch
from torch import nn


class Two(nn.Module):
    def __init__(self, kind="tuple", num_classes=3):
        super().__init__()
        self.kind = kind
        self.fc = nn.Linear(4, num_classes)
        self.projection = nn.Linear(4, 7)

    def forward(self, x):
        x = x.flatten(1)
        logits, features = self.fc(x), self.projection(x)
        return {"tuple": (logits, features), "list": [features, logits],
                "dict": {"logits": logits, "features": features}}[self.kind]


def build(num_classes, in_channels, shape):
    assert shape == (in_channels, 2, 2)
    return nn.Sequential(nn.Flatten(), nn.Linear(4 * in_channels, num_classes))


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def sized():
    return plain()


sized.input_size = (2, 2)


def as_tuple():
    return Two("tuple")


def as_list():
    return Two("list")


def as_dict():
    return Two("dict")


def no_module():
    return "a string"


def deep(depth):
    return plain()


def broken():
    raise ValueError("no such depth")


def leaves():
    raise SystemExit(7)


def script():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated
        return torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), torch.zeros(1, 1, 2, 2))


def meta():
    with torch.device("meta"):
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


number = 3
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own module, in the folder the command is run from."""
    (tmp_path / "users_nets.py").write_text(NETS)
    (tmp_path / "broken_nets.py").write_text("import a_package_nobody_has")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("users_nets", "broken_nets"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def save(name: str, **arguments: Any) -> Path:
    """Save a built-in architecture with random weights."""
    torch.manual_seed(0)
    path = Path(f"{name}.pt").absolute()
    torch.save(ARCHITECTURES[name].build(**arguments).state_dict(), path)
    return path


def save_linear(**renamed: str) -> Path:
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).state_dict(), "linear.pt")
    return Path("linear.pt").absolute()


def save_two() -> Path:
    torch.manual_seed(0)
    fc, projection = nn.Linear(4, 3), nn.Linear(4, 7)
    state = {f"fc.{k}": v for k, v in fc.state_dict().items()}
    torch.save(state | {f"projection.{k}": v for k, v in projection.state_dict().items()}, "two.pt")
    return Path("two.pt").absolute()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("small_cnn", {"num_classes": 2, "in_channels": 1}),
        ("mlp", {"num_classes": 4, "in_features": 6, "width": 5}),
        ("resnet18", {"num_classes": 3, "in_channels": 1}),
        ("preact_resnet18", {"num_classes": 3, "in_channels": 3}),
    ],
)
def test_a_built_in_architecture_is_recognised_and_said(name: str, arguments: dict[str, Any]) -> None:
    path = save(name, **arguments)
    model = load_model(path, num_classes=arguments["num_classes"])
    assert model.architecture == name
    assert model.name == name
    assert model.notes == (f"architecture {name} recognised by its weights",)
    assert not model.module.training
    assert all(torch.equal(model.module.state_dict()[key], value) for key, value in torch.load(path).items())


def test_old_checkpoints_without_batch_counters_fit() -> None:
    path = save("resnet18", num_classes=2)
    state = {key: value for key, value in torch.load(path).items() if not key.endswith("num_batches_tracked")}
    torch.save(state, path)
    assert load_model(path).architecture == "resnet18"


def test_the_hash_is_of_the_weights_not_of_the_file() -> None:
    path = save("mlp", num_classes=3, in_features=4, width=5)
    save_file(torch.load(path), "mlp.safetensors")
    model = load_model(path)
    assert load_model("mlp.safetensors").sha256 == model.sha256
    assert load_model(path, mean=(0.5,), std=(0.5,)).sha256 != model.sha256


def test_weights_for_another_architecture_say_which_keys_and_what_they_fit() -> None:
    with pytest.raises(CheckpointError) as caught:
        load_model(save("small_cnn"), arch="resnet18")
    message = str(caught.value)
    found = re.search(r"does not fit resnet18: missing: (.*); unexpected: (.*)\. It fits small_cnn: pass", message)
    assert found is not None
    for listed in found.groups():
        keys, _, rest = listed.partition(" and ")
        assert len(keys.split(", ")) == 5
        assert re.fullmatch(r"\d+ more", rest)
    assert "conv1.weight" in found[1]
    assert "features.0.weight" in found[2]
    assert message.endswith("--arch small_cnn.")


def test_keys_of_another_shape_are_named_with_both_shapes() -> None:
    path = save_linear()
    state = torch.load(path)
    torch.save({key: torch.cat([value, value]) for key, value in state.items()}, path)
    with pytest.raises(CheckpointError, match=r"of another shape: 1\.weight \(6, 4\) instead of \(3, 4\), 1\.bias"):
        load_model(path, arch="users_nets:plain")


def test_weights_that_fit_nothing_say_so() -> None:
    with pytest.raises(CheckpointError, match="fits no built-in architecture; say which with --arch"):
        load_model(save_linear())
    with pytest.raises(CheckpointError, match="It fits no built-in architecture"):
        load_model(save_linear(), arch="lenet5")


def test_a_wrong_class_count_is_refused() -> None:
    with pytest.raises(ModelError, match="has 10 outputs, but the dataset has 4 classes"):
        load_model(save("small_cnn", num_classes=10), num_classes=4)
    with pytest.raises(ModelError, match="natural_resnet18 has 10 outputs, but the dataset has 100 classes"):
        load_model("natural_resnet18", num_classes=100)


def test_a_misspelt_architecture_gets_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"unknown architecture 'smal_cnn'\. Did you mean 'small_cnn'"):
        load_model(save("small_cnn"), arch="smal_cnn")


def test_an_architecture_beside_a_model_of_the_zoo_is_not_ignored_in_silence() -> None:
    with pytest.raises(FairbenchError, match="arch"):
        load_model("natural_resnet18", arch="lenet5")


@pytest.mark.parametrize("name", ["plain", "build"])
def test_ones_own_function_builds_the_module(name: str) -> None:
    path = save_linear()
    model = load_model(path, arch=f"users_nets:{name}", num_classes=3, shape=(1, 2, 2))
    x = torch.rand(5, 1, 2, 2)
    weights = torch.load(path)
    assert torch.allclose(model.module(x), x.flatten(1) @ weights["1.weight"].T + weights["1.bias"])
    assert model.architecture == f"users_nets:{name}"
    assert model.input_size is None


def test_ones_own_function_may_demand_a_size() -> None:
    assert load_model(save_linear(), arch="users_nets:sized").input_size == (2, 2)
    assert load_model(save_linear(), arch="users_nets:sized", input_size=(4, 1)).input_size == (4, 1)


@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("users_nets:bild", r"has no function or class 'bild'\. Did you mean 'build'\?"),
        ("users_nets:number", "has no function or class 'number'"),
        ("users_nets:no_module", r"returned a str, not a torch\.nn\.Module"),
        ("users_nets:broken", "building it raised ValueError: no such depth"),
        (
            "users_nets:build",
            "it needs num_classes, in_channels, shape of the data: pass num_classes= and shape= to",
        ),
        ("users_nets:deep", "it needs depth, and only num_classes, in_channels, shape can be given to it; give"),
        ("users_nets:leaves", "building it raised SystemExit: 7"),
        ("users_nets:script", "returned a TorchScript module"),
        ("users_nets:meta", "weights on the meta device"),
        ("nowhere_nets:build", "there is no module 'nowhere_nets' in the current folder /"),
        ("users_nets.py:build", "a module is named with dots: write users_nets:build"),
        ("./users_nets.py:build", "a module is named with dots: write users_nets:build"),
        ("broken_nets:build", "importing 'broken_nets' raised ModuleNotFoundError: .*a_package_nobody_has"),
        (":build", "arch"),
        ("users_nets:", "arch"),
    ],
)
def test_what_is_wrong_with_ones_own_function_is_said(arch: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(save_linear(), arch=arch)
    assert arch in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("users_nets", "users_nets:FUNCTION"),
        ("users_nets.py", "users_nets:FUNCTION"),
        ("users_nets.build", "users_nets:build"),
        ("elsewhere.nets", "elsewhere.nets:FUNCTION"),
        ("elsewhere.nets.Net", "elsewhere.nets:Net"),
        ("elsewhere/nets.py", "elsewhere.nets:FUNCTION"),
    ],
)
def test_ones_own_code_without_its_colon_is_spelled(typed: str, meant: str) -> None:
    with pytest.raises(ModelError, match=f"One's own is '{meant}'"):
        load_model(save_linear(), arch=typed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "net.pt", "arch": nn.Linear}, r"arch='torch\.nn\.modules\.linear:Linear', not Linear itself"),
        ({"name": "net.pt", "arch": nn.Linear(2, 2)}, r"arch='package\.module:function', not a Linear"),
        ({"name": nn.Linear(2, 2)}, "not a Linear; a network of your own goes to evaluate"),
    ],
)
def test_code_where_its_name_belongs_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(**arguments)


def test_torchvision_architectures_fit_the_class_count() -> None:
    from torchvision.models import squeezenet1_1

    torch.save(squeezenet1_1(num_classes=6).state_dict(), "squeeze.pt")
    model = load_model("squeeze.pt", arch="torchvision:squeezenet1_1", num_classes=6, shape=(3, 64, 64))
    with torch.no_grad():
        assert model.module(torch.rand(2, 3, 64, 64)).shape == (2, 6)
    with pytest.raises(CheckpointError, match=r"of another shape: classifier\.1\.weight"):
        load_model("squeeze.pt", arch="torchvision:squeezenet1_1", num_classes=5)


def test_a_misspelt_torchvision_model_gets_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"torchvision has no model 'resnet_50'\. Did you mean 'resnet50'"):
        load_model(save_linear(), arch="torchvision:resnet_50")


@pytest.mark.parametrize(
    ("kind", "output"), [("as_tuple", "0"), ("as_tuple", 0), ("as_list", "-1"), ("as_dict", "logits")]
)
def test_an_output_is_picked(kind: str, output: str | int) -> None:
    path = save_two()
    model = load_model(path, arch=f"users_nets:{kind}", output=output, num_classes=3)
    x = torch.rand(5, 1, 2, 2)
    weights = torch.load(path)
    assert torch.allclose(model.module(x), x.flatten(1) @ weights["fc.weight"].T + weights["fc.bias"])


@pytest.mark.parametrize(
    ("kind", "output", "message"),
    [
        ("as_tuple", "2", r"--output 2: the model returns a tuple of 2 \(\(5, 3\), \(5, 7\)\)"),
        ("as_tuple", "logits", "--output logits: the model returns a tuple of 2"),
        ("as_dict", "logit", "--output logit: the model returns a dict with logits, features"),
    ],
)
def test_an_output_that_is_not_there_says_what_is(kind: str, output: str, message: str) -> None:
    model = load_model(save_two(), arch=f"users_nets:{kind}", output=output)
    with pytest.raises(ModelError, match=message):
        model.module(torch.rand(5, 1, 2, 2))


def test_an_output_of_a_model_with_one_is_refused() -> None:
    model = load_model(save_linear(), arch="users_nets:plain", output="0")
    with pytest.raises(ModelError, match=r"one tensor of shape \(5, 3\); leave --output away"):
        model.module(torch.rand(5, 1, 2, 2))


def test_normalisation_is_a_layer_inside() -> None:
    path = save("small_cnn", num_classes=2)
    x = torch.rand(4, 3, 8, 8)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.25, 2.0])
    plain, inside = load_model(path), load_model(path, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    with torch.no_grad():
        expected = plain.module((x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1))
        assert torch.allclose(inside.module(x), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), None, "--mean and --std go together"),
        (None, (0.5,), "--mean and --std go together"),
        ((0.5, 0.5, 0.5), (0.5,), "--mean has 3 values and --std has 1"),
        ((0.5,), (0.0,), "--std 0.0: every value must be greater than 0"),
        ((0.5,), (-1.0,), "every value must be greater than 0"),
        ((0.5,), (float("nan"),), "std"),
        ((float("nan"),), (0.5,), "mean"),
    ],
)
def test_unusable_normalisation_is_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(save("small_cnn", in_channels=1), mean=mean, std=std)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"checkpoint nowhere\.pt does not exist"):
        load_model("nowhere.pt")


def test_a_plain_module_is_a_model_and_anything_else_is_not() -> None:
    assert as_model(nn.Linear(2, 2), "mine").name == "mine"
    with pytest.raises(ModelError, match=r"a model is a torch\.nn\.Module or what load_model returns, not str"):
        as_model("natural_resnet18")  # type: ignore[arg-type]


def test_another_forward_is_another_code_hash() -> None:
    one, two = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert as_model(one).code_sha256 == as_model(nn.Sequential(nn.Linear(2, 2))).code_sha256
    assert as_model(one).code_sha256 != as_model(two).code_sha256
