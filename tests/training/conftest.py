"""A trained model that the tests read, and none changes."""

import pytest
from made_runs import recipe

from fairbench.training import train


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """A trained model for the methods that start from one."""
    out = tmp_path_factory.mktemp("start") / "run"
    train(recipe("standard", schedule={"name": "cosine", "epochs": 4}), out)
    return out
