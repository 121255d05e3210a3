"""Statements of the papers on one network, against autograd and numpy, and attacked with random networks."""

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import covopt
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.studies.audit.function import FunctionAudit, function_of
from covopt.studies.audit.statements import STATEMENTS
from covopt.studies.audit.words import SENTENCES, line_of

Matrix = NDArray[np.float64]


def without_bias(matrices: list[Matrix]) -> list[Matrix]:
    return [np.column_stack([A, np.zeros(len(A))]) for A in matrices]


def audit(weights: list[Matrix], X: Matrix, **options: Any) -> FunctionAudit:
    problem = make_problem(X, np.zeros((len(X), len(weights[-1]))), **({"lam": 0.1, "depth": len(weights)} | options))
    return function_of(problem, [torch.from_numpy(W) for W in weights])


def sides(weights: list[Matrix], X: Matrix, **options: Any) -> dict[str, tuple[float | None, float | None, str]]:
    return {s.source: (s.smaller, s.larger, s.reason) for s in audit(weights, X, **options).statements}


def narrow(rng: np.random.Generator, depth: int, k: int, noise: float, stretch: float) -> list[Matrix]:
    """Layers that pass k orthogonal directions on, up to noise, between widths of 1 to 8."""
    widths = [int(n) for n in rng.integers(k, 9, depth + 1)]
    bases = [np.abs(np.linalg.qr(rng.standard_normal((n, k)))[0]) ** rng.choice([1.0, 0.7]) for n in widths]
    scales = np.exp(stretch * rng.standard_normal((depth, k)))
    layers = [(b * s) @ a.T for (a, b), s in zip(pairwise(bases), scales, strict=True)]
    return [A / max(1.0, np.linalg.norm(A, 2)) + noise * rng.standard_normal(A.shape) for A in layers]


def drawn(seed: int) -> tuple[list[Matrix], Matrix, dict[str, Any]]:
    """Deep and narrow, wide and random, small and large; some with samples that agree or lie on kinks."""
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(2, 13))
    if seed % 3:
        A = narrow(rng, depth, int(rng.integers(1, 4)), 10.0 ** rng.uniform(-4, -0.5), rng.choice([0.0, 0.1]))
    else:
        widths = [int(n) for n in rng.integers(1, 8, depth + 1)]
        A = [rng.standard_normal((n, m)) * rng.uniform(0.3, 2.0) / math.sqrt(m) for m, n in pairwise(widths)]
    biases = rng.choice([0.0, 0.01, 0.3]) * (rng.random() < 0.7)
    weights = [np.column_stack([B, biases * rng.standard_normal(len(B))]) for B in A]
    X = rng.standard_normal((6, A[0].shape[1])) * rng.choice([1.0, 30.0])
    if seed % 7 == 0:
        X = X.round()
    names = ("relu", "relu", "linear", "leaky:0.3", "leaky:-0.7")
    return weights, X, {"bias": float(rng.choice([0.0, 0.3, 1.0])), "activation": names[seed % 5]}


def test_no_random_network_violates_a_statement() -> None:
    """Rounding outweighs none of them either, so that a false inequality could not hide behind it."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for seed in range(700, 850):  # Proposition 4 of J23a comes nearest to equality here
        weights, X, options = drawn(seed)
        for source, (smaller, larger, reason) in sides(weights, X, **options).items():
            assert reason != "rounding outweighs it", (seed, source, smaller, larger)
            if not reason and larger is not None:
                assert smaller <= larger * (1.0 + 1e-9), (seed, source)
                ratios[source].append(smaller / larger if larger else 0.0)
    assert ratios.keys() == STATEMENTS.keys() - {"J23a Prop. 4, as printed"}
    assert all(len(values) >= 15 for values in ratios.values()), {name: len(v) for name, v in ratios.items()}
    assert all(max(values) > 0.05 for values in ratios.values()), {name: max(v) for name, v in ratios.items()}


# ---- the numbers themselves, by numpy and autograd
class Plain:
    """A network's equations once more: representations by numpy, derivatives by autograd."""

    def __init__(self, weights: list[Matrix], X: Matrix, bias: float, activation: str) -> None:
        self.W, self.beta, self.sigma = [torch.from_numpy(W) for W in weights], bias, Activation.parse(activation)
        self.A, self.L, self.x = [W[:, :-1] for W in weights], len(weights), torch.from_numpy(X)
        self.S, self.Z = [X], []
        for W in weights:
            self.Z.append(self.S[-1] @ W[:, :-1].T + bias * W[:, -1])
            self.S.append(self.sigma(torch.from_numpy(self.Z[-1])).numpy())

    def above(self, z: Tensor, layer: int) -> Tensor:
        """The outputs as a function of Z_layer; of the inputs for layer 0."""
        for number in range(layer, self.L):
            s = self.sigma(z) if number else z
            z = self.W[number] @ torch.cat([s, s.new_full((1,), self.beta)])
        return z

    def jacobian(self, layer: int, sample: int) -> Matrix:
        """The Jacobian from Z_layer to the outputs."""
        z = self.x[sample] if layer == 0 else torch.from_numpy(self.Z[layer - 1][sample])
        return torch.autograd.functional.jacobian(lambda z: self.above(z, layer), z).numpy()

    def inward(self, layer: int, sample: int) -> Matrix:
        """The Jacobian from the inputs to Z_layer."""
        J = self.A[0]
        for A, Z in zip(self.A[1:layer], self.Z, strict=False):
            J = A @ (self.sigma.derivative(torch.from_numpy(Z[sample])).numpy()[:, None] * J)
        return J

    def gradient(self, x: Tensor, v: Tensor) -> Tensor:
        """d <v, f(x)> / dW."""
        leaves = [W.clone().requires_grad_() for W in self.W]
        for number, W in enumerate(leaves):
            s = self.sigma(x) if number else x
            x = W @ torch.cat([s, s.new_full((1,), self.beta)])
        return torch.cat([g.flatten() for g in torch.autograd.grad(x @ v, leaves)])


def powers(J: Matrix, depth: int, rank: int | None = None) -> float:
    """L sum_i s_i^(2/L) over the largest singular values."""
    return float(depth * (np.linalg.svd(J, compute_uv=False)[:rank] ** (2.0 / depth)).sum())


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 11, 22, 25, 26])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_the_numbers_are_those_of_other_code(seed: int, bias: float) -> None:
    rng = np.random.default_rng(seed)
    A = narrow(rng, 3 + seed % 4, 1 + seed % 2, 0.02 if seed < 10 else 0.3, 0.05)
    weights = [np.column_stack([B, 0.02 * rng.standard_normal(len(B))]) for B in A]
    X, activation = np.abs(rng.standard_normal((7, A[0].shape[1]))), ("relu", "linear")[seed % 5 == 0]
    measured, plain = audit(weights, X, bias=bias, activation=activation), Plain(weights, X, bias, activation)
    statements, L, N = sides(weights, X, bias=bias, activation=activation), plain.L, len(X)
    J = [[plain.jacobian(layer, i) for i in range(N)] for layer in range(L + 1)]

    def agree(source: str, smaller: float, larger: float | None) -> None:
        ours = statements[source]
        if not ours[2]:
            assert ours[0] == pytest.approx(smaller, rel=1e-6, abs=1e-12), source
            assert ours[1] == (None if larger is None else pytest.approx(larger, rel=1e-6)), source

    centre = np.eye(N) - (bias > 0.0) * np.full((N, N), 1.0 / N)
    spectra = [np.linalg.svd(centre @ Z, compute_uv=False) for Z in plain.Z]
    ratio = min((s[1] / s[0] if len(s) > 1 else 0.0) for s in spectra[:-1])
    growth = np.linalg.norm(centre @ X) * np.prod([np.linalg.norm(B) for B in A]) / spectra[-1].sum()
    q = growth ** (2.0 / (L - 1))
    if statements["J23a Prop. 4"][2] == "":
        r = statements["J23a Prop. 4"][1]
        assert (1.0 + r) ** 2 / (1.0 + r**2) == pytest.approx(q, rel=1e-9)
        agree("J23a Prop. 4", ratio, r)
    else:
        assert q >= 2.0 - 1e-9
    raw = [np.linalg.svd(Z, compute_uv=False) for Z in plain.Z]
    agree("J23a Prop. 4, as printed", L**0.25 * min(s[1] / s[0] if len(s) > 1 else 0.0 for s in raw[:-1]), None)

    k = measured.bottleneck.k
    sizes = sum(np.square(S).sum() / N + bias**2 for S in plain.S[:-1])
    values = [np.linalg.svd(B, compute_uv=False)[:k] for B in A]
    product = max(np.prod(np.concatenate(values[: m + 1])) for m in range(L)) ** (2.0 / k)
    traces = [
        sum(plain.gradient(plain.x[i], e).square().sum() for e in torch.eye(len(A[-1])).double()) for i in range(N)
    ]
    gains = [np.prod(np.linalg.svd(J[0][i], compute_uv=False)[:k]) ** (2.0 / k) for i in range(N)]
    most = float(np.mean([float(t) * product / (k * g) for t, g in zip(traces, gains, strict=True)]))
    agree("J23b Thm. 7", sizes, most)
    beyond = np.mean([(s[k] if len(s) > k else 0.0) / math.sqrt(N) for s in raw])
    agree("J23b Cor. 8", beyond, math.sqrt(most * measured.bottleneck.at_most) / L)

    curvature = []
    for i in range(N):
        U, s, Vt = np.linalg.svd(J[0][i])
        v, u = torch.from_numpy(U[:, 0].copy()), torch.from_numpy(Vt[0].copy())
        e = 1e-5  # no kink is so near, and the gradient is a polynomial along u
        slope = (plain.gradient(plain.x[i] + e * u, v) - plain.gradient(plain.x[i] - e * u, v)) / (2.0 * e)
        curvature.append(float(slope.square().sum()) / s[0] ** (2.0 - 2.0 / L))
    agree("J23b Prop. 9", L, min(curvature))

    pairs, norm = [], sum(float(np.square(B).sum()) for B in A)
    for p in range(N):
        for q_ in range(N):
            inward = [1.0, *(np.linalg.norm(plain.inward(layer, q_), 2) for layer in range(1, L - 1))]
            lipschitz = max(F * np.linalg.norm(J[layer + 2][p], 2) for layer, F in enumerate(inward))
            apart = np.linalg.svd(J[0][p] - J[0][q_], compute_uv=False).sum()
            pairs.append(0.5 * (powers(J[0][p], L) + powers(J[0][q_], L) + apart / lipschitz))
    assert max(pairs) <= norm * (1.0 + 1e-12)
    if not statements["J23b Prop. 13"][2]:
        assert statements["J23b Prop. 13"][0] <= max(pairs) * (1.0 + 1e-9)
        assert statements["J23b Prop. 13"][1] == pytest.approx(norm)

    i = int(np.argmax([powers(j, L) for j in J[0]]))
    rank = int(np.linalg.matrix_rank(J[0][i], rtol=1e-10))
    halves = [(plain.inward(cut, i), cut, J[cut + 1][i] @ A[cut], L - cut) for cut in range(1, L)]
    sums = [powers(F, m, rank) + powers(H, n, rank) for F, m, H, n in halves]
    agree("J23b composition", powers(J[0][i], L, rank), min(sums))


def test_the_printed_factor_of_proposition_9_is_too_large() -> None:
    """f(x) = x as a product of ones: Theta(x, y) = L x y, whose mixed derivative is L, not 2 L."""
    for L in (2, 5):
        smaller, larger, _ = sides(without_bias([np.ones((1, 1))] * L), np.array([[1.0], [2.0]]), bias=0.0)[
            "J23b Prop. 9"
        ]
        assert (smaller, larger) == (L, pytest.approx(L, rel=1e-12))


def test_one_dimension_is_seen_at_a_rate_of_one_over_the_depth() -> None:
    """Of layers u v^T with |u| = |v| = 1 and a little noise, the bound on s_2 / s_1 falls like 1 / L."""
    rng, bounds = np.random.default_rng(0), {}
    for L in (10, 40):
        u = [np.abs(v) / np.linalg.norm(v) for v in rng.standard_normal((L + 1, 5))]
        weights = without_bias([np.outer(b, a) for a, b in pairwise(u)])
        smaller, bounds[L], reason = sides(weights, rng.random((8, 5)), bias=0.0)["J23a Prop. 4"]
        assert (reason, smaller < 1e-12) == ("", True)
    assert bounds[40] < 0.4 * bounds[10] < 0.1


def test_the_reasons_why_a_statement_is_void() -> None:
    one, X = [np.array([[1.0, 0.0]])] * 3, np.array([[1.0], [2.0]])
    assert sides(one, X)["J23b Prop. 13"][2] == "the Jacobian is the same at all samples"
    assert sides(one, X[:1])["J23a Prop. 4"][2] == "a layer is constant at these samples, or vanishes"
    assert "negative slope" in sides(one, X, activation="leaky:-0.5")["J23b Prop. 13"][2]
    assert "neither 0 nor 1" in sides(one, X, activation="leaky:0.5")["J23b Prop. 9"][2]
    assert "has no direction" in sides([0.0 * W for W in one], X)["J23b Thm. 7"][2]
    assert "is 0 at all samples" in sides([0.0 * W for W in one], X)["J23b Prop. 9"][2]
    large = sides([1e160 * W for W in one[:2]], X)
    assert {reason for *_, reason in large.values()} == {"float64 cannot hold its numbers"}


def test_the_sentences() -> None:
    weights, X, options = drawn(1)
    lines = {s.source: line_of(s.summary()) for s in audit(weights, X, **options).statements}
    assert lines.keys() == SENTENCES.keys()
    assert any(line.startswith("holds: ") for line in lines.values())
    assert lines["J23a Prop. 4, as printed"].startswith("L^(1/4) times")


# ---- compositions, and the identity
def test_costs_of_compositions_are_sub_additive() -> None:
    """Two networks one behind the other cost the sum, and compute the composition where sigma keeps what is between."""
    rng = np.random.default_rng(0)
    inner, outer = ([rng.standard_normal(shape) for shape in shapes] for shapes in (((4, 4), (3, 5)), ((5, 4), (2, 6))))
    X = rng.standard_normal((9, 3))
    for negative in (False, True):
        inner[1] = np.abs(inner[1]) * (-1.0 if negative else 1.0)
        between = Plain(inner, X, 1.0, "relu").Z[-1]
        composed = Plain(outer, between, 1.0, "relu").Z[-1]
        together = Plain([*inner, *outer], X, 1.0, "relu").Z[-1]
        assert np.allclose(together, composed) is not negative  # the paper's condition sigma(g) = g is needed
    both = [np.vstack([outer[0], outer[0]]), np.hstack([outer[1][:, :-1]] * 2 + [2.0 * outer[1][:, -1:]])]
    side_by_side = Plain(both, between, 1.0, "relu").Z[-1]  # of sums: [J23a, Thm. 4]; biases of the outputs aside
    assert np.allclose(side_by_side, 2.0 * composed)


def test_corrections_of_linear_compositions_are_sub_additive() -> None:
    """R_1 = 2 log |M|_+ adds, and sqrt R_2 = (2 sum (log s_i)^2)^(1/2) is sub-additive, for invertible M."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        A, B = (rng.standard_normal((4, 4)) * np.exp(rng.normal(0, 1, 4)) for _ in range(2))
        logs = [np.log(np.linalg.svd(M, compute_uv=False)) for M in (A @ B, A, B)]
        first, second = [2.0 * x.sum() for x in logs], [math.sqrt(2.0 * np.square(x).sum()) for x in logs]
        assert first[0] == pytest.approx(first[1] + first[2], abs=1e-9)
        assert second[0] <= second[1] + second[2] + 1e-9


def test_the_identity_of_completely_positive_data_costs_its_rank_at_every_depth() -> None:
    rng = np.random.default_rng(2)
    B, Q = rng.random((6, 4)), np.linalg.qr(rng.standard_normal((7, 4)))[0]
    B[:, 3] = B[:, :3].sum(axis=1)  # rank 3
    X, V = B @ Q.T, np.linalg.svd(B, full_matrices=False)[2][:3].T
    for L in (2, 5):
        weights = without_bias([V @ V.T @ Q.T, *[V @ V.T] * (L - 2), Q @ V @ V.T])
        assert np.allclose(Plain(weights, X, 0.0, "relu").Z[-1], X)
        assert sum(float(np.square(W).sum()) for W in weights) == pytest.approx(3 * L)
        assert audit(weights, X, bias=0.0).R1_lower == pytest.approx(0.0, abs=1e-9)
    # 1 and -1 are not completely positive: each layer costs 2, where the rank is 1.
    solved = covopt.solve([[1.0], [-1.0]], [[1.0], [-1.0]], bias=0.0, time_limit=5)
    assert (solved.cost, solved.lower) == (pytest.approx(4.0), pytest.approx(4.0))
