"""Statements of [J23a] and [J23b] on one network, evaluated at samples (proofs: MATH.md section 8).

With A_l = W_l without its bias column, J(x) the Jacobian, J_l(x) that from Z_l to the outputs, and s_i singular values:

* [J23a, Prop. 4] a hidden layer whose s_2 / s_1 is O(1 / L), from |W|^2 - L alone;
* [J23b, Thm. 7 and Cor. 8] representations are bounded by the trace of the neural tangent kernel, and so is what
  they have beyond the k dimensions of the bottleneck;
* [J23b, Prop. 9] the second derivative of the kernel is at least L s_1^(2 - 2/L);
* [J23b, Prop. 13] two samples with different Jacobians need a larger norm than each of them;
* [J23b, Thm. 3] the bound by Jacobians is sub-additive under composition, as the representation cost is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import RANK_RULE
from covopt.model.jacobian import Passage
from covopt.model.problem import Problem
from covopt.model.weights import Weights
from covopt.studies.audit.words import Statement, Void, evaluated

# Samples; multiplications for their Jacobians and the decompositions of these, about.
MOST_SAMPLES, WORK = 256, 1e10
LARGEST = 1e150
"""Numbers whose squares float64 holds."""
CANCELLED = 1e-6
"""Centred matrices that are smaller than this part of what was centred are rounding."""


class Network:
    """A network at N samples, in plain numbers.

    Attributes:
        logs: logarithms of the singular values of J(x), rounded down, (N, r).
        k, at_most: the directions of the bottleneck, and the bound on the squared distance of all layers from it.
        A, Z: A_1 ... A_L and Z_1 ... Z_L.
        inputs: Zs_0 ... Zs_{L-1}, with their bias columns.
        D: the slopes of the hidden layers.
        J: J(x), J_1(x), ..., J_L(x).
        powers: L sum_i s_i(J(x))^(2/L), a bound for each sample; best: the sample of the largest.
        forward: the Jacobians x -> Z_1, ..., x -> Z_L at that sample, on the rows of A_1 alone, which changes no
            singular value.
    """

    def __init__(self, problem: Problem, passage: Passage, logs: Float[Tensor, "N r"], k: int, at_most: float) -> None:
        self.problem, self.passage, self.logs, self.k, self.at_most = problem, passage, logs, k, at_most
        self.A = [W.plain()[:, :-1] for W in passage.W]
        self.Z = [Z.plain() for Z in passage.Z]
        self.inputs = [Zs.plain() for Zs in passage.inputs]
        self.D = [problem.activation.derivative(Z) for Z in self.Z[:-1]]
        self.J = passage.backward()
        self.depth = len(self.A)
        self.powers = self.depth * torch.exp(logs * (2.0 / self.depth)).sum(dim=1)
        self.best = int(self.powers.argmax())
        self.forward = [torch.linalg.qr(self.A[0].T, mode="r").R.T]
        for A, D in zip(self.A[1:], self.D, strict=True):
            self.forward.append(A @ (D[self.best][:, None] * self.forward[-1]))

    def centred(self, Z: Float[Tensor, "N n"]) -> Float[Tensor, "N n"]:
        """Return Z less its mean if there is a bias; raise Void if only rounding remains."""
        centred = Z if self.problem.beta == 0.0 else Z - Z.mean(dim=0)
        if not float(centred.norm()) > CANCELLED * float(Z.norm()):
            raise Void("a layer is constant at these samples, or vanishes")
        return centred

    def representations_at_most(self) -> float:
        """Return the bound of Theorem 7 on sum_l |Zs_{l-1}(x)|^2, the mean over the samples."""
        if not self.k:
            raise Void("the bottleneck has no direction")
        if self.k > self.logs.shape[1] or not bool(self.logs[:, self.k - 1].isfinite().all()):
            raise Void(f"the Jacobian at some sample has a rank below {self.k}")
        products = torch.stack([torch.linalg.svdvals(A)[: self.k].log().sum() for A in self.A]).cumsum(dim=0)
        gains = float(products.max()) - self.logs[:, : self.k].sum(dim=1)
        return float((self.passage.kernel_trace + (2.0 / self.k) * gains).exp().mean()) / self.k


def statements_of(
    problem: Problem,
    weights: Weights,
    X: Float[Tensor, "N n0"],
    logs: Float[Tensor, "N r"],
    bottleneck: tuple[int, float],
) -> list[Statement]:
    """Evaluate each statement on a network.

    Args:
        X: samples; at most MOST_SAMPLES of them are used, evenly spaced, and fewer where they take more than WORK.
        logs: logarithms of the singular values of their Jacobians, rounded down.
        bottleneck: its k, and the bound on the distance from it.
    """
    outputs = len(weights[-1])
    per_sample = sum(outputs * W.numel() + 12 * outputs * W.shape[1] * min(outputs, W.shape[1]) for W in weights)
    count = max(1, min(len(X), MOST_SAMPLES, int(WORK / max(1, per_sample))))
    rows = torch.arange(count) * len(X) // count
    passage = Passage(weights, X[rows], problem.beta, problem.activation)
    network = Network(problem, passage, logs[rows], *bottleneck)
    matrices = [*network.A, *network.Z, *network.inputs, *network.J, *network.forward]
    if not all(bool((matrix.abs() <= LARGEST).all()) for matrix in matrices):
        return [Statement(source, reason="float64 cannot hold its numbers") for source in STATEMENTS]
    return [evaluated(source, lambda sides=sides: sides(network)) for source, sides in STATEMENTS.items()]


def _narrow_layer(network: Network) -> tuple[float, float]:
    """[J23a, Prop. 4]: the smallest s_2 / s_1 of the hidden layers, and its bound by the norms of the layers."""
    centred = [network.centred(Z) for Z in (network.inputs[0][:, :-1], *network.Z)]
    growth = math.log(float(centred[0].norm())) - math.log(float(torch.linalg.svdvals(centred[-1]).sum()))
    growth += math.fsum(math.log(float(A.norm())) for A in network.A)
    share = math.expm1(2.0 * max(0.0, growth) / (network.depth - 1))  # (1 + r)^2 / (1 + r^2) - 1 at the bound r
    if share >= 1.0:
        raise Void("the layers have too large a norm for one dimension")
    return min(_ratio(Z) for Z in centred[1:-1]), share / (1.0 + math.sqrt(1.0 - share**2))


def _printed_ratio(network: Network) -> tuple[float, None]:
    """[J23a, Prop. 4] as printed: an order of magnitude, without a constant."""
    return network.depth**0.25 * min(_ratio(Z) for Z in network.Z[:-1]), None


def _representations(network: Network) -> tuple[float, float]:
    """[J23b, Thm. 7]: the sizes of the layers' inputs, and their bound by the trace of the kernel."""
    sizes = math.fsum(float(Zs.square().sum()) / len(Zs) for Zs in network.inputs)
    return sizes, network.representations_at_most()


def _tails(network: Network) -> tuple[float, float]:
    """[J23b, Cor. 8]: s_{k+1}(Z_l / sqrt N), the mean over the layers, and its bound by Theorems 6 and 7."""
    bound = math.sqrt(network.representations_at_most() * network.at_most) / network.depth
    spectra = [torch.linalg.svdvals(Z) / math.sqrt(len(Z)) for Z in network.Z]
    if bound >= math.fsum(float(s[:1].sum()) for s in spectra) / network.depth:
        raise Void("the bound is larger than the largest singular values are")
    return math.fsum(float(s[network.k : network.k + 1].sum()) for s in spectra) / network.depth, bound


def _kernel_curvature(network: Network) -> tuple[float, float]:
    """[J23b, Prop. 9]: L, and d_x d_y Theta in the leading directions u, v over s^(2 - 2/L), the minimum.

    It is sum_l |E_{l-1} u|^2 |J_l^T v|^2 at y = x, with the derivatives E_{l-1} u of S_{l-1} along u.
    """
    if network.problem.activation.slope not in (0.0, 1.0):
        raise Void("a slope of the activation is neither 0 nor 1")
    moves = network.logs[:, :1].sum(dim=1) > -math.inf
    if not network.logs.shape[1] or not bool(moves.any()):
        raise Void("the Jacobian is 0 at all samples")
    V, _, Uh = torch.linalg.svd(network.J[0], full_matrices=False)
    along, total = Uh[:, 0], torch.zeros_like(Uh[:, 0, 0])
    for A, D, J in zip(network.A, [*network.D, torch.ones_like(network.Z[-1])], network.J[1:], strict=True):
        total += along.square().sum(dim=1) * torch.einsum("nof,no->nf", J, V[:, :, 0]).square().sum(dim=1)
        along = D * (along @ A.T)
    log_ratios = total.log() - (2.0 - 2.0 / network.depth) * network.logs[:, 0]
    return float(network.depth), math.exp(min(700.0, float(log_ratios[moves].min())))


def _two_samples(network: Network) -> tuple[float, float]:
    """[J23b, Prop. 13]: the bound by two samples, one of them the best alone, and the norm."""
    if not 0.0 <= network.problem.activation.slope <= 1.0:
        raise Void("the activation has a negative slope")
    before = [1.0, *(float(torch.linalg.matrix_norm(F, 2)) if F.numel() else 0.0 for F in network.forward[:-2])]
    behind = [torch.linalg.matrix_norm(J, 2) if J.numel() else J.new_zeros(len(J)) for J in network.J[2:]]
    lipschitz = torch.stack([size * J for size, J in zip(before, behind, strict=True)]).amax(dim=0)
    apart = torch.linalg.svdvals(network.J[0] - network.J[0][network.best]).sum(dim=1)
    differs = apart > CANCELLED * network.J[0].norm(dim=(1, 2))
    if not bool(differs.any()):
        raise Void("the Jacobian is the same at all samples")
    bounds = 0.5 * (network.powers + network.powers[network.best] + apart / lipschitz)
    return float(bounds[differs].max()), math.fsum(float(A.square().sum()) for A in network.A)


def _composition(network: Network) -> tuple[float, float]:
    """[J23b, Thm. 3]: the bound of the whole, and the smallest sum of the bounds of two parts.

    All with as many singular values as the Jacobian of the whole has: those beyond are rounding.
    """
    logs, depth = network.logs[network.best], network.depth
    rank, sums = int(RANK_RULE.keeps((logs - logs[:1]).exp()).sum()), []
    for cut in range(1, depth):
        halves = (network.forward[cut - 1], cut), (network.J[cut + 1][network.best] @ network.A[cut], depth - cut)
        sums.append(sum(n * float(torch.linalg.svdvals(J)[:rank].pow(2.0 / n).sum()) for J, n in halves))
    return depth * float(torch.exp(logs[:rank] * (2.0 / depth)).sum()), min(sums)


def _ratio(Z: Float[Tensor, "N n"]) -> float:
    """Return s_2 / s_1; 0 where there is one singular value, or none."""
    s = torch.linalg.svdvals(Z)
    return float(s[1] / s[0]) if len(s) > 1 and float(s[0]) > 0.0 else 0.0


STATEMENTS: dict[str, Callable[[Network], tuple[float, float | None]]] = {
    "J23a Prop. 4": _narrow_layer,
    "J23a Prop. 4, as printed": _printed_ratio,
    "J23b Thm. 7": _representations,
    "J23b Cor. 8": _tails,
    "J23b Prop. 9": _kernel_curvature,
    "J23b Prop. 13": _two_samples,
    "J23b composition": _composition,
}
