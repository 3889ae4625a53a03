"""RobustBench's models: a file already in its download folder needs no network."""

import contextlib
from pathlib import Path

import pytest
import torch

from fairbench.errors import FairbenchError, ModelError
from fairbench.models import load_model

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # what robustbench and its dependencies warn of when they are imported
    pytest.mark.usefixtures("no_network"),
]
ID = "Wong2020Fast"


@pytest.fixture
def weights(tmp_path: Path) -> dict[str, torch.Tensor]:
    """Random weights of a PreActResNet-18 where RobustBench would have downloaded the real ones."""
    with contextlib.suppress(ModelError):
        load_model("robustbench:none", model_dir=tmp_path)  # makes robustbench importable
    from robustbench.model_zoo.cifar10 import linf

    torch.manual_seed(0)
    state = linf[ID]["model"]().state_dict()
    folder = tmp_path / "zoo" / "cifar10" / "Linf"
    folder.mkdir(parents=True)
    torch.save({f"module.{key}": value for key, value in state.items()}, folder / f"{ID}.pt")
    return state


def test_a_file_in_the_download_folder_is_loaded_without_network(
    weights: dict[str, torch.Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load_model(f"robustbench:{ID}", model_dir=tmp_path / "zoo")
    assert (model.name, model.dataset) == (f"robustbench:{ID}", "cifar10")
    loaded = model.module.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in weights.items())
    assert not model.module.training
    with torch.no_grad():
        assert model.module(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert capsys.readouterr().out == ""


def test_the_default_folder_is_robustbenchs(
    weights: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zoo").rename(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    assert load_model(f"robustbench:{ID}").dataset == "cifar10"


def test_without_file_and_network_the_message_says_where_to_put_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError, match=f"robustbench:{ID} could not be loaded") as caught:
        load_model(f"robustbench:{ID}", model_dir=tmp_path / "new" / "er")
    assert f"Put its weights in {tmp_path / 'new' / 'er' / 'cifar10' / 'Linf' / f'{ID}.pt'}" in str(caught.value)
    assert not list(tmp_path.iterdir()), "no empty folders are left"
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("typed", ["Wong2020Fst", "wong2020Fast"])
def test_a_misspelt_id_gets_the_nearest(typed: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"no cifar10 Linf model '{typed}'. Did you mean '{ID}'"):
        load_model(f"robustbench:{typed}", model_dir=tmp_path)


def test_an_id_like_nothing_says_where_the_ids_are(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"It has \d+; see RobustBench's model table"):
        load_model("robustbench:zzz", model_dir=tmp_path)


def test_a_dataset_it_has_no_models_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="RobustBench models are for cifar10 or cifar100, not svhn"):
        load_model(f"robustbench:{ID}", dataset="svhn", model_dir=tmp_path)


def test_a_web_page_in_the_download_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cifar10" / "Linf" / f"{ID}.pt"
    file.parent.mkdir(parents=True)
    file.write_text("<html>Quota exceeded</html>")
    with pytest.raises(FairbenchError, match=f"{ID}.*web page"):
        load_model(f"robustbench:{ID}", model_dir=tmp_path)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"--arch goes with a checkpoint file; robustbench:{ID} brings its own"):
        load_model(f"robustbench:{ID}", arch="lenet5", model_dir=tmp_path)


@pytest.mark.parametrize("folder", ["svhn", "cifar100"])
def test_a_folder_called_like_a_dataset_does_not_change_which_model_is_meant(
    folder: str, weights: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    message = "are for cifar10 or cifar100, not svhn" if folder == "svhn" else f"no cifar100 Linf model '{ID}'"
    with pytest.raises(ModelError, match=message):
        load_model(f"robustbench:{ID}", dataset=folder, model_dir=tmp_path / "zoo")


def test_data_of_ones_own_are_for_the_cifar10_model(
    weights: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.npz").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (str(tmp_path / "mine.npz"), "~/mine.npz"):
        assert load_model(f"robustbench:{ID}", dataset=path, model_dir=tmp_path / "zoo").dataset == "cifar10"


@pytest.mark.parametrize(
    ("model_id", "advice"),
    [
        ("Chen2020Adversarial", r"Chen2020Adversarial\.pt_m0\.pt \(and so on up to Chen2020Adversarial\.pt_m2\.pt\)"),
        ("Debenedetti2022Light_XCiT-S12", "Its weights come from timm's hub: check the network"),
    ],
)
def test_of_ensembles_and_timms_models_the_message_says_what_they_need(
    model_id: str, advice: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=f"could not be loaded .*{advice}"):
        load_model(f"robustbench:{model_id}", model_dir=tmp_path)
    assert not list(tmp_path.iterdir())
