"""``fairbench datasets``: what is known by name, and what is on this machine."""

from typing import Annotated

import typer


def datasets(
    data_dir: Annotated[
        str | None, typer.Option(help="Folder to look in before $FAIRBENCH_DATA and the cache.")
    ] = None,
) -> None:
    """List the datasets known by name and where their files were found."""
    from rich.table import Table

    from fairbench.cli.terminal import wide_enough
    from fairbench.datasets.locate import data_folders
    from fairbench.datasets.named import NAMED, find_named
    from fairbench.datasets.samples import SAMPLES

    folders = data_folders(data_dir)
    table = Table("name", "classes", "input", "test split", "sample", "full data", box=None, pad_edge=False)
    for name, known in NAMED.items():
        found = find_named(name, folders)
        where = str(found) if found else "not found" if known.markers else "with scikit-learn"
        shape = "x".join(map(str, known.shape))
        sample = "shipped" if name in SAMPLES else "from full data"
        table.add_row(name, str(len(known.classes)), shape, f"{known.test_size:,}", sample, where)
    wide_enough(table).print(table)
    print(f"looked in: {', '.join(map(str, folders))}")
    print("your own: a .npz with x_test and y_test, or a folder with one folder per class")
