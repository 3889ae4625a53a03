"""Choosing an engine: bad options are one clear line, before anything is computed."""

import sys

import pytest

from fairbench.errors import ProtocolError
from fairbench.evaluation.ray_engine import RayEngine

EVALUATE = ("evaluate", "--model", "standard_lenet5_fashion_mnist")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpus": 0}, "0 cores for a task: give 1 or more"),
        ({"gpus": -1}, "-1 GPUs for a task: give a share of one, or a whole number"),
        ({"gpus": 1.5}, "1.5 GPUs for a task"),
        ({"gpus": float("nan")}, "nan GPUs for a task"),
    ],
)
def test_a_task_of_impossible_size_is_refused(options, message):
    with pytest.raises(ProtocolError, match=message):
        RayEngine(**options)


@pytest.mark.parametrize("option", [("--address", "auto"), ("--cpus-per-task", "2"), ("--gpus-per-task", "0.5")])
def test_rays_options_need_ray(cli, option):
    found = cli(*EVALUATE, *option)
    assert found.code == 2
    assert "are for --engine ray" in found.err


def test_without_the_package_the_line_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    found = cli(*EVALUATE, "--engine", "ray")
    assert found.code == 2
    assert "pip install ray" in found.err


def test_nothing_to_do_needs_no_cluster():
    assert list(RayEngine(address="nowhere:1")(lambda number: ({}, {}), [])) == []
