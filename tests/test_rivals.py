"""The rivals of the benchmarks: each lowers its objective, and is judged by the weights that it returns."""

import importlib
import importlib.util
from functools import cache
from itertools import count

import numpy as np
import pytest

import covopt
from tests.benchmarks import works
from tests.benchmarks.harness import Run
from tests.benchmarks.objective import objective
from tests.benchmarks.rival import METHODS, judged, warm_up
from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.log import Log
from tests.benchmarks.rival_methods.sampled import Centring
from tests.benchmarks.rivals import RACES, _beaten, cost_at

OPTIONS = {
    "gauss-newton": {"width": 8},
    "varpro": {"width": 8},
    "particles": {"width": 20},
    "adamw": {"width": 20, "rate": 3e-2, "period": 0.1},
} | {name: {"width": 20, "rate": 3e-2} for name in ("lbfgs", "one-cycle", "muon", "soap", "schedule-free")}
SECONDS, TICK, LAM = 0.4, 2e-4, 1e-2  # a tick of the rivals' clock passes whenever it is read, on every machine alike


def tiny(beta: float) -> tuple[np.ndarray, np.ndarray]:
    """20 points in the plane and two outputs that need both signs."""
    X = np.random.default_rng(3).standard_normal((20, 2))
    return X, np.column_stack([np.abs(X[:, 0]) + beta, np.maximum(X[:, 1] - X[:, 0], 0.0)])


@cache
def optimum(beta: float) -> tuple[float, float]:
    """The proved lower bound and the cost of covopt's network."""
    best = covopt.solve(*tiny(beta), lam=LAM, bias=beta, gap=1e-6, time_limit=20.0)
    assert best.lower is not None
    return best.lower, best.cost


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("name", METHODS)
def test_a_rival_lowers_the_objective_and_ends_above_the_proved_optimum(name: str, beta: float) -> None:
    package = METHODS[name].removeprefix("with_")
    if package != METHODS[name] and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} runs in an environment of its own")
    X, Y = tiny(beta)
    method = importlib.import_module(f"tests.benchmarks.rival_methods.{METHODS[name]}").run
    options = OPTIONS.get(name, {}) | {"method": name}
    warm_up(method, options)
    log = Log(20.0) if name == "covopt" else Log(SECONDS, clock=count(0.0, TICK).__next__)  # covopt ends by itself
    question = Question(X, Y, LAM, beta)
    method(question, log, 0, **options)
    history, weights = judged(question, log)
    cost = objective(X, Y, weights, lam=LAM, beta=beta, slope=0.0).cost
    lower, least = optimum(beta)
    assert lower <= cost <= 1.3 * least < 0.6 * np.sum(Y**2) / len(X)
    assert min(value for _, value in history) == pytest.approx(cost, rel=1e-9)


def test_the_output_bias_is_minimised_out() -> None:
    rng = np.random.default_rng(0)
    R, lam, beta = rng.standard_normal((7, 3)) + 1.0, 0.3, 0.7
    centred = Centring(7, lam, beta)
    b = centred.bias(R)
    cost = np.sum((R + beta * b) ** 2) / 7 + lam * np.sum(b**2)
    assert np.sum(centred(R) ** 2) / 7 == pytest.approx(cost, rel=1e-12)
    nearby = b + 1e-3 * rng.standard_normal(b.shape)
    assert np.sum((R + beta * nearby) ** 2) / 7 + lam * np.sum(nearby**2) > cost


def test_a_rival_that_is_lower_at_some_time_is_named() -> None:
    work = works.teacher(0)
    ours = Run("rival-covopt", work.name, 0, {}, cost=1.0, history=[(0.5, 2.0), (3.0, 1.0)])
    early = Run("rival-adamw", work.name, 0, {}, cost=1.5, history=[(0.1, 1.5)])
    late = Run("rival-lbfgs", work.name, 0, {}, cost=1.2, history=[(9.0, 1.2)])
    ahead, behind = _beaten([ours], [early, late], 10.0)
    assert {name for _, name, _ in behind} == {"adamw"}
    assert max(when for when, _, _ in behind) < 3.0
    assert ahead + len(behind) == 40
    assert cost_at(late, 1.0) == np.inf


def test_the_races_name_methods_that_there_are() -> None:
    assert {name for race in RACES.values() for name, _ in race.rivals} <= set(METHODS)
