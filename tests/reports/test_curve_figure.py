"""The figure of success rates over epsilon."""

import numpy as np
import pandas as pd
import pytest

from fairbench.metrics.curves import Curves
from fairbench.reports.curves import axis_unit


@pytest.mark.parametrize(
    ("radii", "pixels", "unit"),
    [
        (np.arange(33) / 255, True, (255.0, "in 1/255")),
        (np.arange(33) / 510, True, (255.0, "in 1/255")),
        (0.001 * np.arange(41), True, (1.0, "of pixels in [0, 1]")),
        ([0.0, 0.01], True, (1.0, "of pixels in [0, 1]")),
        ([0.0, 2.0, 10.0], False, (1.0, "in units of the features")),
    ],
)
def test_radii_are_drawn_in_the_unit_in_which_they_are_written(
    radii: np.ndarray, pixels: bool, unit: tuple[float, str]
) -> None:
    found = Curves(classes=pd.DataFrame(), overall=pd.DataFrame({"epsilon": radii}))
    assert axis_unit({"model": found}, pixels=pixels) == unit
