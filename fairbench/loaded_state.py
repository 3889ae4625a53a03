"""What Python holds at this moment: data, arrays, networks and code, as text that reads the same in every process.

Values that cannot be read so (open files, objects of one's own classes) have no text. No text holds an address, and
none depends on the order of a set.
"""

import dataclasses
import inspect
import json
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from fairbench import provenance

_DEPTH = 8


def spelt(value: Any, *, tensors: bool = True) -> str | None:
    """Return how plain data, arrays and networks read; None for anything else.

    Parameters
    ----------
    tensors
        Whether torch's tensors and networks count.

    Examples
    --------
    >>> spelt([0.1, "a"]), spelt({2, 1}), spelt(object())
    ('["list", [0.1, "a"]]', '["set", [1, 2]]', None)
    """
    plain = _plain(value, tensors, _DEPTH)
    return None if plain is None and value is not None else json.dumps(plain)


def module_state(module: ModuleType) -> list[str]:
    """Return the text of a loaded module: its plain data, and the code of its functions and classes."""
    said = []
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if own and inspect.isclass(value):
            said += [f"{name}.{text}" for text in _class_state(value)]
        elif own and inspect.isfunction(value):
            said += [f"{name}:{text}" for text in function_state(value)]
        elif not name.startswith("__") and (spelling := spelt(value)) is not None:
            said.append(f"{name}:{spelling}")
    return sorted(said)


def function_state(function: Any) -> Iterator[str]:
    """Yield the text of a function: its code, defaults, and what it closes over; of what it wraps, too."""
    for one in {id(f): f for f in (function, inspect.unwrap(function)) if inspect.isfunction(f)}.values():
        yield f"code {json.dumps(_code(one.__code__))}"
        yield f"defaults {spelt(one.__defaults__)}, {spelt(one.__kwdefaults__)}"
        for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True):
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            yield f"{name} {json.dumps(_code(held.__code__)) if inspect.isfunction(held) else spelt(held)}"


def _class_state(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value  # methods, properties
        if inspect.isfunction(inner):
            yield from (f"{name}:{text}" for text in function_state(inner))
        elif not name.startswith("__") and (spelling := spelt(value)) is not None:
            yield f"{name}:{spelling}"


def _code(code: CodeType) -> list[Any]:
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    bytecode = (code.co_code.hex(), code.co_exceptiontable.hex())
    return [code.co_name, *bytecode, *map(list, names), *counts, [_constant(value) for value in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return [_constant(part) for part in value]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _plain(value: Any, tensors: bool, depth: int) -> Any:
    """Return what JSON can hold; None for what cannot be read, or must not be."""
    if value is None or isinstance(value, bool | int | float | str):
        return value if type(value) in (type(None), bool, int, float, str) else str(value)
    try:
        return _read(value, tensors, depth)
    except Exception:  # closed files, odd mappings, tensors without data
        return None


def _read(value: Any, tensors: bool, depth: int) -> Any:
    if isinstance(value, bytes | complex):
        return [type(value).__name__, repr(value)]
    if isinstance(value, np.ndarray | np.generic):
        return _of_array(np.asarray(value))
    if "torch" in sys.modules and (text := _of_torch(value)) is not None:
        return text if tensors else None
    if isinstance(value, np.lib.npyio.NpzFile):
        value = dict(value.items())
    if not isinstance(value, dict | list | tuple | set | frozenset) and not _is_record(value):
        return None
    kind = type(value).__name__
    if depth == 0 or any(value is held for held in (sys.argv, sys.path)):
        return kind
    inner = [_named(part, tensors, depth - 1) for part in _parts(value)]
    return [kind, sorted(inner, key=json.dumps) if isinstance(value, set | frozenset) else inner]


def _parts(value: Any) -> list[Any]:
    """Return what a collection holds; of a mapping its pairs in the order of their keys' text."""
    mapping = vars(value) if _is_record(value) else value
    if isinstance(mapping, dict):
        return sorted(((spelt(key) or type(key).__name__, held) for key, held in mapping.items()), key=lambda p: p[0])
    return list(mapping)


def _named(value: Any, tensors: bool, depth: int) -> Any:
    plain = _plain(value, tensors, depth)
    return f"of {type(value).__name__}" if plain is None and value is not None else plain


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _of_array(array: np.ndarray) -> Any:
    return None if array.dtype.hasobject or array.dtype.kind == "T" else ["array", provenance.sha256_array(array)]


def _of_torch(value: Any) -> Any:
    import torch

    if isinstance(value, torch.nn.Module):
        return ["network", type(value).__name__, provenance.sha256_state(value.state_dict())]
    return ["tensor", provenance.sha256_state({"": value})] if isinstance(value, torch.Tensor) else None
