"""The type checker of the tests: beartype, with whole numbers welcome where a float is asked for (PEP 484).

A check costs as much as a small product, and solvers call some functions a hundred thousand times: each function is
checked at its first calls and at some of the later ones, which halves the time of the tests. A function within another
is defined anew at each call of the other; its calls are counted over all definitions, because making the code of a
check takes milliseconds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial, wraps
from itertools import count
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

FIRST, EVERY = 10, 300
"""Calls of a function in a process that are checked: so many, and then one in so many."""

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_always = jaxtyping.jaxtyped
_own_names = _always("context")  # names of dimensions are a function's own, and not those of a caller that is checked
_calls: defaultdict[CodeType, Iterator[int]] = defaultdict(count)


def checked_at_times(target: Any = None, *, typechecker: Any) -> Any:
    """Stand in for `jaxtyping.jaxtyped`, which jaxtyping's import hook decorates every function and class with."""
    if target is None:
        return partial(checked_at_times, typechecker=typechecker)
    if not isinstance(target, FunctionType):
        return _always(target, typechecker=typechecker)
    calls = _calls[target.__code__]
    checked: Callable[[], Callable[..., Any]] = cache(lambda: _always(target, typechecker=typechecker))

    @wraps(target)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        number = next(calls)
        if number < FIRST or number % EVERY == 0:
            return checked()(*arguments, **named)
        with _own_names:
            return target(*arguments, **named)

    return call


jaxtyping.jaxtyped = checked_at_times
