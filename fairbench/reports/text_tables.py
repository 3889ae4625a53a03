"""Tables as text: the one way that reports call tabulate."""

from collections.abc import Sequence


def tabulated(
    rows: Sequence[Sequence[str]], headers: Sequence[str], tablefmt: str, align: Sequence[str] | None = None
) -> str:
    """Return a table of texts in one of tabulate's formats.

    Parameters
    ----------
    rows, headers
        Cells as they are to be read: in Markdown a bar in one is marked as no border.
    align
        "left" or "right" for each column; default: the first left, the others right.
    """
    from tabulate import tabulate

    if tablefmt == "github":
        rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
        headers = [cell.replace("|", r"\|") for cell in headers]
    align = align or ("left", *["right"] * (len(headers) - 1))
    return tabulate(rows, headers, tablefmt=tablefmt, disable_numparse=True, colalign=align if rows else None)
