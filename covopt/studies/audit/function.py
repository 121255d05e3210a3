"""A network as a function: its Jacobians, and bounds for every network that computes it.

For any matrices D with entries in [-1, 1] and J = A_L D A_{L-1} ... D A_1 (MATH.md section 8),

    L sum_i s_i(J)^(2/L) <= sum_l |W_l|^2,
    sum_l [ sum_{i<=k} (s_i(A_l) - 1)^2 + sum_{i>k} s_i(A_l)^2 + |b_l|^2 ] <= |W|^2 - sum_{i<=k} (L + 2 log s_i(J)).

J is a property of the function wherever no neuron is on a kink, so that the first left-hand side, `lower`, bounds the
norm of every network of L layers that computes the same function near the samples. It bounds no other interpolant of
the data. Samples on a kink are moved aside by MOVED before their Jacobian is taken. If rounding hides even then on
which side of a kink a neuron is, the sample does not count for bounds.

Source: [J23a, Prop. 3] for the first, [J23b, Thm. 6] in a computable form for the second.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.linalg.psd import RANK_RULE
from covopt.model.jacobian import Passage
from covopt.model.problem import Problem
from covopt.model.reading import as_matrix
from covopt.model.sharpness import is_little_work, sharpness
from covopt.model.weights import Weights
from covopt.records import record
from covopt.runtime.errors import ProblemError, counted
from covopt.studies.audit.function_layers import SHOWN, FunctionLayer, distance_of, layers_of
from covopt.studies.audit.statements import statements_of
from covopt.studies.audit.words import Statement

# Subtracted from a bound, relative, for the rounding of logarithms and sums; singular values subtract their own.
SLACK = 2.0**-40


@dataclass(frozen=True)
class Bottleneck:
    """[J23b, Thm. 6] in a computable form."""

    k: int  # the number of directions for which `at_most` is smallest
    sum: float  # squared distances of (s_1(A_l), s_2(A_l), ..., |b_l|) from k ones and zeros, over the layers
    at_most: float  # the theorem's bound on it, |W|^2 - sum_{i<=k} (L + 2 log s_i(J)) at the best sample


@dataclass(frozen=True)
class FunctionAudit:
    """The properties of a network as a function, at samples; None for what float64 cannot hold.

    `lower` is L max_x sum_i s_i(Jf(x))^(2/L), a bound on |W|^2 over all networks of L layers that compute the same
    function near these samples, and on nothing else; None where no sample is off all kinks. The samples of the largest
    rank, if that is not 0, give `pseudo_determinant`, the smallest, median and largest product of the positive singular
    values, and `R1_lower`, 2 log max_x |Jf(x)|_+, a bound on R_1 of the function if its R_0 is that rank. Gradient
    descent with a larger step than `stable_step`, 2 / (sharpness + 2 lam), with free biases 2 / sharpness, is unstable
    in the direction of the sharpness.
    """

    rows: int  # number of examined samples: all, or evenly spaced ones if there are many
    elsewhere: bool  # True if they differ from those of the problem
    kinks: int  # number of samples on a kink, whose Jacobian is taken beside them
    jacobian_rank: dict[int, int]  # the number of samples by the numerical rank of their Jacobian
    jacobian_values: list[float] | None  # its largest singular values, each the median over the samples
    pseudo_determinant: tuple[float, float, float] | None
    lower: float | None
    share: float | None  # lower / |W|^2
    R1_lower: float | None
    bottleneck: Bottleneck | None  # the distance of the layers from k ones and zeros
    ntk_trace: float | None  # the mean of Tr Theta(x, x) over the samples, over L
    sharpness: float | None  # largest eigenvalue of the Gauss-Newton matrix of C on the data (mse for exact fits)
    stable_step: float | None
    layers: list[FunctionLayer] = field(default_factory=list)  # each layer of weights, from the first
    statements: list[Statement] = field(default_factory=list)  # the statements of the papers on one network

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        return record.plain(vars(self))


def function_of(
    problem: Problem,
    weights: Weights,
    *,
    at: Float[Tensor, "M n0"] | None = None,
    orbits: Float[Tensor, "M n0"] | None = None,
    work: float = 3e10,
) -> FunctionAudit:
    """Measure the network as a function.

    Args:
        at: inputs to examine; None: the problem's samples. The sharpness is always that on the problem's samples.
        orbits: the same samples after a transformation, row by row, for the collapse of orbits in each layer.
        work: multiplications that the Jacobians may take; for more, some of the samples are examined.
    """
    X = problem.X if at is None else at
    taken = _spread(len(X), weights, work)
    X, moved = X[taken], None if orbits is None else orbits[taken]
    passage = Passage(weights, X, problem.beta, problem.activation)
    beside, kinks, regular = _off_kinks(problem, weights, passage, X)
    logarithms, least, ranks = _spectra(beside)
    norm = math.fsum(float(W.double().square().sum()) for W in weights)
    k = int(ranks.max())
    at_k = (ranks == k) & (k > 0)
    lower = None
    if bool(regular.any()):  # L max_x sum_i s_i^(2/L), rounded down
        sums = torch.exp(least[regular] * (2.0 / problem.depth)).sum(dim=1)
        lower = record.known(problem.depth * float(sums.max()) * (1.0 - SLACK))
    low = _bottleneck(least, weights, norm)
    sharp = None
    if is_little_work(problem, weights):
        whole = passage if at is None and len(X) == problem.samples else None
        sharp = sharpness(problem, weights, whole or Passage(weights, problem.X, problem.beta, problem.activation))
    return FunctionAudit(
        rows=len(X),
        elsewhere=at is not None,
        kinks=kinks,
        jacobian_rank=dict(sorted(Counter(ranks.tolist()).items())),
        jacobian_values=_medians(logarithms[:, :SHOWN]),
        pseudo_determinant=_determinants(logarithms[at_k, :k]) if k else None,
        lower=lower,
        share=None if lower is None or not 0.0 < norm < math.inf else record.known(lower / norm),
        R1_lower=_first_correction(least[at_k & regular, :k]) if k else None,
        bottleneck=low,
        ntk_trace=_mean_of_logs(passage.kernel_trace, problem.depth),
        sharpness=sharp,
        stable_step=_step(sharp, problem.least_decay),
        layers=layers_of(problem, weights, passage, None if low is None else low.k, moved),
        statements=statements_of(
            problem,
            weights,
            beside.inputs[0].plain()[:, :-1],
            least,
            (0, math.inf) if low is None else (low.k, low.at_most),
        ),
    )


def checked_inputs(problem: Problem, at: object, orbits: object) -> tuple[Tensor | None, Tensor | None]:
    """Check the inputs at which the function is examined, and their transforms."""
    X = problem.X
    elsewhere = None if at is None else as_matrix(at, "at", X.device).double()
    transformed = None if orbits is None else as_matrix(orbits, "orbits", X.device).double()
    for name, rows in (("at", elsewhere), ("orbits", transformed)):
        if rows is not None and rows.shape[1] != X.shape[1]:
            raise ProblemError(
                f"{name} has {counted(rows.shape[1], 'column')}, but the network takes {counted(X.shape[1], 'input')};"
                " give inputs of the same kind as X."
            )
    points = X if elsewhere is None else elsewhere
    if transformed is not None and len(transformed) != len(points):
        raise ProblemError(
            f"orbits has {counted(len(transformed), 'row')}, but there are {counted(len(points), 'input')}; give the"
            " transform of each, in the same order."
        )
    return elsewhere, transformed


def _spectra(passage: Passage) -> tuple[Float[Tensor, "N r"], Float[Tensor, "N r"], Int[Tensor, " N"]]:
    """Return logarithms of the singular values of the Jacobians, the same less all rounding, and numerical ranks."""
    logarithms, least, ranks = [], [], []
    for J in passage.jacobians():
        s, off = J.singular_values()
        logarithms.append(J.logarithms(s))
        least.append(J.logarithms(s - off[:, None]))
        ranks.append(RANK_RULE.keeps(s).sum(dim=1))
    return torch.cat(logarithms), torch.cat(least), torch.cat(ranks)


def _spread(samples: int, weights: Weights, work: float) -> Tensor:
    """Return the indices of evenly spaced samples, as many as the work on their Jacobians allows."""
    outputs, inputs = len(weights[-1]), weights[0].shape[1] - 1
    jacobian = outputs * sum(W.numel() for W in weights) + 10 * outputs * inputs * min(outputs, inputs)
    count = max(1, min(samples, int(work / max(1, jacobian))))
    return torch.arange(count) * samples // count


def _off_kinks(
    problem: Problem, weights: Weights, passage: Passage, X: Float[Tensor, "N n0"]
) -> tuple[Passage, int, Bool[Tensor, " N"]]:
    """Move samples off kinks; return the new passage, the number of moves, and which samples are off."""
    regular = passage.regular()
    if bool(regular.all()):
        return passage, 0, regular
    distance = 1e-6 * (float(X.abs().max()) or 1.0)
    step = torch.randn(X.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(X.device)
    beside = Passage(weights, torch.where(regular[:, None], X, X + distance * step), problem.beta, problem.activation)
    return beside, int((~regular).sum()), beside.regular()


def _bottleneck(least: Float[Tensor, "N r"], weights: Weights, norm: float) -> Bottleneck | None:
    """Return Theorem 6 at its tightest k and sample; every sample counts, on kinks too."""
    gains = (len(weights) + 2.0 * least).clamp_min(0.0)
    best = float(gains.sum(dim=1).max())
    row = int(gains.sum(dim=1).argmax())
    k = int((gains[row] > 0.0).sum())
    at_most = norm - best + SLACK * (norm + best)
    total = math.fsum(distance_of(W, k) for W in weights)
    return Bottleneck(k, total, at_most) if math.isfinite(at_most) and math.isfinite(total) else None


def _medians(logs: Float[Tensor, "N r"]) -> list[float] | None:
    values = _middle(logs.exp().sort(dim=0).values)
    return values.tolist() if bool(values.isfinite().all()) else None


def _middle(ascending: Tensor) -> Tensor:
    """Return the median of sorted values; for an even number the mean of the two middle ones."""
    return 0.5 * ascending[(len(ascending) - 1) // 2] + 0.5 * ascending[len(ascending) // 2]


def _determinants(logs: Float[Tensor, "N k"]) -> tuple[float, float, float] | None:
    """Return the smallest, median and largest product."""
    ascending = logs.sum(dim=1).exp().sort().values
    values = ascending.tolist()
    return (values[0], float(_middle(ascending)), values[-1]) if values[0] > 0.0 and values[-1] < math.inf else None


def _first_correction(least: Float[Tensor, "N k"]) -> float | None:
    """Return 2 log max |J|_+, rounded down."""
    if not len(least):
        return None
    value = 2.0 * float(least.sum(dim=1).max())
    return record.known(value - SLACK * abs(value))


def _mean_of_logs(logs: Float[Tensor, " N"], depth: int) -> float | None:
    value = float(torch.logsumexp(logs, dim=0)) - math.log(len(logs)) - math.log(depth)
    return 0.0 if value == -math.inf else record.known(math.exp(value) if value < 700.0 else math.inf)


def _step(sharp: float | None, lam: float) -> float | None:
    """Return 2 / (sharpness + 2 lam)."""
    curved = None if sharp is None else sharp + 2.0 * lam
    return None if not curved else record.known(2.0 / curved)
