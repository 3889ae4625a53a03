"""Checkpoints made by others, with values measured by others: an independent oracle for the whole path.

The expected numbers are those of the shared checkpoints' README: PGD-20 with a step of 2/255 on all 10,000
Fashion-MNIST test images; standard errors are exact, boundary and robust errors move by about 0.1 with the start.
"""

import pytest

from fairbench import Protocol, evaluate, load_dataset, load_model, summarize
from fairbench.leaderboard.results import read_result

TRUE_VALUES = {
    # checkpoint, 255 * epsilon: avg std, worst std, avg bndy, worst bndy, its class, avg rob, worst rob
    ("natural", 8): (11.56, 32.2, 42.11, 77.1, "Sneaker", 53.67, 96.3),
    ("natural", 16): (11.56, 32.2, 71.42, 96.4, "Sneaker", 82.98, 100.0),
    ("adversarial", 8): (13.32, 47.6, 10.66, 20.1, "Shirt", 23.98, 67.7),
    ("adversarial", 16): (13.32, 47.6, 25.77, 41.5, "Shirt", 39.09, 89.1),
}
ANOTHER_PROCESSOR = 10
"""Of 10,000 predictions under attack, those that the rounding of another processor may change."""
AUTOATTACK_BY_CLASS = (22, 4, 38, 20, 37, 7, 69, 16, 8, 9)


@pytest.mark.slow
@pytest.mark.parametrize(("checkpoint", "epsilon"), TRUE_VALUES)
def test_the_standard_protocol_reproduces_the_recorded_errors(shared, data_dir, tmp_path, checkpoint, epsilon):
    avg_std, worst_std, avg_bndy, worst_bndy, bndy_class, avg_rob, worst_rob = TRUE_VALUES[checkpoint, epsilon]
    model = load_model(shared / "checkpoints" / f"lenet5_fashion_{checkpoint}.pt", arch="lenet5")
    dataset = load_dataset("fashion_mnist", data_dir=data_dir("fashion_mnist"))
    protocol = Protocol.named("standard", epsilon=epsilon / 255)
    outcomes = evaluate(model, dataset, protocol, runs=tmp_path)
    found = summarize(outcomes).attacks["pgd20"]
    assert (found.n, round(found.avg_std, 2), round(found.worst_std, 1)) == (10_000, avg_std, worst_std)
    assert found.avg_bndy == pytest.approx(avg_bndy, abs=0.3)
    assert found.worst_bndy == pytest.approx(worst_bndy, abs=0.3)
    assert found.avg_rob == pytest.approx(avg_rob, abs=0.3)
    assert found.worst_rob == pytest.approx(worst_rob, abs=0.3)
    assert (found.worst_std_class, found.worst_bndy_class, found.worst_rob_class) == ("Shirt", bndy_class, "Shirt")
    kept = read_result(f"lenet5_fashion_{checkpoint}.standard{'' if epsilon == 8 else '.epsilon-16-255'}").frame
    assert outcomes.frame[["index", "label", "clean_pred"]].equals(kept[["index", "label", "clean_pred"]])
    differ = int((outcomes.frame["pgd20_pred"] != kept["pgd20_pred"]).sum())
    assert differ <= ANOTHER_PROCESSOR, f"{differ} predictions are not those of the kept result"


def test_the_sample_has_the_recorded_standard_errors(shared, tmp_path):
    model = load_model(shared / "checkpoints" / "lenet5_fashion_adversarial.pt")
    sample = load_dataset("fashion_mnist", "sample")
    found = summarize(evaluate(model, sample, runs=tmp_path)).attacks["pgd20"]
    assert (found.n, round(found.avg_std, 1), found.worst_std, found.worst_std_class) == (1000, 11.6, 43.0, "Shirt")
    assert found.avg_rob == pytest.approx(22.6, abs=0.5)


@pytest.mark.slow
def test_autoattack_breaks_what_the_authors_package_breaks(shared, tmp_path):
    """pyautoattack called plainly, seed 0, on the sample: avg 23.0; starts differ, so a verdict may."""
    model = load_model(shared / "checkpoints" / "lenet5_fashion_adversarial.pt")
    sample = load_dataset("fashion_mnist", "sample")
    protocol = Protocol.named("quick", attacks=("pgd20", "autoattack"))
    summary = summarize(evaluate(model, sample, protocol, runs=tmp_path, batch_size=500))
    found = summary.attacks["autoattack"]
    assert found.avg_rob == pytest.approx(23.0, abs=0.3)
    assert (found.worst_rob_class, found.worst_std) == ("Shirt", 43.0)
    by_class = found.classes["rob"].to_numpy()
    assert abs(by_class - AUTOATTACK_BY_CLASS).max() <= 1
    assert found.avg_rob >= summary.attacks["pgd20"].avg_rob - 0.3
