"""Bounds of three layers and more: below every network, equal to the known values, and checked from their arrays."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import cases
from sklearn.datasets import load_digits, load_iris
from test_spectral import balanced, networks

import covopt
from covopt.certify import proofs
from covopt.certify.deep.angle import Angle
from covopt.certify.deep.convexity import Convexity
from covopt.certify.deep.edges import Edges, power
from covopt.certify.deep.flows import Family, Laplacian, incidence_of
from covopt.certify.deep.planes import Plane
from covopt.certify.deep.ranks import RANKED
from covopt.certify.deep.weighing import weigh
from covopt.certify.proof import Proof, Target
from covopt.certify.proofs import PROOFS, data_proof
from covopt.certify.spectral import Spectral
from covopt.model.activation import Activation
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate, preactivations
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate

CASES = cases("deep")
DEPTHS = (3, 6, 12)


def asked(name: str, depth: int) -> Problem:
    case = CASES[name]
    return make_problem(case["X"], case["Y"], depth=depth, bias=case["beta"], activation=case["activation"])


def digits_30() -> tuple[np.ndarray, np.ndarray]:
    X, classes = load_digits(return_X_y=True)
    return X[:30] / 16.0, np.eye(10)[classes[:30]]


def iris_40() -> tuple[np.ndarray, np.ndarray]:
    """Forty rows of iris, standardised, as they were drawn where the ratio 4.65 was measured."""
    X, classes = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    rng.standard_normal(250 + 25 + 25 + 5)
    rows = rng.permutation(150)[:40]
    return ((X - X.mean(axis=0)) / X.std(axis=0))[rows], np.eye(3)[classes[rows]]


# -- known values ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "3" in case.get("exact", {})])
def test_the_bound_meets_the_known_minimum(name: str, depth: int) -> None:
    value = CASES[name]["exact"][str(depth)]
    digits = 1e-6 if CASES[name].get("digits") else 1e-7
    assert value * (1.0 - 1e-6) <= data_proof(asked(name, depth), 20.0).lower <= value * (1.0 + digits)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", ["circle-12", "circle-24"])
def test_the_bound_of_a_circle(name: str, depth: int) -> None:
    """The stored values are rounded, 9.622 from 9.621937."""
    known, most = CASES[name]["at_least"].get(str(depth)), CASES[name]["at_most"].get(str(depth), math.inf)
    lower = data_proof(asked(name, depth), 20.0).lower
    assert known is None or lower >= known * (1.0 - 1e-4)
    assert lower <= most


def test_neurons_sharpen_the_edges() -> None:
    """The largest eigenvalue gives 4.42 (an SDP); the oracle's neurons 6.25, with which a conic solver agrees."""
    problem = asked("sine-cosine-20", 3)
    assert ratio(problem, weigh(problem, problem.Y.double())[0]) == pytest.approx(6.2546, rel=1e-3)


def test_edges_by_direction_on_a_circle() -> None:
    """Where the ranks alone prove 6.87 of 8.01; with targets of rank one they add nothing."""
    problem = asked("circle-12", 3)
    assert 7.2 <= data_proof(problem, 20.0).lower <= 8.02325
    edges = weigh(problem, problem.contrasts(problem.Y.double()))[-1]
    assert Plane.of(edges.rows(problem.Y[:, :1].expand(-1, 2).double()), 0.0) is None


def ratio(problem: Problem, edges: Edges) -> float:
    """The sum of the singular values of B Y over the reach."""
    F, _, size = edges.targets(problem)
    return size * float(torch.linalg.matrix_norm(F, "nuc")) / edges.reach(problem)


# -- below every network --------------------------------------------------------------------------------------------
@given(st.integers(0, 2**32 - 1))
def test_no_layer_stretches_an_edge_or_loses_rank_for_nothing(seed: int) -> None:
    """|B Z|_* >= Tr T M / |T M T|_op^(1/2), M = B S S^T B^T: equal for Z = (1, -1) and (-1, 1), B = T = I."""
    rng = np.random.default_rng(seed)
    samples, count = int(rng.integers(2, 9)), int(rng.integers(1, 12))
    edges = Edges(distinct(rng, samples, count), torch.from_numpy(rng.random((count, 2))))
    B = edges.dense(samples)
    Q = B.T @ B
    assert float((Q - torch.diag(Q.diagonal())).max()) <= 1e-12
    Z = torch.from_numpy(rng.standard_normal((samples, 4)) * rng.exponential(size=4))
    bent, S = (B @ Activation(float(rng.uniform(least, 1.0)))(Z) for least in (-0.99, 0.0))
    assert float(bent.norm()) <= float((B @ Z).norm()) * (1.0 + 1e-12)
    assert torch.allclose(edges.scattered(edges.rows(Z), samples), Q @ Z)
    nuclear = torch.linalg.matrix_norm(B @ Z, "nuc")
    for t in (torch.ones(count, 1), torch.from_numpy(rng.random((count, 1)))):
        assert float((t * S.square()).sum()) <= float(nuclear * torch.linalg.matrix_norm(t * S, 2)) * (1.0 + 1e-12)


def distinct(rng: np.random.Generator, samples: int, count: int) -> torch.Tensor:
    first = rng.integers(0, samples, count)
    return torch.from_numpy(np.column_stack([first, (first + rng.integers(1, samples, count)) % samples]))


DEEP = [kind for kind in PROOFS if kind is not Spectral]
"""Those of two layers do not apply to the problems here."""


def arbitrary(problem: Problem, kind: type[Proof], rng: np.random.Generator) -> list[Proof]:
    """Proofs of arrays that nobody worked on, beside those that are found."""
    samples = problem.samples
    if kind is Laplacian:
        sizes = rng.random((samples, 2))
        sizes[:, 1] = sizes[:, 0] if problem.beta or rng.random() < 0.5 else sizes[:, 1]
        edges = Edges(distinct(rng, samples, samples), torch.from_numpy(sizes))
        if problem.interpolates:
            return [Laplacian(0.0, edges)]
        incidence = incidence_of(problem, edges)
        family = Family(incidence, incidence.reach())
        for part in (1.0, 0.2):
            family(family.steepest() * part)
        flows = torch.stack([flow for flow, _ in family.flows.values()])
        ranked = [Laplacian(0.0, edges)] if type(problem.loss) in RANKED else []
        return [*ranked, Laplacian(0.0, edges, flows, np.array([incidence.spread]))]
    if kind is Convexity:
        signs = np.where(rng.random(problem.Y.shape[1]) < 0.5, 1.0, -1.0)
        clipped = np.maximum(problem.Y.numpy() * signs, 0.0) * signs
        return [Convexity(0.0, torch.from_numpy(Lambda)) for Lambda in (clipped, rng.random(problem.Y.shape) * signs)]
    if kind is Angle:
        return [Angle(0.0, rng.choice(samples, 2, replace=False))]
    return []


def proofs_of(problem: Problem, rng: np.random.Generator, patience: int = 30) -> list[Proof]:
    """What every certifier finds in a few steps, and what arbitrary arrays prove."""
    found = []
    for kind in DEEP:
        if not kind.applies(problem):
            continue
        calls = iter(range(10**9))
        proved = kind.prove(problem, Target(stop=lambda calls=calls: next(calls) > patience))
        found += [] if proved is None else [proved.proof]
        found += arbitrary(problem, kind, rng)
    return [replace(proof, lower=proof.bound(problem)) for proof in found]


@settings(max_examples=25)
@given(networks(), st.integers(0, 2**32 - 1))
def test_below_the_norm_of_networks_that_fit(network, seed: int) -> None:
    X, weights, bias, activation, m = network
    blank = make_problem(X, np.zeros((len(X), m)), depth=max(3, len(weights)), bias=bias, activation=activation)
    weights = balanced(deep(weights), bias)
    problem = replace(blank, Y=preactivations(blank, weights)[-1])
    norm = evaluate(problem, weights).norm
    for proof in proofs_of(problem, np.random.default_rng(seed)):
        assert 0.0 <= proof.lower <= norm * (1.0 + 1e-9), proof.kind


def deep(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """Three layers at least: a linear map of the outputs is one more."""
    if len(weights) > 2:
        return weights
    n = len(weights[-1])
    return [*weights, torch.cat([torch.ones(n, n), torch.ones(n, 1)], dim=1).double()]


@settings(max_examples=25)
@given(networks(), st.floats(-4.0, 0.0), st.booleans(), st.integers(0, 2**32 - 1))
def test_below_the_cost_of_regularised_networks(network, logarithm: float, classes: bool, seed: int) -> None:
    X, weights, bias, activation, m = network
    weights, rng = deep(weights), np.random.default_rng(seed)
    if classes and m == 1:
        return
    Y = np.eye(m)[rng.integers(0, m, len(X))] if classes else rng.standard_normal((len(X), m))
    loss = "cross_entropy" if classes else "mse"
    options = {"lam": 10.0**logarithm, "loss": loss, "depth": len(weights), "bias": bias, "activation": activation}
    problem = make_problem(X, Y, **options)
    cost = min(evaluate(problem, [factor * W for W in weights]).total for factor in (0.0, 0.03, 0.3, 1.0))
    for proof in proofs_of(problem, rng, patience=10):
        assert 0.0 <= proof.lower <= cost * (1.0 + 1e-9), proof.kind


@pytest.mark.parametrize(("loss", "bias"), [("mse", 1.0), ("cross_entropy", 0.0)])
def test_edges_prove_more_than_singular_values(loss: str, bias: float) -> None:
    """Thirty digits, three layers; and below a network that was found."""
    X, Y = digits_30()
    problem = make_problem(X, Y, lam=1e-2 if loss == "mse" else 1e-3, loss=loss, depth=3, bias=bias)
    spectral, proof = Spectral(0.0).bound(problem), data_proof(problem, 20.0)
    assert proof.kind == Certificate.LAPLACIAN
    assert proof.lower > spectral * (1.9 if loss == "mse" else 1.05)
    assert proof.lower < {"mse": 0.2105, "cross_entropy": 0.0745}[loss] * (1.0 if bias else 1.1)


@pytest.mark.parametrize(
    ("case", "least", "gain"), [("digits 0", 5.59, 1.4), ("digits 1", 5.54, 1.4), ("iris", 4.64, 1.02)]
)
def test_the_ratios_of_real_data(case: str, least: float, gain: float) -> None:
    (X, Y), bias = (iris_40(), 1.0) if case == "iris" else (digits_30(), float(case[-1]))
    problem = make_problem(X, Y, depth=3, bias=bias)
    edges, ranked = weigh(problem, problem.Y.double())
    assert ratio(problem, edges) >= least
    assert Laplacian(0.0, ranked).bound(problem) > Laplacian(0.0, edges).bound(problem) > gain * power(least, 3)


# -- scales, stored arrays, answers ---------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["circle-12", "identity-2", "linear-8x4", "four-points"])
def test_units(name: str) -> None:
    """R(s X, t Y) = (t / s)^(2/L) R(X, Y) without biases; and with them the bound stays below that."""
    plain = asked(name, 4)
    for kind in [kind for kind in DEEP if kind.applies(plain)]:
        lower = kind.prove(plain, Target()).proof.lower
        for s, t in ((1e-150, 1.0), (1e150, 1.0), (1.0, 1e-150), (1.0, 1e150), (1e-60, 1e60)):
            value = kind.prove(replace(plain, X=s * plain.X, Y=t * plain.Y), Target()).proof.lower / (t / s) ** 0.5
            if plain.beta == 0.0:
                assert value == pytest.approx(lower, rel=1e-3)
            else:
                assert 0.0 <= value < math.inf


@pytest.mark.parametrize(
    "X", [[[0.0]] * 3, [[1.0]] * 3, [[1.0, 2.0], [1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [0.0, 1.0], [2.0, -4.0]]]
)
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_degenerate_data(X: list, bias: float) -> None:
    """Equal rows, inputs of zero, one sample: no traceback, and nothing above a network."""
    for Y in ([[1.0, 1.0]] * 3, [[0.0, 0.0]] * 3, [[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]):
        for samples in (1, 3):
            for lam in (None, 0.1):
                problem = make_problem(X[:samples], Y[:samples], depth=3, bias=bias, lam=lam)
                lower = data_proof(problem, 5.0).lower
                zero = evaluate(
                    problem, [torch.zeros(n, k).double() for n, k in ((1, len(X[0]) + 1), (1, 2), (2, 2))]
                ).fit
                assert lower >= 0.0
                if lam is not None:
                    assert lower <= zero


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ({"name": "five-points"}, "shares"),
        ({"name": "five-points", "lam": 1e-3}, "laplacian"),
        ({"name": "five-points", "depth": 4}, "laplacian"),
        ({"name": "four-points"}, "convexity"),
        ({"name": "identity-2"}, "angle"),
        ({"name": "circle-12", "depth": 6}, "loop"),
        ({"name": "linear-8x4"}, "linear"),
    ],
)
def test_stored_proofs_are_checked(question: dict, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[question["name"]]
    options = {"depth": question.get("depth", 3), "bias": case["beta"], "activation": case["activation"]}
    options["lam"] = question.get("lam")
    proof = data_proof(make_problem(case["X"], case["Y"], **options), 600.0)  # it ends when it is done
    monkeypatch.setattr(proofs, "data_proof", lambda *_: proof)
    result = covopt.solve(case["X"], case["Y"], **options, time_limit=1e6, max_iterations=1)
    assert result.certificate == kind
    result.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    back = covopt.load(tmp_path / "run")
    assert back.evidence.keys() == result.evidence.keys()
    assert back.proof.bound(back.problem) == pytest.approx(result.lower, rel=1e-9)
    for name, array in result.evidence.items():  # whatever is stored proves a true bound, or is refused
        parts = (array[:1], array[::-1].copy(), np.roll(array, 1)) if array.ndim else ()
        for changed in (np.zeros_like(array), np.asarray(2 * array), *parts):
            try:
                lower = type(back.proof).read(0.0, back.evidence | {name: changed}).bound(back.problem)
            except ProblemError:
                continue
            assert 0.0 <= lower <= result.cost * (1.0 + 1e-9)


def test_a_proved_minimum_ends_the_search() -> None:
    case = CASES["absolute-value"]
    result = covopt.solve(case["X"], case["Y"], depth=12, bias=0.0, time_limit=600)
    assert (result.status, result.cost) == ("optimal", pytest.approx(case["exact"]["12"], rel=1e-6))
