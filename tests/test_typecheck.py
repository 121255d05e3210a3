"""The checks of shapes in the tests: they find a wrong shape, in functions within functions too."""

from collections.abc import Callable

import jaxtyping
import pytest
import typecheck
from jaxtyping import Float, TypeCheckError
from torch import Tensor, ones


def _added() -> Callable[[Tensor, Tensor], Tensor]:
    """Define a function anew, as a function that holds it does at each call."""

    def add(a: Float[Tensor, "n m"], b: Float[Tensor, "n m"]) -> Tensor:
        return a[:1] + b[:1]

    return jaxtyping.jaxtyped(add, typechecker=typecheck.check)


def test_calls_of_a_function_defined_anew_are_counted_together() -> None:
    for number in range(2 * typecheck.EVERY):
        if number < typecheck.FIRST or number % typecheck.EVERY == 0:
            with pytest.raises(TypeCheckError):
                _added()(ones(2, 1), ones(3, 1))
        else:
            _added()(ones(2, 1), ones(3, 1))
