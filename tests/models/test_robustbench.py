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
