"""Whether a model is one at all: whether its errors are those of guessing."""

_NEAR = 0.97


def collapsed(avg_std: float, num_classes: int, images: str) -> str | None:
    """Return a warning if an average standard error, in percent, is within 3 % of guessing; else None.

    Examples
    --------
    >>> collapsed(89.9, 10, "held-out images")[:64]
    'the standard error on held-out images is 89.9, and 90.0 is guess'
    >>> collapsed(60.0, 10, "held-out images")
    """
    guessing = 100 * (1 - 1 / num_classes)
    if not avg_std > _NEAR * guessing:
        return None
    return (
        f"the standard error on {images} is {avg_std:.1f}, and {guessing:.1f} is guessing: the training collapsed. "
        "Lower optimizer.lr, or train longer."
    )
