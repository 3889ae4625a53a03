"""Images for attacks whose outcome is known."""

import pytest
import torch


@pytest.fixture(scope="session")
def grey():
    """Images away from the border of the box, so that the ball is whole."""
    return torch.rand(200, 1, 4, 4, generator=torch.Generator().manual_seed(1)) * 0.2 + 0.4
