"""Ray: the bytes of the local engine, whoever dies on the way, and a plain reason where a shard cannot be computed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from fairbench import Protocol, evaluate, load_dataset, load_model
from fairbench.errors import ModelError, ProtocolError
from fairbench.evaluation.many import evaluate_many
from fairbench.evaluation.ray_engine import RayEngine
from fairbench.models.base import as_model

ray = pytest.importorskip("ray", reason="engine ray needs the package ray")
pytestmark = [
    pytest.mark.slow,  # a cluster takes seconds to start
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

PROTOCOL = Protocol.named("standard", epsilon=0.15, step=0.05, steps=3)
SHARDS = 8


class Linear(nn.Module):
    """A fixed linear classifier, which does ``mischief`` in processes other than the test's."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        weight = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
        self.register_buffer("weight", weight)
        self.home, self.folder = os.getpid(), str(folder)

    def forward(self, x):
        if os.getpid() != self.home:
            self.mischief(x)
        return x.flatten(1) @ self.weight.T

    def mischief(self, x):
        """Do nothing."""


class DiesOnce(Linear):
    def mischief(self, x):
        marker = Path(self.folder) / "died"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Slow(Linear):
    def mischief(self, x):
        if len(x) == 45:
            time.sleep(0.1)


class NotFinite(Linear):
    def forward(self, x):
        logits = super().forward(x)
        if os.getpid() != self.home and (x.flatten(1).sum(1) == self.unlucky).any():
            with (Path(self.folder) / "calls").open("a") as stream:
                stream.write("x")
            logits = torch.where((x.flatten(1).sum(1) == self.unlucky)[:, None], torch.nan, logits)
        return logits


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parent)]))
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        made.add_node(num_cpus=1)
        ray.init(address=made.address, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


def run(model, digits, folder, engine="local"):
    outcomes = evaluate(
        model, digits, PROTOCOL, runs=folder, engine=engine, device="cpu", batch_size=len(digits) // SHARDS
    )
    return (outcomes.write(folder / "out") / "outcomes.parquet").read_bytes()


@pytest.mark.parametrize("kind", [Linear, DiesOnce], ids=["nobody dies", "a worker is killed"])
def test_the_bytes_are_those_of_the_local_engine(kind, cluster, digits, tmp_path):
    model = kind(tmp_path)
    assert run(model, digits, tmp_path / "ray", "ray") == run(model, digits, tmp_path / "local")
    assert (tmp_path / "died").exists() == (kind is DiesOnce)


def test_a_machine_that_goes_away_takes_nothing_with_it(cluster, digits, tmp_path):
    leaving = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def engine(compute, shards):
        for place, found in enumerate(RayEngine()(compute, shards)):
            if place == 0:
                cluster.remove_node(leaving, allow_graceful=False)
            yield found

    model = Slow(tmp_path)
    assert run(model, digits, tmp_path / "ray", engine) == run(model, digits, tmp_path / "local")


def test_a_driver_that_is_killed_goes_on_where_it_stopped(cluster, digits, tmp_path):
    class Enough(Exception):
        pass

    computed = []

    def counting(stop):
        def engine(compute, shards):
            for number, shard in RayEngine()(compute, shards):
                computed.append(number)
                yield number, shard
                if stop and len(computed) == 3:
                    raise Enough

        return engine

    model = Linear(tmp_path)
    with pytest.raises(Enough):
        run(model, digits, tmp_path / "ray", counting(True))
    found = run(model, digits, tmp_path / "ray", counting(False))
    assert sorted(computed) == list(range(SHARDS)), "each shard once"
    assert found == run(model, digits, tmp_path / "local")


def test_a_shard_that_fails_for_a_reason_of_its_own_is_not_tried_again(cluster, digits, tmp_path):
    model = NotFinite(tmp_path)
    x, _, index = digits.batch(slice(None))
    model.unlucky = float(x[100].flatten().sum())
    assert int((x.flatten(1).sum(1) == model.unlucky).sum()) == 1
    with pytest.raises(ModelError, match=rf"\b{index[100]}\b"):
        run(model, digits, tmp_path / "ray", "ray")
    assert (tmp_path / "calls").read_text() == "x"


def test_a_killed_process_leaves_shards_that_the_next_one_uses(tmp_path):
    """The whole program this time, with a cluster of its own."""
    script = textwrap.dedent(
        """
        import os, signal, sys
        from fairbench import Protocol, evaluate, load_dataset
        from fairbench.evaluation.ray_engine import RayEngine
        from test_ray_engine import PROTOCOL, SHARDS, Linear

        def engine(compute, shards):
            print(len(shards), flush=True)
            for place, found in enumerate(RayEngine(address="local")(compute, shards)):
                yield found
                if place == 1 and sys.argv[2] == "die":
                    os.kill(os.getpid(), signal.SIGKILL)

        digits = load_dataset("digits")
        model = Linear(sys.argv[1])
        model.home = 0  # part of what the model is: the same in both processes
        evaluate(model, digits, PROTOCOL, runs=sys.argv[1], engine=engine, batch_size=len(digits) // SHARDS)
        """
    )
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here.parents[1]), str(here)])}
    environment.pop("RAY_ADDRESS", None)
    asked = []
    for end in ("die", "live"):
        command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path), end]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, check=False)
        asked.append(int(done.stdout.split()[0]))
        assert done.returncode == (0 if end == "live" else -signal.SIGKILL), done.stderr
    assert asked == [SHARDS, SHARDS - 2]


def test_a_task_that_no_machine_can_hold_is_refused(cluster, digits, tmp_path):
    with pytest.raises(ProtocolError, match="no machine of the Ray cluster has 64 cores and 0 GPUs"):
        run(Linear(tmp_path), digits, tmp_path / "ray", RayEngine(cpus=64))


def test_when_the_last_machine_for_a_task_leaves_it_says_so(cluster, digits, tmp_path, monkeypatch):
    monkeypatch.setattr("fairbench.evaluation.ray_engine._LOOK", 0.2)
    monkeypatch.setattr("fairbench.evaluation.ray_engine._GRACE", 0.5)
    leaving = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def engine(compute, shards):
        for place, found in enumerate(RayEngine(cpus=2)(compute, shards)):
            if place == 0:
                cluster.remove_node(leaving, allow_graceful=False)
            yield found

    with pytest.raises(ProtocolError, match=r"no machine of the Ray cluster has 2 cores .* What is done is kept"):
        run(Slow(tmp_path), digits, tmp_path / "ray", engine)


class Unreadable(Linear):
    def __reduce__(self):
        return (_only_here, (os.getpid(), self.folder))


def _only_here(pid, folder):
    if os.getpid() != pid:
        raise ModuleNotFoundError("No module named 'my_code'")
    return Linear(folder)


def test_what_a_worker_cannot_read_is_one_line(cluster, digits, tmp_path):
    with pytest.raises(ProtocolError, match=r"cannot read the task: .*No module named 'my_code'\. Every machine needs"):
        run(Unreadable(tmp_path), digits, tmp_path / "ray", "ray")


def test_many_models_share_a_queue_and_one_that_fails_costs_no_other(cluster, digits, tmp_path):
    """The bytes are those of each model alone."""
    bad = NotFinite(tmp_path)
    bad.unlucky = float(digits.batch(slice(100, 101))[0].sum())
    other = Linear(tmp_path)
    other.weight.mul_(2.0)
    models = {"one": Linear(tmp_path), "bad": bad, "other": other, "again": Linear(tmp_path)}

    def asked(module):
        return as_model(module), digits, PROTOCOL, None

    loaders = {name: partial(asked, module) for name, module in models.items()}
    loaders["absent"] = partial(load_model, "no_such_model")
    seen = []
    options = {"device": "cpu", "batch_size": len(digits) // SHARDS}
    found = evaluate_many(loaders, engine="ray", runs=tmp_path / "ray", progress=lambda *at: seen.append(at), **options)
    assert [one.name for one in found] == [*models, "absent"]
    assert "NaN or infinite on example 100" in found[1].failed
    assert "unknown model" in found[4].failed
    for one in (found[0], found[2], found[3]):
        table = (one.outcomes.write(tmp_path / one.name) / "outcomes.parquet").read_bytes()
        assert table == run(models[one.name], digits, tmp_path / f"local {one.name}")
    assert seen[-1] == (5.0, 5)


def test_bf16_is_the_same_bytes_on_a_cluster(cluster, digits, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))
    options = {"device": "cpu", "batch_size": 45, "precision": "bf16"}
    first, second = (
        evaluate(model, digits, PROTOCOL, runs=tmp_path / name, engine=name, **options) for name in ("local", "ray")
    )
    assert first.frame.equals(second.frame)
    assert first.manifest["precision"] == "bfloat16"
