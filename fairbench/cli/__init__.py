"""The ``fairbench`` command. Each command is a thin module: parse, call the API, print.

Errors are one line on stderr and exit code 2; ``--debug`` shows the traceback.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fairbench.errors import FairbenchError

_RESUMED = {"evaluate", "train", "luf", "curve", "tendency", "eou", "submit", "reproduce"}
"""Commands that keep what they have computed."""
_USER_ERROR, _INTERNAL_ERROR, _INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: what would be said there is said to nobody
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a terminal without a character is no reason to stop
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:  # noqa: PLR0911  (one return an error kind is the clearest)
    """Run the command line and return its exit code."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        _check(arguments)
        from typer.main import get_command

        from fairbench.cli.app import app

        result = get_command(app)(arguments, prog_name="fairbench", standalone_mode=False)
        if result == _INTERRUPTED:  # Typer turns a keyboard interrupt into this code
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except FairbenchError as error:
        return _fail(str(error), _USER_ERROR, debug)
    except KeyboardInterrupt:
        return _fail(_stopped(arguments), _INTERRUPTED, debug)
    except _usage_errors() as error:
        message = error.format_message()
        if type(error).__name__ != "NoArgsIsHelpError":
            return _fail(" ".join(message.split()), _USER_ERROR, debug)
        print(message, file=sys.stderr)
        return _USER_ERROR
    except _aborts():
        return _fail(_stopped(arguments), _INTERRUPTED, debug)
    except OSError as error:  # a name too long, a device that is full: the system's word for it, and what it was about
        what = f"{error.filename}: " if error.filename else ""
        return _fail(f"{what}{error.strerror or error}"[:300], _USER_ERROR, debug)
    except Exception as error:
        message = f"internal error, {type(error).__name__}: {error}. Run again with --debug and report it."
        return _fail(" ".join(message.split()), _INTERNAL_ERROR, debug)


def _check(arguments: list[str]) -> None:
    """Refuse what makes no sense in any command.

    An empty value is mostly a shell variable that is not set, and as a path it would mean the folder one is in.

    Raises
    ------
    FairbenchError
        A value is empty (what it follows is named), or two forms are asked for.
    """
    if {"--json", "--markdown"} <= set(arguments):
        raise FairbenchError("--json and --markdown are two forms: choose one.")
    for before, argument in pairwise(["fairbench", *arguments]):
        option, equals, value = argument.partition("=")
        if equals and option.startswith("--") and not value.strip():
            raise FairbenchError(f"{option} is empty: give it a value, or leave it out.")
        if not argument.strip():
            raise FairbenchError(f"empty text after {before}: give it a value, or leave it out.")


def _usage_errors() -> Any:
    """The base of what a command line that makes no sense raises: Click's, or Typer's own copy of it."""
    import typer

    return next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def _aborts() -> Any:
    import typer

    return typer.Abort


def _stopped(arguments: list[str]) -> str:
    """Return what to say of a command that was interrupted: whether it goes on when it is given again."""
    if not {*arguments[:1]} & _RESUMED:
        return "stopped."
    if "--fresh" in arguments and "--models" in arguments:
        return "stopped; the command without --fresh keeps what was computed, and old results of the models after it."
    if "--fresh" in arguments:
        return "stopped; what was computed is kept, and the command without --fresh goes on from there."
    return "stopped; the same command goes on where it was."


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"fairbench: {message}", file=sys.stderr)
    return code
