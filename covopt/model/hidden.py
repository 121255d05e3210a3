"""The second face of the loss: hidden representations.

See MATH.md section 2 and [JGHG22, Prop. 1].

    L_r(Z) = C(Z_L) + lam sum_l |Z_l^T (Zs_{l-1}^T)^+|_F^2    over Im Z_l inside Im Zs_{l-1}, l = 1..L,

with Zs_0 = [X, beta 1] and Zs_l = [sigma(Z_l), beta 1]. A network's weights W are sent to weights of least norm with
the same representations, W_l = Z_l^T (Zs_{l-1}^T)^+, so L_r(Z(W)) <= L(W), with equality exactly when every W_l already
has that form (its rows lie in the row space of Zs_{l-1}); what W loses acts on nothing in the data.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import inputs_from
from covopt.runtime.errors import ProblemError

Representations = Sequence[Float[Tensor, "N _"]]


def layer_inputs(problem: Problem, Z: Representations) -> list[Float[Tensor, "N _"]]:
    """Return [Zs_0, ..., Zs_{L-1}], the inputs of each layer of weights, shapes (N, n_l + 1).

    Raises:
        ProblemError: when the shapes of Z do not fit the problem.
    """
    check_representations(problem, Z)
    return inputs_from(problem, Z)


def check_representations(problem: Problem, Z: Representations) -> None:
    """Raise a ProblemError unless the shapes of Z_1 ... Z_L fit the problem."""
    if len(Z) != problem.depth:
        raise ProblemError(
            f"There are {len(Z)} representations and the problem's depth is {problem.depth}; give one for each layer."
        )
    for layer, z in enumerate(Z, start=1):
        if z.ndim != 2 or len(z) != problem.samples:
            raise ProblemError(
                f"Z{layer} has shape {tuple(z.shape)}, but it must have one row for each of the {problem.samples}"
                " samples."
            )
    if Z[-1].shape[1] != problem.Y.shape[1]:
        raise ProblemError(f"Z{len(Z)} has {Z[-1].shape[1]} columns, but Y has {problem.Y.shape[1]}; they must agree.")
