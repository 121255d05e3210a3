"""The solver and the certifiers in turns: what `auto` proves, when it ends, and what it says about a spectral bound."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import covopt
from covopt.answer import words
from covopt.certify.proof import Proved, Target
from covopt.certify.proofs import attainable
from covopt.certify.relaxation.bound import Relaxation
from covopt.certify.relaxation.ground import make_ground
from covopt.certify.relaxation.multipliers import Multipliers
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.oracles.oracle import Answer, Wrap
from covopt.runtime.loop import Budget, Certificate, Progress, Status
from covopt.runtime.pace import Pace
from covopt.solvers.incumbent import Attempt
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow import alternation


def gaussian(N: int, d: int, m: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, d)), rng.standard_normal((N, m))


@pytest.mark.parametrize("seed", range(3))
def test_exact_fits_come_from_neurons_that_are_nearly_copies(seed: int) -> None:
    """Beside the network's neuron the search finds others so near that no outputs of theirs fit in float64."""
    X, hidden = np.linspace(-1, 1, 20)[:, None], np.array([[1.1341196, 0.31987072], [-0.83003541, -0.30580252]])
    Y = np.maximum(np.column_stack([X, np.ones(20)]) @ hidden.T, 0) @ [[0.598521632, -1.01507150], [3e-9, -0.884586035]]
    found = covopt.solve(X, Y, depth=2, bias=1, time_limit=5, seed=seed)
    assert found.status is Status.OPTIMAL
    assert found.widths == [2]
    assert found.residual <= found.problem.allowed_misfit


def test_the_default_proves_what_the_search_alone_does_not() -> None:
    """Eight digits: spectral 40 % below, the relaxation within a few percent; both below any network."""
    digits = covopt.read_data("digits", rows=8, scale="max")
    question = {"lam": 1e-2, "bias": 0.0, "gap": 0.03}
    quick = covopt.solve(digits.X, digits.Y, **question, certify="fast", time_limit=20)
    seen: list[Progress] = []
    found = covopt.solve(digits.X, digits.Y, **question, time_limit=100, callback=seen.append)
    assert quick.certificate == Certificate.SPECTRAL
    assert quick.gap > 0.3
    assert (found.certify, found.status) == ("auto", Status.OPTIMAL)
    assert found.gap <= 0.03
    assert found.lower <= min(found.cost, quick.cost)
    bounds = [line.lower for line in seen if line.lower is not None]
    assert bounds == sorted(bounds)
    assert max(bounds) <= found.lower * (1 + 1e-6)
    assert len({line.cost for line in seen[-2:]}) == 1  # the last lines tell of the bound alone


class Spent:
    """A relaxation that proves the same every time, and meets a direction that refutes or not."""

    def __init__(self, lower: float, value: float) -> None:
        self.lower, self.value, self.calls = lower, value, 0

    def __call__(self, problem: Problem, target: Target, last: Proved | None) -> Proved:
        self.calls, Lambda = self.calls + 1, target.point
        direction = Lambda.new_ones(1, problem.Xt.shape[1]) / math.sqrt(problem.Xt.shape[1])
        value = Lambda.new_tensor([self.value])
        met = value > 1.0
        nothing = Multipliers.root(make_ground(problem.Xt, problem.activation))
        return Proved(Relaxation(self.lower, Lambda, 1.0, nothing), Answer(direction[met], value[met]))


@pytest.mark.parametrize(("value", "gap", "proofs"), [(0.9, 1e-3, (1,)), (1.5, 1e-3, (1, 2, 3)), (0.9, 0.2, (2,))])
def test_auto_ends_when_neither_finds_anything_more(monkeypatch, value: float, gap: float, proofs: tuple) -> None:
    """A proof that gains nothing ends it, even where it claims refutations; near the gap it is tried twice."""
    relaxation = Spent(1e-3, value)
    monkeypatch.setattr(Relaxation, "prove", relaxation)
    X, Y = gaussian(8, 9)
    found = covopt.solve(X, Y, lam=0.3, gap=gap, time_limit=500)
    assert relaxation.calls in proofs
    assert found.status == Status.CONVERGED
    assert found.seconds < 400


def test_a_search_that_time_cuts_short_is_not_called_converged() -> None:
    digits = covopt.read_data("digits", rows=60, scale="max")
    found = covopt.solve(digits.X, digits.Y, lam=1e-3, bias=0.0, time_limit=1.0)
    assert found.status == Status.TIME_LIMIT
    assert math.isfinite(found.cost)


def test_rounds_are_counted_over_all_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that refutes again and again does not make rounds beyond `max_iterations`."""
    monkeypatch.setattr(Relaxation, "prove", Spent(1e-3, 1.5))
    X, Y = gaussian(8, 9)
    found = covopt.solve(X, Y, lam=0.3, time_limit=500, max_iterations=3)
    assert (found.status, found.history[-2].iteration) == (Status.ITERATION_LIMIT, 3)


def test_an_interrupted_proof_keeps_the_network_and_what_was_proved() -> None:
    digits = covopt.read_data("digits", rows=6, scale="max")

    def interrupt(line: Progress) -> None:
        spectral = 0.6 * line.cost
        if line.lower is not None and line.lower > spectral:  # only a certifier proves so much
            raise KeyboardInterrupt

    found = covopt.solve(digits.X, digits.Y, lam=1e-2, bias=0.0, gap=0.01, time_limit=100, callback=interrupt)
    assert found.status == Status.INTERRUPTED
    problem = make_problem(digits.X, digits.Y, lam=1e-2, bias=0.0)
    assert found.cost == pytest.approx(evaluate(problem, found.weights).total, rel=1e-12)
    assert 0.6 * found.cost < found.lower <= found.cost


def test_pace_judges_by_the_second_half() -> None:
    pace = Pace()
    assert pace.again == math.inf
    pace.add(1.0, 5.0)
    assert pace.again == math.inf
    pace.add(2.0, 7.0)
    assert pace.again == pytest.approx(4.0)  # two in the second half, so four in as much time again
    for second in range(3, 9):
        pace.add(float(second), 7.0)
    assert pace.again == 0.0


@pytest.mark.parametrize(
    ("N", "d", "depth", "activation", "kind"),
    [
        (9, 2, 2, "relu", Certificate.EXACT),
        (9, 40, 2, "linear", Certificate.EXACT),
        (9, 5, 2, "relu", Certificate.BRANCH_AND_BOUND),
        (9, 6, 2, "relu", Certificate.RELAXATION),
        (700, 6, 2, "relu", Certificate.GROUPS),
        (700, 5, 2, "relu", Certificate.BRANCH_AND_BOUND),
        (9, 2, 3, "relu", Certificate.PATHS),
        (9, 3, 3, "relu", Certificate.LAPLACIAN),
        (33, 2, 3, "relu", Certificate.LAPLACIAN),
        (1, 2, 3, "leaky:0.2", Certificate.SPECTRAL),
    ],
)
def test_the_tightest_proof_there_is(N: int, d: int, depth: int, activation: str, kind: Certificate) -> None:
    assert attainable(make_problem(*gaussian(N, d), lam=0.1, depth=depth, activation=activation)) == kind


def said(N: int, d: int, **options: object) -> str:
    found = covopt.solve(*gaussian(N, d), lam=0.5, time_limit=0.5, **options)  # type: ignore[arg-type]
    pairs = dict(words.pairs(found.summary()))
    assert pairs.get("better bound", "") == words.better_bound(found.summary())
    return pairs.get("better bound", "")


def test_a_spectral_bound_says_what_would_prove_more() -> None:
    assert "branch and bound" in said(9, 4, certify="fast").lower()
    assert "relaxation" in said(9, 9, certify="fast")
    assert "--method cone" in said(9, 9, method="train", width=2, starts=1)
    assert "neither --certify full nor more time" in said(1, 9, depth=3, activation="leaky:0.2")
    late = covopt.solve(*gaussian(9, 9), lam=0.5, depth=3, time_limit=0.5).summary() | {"certificate": "spectral"}
    assert "edges between samples applies: more time" in words.better_bound(late)
    assert "groups of samples" in said(800, 9, certify="fast")
    cut = covopt.solve(*gaussian(9, 9), lam=0.5, time_limit=0.5).summary() | {"certificate": "spectral"}
    assert "proved no more in this time" in words.better_bound(cut)
    assert "more time may prove more" in words.better_bound(cut | {"status": "interrupted"})
    assert "--certify auto" in said(9, 9, certify="none")
    assert said(9, 1) == ""


def test_the_solver_may_go_on_while_the_cost_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time, unless the second half of the turn gained more than a percent."""
    work = alternation.Alternation(make_problem(*gaussian(8, 9), lam=0.3), SolveOptions(Budget(1000.0)))
    outcome = alternation.run(work.solver, Budget(1000.0, 1))
    now = work.solver.cost(outcome.state)
    monkeypatch.setattr(Budget, "seconds", lambda _: 10.0)
    outcome.history = [Progress(0, 1.0, 2.0 * now, None, 1), Progress(1, 9.0, now, None, 1)]
    assert work._falls_fast(outcome, 0.0)
    outcome.history = [Progress(0, 1.0, 1.001 * now, None, 1), Progress(1, 9.0, now, None, 1)]
    assert not work._falls_fast(outcome, 0.0)


class Around:
    """Counts an oracle's calls, and answers from memory what was asked before; hands on all else as it comes."""

    def __init__(self, oracle: Callable[..., Answer]) -> None:
        self.oracle, self.calls = oracle, 0
        self.answers: dict[object, Answer] = {}

    def __call__(self, Lambda: torch.Tensor, starts: torch.Tensor, **how: object) -> Answer:
        self.calls += 1
        asked = Lambda.numpy().tobytes(), starts.numpy().tobytes(), how.get("options")
        if asked not in self.answers:
            self.answers[asked] = self.oracle(Lambda, starts, **how)
        return self.answers[asked]


@pytest.mark.parametrize(("d", "activation"), [(1, "relu"), (2, "leaky:0.2"), (3, "linear"), (5, "relu")])
def test_an_oracle_may_be_wrapped(d: int, activation: str) -> None:
    """The arrangement on the circle, that on the sphere, singular vectors, and the search: the same network."""
    X, Y = gaussian(12, d)
    problem = make_problem(X, Y, lam=0.05, activation=activation)
    around: list[Around] = []

    def wrap(oracle: Callable[..., Answer]) -> Around:
        around.append(Around(oracle))
        return around[-1]

    def solved(wrap: Wrap) -> Attempt:
        return alternation.Alternation(problem, SolveOptions(Budget(60.0), certify="fast"), wrap=wrap).solve()

    plain, wrapped = solved(lambda oracle: oracle), solved(wrap)
    assert around[0].calls > 0
    assert wrapped.status == plain.status
    assert all(torch.equal(V, W) for V, W in zip(plain.weights, wrapped.weights, strict=True))
    assert (plain.proof and plain.proof.lower) == (wrapped.proof and wrapped.proof.lower)
