"""The second face of the loss: hidden representations.

See MATH.md section 2 and [JGHG22, Prop. 1].

    L_r(Z) = C(Z_L) + lam sum_l |Z_l^T (Zs_{l-1}^T)^+|_F^2    over Im Z_l inside Im Zs_{l-1}, l = 1..L,

with Zs_0 = [X, beta 1] and Zs_l = [sigma(Z_l), beta 1]. A network's weights W are sent to weights of least norm with
the same representations, W_l = Z_l^T (Zs_{l-1}^T)^+, so L_r(Z(W)) <= L(W), with equality exactly when every W_l already
has that form (its rows lie in the row space of Zs_{l-1}); what W loses acts on nothing in the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from covopt.linalg.cholesky import AnyFactor, factorize
from covopt.linalg.psd import RANK_RULE, Factor, RankRule, thin
from covopt.linalg.trace import trace_gradients, trace_value
from covopt.model.problem import Problem
from covopt.model.weights import inputs_from
from covopt.runtime.errors import ProblemError

Representations = Sequence[Float[Tensor, "N _"]]


def to_weights(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> list[Float[Tensor, "_ _"]]:
    """Return [W_1, ..., W_L] of least norm with Z_l = Zs_{l-1} W_l^T.

    W_l = Z_l^T (Zs_{l-1}^T)^+, shape (n_l, n_{l-1} + 1). Off the feasible set layer l gives P_{Im Zs_{l-1}} Z_l on the
    given Zs_{l-1}, which is not Z_l: `project` first. With Tikhonov t > 0 these are ridge weights, which reproduce Z up
    to O(t) only.

    Raises:
        ProblemError: when the shapes of Z do not fit the problem.
    """
    return [factorize(Zs, rule).solve(z).mT for z, Zs in zip(Z, layer_inputs(problem, Z), strict=True)]


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


@dataclass(frozen=True)
class Projected:
    """Z -> L_r(project(Z)) at one point.

    Attributes:
        value: L_r of the projected point.
        gradient: in the Z before the projection, shapes (N, n_l).
        Z: the projected point.
        missed: max |Z_L - P Z_L|, how much of the outputs the projection cut off.
    """

    value: float
    gradient: list[Float[Tensor, "N _"]]
    Z: list[Float[Tensor, "N _"]]
    missed: float


def projected_loss(
    problem: Problem, Z: Representations, rule: RankRule = RANK_RULE, first: Factor | None = None
) -> Projected:
    """Return L_r(project(Z)) and its gradient at any Z, from one decomposition of each Zs_l.

    It is zero at every stationary network. When Z_l moves, P_{Im Zs_l} turns and carries Z_{l+1} along; off the range
    the turning also tilts what is cut off (Golub, Pereyra):

        d(P Z) = (I - P) dZs Zs^+ Z + (Zs^+)^T dZs^T (I - P) Z + P dZ.

    From the top down, with g_l = dL_r/dZ_l, G_l the derivative before the projection of layer l, and W_{l+1} =
    Z_{l+1}^T (Zs_l^T)^+, for feasible Z

        G_L = g_L,   G_l = g_l + sigma'(Z_l) * [(I - P_{Im Zs_l}) G_{l+1} W_{l+1} without its bias column],

    and the answer is P_{Im Zs_{l-1}} G_l. Where the layers above are stationary, G_l = 2 lam (A_l - M_l) with M the
    back-propagated dual of MATH.md section 5: (Ks_{l-1})^+ Z_l = P_{Im Zs_{l-1}} M_l at a stationary point (derived).

    For `interpolate` Z_L is held fixed: the last entry of the gradient is the penalty's part alone, and the others hold
    for moves that leave Z_L in Im Zs_{L-1}, all moves where Zs_{L-1} has full row rank.

    Args:
        problem: the problem.
        Z: any Z_1 ... Z_L.
        rule: with Tikhonov, the value is L_r with it, at the projected point.
        first: the decomposed Zs_0 where the caller has it.
    """
    check_representations(problem, Z)
    projected, inputs, factors = _project(problem, Z, rule, first)
    norm = sum(float(trace_value(z, factor)) for z, factor in zip(projected, factors, strict=True))
    value = float(problem.loss_at(projected[-1])) + problem.lam * norm
    total = _partials(problem, projected, inputs, factors)
    carried = problem.depth - 1 if problem.interpolates else problem.depth
    for layer in range(carried - 1, 0, -1):
        factor, G = factors[layer], total[layer]
        plain = factor.without_tikhonov()
        turning = factor.reject(G) @ plain.solve(Z[layer]).mT + factor.reject(Z[layer]) @ plain.solve(G).mT
        total[layer - 1] = total[layer - 1] + _through(problem, projected[layer - 1], turning)
    gradient = [factor.project(G) for factor, G in zip(factors, total, strict=True)]
    return Projected(value, gradient, projected, float((Z[-1] - projected[-1]).abs().max()))


def project(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> list[Float[Tensor, "N _"]]:
    """Project onto the feasible set: Z_l <- P_{Im Zs_{l-1}} Z_l from l = 1 up, Zs updated."""
    check_representations(problem, Z)
    return _project(problem, Z, rule)[0]


def _project(
    problem: Problem, Z: Representations, rule: RankRule, first: Factor | None = None
) -> tuple[list[Tensor], list[Tensor], list[Factor]]:
    """Project as `project`, and return Zs_0 ... Zs_{L-1} and their decompositions too."""
    inputs, factors = [problem.Xt], [thin(problem.Xt, rule) if first is None else first]
    projected = [factors[0].project(Z[0])]
    for layer, z in enumerate(Z[1:], start=1):
        inputs.append(problem.appended(projected[-1], layer))
        factors.append(thin(inputs[-1], rule))
        projected.append(factors[-1].project(z))
    return projected, inputs, factors


def _partials(
    problem: Problem, Z: Representations, inputs: Representations, factors: Sequence[AnyFactor]
) -> list[Tensor]:
    """Return the partial derivatives of L_r, shapes (N, n_l), from Zs_0 ... Zs_{L-1} and their decompositions.

    They are minus the sum of the forces of MATH.md section 2:

        dL_r/dZ_l = 2 lam A_l - 2 lam sigma'(Z_l) * [A_{l+1} W_{l+1} without its bias column],  l < L,
        dL_r/dZ_L = 2 lam A_L + grad C,

    A_l = (Ks_{l-1})^+ Z_l and W_l as in `to_weights`; off the feasible set with the range term of `linalg.trace`.
    Exact where the rank of each Zs_l is locally constant and Z_l has no zeros. For `interpolate` the last entry is the
    penalty's part alone, Z_L = Y being fixed.
    """
    parts = [trace_gradients(*layer) for layer in zip(Z, inputs, factors, strict=True)]
    gradients = [problem.lam * by_Z for by_Z, _ in parts]
    for layer in range(problem.depth - 1):
        gradients[layer] = gradients[layer] + problem.lam * _through(problem, Z[layer], parts[layer + 1][1])
    if not problem.interpolates:
        gradients[-1] = gradients[-1] + problem.gradient_at(Z[-1])
    return gradients


def _through(problem: Problem, z: Tensor, by_Zs: Tensor) -> Tensor:
    """Return the gradient in z of a gradient in Zs = [sigma(z), beta 1]."""
    return problem.activation.derivative(z) * by_Zs[:, :-1]
