"""A figure file is written whole or not at all, and the user's own figures and settings stay as they are."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from PIL import Image

from fairbench.reports.drawing import figure_file


def test_it_writes_a_png_and_leaves_pyplot_as_it_was(tmp_path):
    before, settings = plt.get_fignums(), dict(mpl.rcParams)
    with figure_file(tmp_path / "a.png", 2, 3, figsize=(6, 4)) as (figure, grid):
        assert grid.shape == (2, 3)
        assert figure.axes == list(grid.flat)
        grid[1][2].plot([0, 1], [0, 1])
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (900, 600)
    assert plt.get_fignums() == before
    assert dict(mpl.rcParams) == settings


def test_what_fails_to_be_drawn_leaves_no_file_and_no_figure(tmp_path):
    before = plt.get_fignums()
    with pytest.raises(ZeroDivisionError), figure_file(tmp_path / "a.png", figsize=(3, 3)):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
    assert plt.get_fignums() == before
