"""Option values as people type them."""

from fairbench.errors import DatasetError, ModelError, ProtocolError


def floats(text: str | None, option: str) -> tuple[float, ...] | None:
    """Read "0.49,0.48,0.45"; None stays None.

    Raises
    ------
    ModelError
        It is not numbers with commas between.
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ModelError(f"{option} {text}: give numbers with commas between, such as 0.49,0.48,0.45.") from None


def size(text: str | None) -> tuple[int, int] | None:
    """Read "32" or "24x32" (height x width); None stays None.

    Raises
    ------
    ProtocolError
        It is neither.
    """
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.lower().split("x")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 < number <= 10_000 for number in numbers):
        raise ProtocolError(f"--resize {text}: give one size such as 32, or HEIGHTxWIDTH such as 24x32.")
    return numbers[0], numbers[-1]


def classes(text: str) -> tuple[int, ...]:
    """Read "2,3,4,5", numbers of classes.

    Raises
    ------
    DatasetError
        It is not whole numbers with commas between.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DatasetError(f"--drop-classes {text}: give class numbers with commas between, such as 2,3,4,5.") from None


def names(text: str | None) -> tuple[str, ...] | None:
    """Read "pgd20,autoattack"; None stays None."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())
