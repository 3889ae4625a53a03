"""Many models in one queue, by an engine that computes one after the other and by Ray's queue without a cluster."""

from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fairbench import Protocol, evaluate, load_dataset
from fairbench.errors import ModelError
from fairbench.evaluation import ray_engine
from fairbench.evaluation.many import evaluate_many
from fairbench.evaluation.ray_engine import RayEngine
from fairbench.models.base import as_model

PROTOCOL = Protocol.named("standard", epsilon=0.15, step=0.05, steps=2)
OPTIONS = {"device": "cpu", "batch_size": 90}


class TaskError(Exception):
    def __init__(self, cause):
        self.cause = cause


class FakeRay:
    """Ray as the engine uses it: two slots, and tasks that end last come first out."""

    exceptions = SimpleNamespace(RayTaskError=TaskError, RayError=type("RayError", (Exception,), {}))

    def __init__(self):
        self.sent, self.tasks, self.cancelled = [], {}, []

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 2.0}}]

    def cluster_resources(self):
        return {"CPU": 2.0}

    def put(self, value):
        self.sent.append(value)
        return value

    def remote(self, function):
        def start(*arguments):
            reference = len(self.tasks)
            self.tasks[reference] = partial(function, *arguments)
            return reference

        return SimpleNamespace(options=lambda **_options: SimpleNamespace(remote=start))

    def wait(self, references, num_returns, timeout):
        return [references[-1]], references[:-1]

    def get(self, reference):
        try:
            return self.tasks[reference]()
        except Exception as error:
            raise TaskError(error) from error

    def cancel(self, reference, force=False):
        self.cancelled.append(reference)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture
def fake(monkeypatch):
    made = FakeRay()

    @contextmanager
    def connected(_address):
        yield made

    monkeypatch.setattr(ray_engine, "_connected", connected)
    monkeypatch.setattr(torch, "set_num_threads", lambda _threads: None)
    return made


@pytest.fixture(params=["local", "ray"])
def engine(request, fake):
    return RayEngine() if request.param == "ray" else "local"


class Linear(nn.Module):
    """A fixed linear classifier; on one unlucky example it may not be finite."""

    def __init__(self, scale=1.0, unlucky=-1.0):
        super().__init__()
        self.register_buffer("weight", scale * torch.randn(10, 64, generator=torch.Generator().manual_seed(0)))
        self.unlucky = unlucky

    def forward(self, x):
        logits = x.flatten(1) @ self.weight.T
        return torch.where((x.flatten(1).sum(1) == self.unlucky)[:, None], torch.nan, logits)


def asked(module, digits):
    return as_model(module), digits, PROTOCOL, None


def unknown():
    raise ModelError("no such model.")


@pytest.fixture
def models(digits):
    unlucky = float(digits.batch(slice(200, 201))[0].sum())  # in the third of four batches
    modules = {"one": Linear(), "bad": Linear(unlucky=unlucky), "other": Linear(2.0)}
    return {name: partial(asked, module, digits) for name, module in modules.items()} | {"absent": unknown}


def test_each_is_what_it_is_alone_and_one_that_fails_costs_no_other(engine, models, digits, tmp_path):
    seen, kept = [], []
    found = evaluate_many(
        models,
        engine=engine,
        runs=tmp_path / "many",
        progress=lambda done, total: seen.append((done, total)),
        finished=lambda name, outcomes: kept.append((name, len(outcomes))),
        **OPTIONS,
    )
    assert [one.name for one in found] == list(models)
    assert "NaN or infinite on example 200" in found[1].failed
    assert found[3].failed == "no such model."
    assert sorted(kept) == [("one", 360), ("other", 360)]
    for place, module in ((0, Linear()), (2, Linear(2.0))):
        alone = evaluate(module, digits, PROTOCOL, runs=tmp_path / "alone", **OPTIONS)
        assert found[place].outcomes.frame.equals(alone.frame)
        assert found[place].outcomes.manifest["run"] == alone.manifest["run"]
        assert not found[place].cached
    assert seen[-1] == (4.0, 4)
    assert all(np.diff([done for done, _ in seen]) > -1e-9)


def test_asked_again_only_what_is_missing_is_computed(engine, models, fake, tmp_path):
    evaluate_many(models, engine=engine, runs=tmp_path, **OPTIONS)
    sent = len(fake.sent)
    again = evaluate_many(models, engine=engine, runs=tmp_path, **OPTIONS)
    assert [one.cached for one in again] == [True, False, True, False]
    assert again[1].failed
    assert len(fake.sent) - sent == (0 if engine == "local" else 1)


def test_a_model_is_sent_into_the_cluster_once_and_not_before_its_turn(models, fake, tmp_path):
    evaluate_many(models, engine=RayEngine(), runs=tmp_path, **OPTIONS)
    assert len(fake.sent) == 3


def test_an_error_that_is_nobodys_is_a_reason_too(engine, models, tmp_path):
    def broken():
        raise ZeroDivisionError("division by zero")

    found = evaluate_many({"broken": broken, "one": models["one"]}, engine=engine, runs=tmp_path, **OPTIONS)
    assert found[0].failed == "ZeroDivisionError: division by zero."
    assert found[1].outcomes is not None


def test_an_interrupt_stops_everything_and_the_next_call_goes_on(models, tmp_path):
    def interrupted(compute, shards):
        for number in list(shards)[:2]:
            yield number, compute(number)
        raise KeyboardInterrupt

    computed = []

    def counting(compute, shards):
        for number in shards:
            computed.append(number)
            yield number, compute(number)

    with pytest.raises(KeyboardInterrupt):
        evaluate_many(models, engine=interrupted, runs=tmp_path, **OPTIONS)
    evaluate_many({"one": models["one"]}, engine=counting, runs=tmp_path, **OPTIONS)
    assert computed == [2, 3]
