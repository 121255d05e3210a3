"""Weights of samples: weight 2 is a row given twice and weight 0 a row left out, in costs, gradients and bounds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from editing import holds
from numpy.typing import NDArray
from torch import Tensor

import covopt
from covopt.certify.deep import convexity
from covopt.certify.deep.edges import Edges
from covopt.certify.deep.flows import Family, Incidence, incidence_of
from covopt.certify.dual import dual_bound, oracle_of
from covopt.certify.proof import Target
from covopt.certify.relaxation.bound import Relaxation
from covopt.certify.spectral import spectral_bound
from covopt.model import weights as face
from covopt.model.noise import batch_noise
from covopt.model.problem import Problem, make_problem
from covopt.studies.width.width_bounds import narrow_bounds

LOSSES = ("mse", "cross_entropy")
SAME = 1e-10


def data(seed: int, loss: str, inputs: int = 2, rows: int = 9) -> tuple[NDArray, NDArray, NDArray]:
    """Inputs, targets and whole-number weights, one of them 0."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((rows, inputs)), rng.standard_normal((rows, 3))
    Y = np.eye(3)[Y.argmax(axis=1)] if loss == "cross_entropy" else Y
    counts = rng.integers(1, 5, rows)
    counts[0] = 0
    return X, Y, counts


def both(seed: int, loss: str, **options: object) -> tuple[Problem, Problem, NDArray]:
    """The weighted question, the one with expanded rows, and which row of the first each of the second is."""
    X, Y, counts = data(seed, loss, int(str(options.pop("inputs", 2))))
    rows = np.repeat(np.arange(len(X)), counts)
    asked = {"lam": 0.01, "loss": loss, **options}
    weighted = make_problem(X, Y, sample_weight=7.3 * counts, **asked)  # type: ignore[arg-type]
    return weighted, make_problem(X[rows], Y[rows], **asked), rows - 1  # type: ignore[arg-type]


def drawn(problem: Problem, seed: int, width: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = [problem.X.shape[1], *[width] * (problem.depth - 1), problem.Y.shape[1]]
    shapes = zip(sizes[1:], sizes, strict=False)
    return [torch.randn(n, below + 1, generator=generator, dtype=torch.float64) for n, below in shapes]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("depth", [2, 3])
def test_cost_and_gradient_are_those_of_expanded_rows(loss: str, depth: int) -> None:
    weighted, expanded, rows = both(depth, loss, depth=depth)
    W = drawn(weighted, 1)
    assert face.evaluate(weighted, W).total == pytest.approx(face.evaluate(expanded, W).total, rel=SAME)
    for mine, theirs in zip(face.gradient(weighted, W), face.gradient(expanded, W), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=SAME, atol=1e-13)
    # The full batch has the gradient of all samples, however they are counted.
    assert batch_noise(weighted, W, 8)[0].rms == pytest.approx(batch_noise(expanded, W, len(rows))[0].rms, rel=SAME)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_bounds_are_those_of_expanded_rows(loss: str, beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    weighted, expanded, rows = both(3, loss, bias=beta)
    Lambda = weighted.gradient_at(face.preactivations(weighted, drawn(weighted, 2))[-1]) / (-2.0 * weighted.lam)
    split = (Lambda / torch.bincount(torch.as_tensor(rows)).double()[:, None])[rows]
    oracle, other = (oracle_of(problem.Xt, problem.activation) for problem in (weighted, expanded))
    maximum = oracle(Lambda, weighted.Xt[:0]).upper_bound
    assert maximum == pytest.approx(other(split, expanded.Xt[:0]).upper_bound, rel=SAME)
    mine, theirs = dual_bound(weighted, Lambda, maximum), dual_bound(expanded, split, maximum)
    assert 0.0 < mine.lower == pytest.approx(theirs.lower, rel=SAME)
    monkeypatch.setattr("covopt.certify.spectral.REFINEMENTS", 0)  # which line is refined may hang on rounding
    for n in (None, 0, 1):
        found = spectral_bound(weighted, rank=n)
        assert 0.0 < found == pytest.approx(spectral_bound(expanded, rank=n), rel=1e-8)


def test_bounds_on_narrow_networks_are_those_of_expanded_rows() -> None:
    weighted, expanded, _ = both(4, "mse", inputs=1)
    mine, theirs = narrow_bounds(weighted, most=4), narrow_bounds(expanded, most=4)
    assert len(mine) >= 3
    assert [each.lower for each in mine] == pytest.approx([each.lower for each in theirs], rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_the_lines_of_flows_lie_below_the_loss(loss: str, beta: float) -> None:
    """C(F) >= b - g rho at networks, tight enough to say something, and the line of a split flow is the same."""
    weighted, expanded, rows = both(5, loss, bias=beta, depth=3)
    pairs = torch.triu_indices(weighted.samples, weighted.samples, 1).T
    edges = Edges(pairs, torch.full((len(pairs), 2), 0.5, dtype=torch.float64))
    incidence = incidence_of(weighted, edges)
    reach, best = incidence.reach(), 0.0
    family = Family(incidence, reach)
    for theta in (0.1 * family.steepest(), family.steepest()):
        b, g = family(theta)
        best = max(best, b)
        for seed in range(5):
            W = [0.5 * each for each in drawn(weighted, seed)]
            rho = float(torch.stack([each.norm() for each in W]).prod())
            assert float(weighted.loss_at(face.preactivations(weighted, W)[-1])) >= b - g * rho
    assert best > 0.1 * float(weighted.loss_at(torch.zeros_like(weighted.Y)))
    if loss == "mse":  # without added rows, edges may join any copy of each sample
        flow = family.flows[theta][0]
        first = torch.tensor([int((rows == i).argmax()) for i in range(weighted.samples)])
        joined = Incidence(expanded, Edges(first[pairs], edges.sizes))
        line, other = incidence.line(flow, reach), joined.line(flow, reach)
        assert line[1] == pytest.approx(other[1])
        assert line[0] >= other[0]  # one copy of several bears the whole slope there


def test_multipliers_of_one_sign_bound_weighted_networks() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.random((6, 1)), 1.0 + rng.random((6, 1))
    weighted = make_problem(X, Y, lam=1e-3, depth=3, sample_weight=rng.integers(1, 9, 6))
    Lambda = convexity.multipliers(replace(weighted, weight=None))
    assert Lambda is not None
    proof = convexity.Convexity(0.0, Lambda)
    lower, plain = proof.bound(weighted), proof.bound(replace(weighted, weight=None))
    found = covopt.solve(X, Y, lam=1e-3, depth=3, sample_weight=None, time_limit=2.0, starts=4)
    assert lower != plain
    assert 0.0 < lower <= face.evaluate(weighted, found.weights).total


@pytest.mark.parametrize("loss", LOSSES)
def test_the_relaxation_is_that_of_expanded_rows(loss: str) -> None:
    weighted, expanded, _ = both(7, loss, inputs=4)
    mine, theirs = (Relaxation.prove(problem, Target(time_limit=30.0)).proof for problem in (weighted, expanded))
    assert 0.0 < mine.lower == pytest.approx(theirs.lower, rel=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("inputs", [1, 2])
def test_solve_answers_as_for_expanded_rows(loss: str, inputs: int) -> None:
    X, Y, counts = data(6, loss, inputs)
    asked = {"lam": 0.02, "loss": loss, "gap": 1e-5, "time_limit": 20.0}
    rows = np.repeat(np.arange(len(X)), counts)
    mine = covopt.solve(X, Y, sample_weight=0.1 * counts, **asked)  # type: ignore[arg-type]
    theirs = covopt.solve(X[rows], Y[rows], **asked)  # type: ignore[arg-type]
    assert mine.status is theirs.status is covopt.Status.OPTIMAL
    assert max(mine.lower, theirs.lower) <= min(mine.cost, theirs.cost) * (1.0 + 1e-12)
    assert (mine.cost, mine.problem.samples) == (pytest.approx(theirs.cost, rel=2e-5), len(X) - 1)
    assert len(mine.predict(X)) == len(X)


@pytest.mark.parametrize("lam", [1e-14, 1e-3])
def test_small_lam_and_weights_of_every_size(lam: float) -> None:
    """The augmented Lagrangian's weights, and weights that differ by orders of magnitude."""
    X, Y, _ = data(8, "mse", 1)
    weight = np.geomspace(1e-6, 1e3, len(X)) if lam == 1e-3 else np.linspace(0.1, 1.0, len(X))
    found = covopt.solve(X, Y, lam=lam, sample_weight=weight, time_limit=20.0)
    assert found.status is covopt.Status.OPTIMAL
    assert found.fit == pytest.approx(
        float((weight * ((found.predict(X) - Y) ** 2).sum(axis=1)).sum() / weight.sum()), rel=1e-6
    )


@pytest.mark.parametrize("method", ["train", "hidden", "cone"])
def test_every_method_minimises_the_weighted_loss(method: str) -> None:
    X, Y, counts = data(9, "mse", 1)
    asked = {"lam": 0.02, "depth": 3, "method": method, "time_limit": 0.6, "certify": "none"}
    found = covopt.solve(X, Y, sample_weight=counts**4, **asked)  # type: ignore[arg-type]
    plain = covopt.solve(X, Y, **asked)  # type: ignore[arg-type]
    assert found.cost < face.evaluate(found.problem, plain.weights).total * 0.999


def test_equal_weights_and_exact_fits_change_nothing() -> None:
    X, Y, counts = data(10, "mse")
    assert covopt.solve(X, Y, lam=0.1, sample_weight=np.full(len(X), 3.7)).cost == covopt.solve(X, Y, lam=0.1).cost
    fits = make_problem(X, Y, sample_weight=counts)
    assert (fits.weight, fits.samples) == (None, len(X) - 1)
    scaled = [make_problem(X, Y, lam=1.0, sample_weight=size * counts).weight for size in (1e-50, 1e50)]
    torch.testing.assert_close(scaled[0], scaled[1], rtol=1e-14, atol=0.0)
    again = make_problem(X[1:], Y[1:], lam=1.0, sample_weight=scaled[0]).weight
    assert again is not None
    torch.testing.assert_close(again, scaled[0], rtol=0.0, atol=0.0)


def test_files_hold_weights_and_verify_proves_them_again(tmp_path: Path) -> None:
    X, Y, counts = data(11, "mse", 1)
    y, rows = Y[:, 0], np.repeat(np.arange(len(X)), counts)
    np.savez(tmp_path / "a.npz", X=X, y=y, weights=counts)
    torch.save({"X": torch.tensor(X), "Y": torch.tensor(y), "weights": torch.tensor(counts)}, tmp_path / "a.pt")
    lines = [f"{x!r},{t!r},{s}" for x, t, s in zip(X[:, 0].tolist(), y.tolist(), counts, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,s", *lines]))
    table = {"target": "y", "weights": "s"}
    sets = [
        covopt.read_data(tmp_path / name, scale="standard", **options)
        for name, options in (("a.npz", {}), ("a.pt", {}), ("a.csv", table))
    ]
    expanded = (X[rows] - X[rows].mean()) / X[rows].std()
    for each in sets:
        np.testing.assert_allclose(each.X, expanded[np.unique(rows, return_index=True)[1]], rtol=1e-12)
        assert (each.weights == counts[1:]).all()
    result = covopt.solve(sets[0].X, sets[0].Y, lam=0.02, sample_weight=sets[0].weights)
    assert result.cost == pytest.approx(covopt.solve(expanded, y[rows], lam=0.02).cost, rel=1e-4)
    result.save(tmp_path / "run")
    again = covopt.load(tmp_path / "run")
    assert (again.cost, again.lower, again.summary()["weighted"]) == (result.cost, result.lower, True)
    assert covopt.verify(tmp_path / "run").passed
    holds("problem.npz", weights=lambda w: w * np.where(np.arange(len(w)), 1.0, 1.01))(tmp_path / "run")
    assert not covopt.verify(tmp_path / "run").passed
