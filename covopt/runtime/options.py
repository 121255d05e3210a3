"""One rule for each option name, which every public function applies before it begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, get_type_hints

import numpy as np

from covopt.runtime.errors import ProblemError, listed, meant_or, shown
from covopt.runtime.loop import check_seed, check_time_limit
from covopt.runtime.names import meant

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
Value = TypeVar("Value")


def _rule(holds: Callable[[Any], bool], remedy: str, made: Callable[[Any], Value]) -> Callable[[object, str], Value]:
    """Return a rule: a function of a value and its name that returns `made(value)`, or raises a ProblemError."""

    def rule(value: object, name: str) -> Value:
        if not holds(value):
            raise ProblemError(f"{name} is {shown(value)}; give {remedy}.")
        return made(value)

    return rule


def _is_a(value: object, kind: type) -> bool:
    """Return True for numbers of a kind, including NumPy's; booleans are not numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)


flag = _rule(lambda value: isinstance(value, (bool, np.bool_)), "true or false", bool)
function = _rule(callable, "a function", lambda value: value)
place = _rule(lambda path: isinstance(path, (str, os.PathLike)), "the name of a file or directory", lambda path: path)
seconds = _rule(lambda value: _is_a(value, Real) and float(value) > 0.0, "seconds above 0", float)
whole = _rule(lambda value: _is_a(value, Integral), "a whole number", int)


def whole_numbers(values: object, name: str, least: int, can_be_empty: bool = False) -> list[int]:
    """Return whole numbers >= `least`, each once, ascending; raise a ProblemError if `values` is anything else."""
    several: list[Any] = list(values) if isinstance(values, Iterable) else [None]
    if not all(_is_a(n, Integral) and int(n) >= least for n in several) or not (several or can_be_empty):
        text = (listed(several) if several else "none") if isinstance(values, (list, tuple)) else shown(values)
        raise ProblemError(f"The {name} are {text}; give whole numbers of at least {least}.")
    return sorted({int(n) for n in several})


RULES: dict[str, Callable[[object, str], object]] = {
    **dict.fromkeys(("skip", "spread", "resume", "nesterov", "interpolate", "rest", "force", "progress"), flag),
    **dict.fromkeys(("callback", "scalings"), function),
    **dict.fromkeys(("directory", "database", "checkpoint", "file"), place),
    **dict.fromkeys(("lease", "checkpoint_every"), seconds),
    **dict.fromkeys(("layer", "points", "folds", "jobs", "steps", "every", "n_lams"), whole),
    "source": _rule(lambda name: isinstance(name, (str, os.PathLike)), "the name of a file or data set", os.fspath),
    "seed": lambda value, _: check_seed(value),
    "time_limit": lambda value, _: check_time_limit(value),
}
"""The rule of each option, for all functions; NumPy's numbers become Python's."""


def checked(public: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Decorate a public function: RULES check its options before it runs."""
    declared = signature(public)
    called = public.__qualname__.removesuffix(".__init__")
    defaults = {name: parameter.default for name, parameter in declared.parameters.items()}
    open_ended = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in declared.parameters.values())

    @wraps(public)
    def wrapper(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        for unknown in () if open_ended else named.keys() - defaults.keys():
            option = meant(unknown.replace("_", "-"), (name.replace("_", "-") for name in defaults))
            hint = meant_or(option and option.replace("-", "_"))
            raise TypeError(f"{called}() has no argument {unknown}{hint}.")
        try:
            bound = declared.bind(*arguments, **named)
        except TypeError as error:
            remedy = "; give options by name, as in time_limit=60" if "too many positional" in str(error) else ""
            raise TypeError(f"{called}(): {error}{remedy}.") from None
        bound.arguments.update(by_rule(bound.arguments, defaults))
        if "Y" in defaults:
            bound.arguments.update(unpacked(bound.arguments, defaults, public.__name__))
        return public(*bound.args, **bound.kwargs)

    return wrapper


def taking(options: type) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """Decorate a function whose last keywords, `**options`, are a TypedDict: its signature has an entry for each.

    Each annotation of the TypedDict is `Annotated[TYPE, DEFAULT]`.
    """

    def declare(public: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        declared, hints = signature(public), get_type_hints(options, include_extras=True)
        own = list(declared.parameters.values())[:-1]
        further = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=hint.__metadata__[0], annotation=hint.__origin__)
            for name, hint in hints.items()
        ]
        public.__signature__ = declared.replace(parameters=[*own, *further])  # type: ignore[attr-defined]
        return public

    return declare


def unpacked(arguments: Mapping[str, object], names: Container[str], function: str = "solve") -> dict[str, object]:
    """Return X, Y and the weights of a `Dataset` or `TensorDataset` given as X alone; nothing for other arguments."""
    data: Any = arguments.get("X")
    tensors = getattr(data, "tensors", None)
    # A data frame may have columns of these names.
    is_dataset = hasattr(data, "X") and hasattr(data, "Y") and not hasattr(data, "__array__")
    if arguments.get("Y") is not None and (is_dataset or isinstance(tensors, tuple)):
        raise ProblemError(f"X is {shown(data)}, which holds targets; leave Y out, or give its inputs and Y.")
    if data is None or arguments.get("Y") is not None:
        return {}
    if is_dataset:
        weights = getattr(data, "weights", None)
        given: dict[str, object] = {"X": data.X, "Y": data.Y}
        if weights is None or arguments.get("sample_weight") is not None:
            return given
        if "sample_weight" not in names:
            raise ProblemError(
                f"covopt {function} counts all rows the same; leave the weights out, or repeat rows instead."
            )
        return given | {"sample_weight": weights}
    if not isinstance(tensors, tuple):
        raise ProblemError(f"Y is missing, and X is {shown(data)}; give Y, or as X a TensorDataset or a Dataset.")
    if len(tensors) != 2:
        raise ProblemError(f"X is a TensorDataset of {len(tensors)}; give one of two tensors, inputs and targets.")
    return dict(zip("XY", tensors, strict=True))


def by_rule(options: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Check the options that have a rule, and return them; None passes where it is the default."""
    return {
        name: RULES[name](value, name)
        for name, value in options.items()
        if name in RULES and not (value is None and defaults.get(name, 0) is None)
    }
