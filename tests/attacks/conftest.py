"""Images for attacks whose outcome is known, and modules of attacks of one's own."""

import textwrap

import numpy as np
import pytest
import torch

from fairbench.datasets import Dataset


@pytest.fixture(scope="session")
def grey():
    """Images away from the border of the box, so that the ball is whole."""
    return torch.rand(200, 1, 4, 4, generator=torch.Generator().manual_seed(1)) * 0.2 + 0.4


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module of attacks and return what names a function of it; each call is another module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written = []

    def named(source: str, function: str) -> str:
        module = f"attacks_{abs(hash(tmp_path))}_{len(written)}"
        written.append(module)
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        return f"{module}:{function}"

    return named


@pytest.fixture
def data() -> Dataset:
    """Two classes of grey noise."""
    images = np.random.default_rng(0).integers(80, 176, (60, 1, 4, 4), dtype=np.uint8)
    return Dataset("mine", images, np.repeat([0, 1], 30), ("a", "b"))
