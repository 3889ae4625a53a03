"""Evaluation end to end on a small real model: the same bytes whatever the order, a kill, or a resume."""

import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fairbench import Protocol, evaluate, load_dataset, load_model, summarize
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, ModelError, OutcomesError, ProtocolError
from fairbench.evaluation.engines import local
from fairbench.models.base import Model, PickOutput
from fairbench.outcomes import Outcomes


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def classifier(digits):
    """A small network trained on digits for a second."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    x, y, _ = load_dataset("digits", "train").batch(slice(None))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


STANDARD = Protocol.named("standard", epsilon=0.15, step=0.05, steps=5)


def table_bytes(outcomes: Outcomes, folder) -> bytes:
    return (outcomes.write(folder) / "outcomes.parquet").read_bytes()


def run(classifier, digits, tmp_path, name, **options):
    options.setdefault("batch_size", 50)
    outcomes = evaluate(classifier, digits, STANDARD, runs=tmp_path / name, device="cpu", **options)
    return outcomes, table_bytes(outcomes, tmp_path / f"{name}_out")


def test_every_example_has_its_row_and_the_summary_is_sensible(classifier, digits, tmp_path):
    outcomes, _ = run(classifier, digits, tmp_path, "run")
    assert outcomes.frame["index"].tolist() == list(range(360))
    assert outcomes.frame["label"].tolist() == digits.labels.tolist()
    attack = summarize(outcomes).attacks["pgd5"]
    assert attack.avg_std < 15 < attack.avg_rob
    x, _, _ = digits.batch(slice(None))
    assert (outcomes.frame["clean_pred"].to_numpy() == classifier(x).argmax(1).numpy()).all()


def test_a_protocol_may_be_named_and_data_may_not(classifier, digits, tmp_path):
    assert evaluate(classifier, digits, "quick", runs=tmp_path).attacks == ("pgd20",)
    with pytest.raises(ProtocolError, match=r"unknown protocol 'quik'\. Did you mean 'quick'"):
        evaluate(classifier, digits, "quik", runs=tmp_path)
    with pytest.raises(FairbenchError, match="the data are a str: give what load_dataset returns"):
        evaluate(classifier, "digits", runs=tmp_path)


def test_what_is_printed_of_data_and_results_is_a_line(classifier, digits, tmp_path):
    outcomes = evaluate(classifier, digits, runs=tmp_path)
    assert repr(digits) == "<Dataset digits, test: 360 images of 1x8x8 (channels x height x width), 10 classes>"
    assert str(outcomes) == "<Outcomes of Sequential on digits: 360 examples, pgd20>"
    assert str(summarize(outcomes)) == "<Summary of Sequential on digits: 360 examples, quick, pgd20>"


@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_the_order_of_shards_changes_no_byte(classifier, digits, tmp_path, order):
    def engine(compute, shards):
        shards = list(shards)
        return local(compute, shards[::-1] if order == "reversed" else np.random.default_rng(0).permutation(shards))

    _, plain = run(classifier, digits, tmp_path, "plain")
    _, other = run(classifier, digits, tmp_path, "other", engine=engine)
    assert plain == other


def test_an_interrupted_run_goes_on_and_changes_no_byte(classifier, digits, tmp_path):
    calls = []

    def dies_after_three(compute, shards):
        for number in list(shards)[:3]:
            calls.append(number)
            yield number, compute(number)
        raise KeyboardInterrupt

    def counts(compute, shards):
        calls.extend(shards)
        return local(compute, shards)

    with pytest.raises(KeyboardInterrupt):
        run(classifier, digits, tmp_path, "cut", engine=dies_after_three)
    _, resumed = run(classifier, digits, tmp_path, "cut", engine=counts)
    assert sorted(calls) == list(range(8)), "no shard is computed twice"
    assert resumed == run(classifier, digits, tmp_path, "whole")[1]


def test_a_damaged_shard_is_computed_again(classifier, digits, tmp_path):
    def damages(compute, shards):
        for number in list(shards)[:2]:
            yield number, compute(number)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(classifier, digits, tmp_path, "cut", engine=damages)
    (shard,) = (tmp_path / "cut").glob("*/shards/000001.parquet")
    shard.write_bytes(shard.read_bytes()[:100])
    assert run(classifier, digits, tmp_path, "cut")[1] == run(classifier, digits, tmp_path, "whole")[1]


def test_asking_again_computes_nothing_unless_told_to(classifier, digits, tmp_path):
    def refuses(_compute, _shards):
        raise AssertionError("computed again")

    first, _ = run(classifier, digits, tmp_path, "run")
    again, _ = run(classifier, digits, tmp_path, "run", engine=refuses)
    assert again.manifest == first.manifest
    with pytest.raises(AssertionError, match="computed again"):
        run(classifier, digits, tmp_path, "run", engine=refuses, resume=False)


@pytest.mark.parametrize("change", ["seed", "weights", "data", "batch size", "forward"])
def test_whatever_moves_a_row_makes_another_run(classifier, digits, tmp_path, change):
    first, _ = run(classifier, digits, tmp_path, "run")
    model, dataset, protocol, options = classifier, digits, STANDARD, {"batch_size": 50}
    if change == "seed":
        protocol = Protocol.named("standard", epsilon=0.15, step=0.05, steps=5, seed=1)
    elif change == "weights":
        model = nn.Sequential(*classifier)
        model.load_state_dict({k: v * 1.5 if v.is_floating_point() else v for k, v in classifier.state_dict().items()})
    elif change == "data":
        dataset = digits.subset(np.arange(100))
    elif change == "batch size":
        options["batch_size"] = 60
    else:
        model = nn.Sequential(nn.Identity(), classifier)
    second = evaluate(model, dataset, protocol, runs=tmp_path / "run", device="cpu", **options)
    assert second.manifest["run"] != first.manifest["run"]
    if change == "weights":  # leave the shared fixture as it was
        model.load_state_dict({k: v / 1.5 if v.is_floating_point() else v for k, v in model.state_dict().items()})


def test_the_batch_size_moves_at_most_one_example_in_a_thousand(classifier, digits, tmp_path):
    small, _ = run(classifier, digits, tmp_path, "small", batch_size=7)
    large, _ = run(classifier, digits, tmp_path, "large", batch_size=1000)
    assert (small.frame["pgd5_pred"] != large.frame["pgd5_pred"]).sum() <= 1


def test_the_quick_protocol_gives_the_same_rows_as_the_whole_split(classifier, digits, tmp_path):
    whole, _ = run(classifier, digits, tmp_path, "whole")
    quick = evaluate(
        classifier, digits, Protocol.named("quick", epsilon=0.15, step=0.05, steps=5), runs=tmp_path, device="cpu"
    )
    small = digits.first_per_class(20)
    sample = evaluate(classifier, small, STANDARD, runs=tmp_path, device="cpu", batch_size=33)
    rows = whole.frame.set_index("index").loc[sample.frame["index"]]
    assert (rows["pgd5_pred"].to_numpy() != sample.frame["pgd5_pred"].to_numpy()).sum() <= 1
    assert quick.manifest["dataset"]["split"] == "sample"
    assert len(quick) == 360, "a class of fewer than 100 is taken whole"


KILLED = """
import sys, time
from fairbench import Protocol, evaluate, load_dataset, load_model
from fairbench.evaluation.engines import local

def engine(compute, shards):
    for item in local(compute, shards):
        yield item
        print("done", flush=True)
        time.sleep(600)

model = load_model("classifier.pt", arch="killed_nets:build")
protocol = Protocol.named("standard", epsilon=0.15, step=0.05, steps=5)
evaluate(model, load_dataset("digits"), protocol, runs=sys.argv[1], engine=engine, batch_size=50)
"""


def test_kill_9_loses_at_most_the_running_shard(classifier, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.save(classifier.state_dict(), "classifier.pt")
    (tmp_path / "killed_nets.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", KILLED, "killed"], stdout=subprocess.PIPE, text=True)
    victim.stdout.readline()
    deadline = time.monotonic() + 30
    while not list((tmp_path / "killed").glob("*/shards/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert len(list((tmp_path / "killed").glob("*/shards/*.parquet"))) >= 1
    model, computed = load_model("classifier.pt", arch="killed_nets:build"), []

    def engine(compute, shards):
        for item in local(compute, shards):
            computed.append(item)
            yield item

    tables = []
    for runs, counts in (("killed", (6, 7)), ("whole", (8,))):
        computed.clear()
        found = evaluate(model, digits, STANDARD, runs=tmp_path / runs, engine=engine, batch_size=50)
        assert len(computed) in counts, "finished shards are not computed again"
        tables.append(table_bytes(found, tmp_path / f"out_{runs}"))
    assert tables[0] == tables[1]


def test_the_manifest_says_where_the_numbers_came_from(classifier, digits, tmp_path):
    manifest = run(classifier, digits, tmp_path, "run")[0].manifest
    assert manifest["attacks"]["pgd5"] == {
        "norm": "Linf", "epsilon": 0.15, "step": 0.05, "steps": 5, "restarts": 1, "score": "last", "loss": "ce",
        "init": "uniform", "seed": 0,
    }  # fmt: skip
    assert manifest["protocol"]["modified"] == {"attacks": ["pgd5"], "epsilon": 0.15, "step": 0.05}
    assert manifest["dataset"]["classes"] == list("0123456789")
    assert {"torch", "python", "fairbench"} <= set(manifest["versions"])
    assert manifest["seconds"]["pgd5"] > 0
    assert len(manifest["model"]["sha256"]) == 64


def test_the_manifest_names_every_machine_that_computed(classifier, digits, tmp_path):
    def engine(compute, shards):
        for number in shards:
            columns, seconds, machine = compute(number)
            other = machine | {"processor": "another", "threads": 64, "gpu": "A100", "device": "cuda"}
            yield number, (columns, seconds, other if number < 3 else machine)

    outcomes, other = run(classifier, digits, tmp_path, "two", engine=engine)
    plain, own = run(classifier, digits, tmp_path, "one")
    here = plain.manifest["hardware"]
    processor = f"{here['processor']} (5 batches); another (3 batches)"
    assert outcomes.manifest["hardware"] == {
        "device": "cpu (5 batches); cuda (3 batches)",
        "processor": processor,
        "instructions": here["instructions"],
        "threads": f"{here['threads']} (5 batches); 64 (3 batches)",
        "gpu": "A100",
    }
    assert other == own, "the table does not tell"


def test_attributes_travel_into_the_table(classifier, digits, tmp_path):
    sides = np.where(np.arange(360) % 2 == 0, "left", "right")
    dataset = Dataset("d", digits.inputs, digits.labels, digits.classes, attributes={"side": sides})
    outcomes, _ = run(classifier, dataset, tmp_path, "run")
    assert outcomes.frame["side"].tolist() == sides.tolist()


def test_a_sample_is_refused_where_the_whole_split_is_meant(classifier, tmp_path):
    sample = load_dataset("fashion_mnist", "sample")
    with pytest.raises(ProtocolError, match="whole test split"):
        evaluate(classifier, sample, Protocol.named("standard"), runs=tmp_path)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 10)), "cannot take images of 1x8x8"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 7)), "7 outputs, but the dataset has 10"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_one_clear_error(digits, tmp_path, module, message):
    with pytest.raises(ModelError, match=message):
        evaluate(module, digits, STANDARD, runs=tmp_path)


def test_images_are_brought_to_the_size_the_model_demands(digits, tmp_path):
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(16 * 12, 10)), "m", "a", input_size=(16, 12))
    outcomes = evaluate(model, digits, STANDARD, runs=tmp_path)
    assert outcomes.manifest["dataset"]["shape"] == [1, 16, 12]
    assert "resized from 8x8 to 16x12" in outcomes.manifest["notes"][0]


@pytest.mark.parametrize(("first", "second"), [("0", "1")])
def test_another_output_of_the_same_network_is_another_run(digits, tmp_path, first, second):
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)) for _ in range(2))

        def forward(self, x):
            return tuple(head(x) for head in self.heads)

    torch.manual_seed(0)
    network = TwoHeads()
    found = [
        evaluate(PickOutput(network, key), digits, STANDARD, runs=tmp_path).frame["clean_pred"].tolist()
        for key in (first, second)
    ]
    x, _, _ = digits.batch(slice(None))
    assert found == [network(x)[int(key)].argmax(1).tolist() for key in (first, second)]


def test_a_setting_that_is_a_plain_attribute_makes_another_run(digits, tmp_path):
    class Scaled(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale, self.inner = scale, nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

        def forward(self, x):
            return self.inner(x * self.scale)

    models = []
    for scale in (1.0, 2.0):
        torch.manual_seed(0)
        models.append(Scaled(scale))
    runs = {evaluate(model, digits, STANDARD, runs=tmp_path).manifest["run"] for model in models}
    assert len(runs) == 2


def test_a_batch_that_does_not_fit_in_memory_is_one_clear_error(classifier, digits, tmp_path):
    class Greedy(nn.Module):
        def forward(self, x):
            if len(x) > 100 and x.requires_grad:
                raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 99999 bytes")
            return classifier(x)

    small = evaluate(Greedy(), digits, STANDARD, runs=tmp_path, batch_size=50)
    assert len(small) == 360
    with pytest.raises(ModelError, match="--batch-size"):
        evaluate(Greedy(), digits, STANDARD, runs=tmp_path, batch_size=200)


def test_progress_reaches_its_end(classifier, digits, tmp_path):
    seen = []
    run(classifier, digits, tmp_path, "run", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == pytest.approx(seen[-1][1])
    assert len(seen) >= 8 * 5


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


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


def test_a_layer_that_computes_its_weight_anew_cannot_be_copied_and_it_is_said(digits):
    with pytest.warns(FutureWarning):
        model = nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(64, 10)))
    with pytest.raises(ModelError, match=r"Sequential cannot be copied: .*torch\.nn\.utils\.parametrizations"):
        evaluate(model, digits, STANDARD)


@pytest.mark.parametrize("attack", ["least-steps", "least-epsilon"])
def test_a_search_of_a_model_is_not_transferred(digits, attack):
    with pytest.raises(ProtocolError, match=f"{attack} searches the model itself"):
        evaluate(linear(), digits, Protocol.named("standard", attacks=(attack,)), transfer_from=linear())


def test_writing_into_what_a_pooling_layer_returns_is_allowed(digits):
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(128, 10))
    found = evaluate(nn.Sequential(*layers), digits, STANDARD)
    assert found.manifest["warnings"] == [w for w in found.manifest["warnings"] if "copy" not in w]
