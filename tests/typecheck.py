"""The type checker of the tests: beartype, with whole numbers welcome where a float is asked for (PEP 484).

A check costs as much as a small product, and solvers call some functions a hundred thousand times: each function is
checked at its first calls and at some of the later ones, which halves the time of the tests. A function within another
is defined anew at each call of the other: its calls are counted over all definitions, and it is checked less often,
because making the code of a check takes milliseconds.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial, wraps
from itertools import count
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

FIRST, EVERY, EVERY_WITHIN = 10, 300, 10_000
"""Calls of a function in a process that are checked: so many, and then one in so many; that of one within another."""

ALWAYS = "covopt.records.packed"
"""This module asks isinstance of annotated arrays; only a checked call has dimensions named apart from its caller's."""

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_always = jaxtyping.jaxtyped
_calls: defaultdict[CodeType, Iterator[int]] = defaultdict(count)


def checked_at_times(target: Any = None, *, typechecker: Any) -> Any:
    """Stand in for `jaxtyping.jaxtyped`, which jaxtyping's import hook decorates every function and class with."""
    if target is None:
        return partial(checked_at_times, typechecker=typechecker)
    if not isinstance(target, FunctionType) or target.__module__ == ALWAYS:
        return _always(target, typechecker=typechecker)
    calls, checked = _calls[target.__code__], None
    every = EVERY_WITHIN if "<locals>" in target.__qualname__ else EVERY

    @wraps(target)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checked
        number = next(calls)
        if number < FIRST or number % every == 0:
            checked = checked or _always(target, typechecker=typechecker)
            return checked(*arguments, **named)
        return target(*arguments, **named)

    return call


jaxtyping.jaxtyped = checked_at_times
