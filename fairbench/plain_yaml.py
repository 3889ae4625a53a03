"""YAML as plain data, of people and files that one need not trust."""

from typing import Any

import yaml

from fairbench.errors import first_line


class _PlainLoader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # a page of them stands for more memory than there is
            raise yaml.YAMLError("it has an alias (*name); write the value out")
        return super().compose_node(parent, index)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def parse_yaml(text: str) -> Any:
    """Read YAML as plain data: no code, no aliases.

    Raises
    ------
    yaml.YAMLError
        It is none.
    """
    try:
        return yaml.load(text, _PlainLoader)  # a SafeLoader
    except yaml.YAMLError:
        raise
    except Exception as error:  # a date that is none, a number without digits, a thousand brackets: any kind
        raise yaml.YAMLError(first_line(error)) from error


def dump_yaml(value: Any) -> str:
    """Return plain data as YAML, keys in their order."""
    return yaml.dump(value, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=120)
