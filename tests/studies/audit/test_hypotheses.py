"""Networks trained on one question and asked another: the hint names what differs."""

import re

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_wine

import covopt
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.solvers.deep.descent import descent_for
from covopt.studies.audit.hypotheses import FREE, hint, scalings_of


def _diabetes() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    y = (y - y.mean()) / y.std()
    return X[:40, :4], y[:40, None]


def _trained(problem: Problem) -> list[torch.Tensor]:
    """Adam, then L-BFGS until nothing gains: as one trains who means this question."""
    found = covopt.solve(
        problem.X, problem.Y, lam=problem.lam, loss=problem.loss, depth=problem.depth, bias=problem.beta,
        method="train", width=8, starts=3, time_limit=60.0, seed=1,
    )  # fmt: skip
    (weights,), _ = descent_for(problem).further([found.weights], lambda: False)
    return weights


def _hint(problem: Problem, weights: list[torch.Tensor]) -> str:
    before = evaluate(problem, weights).total
    (after,), _ = descent_for(problem).further([weights], lambda: False)
    gain = (before - evaluate(problem, after).total) / before
    return hint(problem, weights, gain, lambda: scalings_of(problem.X), lambda: False)


def test_the_network_s_own_question_gets_no_hint() -> None:
    X, y = _diabetes()
    problem = make_problem(scalings_of(torch.from_numpy(X))["standard"], y, lam=1e-2)
    assert _hint(problem, _trained(problem)) == ""


@pytest.mark.parametrize(("multiple", "says"), [(2.0, "twice --lam: a weight decay"), (7.0, "")])
def test_another_lam(multiple: float, says: str) -> None:
    X, y = _diabetes()
    X = scalings_of(torch.from_numpy(X))["standard"]
    weights = _trained(make_problem(X, y, lam=multiple * 3e-2))
    said = _hint(make_problem(X, y, lam=3e-2), weights)
    told = re.search(r"--lam (\S+) \((.*?)\)", said)
    assert float(told[1]) == pytest.approx(multiple * 3e-2, rel=0.02)
    assert told[2].startswith(says)


def test_another_loss() -> None:
    X, y = load_wine(return_X_y=True)
    taken = np.random.default_rng(0).permutation(len(X))[:40]
    X, Y = scalings_of(torch.from_numpy(X[taken]))["standard"], np.eye(3)[y[taken]]
    weights = _trained(make_problem(X, Y, lam=1e-2, loss="cross_entropy"))
    assert "with --loss cross_entropy its cost is" in _hint(make_problem(X, Y, lam=1e-2), weights)


def test_another_scale() -> None:
    X, y = _diabetes()
    weights = _trained(make_problem(scalings_of(torch.from_numpy(X))["standard"], y, lam=1e-2))
    assert "with --scale standard its cost is" in _hint(make_problem(X, y, lam=1e-2), weights)


def test_biases_without_a_penalty() -> None:
    X, y = _diabetes()
    X = scalings_of(torch.from_numpy(X))["standard"]
    free = _trained(make_problem(X, y + 3.0, lam=1e-2, bias=FREE))
    weights = [torch.cat([W[:, :-1], FREE * W[:, -1:]], dim=1) for W in free]
    assert "biases that are almost unpenalised" in _hint(make_problem(X, y + 3.0, lam=1e-2, bias=1.0), weights)
