"""A trained model for the methods that start from one."""

import pytest
from made_runs import recipe

from fairbench.training import train


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A trained model for the methods that start from one."""
    out = tmp_path_factory.mktemp("start") / "run"
    train(recipe("standard", schedule={"name": "cosine", "epochs": 4}), out)
    return out
