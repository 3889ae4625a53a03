"""One way to make a figure file: the same look for all, no window, written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairbench.files import replacing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure


@contextmanager
def figure_file(
    path: Path, rows: int = 1, columns: int = 1, *, despine_left: bool = False, **options: Any
) -> "Iterator[tuple[Figure, np.ndarray]]":
    """Give a figure and its (rows, columns) axes to draw on, and write it as PNG; what cannot be drawn writes nothing.

    ``options`` go to :func:`matplotlib.pyplot.subplots`. The user's own settings and figures stay as they are.

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    import matplotlib as mpl

    with mpl.rc_context({"backend": "Agg"}):
        import matplotlib.pyplot as plt
        import seaborn as sns

        sns.set_theme(style="whitegrid", context="notebook")
        figure, grid = plt.subplots(rows, columns, squeeze=False, **{"layout": "constrained", **options})
        try:
            yield figure, grid
            sns.despine(figure, left=despine_left)
            with replacing(path) as temporary:
                figure.savefig(temporary, dpi=150, metadata={"Software": None})
        finally:
            plt.close(figure)
