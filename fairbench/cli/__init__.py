"""The ``fairbench`` command. Each command is a thin module: parse, call the API, print.

Errors are one line on stderr and exit code 2; ``--debug`` shows the traceback.
"""

import sys
import traceback
from collections.abc import Sequence

from fairbench.errors import FairbenchError

_USER_ERROR, _INTERNAL_ERROR, _INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    import click
    import typer

    from fairbench.cli.app import app

    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        result = typer.main.get_command(app)(arguments, prog_name="fairbench", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except FairbenchError as error:
        return _fail(str(error), _USER_ERROR, debug)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return _USER_ERROR
    except click.ClickException as error:
        return _fail(" ".join(error.format_message().split()), _USER_ERROR, debug)
    except (KeyboardInterrupt, click.Abort):
        return _fail("stopped; the same command goes on where it was.", _INTERRUPTED, debug)
    except Exception as error:
        message = f"internal error, {type(error).__name__}: {error}. Run again with --debug and report it."
        return _fail(" ".join(message.split()), _INTERNAL_ERROR, debug)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"fairbench: {message}", file=sys.stderr)
    return code
