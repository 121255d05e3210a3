"""Rules for options by their names, which every public function applies before it begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

import numpy as np

from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.loop import check_seed, check_time_limit

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def flag(value: object, name: str) -> bool:
    """Return a truth value, NumPy's among them, or raise a ProblemError."""
    if not isinstance(value, (bool, np.bool_)):
        raise ProblemError(f"{name} is {shown(value)}; give true or false.")
    return bool(value)


def function(value: object, name: str) -> object:
    """Return what can be called, or raise a ProblemError."""
    if not callable(value):
        raise ProblemError(f"{name} is {shown(value)}; give a function.")
    return value


def place(value: object, name: str) -> object:
    """Return what can name a file or a directory, or raise a ProblemError."""
    if not isinstance(value, (str, os.PathLike)):
        raise ProblemError(f"{name} is {shown(value)}; give the name of a file or directory.")
    return value


def seconds(value: object, name: str) -> float:
    """Return a number above 0, or raise a ProblemError."""
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0.0:
        raise ProblemError(f"{name} is {shown(value)}; give seconds above 0.")
    return float(value)


def whole(value: object, name: str) -> int:
    """Return a whole number, NumPy's among them, or raise a ProblemError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ProblemError(f"{name} is {shown(value)}; give a whole number.")
    return int(value)


def whole_numbers(values: object, least: int) -> list[int] | None:
    """Return whole numbers >= `least`, each once, ascending; None if anything else is there."""
    if not isinstance(values, Iterable):
        return None
    several = list(values)
    good = all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= least for n in several)
    return sorted({int(n) for n in several}) if good else None


RULES: dict[str, Callable[[object, str], object]] = {
    **dict.fromkeys(("skip", "spread", "resume", "nesterov", "interpolate", "rest", "force"), flag),
    **dict.fromkeys(("callback", "scalings"), function),
    **dict.fromkeys(("directory", "database", "checkpoint", "file"), place),
    **dict.fromkeys(("lease", "checkpoint_every"), seconds),
    **dict.fromkeys(("layer", "points", "folds", "jobs", "steps", "every", "n_lams"), whole),
    "seed": lambda value, _: check_seed(value),
    "time_limit": lambda value, _: check_time_limit(value),
}
"""The rule of each option, for all functions; NumPy's numbers become Python's, None stays."""


def checked(public: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Decorate a public function: its options are checked by their RULES before it runs."""
    declared = signature(public)
    defaults = {name: parameter.default for name, parameter in declared.parameters.items()}

    @wraps(public)
    def door(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        bound = declared.bind(*arguments, **named)
        bound.arguments.update(by_rule(bound.arguments, defaults))
        return public(*bound.args, **bound.kwargs)

    return door


def by_rule(options: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Return those options that have a rule, as their rules return them."""
    return {
        name: RULES[name](value, name)
        for name, value in options.items()
        if name in RULES and not (value is None and defaults.get(name, 0) is None)
    }
