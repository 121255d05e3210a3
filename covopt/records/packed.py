"""Convert dataclasses to a JSON tree with arrays beside it, and back; the files are not trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

IS, ARRAY = "is", "array"
"""The keys of the tree under which the name of a class, or of an array, stands."""


def pack(value: object, arrays: dict[str, NDArray], place: str = "") -> Any:
    """Return a dataclass as a tree; put its arrays into `arrays` by their path, such as parts.0.B."""
    if isinstance(value, np.ndarray):
        arrays[place] = value
        return {ARRAY: place}
    if is_dataclass(value):
        inside = f"{place}." if place else ""
        parts = {f.name: pack(getattr(value, f.name), arrays, inside + f.name) for f in fields(value)}
        return {IS: type(value).__name__} | parts
    if isinstance(value, tuple):
        return [pack(part, arrays, f"{place}.{i}") for i, part in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def unpack(tree: object, arrays: Mapping[str, NDArray], classes: Mapping[str, type]) -> Any:
    """Return the dataclass that `pack` made a tree of: of these classes, with finite float64 arrays.

    Raises:
        KeyError, TypeError, ValueError: the tree holds another class, a field of another type, or other arrays.
    """
    try:
        return _unpacked(tree, arrays, classes)
    except RecursionError as error:
        raise ValueError("a tree that is too deep") from error


def _unpacked(tree: object, arrays: Mapping[str, NDArray], classes: Mapping[str, type]) -> Any:
    if isinstance(tree, list):
        return tuple(_unpacked(part, arrays, classes) for part in tree)
    if not isinstance(tree, dict):
        return tree
    if ARRAY in tree:
        array = arrays[tree[ARRAY]]
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"the array {tree[ARRAY]} does not hold finite numbers")
        return array
    made = classes[tree[IS]]
    values = {name: _unpacked(part, arrays, classes) for name, part in tree.items() if name != IS}
    hints = get_type_hints(made)
    for name, hint in ((field.name, hints[field.name]) for field in fields(made)):
        if isinstance(hint, type) and issubclass(hint, Enum):
            values[name] = hint(values[name])
        if not fits(values[name], hint):
            raise ValueError(f"{name} of {tree[IS]} is of another kind")
    return made(**values)


def fits(value: object, hint: Any) -> bool:
    """Return True if a value has the annotated type: numbers, texts, tuples, arrays, classes."""
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(fits(part, get_args(hint)[0]) for part in value)
    if hint in (bool, int, str, NoneType):
        return type(value) is hint
    return type(value) in (int, float) if hint is float else isinstance(value, hint)
