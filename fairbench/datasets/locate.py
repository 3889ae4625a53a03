"""Where data is looked for: ``--data-dir``, ``$FAIRBENCH_DATA``, then the user's cache."""

import os
from pathlib import Path

from fairbench.errors import DatasetError
from fairbench.files import cache_folder, user_path


def data_folders(explicit: str | Path | None = None) -> list[Path]:
    """Return the folders to look in, best first; the last one is where downloads go.

    Raises
    ------
    DatasetError
        ``explicit`` is not a folder.
    """
    folders = []
    if explicit is not None:
        if not user_path(explicit).is_dir():
            raise DatasetError(f"data directory {explicit} is not a folder.")
        folders.append(user_path(explicit))
    if os.environ.get("FAIRBENCH_DATA"):
        folders.append(user_path(os.environ["FAIRBENCH_DATA"]))
    return [*folders, cache_folder("data")]
