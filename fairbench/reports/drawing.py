"""One way to make a figure file: the same look for all, no window, written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairbench.errors import OutcomesError
from fairbench.files import replacing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

PLAIN: dict[Any, Any] = {"text.parse_math": False}
"""Settings of every figure: a dollar sign in somebody's name of a model or a class starts no mathematics."""


def require_png(path: Path) -> None:
    """Raise unless the name of a figure's file ends in .png.

    Raises
    ------
    OutcomesError
        It does not.
    """
    if path.suffix.lower() != ".png":
        raise OutcomesError(f"{path}: figures are written as PNG; give a name that ends in .png.")


@contextmanager
def figure_file(
    path: Path,
    rows: int = 1,
    columns: int = 1,
    *,
    figsize: tuple[float, float],
    layout: Any = "constrained",
    despine_left: bool = False,
    **options: Any,
) -> "Iterator[tuple[Figure, np.ndarray]]":
    """Give a figure and its (rows, columns) axes to draw on, and write it as PNG; what cannot be drawn writes nothing.

    ``options`` go to :meth:`matplotlib.figure.Figure.subplots`. It is made without pyplot, so the user's own settings,
    figures and backend stay as they are.

    Raises
    ------
    OutcomesError
        The file cannot be written, or its name does not end in .png.
    """
    require_png(path)
    import matplotlib as mpl
    import seaborn as sns
    from matplotlib.figure import Figure

    with mpl.rc_context(PLAIN):
        sns.set_theme(style="whitegrid", context="notebook")
        figure = Figure(figsize=figsize, layout=layout)
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)
        sns.despine(figure, left=despine_left)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Software": None})
