"""``fairbench bench``: what it prints, keeps and refuses; its measurements are tested in tests/evaluation."""

import json

import pytest

from fairbench.cli.bench import duration
from fairbench.evaluation import costs, speed
from fairbench.evaluation.costs import Work
from fairbench.evaluation.speed import BatchSpeed, Rate
from fairbench.leaderboard.results import result_names


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing is measured or counted but what PGD-20 leaves: that takes seconds, and has tests of its own."""
    rates = Rate(2e5, 1e5, 3e5, 3), Rate(1e5, 0.5e5, 2e5, 3)
    monkeypatch.setattr(speed, "measure_batch", lambda _module, x, _y, budget: BatchSpeed(len(x), *rates, 10**9))
    works = {"apgd-ce": Work(101, 101), "apgd-t": Work(918, 909), "fab-t": Work(1818, 900), "square": Work(5001, 0)}
    monkeypatch.setattr(costs, "autoattack_work", lambda *_, **__: works)
    monkeypatch.setattr(speed, "peak", lambda *_, **__: dict.fromkeys(speed.PEAKS, 1e12))


def test_a_checkpoint(cli, checkpoint, tmp_path):
    ran = cli(
        "bench", "--model", checkpoint, "--dataset", "digits", "--seconds", 1, "--out", tmp_path / "new" / "b.json"
    )
    assert ran.code == 0, ran.err
    assert "peak, GFLOP/s" in ran.out
    assert "the best batch size: --batch-size 16 " in ran.out
    assert "200,000 [100,000, 300,000]" in ran.out
    assert "PGD-20 on 200 examples, measured now" in ran.out
    found = json.loads((tmp_path / "new" / "b.json").read_text())
    assert list(found["forecasts"]) == ["quick", "standard", "leaderboard"]
    assert [cost["attack"] for cost in found["forecasts"]["leaderboard"]] == ["clean", "pgd20", "autoattack"]
    assert all(cost["seconds"] > 0 for costs in found["forecasts"].values() for cost in costs)
    assert found["peak"] == {"float32": 1e12, "bfloat16": 1e12}
    assert 0 <= found["survivors"]["withstanding"] <= found["survivors"]["correct"] <= 1


def test_json_is_one_document(cli, checkpoint):
    ran = cli("bench", "--model", checkpoint, "--dataset", "digits", "--seconds", 1, "--survivors", 30, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["survivors"] == {
        "correct": 0.8, "withstanding": 0.3, "source": "as given with --survivors"
    }  # fmt: skip


def test_fresh_weights_of_an_architecture(cli):
    ran = cli("bench", "--arch", "lenet5", "--dataset", "fashion_mnist", "--seconds", 1)
    assert ran.code == 0, ran.err
    assert "lenet5, fresh weights" in ran.out
    assert "assumed, for it was not measured" in ran.out
    assert "1x32x32" in ran.out


def test_the_kept_result_with_the_most_examples_says_how_many_survive(cli):
    name = "pgd_at_lenet5_fashion_mnist"
    assert {f"{name}.leaderboard", f"{name}.quick.attacks-pgd20-autoattack"} <= {*result_names()}
    ran = cli("bench", "--model", name, "--seconds", 1)
    assert ran.code == 0, ran.err
    assert f"the kept result {name}.leaderboard, 10000 examples" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", 0], "--seconds 0: give 1 to 3,600"),
        (["--seconds", "nan"], "--seconds nan: give 1 to 3,600"),
        (["--memory", 0], "--memory 0: give GB"),
        (["--survivors", 101], "a percentage is 0 to 100"),
        (["--model", "nothing"], "nothing"),
        (["--arch", "lenet6"], "Did you mean 'lenet5'"),
        (["--model", "natural_resnet18", "--arch", "lenet5"], "--arch goes with a checkpoint file"),
        (["--model", "natural_resnet18", "--dataset", "nowhere.npz"], "no file or folder nowhere.npz"),
        (["--arch", "lenet5", "--device", "cuda:99", "--seconds", 1], "device 'cuda:99' cannot be used"),
        (["--out", "."], "is a folder: name a JSON file"),
    ],
)
def test_bad_input_is_one_line(cli, arguments, message):
    ran = cli("bench", *arguments)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert ran.err.count("\n") == 1, ran.err
    assert message in ran.err


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (119, "119 s"), (3_600, "60 min"), (1e6, "278 h")]
)
def test_a_duration_in_its_unit(seconds, text):
    assert duration(seconds) == text
