"""Evaluating a model for feature vectors: what is attacked, what is recorded, what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fairbench import load_dataset
from fairbench.errors import FairbenchError
from fairbench.evaluation import Protocol, evaluate
from fairbench.evaluation.runner import identify
from fairbench.leaderboard.results import result_name
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.reports.tables import headline


def by_age(data, sign: float = 1.0, names: tuple[str, ...] = ("age",)) -> nn.Module:
    """Class 1 from an age of 50.5 on; other features weigh as much but do not speak against it."""
    torch.manual_seed(0)
    model = nn.Linear(len(data.features.names), 2)
    weight = torch.tensor([float(name in names) for name in data.features.names])
    model.weight.data = 0.1 * torch.stack([torch.zeros_like(weight), sign * weight])  # small: softmax must not saturate
    model.bias.data = torch.tensor([0.0, -sign * 5.05])
    return model


@pytest.fixture
def adult(small_adult):
    return load_dataset("adult", data_dir=small_adult)


ADULT = Protocol.named("sooksatra2022")


def test_epsilon_is_on_the_scale_of_the_features(adult):
    ages = adult.inputs[:, 0]
    found = evaluate(by_age(adult), adult, ADULT)
    near = np.abs(ages - 50.5) < 10
    assert (found.frame["clean_pred"] == found.frame["label"]).all()
    assert np.array_equal((found.frame["pgd20_pred"] != found.frame["label"]).to_numpy(), near)
    assert found.manifest["attacks"]["pgd20"] | {"seed": 0} == found.manifest["attacks"]["pgd20"]
    recorded = found.manifest["attacks"]["pgd20"]
    assert (recorded["epsilon"], recorded["step"], recorded["scale"], recorded["range"]) == (10.0, 2.5, "raw", "none")
    assert found.manifest["dataset"]["features"][0] == "age"
    assert result_name(found.manifest) == "Linear.sooksatra2022"
    assert "epsilon" not in headline(summarize(found))


def test_what_is_protected_or_out_of_range_does_not_break_a_model(adult):
    protected = evaluate(by_age(adult), adult, Protocol.named("sooksatra2022", protect=("age",)))
    assert (protected.frame["pgd20_pred"] == protected.frame["label"]).all()
    assert protected.manifest["attacks"]["pgd20"]["protected"] == ["age"]
    words = by_age(adult, names=("age", "sex=Male"))
    numbers = evaluate(words, adult, Protocol.named("sooksatra2022", protect=("categorical",)))
    everything = evaluate(words, adult, ADULT)
    in_range = evaluate(words, adult, Protocol.named("sooksatra2022", in_range=True))
    robust = [summarize(found).attacks["pgd20"].avg_rob for found in (numbers, in_range, everything)]
    assert robust[0] < robust[1] < robust[2]
    assert result_name(in_range.manifest) == "Linear.sooksatra2022.in_range-True"


def test_rows_carry_attributes_and_confidences_and_come_back_from_a_file(adult, tmp_path):
    found = evaluate(by_age(adult), adult, ADULT)
    again = Outcomes.read(found.write(tmp_path / "out"))
    assert again.frame.equals(found.frame)
    assert again.frame["sex"].tolist() == adult.attributes["sex"].tolist()
    label = found.frame["label"]
    x = torch.from_numpy(adult.inputs)
    confidence = by_age(adult)(x).softmax(1)[torch.arange(len(label)), torch.from_numpy(adult.labels)]
    assert found.frame["clean_label_confidence"].to_numpy() == pytest.approx(confidence.detach().numpy(), abs=1e-6)
    assert (found.frame["pgd20_label_confidence"] <= found.frame["clean_label_confidence"] + 1e-6).all()


def test_images_without_attributes_have_the_columns_they_had(cache):
    digits = load_dataset("digits", "sample").first_per_class(2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    plain = evaluate(model, digits)
    assert not [column for column in plain.frame if "label_confidence" in column]
    grouped = replace(digits, attributes={"half": digits.index % 2})
    assert "pgd20_label_confidence" in evaluate(model, grouped).frame


def test_a_transfer_records_its_source_and_is_another_run(adult):
    source, model = by_age(adult), by_age(adult, names=("age", "sex=Male"))
    found = evaluate(model, adult, ADULT, transfer_from=source)
    assert found.manifest["transfer_from"]["name"] == "Linear"
    assert "pgd20_broken_at" not in found.frame
    assert result_name(found.manifest) == "Linear.sooksatra2022.transfer-Linear"
    assert "transfer: attacks made for Linear" in headline(summarize(found))
    assert identify(model, adult, ADULT, transfer_from=source) != identify(model, adult, ADULT)
    white_box = evaluate(model, adult, ADULT)
    assert summarize(found).attacks["pgd20"].avg_rob < summarize(white_box).attacks["pgd20"].avg_rob


def test_a_transfer_from_itself_is_the_white_box_reading(adult):
    model = by_age(adult)
    own, white_box = (evaluate(model, adult, ADULT, transfer_from=source) for source in (model, None))
    assert own.frame["pgd20_pred"].equals(white_box.frame["pgd20_pred"])


@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        ("quick", {}, "protocol quick attacks images, and adult holds features; take --protocol sooksatra2022"),
        ("sooksatra2022", {"epsilon": 0.0}, "greater than 0, in the unit of the features"),
        ("sooksatra2022", {"protect": ("sexe",)}, "Did you mean 'sex'"),
        ("quick", {"protect": ("sex",)}, "--protect and --in-range are for features"),
        ("quick", {"epsilon": 10.0}, "you mean 10/255"),
    ],
)
def test_a_protocol_that_does_not_fit_is_refused(adult, protocol, changes, message):
    with pytest.raises(FairbenchError, match=message):
        evaluate(by_age(adult), adult, Protocol.named(protocol, **changes))


def test_models_of_another_input_are_refused(adult):
    with pytest.raises(FairbenchError, match=r"Linear cannot take rows of 18 features: RuntimeError"):
        evaluate(nn.Linear(7, 2), adult, ADULT)
    with pytest.raises(FairbenchError, match=r"cannot take rows of 18 features"):
        evaluate(nn.Sequential(nn.Conv2d(1, 2, 3)), adult, ADULT)
    with pytest.raises(FairbenchError, match="searches the model itself"):
        evaluate(
            by_age(adult),
            adult,
            Protocol.named("sooksatra2022", attacks=("least-epsilon",)),
            transfer_from=by_age(adult),
        )
    digits = load_dataset("digits", "sample").first_per_class(2)
    with pytest.raises(FairbenchError, match="protocol sooksatra2022 attacks features, and digits holds images"):
        evaluate(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), replace(digits, split="test"), ADULT)


def test_least_epsilon_of_features_is_the_distance_to_the_boundary(adult):
    protocol = Protocol.named("sooksatra2022", attacks=("least-epsilon",))
    found = evaluate(by_age(adult), adult, protocol)
    distance = np.abs(adult.inputs[:, 0] - 50.5)
    assert found.frame["least-epsilon_epsilon"].to_numpy() == pytest.approx(np.ceil(distance))
