"""What each part of a training draws from: every epoch and every pass has a seed of its own."""

_PASSES = 1 << 19
"""Seeds of the orders of passes that are cut in epochs lie this far behind those of epochs."""


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of what an epoch draws, of the recipe's ``seed``; epoch -1 is what comes before the first."""
    return (seed << 20) + epoch + 1


def pass_seed(seed: int, number: int) -> int:
    """Return the seed of the order of a pass over the data."""
    return (seed << 20) + _PASSES + number
