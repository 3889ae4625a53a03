"""``fairbench methods``: the training methods, with every option and who chose its default.

The tables of ``docs/methods`` are made here too, so that a page cannot say another default than the code.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fairbench.training.method import Method

_BEGIN, _END = "<!-- options -->", "<!-- /options -->"

methods_app = typer.Typer(help="List the training methods, or show one.", rich_markup_mode=None)


@methods_app.callback(invoke_without_command=True)
def methods(context: typer.Context) -> None:
    """List the training methods and their options."""
    if context.invoked_subcommand is not None:
        return
    from fairbench.training.methods import METHODS

    width = max(map(len, METHODS)) + 2
    for name in METHODS:
        method = METHODS[name]
        print(f"{name:{width}}{description(method)[0]}")
        print(f"{'':{width}}{_settings(method.options()) or 'no options'}")
        if method.variants:
            print(f"{'':{width}}variants: {', '.join(method.variants)}")


@methods_app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name of a method, or package.module:Class.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of its page in docs/methods.")] = False,
) -> None:
    """Show a method: idea, source, and every option and variant."""
    from fairbench.training.method import method_class

    method = method_class(name, "methods show")
    if markdown:
        print(options_block(method))
        return
    print(f"{name}: " + "\n\n".join(description(method)))
    print(f"\nsource: {getattr(method, 'source', 'not stated')}")
    if method.needs_start:
        print("needs a trained model: --from")
    _print_table("options", option_rows(method))
    _print_table("variants", variant_rows(method))


def description(method: type["Method"]) -> list[str]:
    """Return the paragraphs of a method's docstring, each in a line; the first is its idea."""
    text = inspect.cleandoc(method.__doc__ or "")
    if not text or text.startswith(f"{method.__name__}("):  # a dataclass without a docstring has its signature there
        return ["no description"]
    return [" ".join(paragraph.split()).replace("``", "") for paragraph in text.split("\n\n")]


def option_rows(method: type["Method"]) -> list[tuple[str, str, str]]:
    """Return name, default, and meaning or source of each option."""
    return [(f.name, value_text(f.default), f.metadata.get("source", "")) for f in fields(method) if f.init]


def variant_rows(method: type["Method"]) -> list[tuple[str, str]]:
    """Return name and changes of each variant."""
    return [(name, _settings(changes) or "nothing: the defaults") for name, changes in method.variants.items()]


def value_text(value: Any) -> str:
    """Return a value as ``--set`` takes it; a multiple of 1/255 that is no short decimal as such.

    Examples
    --------
    >>> [value_text(v) for v in (8 / 255, 0.031, 0.2, 6.0, 10, True, "both")]
    ['8/255', '0.031', '0.2', '6', '10', 'true', 'both']
    """
    from fairbench.reports.values import epsilon_text

    if value is MISSING:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return epsilon_text(value)
    return str(value)


def options_block(method: type["Method"]) -> str:
    """Return the tables of options and variants in Markdown, between the markers of a page."""
    options, variants = option_rows(method), variant_rows(method)
    tables = [
        _markdown(("option", "default", "meaning and source"), options, code=2) if options else "It has no options."
    ]
    if variants:
        tables.append(_markdown(("variant", "changes"), variants, code=1))
    return "\n\n".join([_BEGIN, *tables, _END])


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value_text(value)}" for key, value in values.items())


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]], *, code: int) -> str:
    """Return a table whose first ``code`` columns are literal."""
    from fairbench.reports.text_tables import markdown_table

    return markdown_table([[f"`{cell}`" if i < code else cell for i, cell in enumerate(row)] for row in rows], header)


def _print_table(title: str, rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(f"\n{title}")
    for row in rows:
        print("  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
