"""The errors a user can meet. One base, so that the command line can tell a user's mistake from a fault of ours.

A message is one line: what is wrong, where, and the next thing to try.
"""


class FairbenchError(Exception):
    """Base of every error that a user can cause and mend."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.split())))


class CheckpointError(FairbenchError):
    """A weights file that cannot be read, or does not fit the architecture."""


class ModelError(FairbenchError):
    """A model that is unknown, cannot be built, or does not answer as a classifier."""


class DatasetError(FairbenchError):
    """A dataset that is unknown, not found, or not usable as it is."""


class DownloadError(FairbenchError):
    """A file that could not be fetched from its address; the message goes on where the file was named."""


class ProtocolError(FairbenchError):
    """A protocol option that is unknown or out of range."""


class RecipeError(FairbenchError):
    """A training recipe, or a run of it, that cannot be carried out."""


class OutcomesError(FairbenchError):
    """An outcome table or run folder that cannot be read or written."""


def words_of(error: BaseException) -> str:
    """Return what an error says; nothing where saying it raises."""
    try:
        return str(error)
    except Exception:
        return ""


def first_line(error: BaseException) -> str:
    """Return what an error of somebody else's code says, in a line: its kind and its first line."""
    text = (words_of(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}".rstrip(": .") + "."


def printable(text: str) -> str:
    """Return text, of whomever, so that it can be printed and steers no terminal: other characters by their code.

    Examples
    --------
    >>> printable("mü\x1b[2J")
    'mü\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
