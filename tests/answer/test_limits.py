"""Time limits, whose proofs are counted here, not timed; and solves that no limit ends, which repeat on any machine."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from instances import gaussian
from sklearn.datasets import load_digits

import covopt
from covopt.answer.solve import solve
from covopt.certify.proof import Target
from covopt.certify.relaxation import bound, multipliers, nodes
from covopt.certify.relaxation.bound import Relaxation, check_maximum
from covopt.certify.relaxation.signs import SignBranch
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.runtime.loop import Budget, Status
from covopt.solvers.deep import layers
from covopt.solvers.deep.layers import examine
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.stream import StreamSolver

TICK = 1e4  # seconds of a proof, so that those of the machine do not count


class Clock:
    """A clock that stands still but while something is proved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proofs, self.base = 0, time.perf_counter()
        monkeypatch.setattr(bound._Work, "mixtures", (1.0,))  # a single tree, which gets far soon
        monkeypatch.setattr(time, "perf_counter", lambda: self.base + TICK * self.proofs)
        for module in (nodes, multipliers):
            monkeypatch.setattr(module, "prove", self.slowed(module.prove))

    def slowed(self, prove):
        """`prove`, which takes a tick."""

        def slow(*given):
            self.proofs += 1
            return prove(*given)

        return slow


@pytest.fixture(scope="module")
def question():
    """Digits, and about the dual point of a good network: a tree of signs that does not close soon."""
    pixels, classes = load_digits(return_X_y=True)
    X, Y = pixels[:12] / 16.0, np.eye(10)[classes[:12]]
    # At 1e-2 the spectral bound may be above what a single tree proves in a few hundred nodes, and is told instead.
    found = solve(X, Y, lam=3e-3, bias=0.0, certify="none", max_iterations=8)
    problem = found.problem
    return problem, problem.gradient_at(torch.as_tensor(found.predict(X))) / (-2.0 * problem.lam)


def test_a_tree_ends_early_enough_to_be_proved_again(monkeypatch, question):
    limit, (problem, Lambda) = 400, question
    clock = Clock(monkeypatch)
    found = Relaxation.prove(problem, Target(Lambda, time_limit=limit * TICK)).proof
    leaves = found.multipliers.leaves
    assert leaves > 10
    assert 0.8 * limit <= clock.proofs <= limit + 32  # the nodes of a round may be under way
    before = clock.proofs
    maximum = check_maximum(problem.Xt, problem.activation, found.Lambda, found.multipliers)
    assert clock.proofs - before >= leaves
    assert found.lower <= bound.dual_bound(problem, found.Lambda, maximum).lower * (1 + 1e-12)


def test_without_that_reserve_it_would_not(monkeypatch, question):
    problem, Lambda = question
    clock = Clock(monkeypatch)
    monkeypatch.setattr(bound._Work, "reserve", 0.0)
    found = Relaxation.prove(problem, Target(Lambda, time_limit=400 * TICK)).proof
    assert clock.proofs > 400 + found.multipliers.leaves / 2


def test_a_proof_that_was_made_again_is_not_made_again_once_more(monkeypatch, question):
    problem, Lambda = question
    clock = Clock(monkeypatch)
    first = Relaxation.prove(problem, Target(Lambda, time_limit=400 * TICK))
    assert first.proof.multipliers.leaves > 4
    before = clock.proofs
    assert Relaxation.prove(problem, Target(Lambda, time_limit=TICK), first).proof.lower == first.proof.lower
    assert clock.proofs - before < first.proof.multipliers.leaves


def test_the_price_of_a_tree_is_that_of_its_leaves(monkeypatch, question):
    problem, Lambda = question
    clock = Clock(monkeypatch)
    tree = SignBranch(bound.make_ground(problem.Xt, Activation()), Lambda)
    tree.grow(0.0, Budget(1e9), max_nodes=21)
    before = clock.proofs
    multipliers.proved_maximum(tree.ground, tree.Lambda * tree.scale, tree.multipliers())
    assert tree.price == pytest.approx(TICK * (clock.proofs - before))


def three_layers():
    problem = make_problem(gaussian(12, 3, seed=3), gaussian(12, 2, seed=4), lam=1e-2, depth=3)
    return problem, [gaussian(4, 4, seed=5), gaussian(4, 5, seed=6), gaussian(2, 5, seed=7)]


def test_layers_are_examined_only_where_there_is_time_to_report_them(monkeypatch):
    problem, weights = three_layers()
    found, _ = examine(problem, weights, SolveOptions(Budget(2.0)), improve=False)
    assert [layer.layer for layer in found] == [1, 2]
    monkeypatch.setattr(layers, "report", pytest.fail)
    monkeypatch.setattr(layers, "RATE", 1.0)
    found, same = examine(problem, weights, SolveOptions(Budget(10.0)), improve=True)
    assert found == []
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))


def test_reports_are_paid_for_before_blocks_are_solved(monkeypatch):
    problem, weights = three_layers()
    now, told = [time.perf_counter()], layers.report
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slow(*given):
        now[0] += 1e5
        return told(*given)

    monkeypatch.setattr(layers, "report", slow)
    monkeypatch.setattr(layers, "solve_block", pytest.fail)
    budget = Budget(4e5)  # four reports: the first tells the price, two are needed, and a block would take two more
    found, _ = examine(problem, weights, SolveOptions(budget), improve=True)
    assert len(found) == 2
    assert not budget.overdue()


def test_streams_keep_time_for_what_follows():
    problem = make_problem(gaussian(600, 3, seed=3), gaussian(600, 1, seed=4), lam=1e-2)
    budget = Budget(1000.0)
    solver = StreamSolver(problem)
    state = solver.init(budget)
    assert 0.0 < solver._tidying < 500.0
    solver._tidying = 1000.0
    assert solver.step(state, budget).ended is Status.TIME_LIMIT


# ---- effort is counted, not timed: without a limit a machine 300 times slower gives the same answer
RNG = np.random.default_rng(0)
X, Y, CLASSES = RNG.standard_normal((12, 3)), RNG.standard_normal((12, 2)), np.eye(2)[np.arange(12) % 2]
CASES: dict[str, dict[str, Any]] = {
    "fast": {"certify": "fast"},
    "auto": {},
    "full": {"certify": "full"},
    "train": {"method": "train"},
    "hidden": {"method": "hidden"},
    "deep": {"depth": 3, "starts": 1, "max_iterations": 1},
    "interpolate": {"lam": None, "max_iterations": 6},
    "cross-entropy": {"loss": "cross_entropy"},
}


@pytest.mark.parametrize("name", CASES)
def test_a_slower_machine_gives_the_same_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"lam": 1e-2, "max_iterations": 4, "time_limit": 1e7} | CASES[name]
    targets, rows = CLASSES if name == "cross-entropy" else Y, 4 if name == "deep" else 12
    plain = covopt.solve(X[:rows], targets[:rows], **asked)
    clock, began = time.perf_counter, time.perf_counter()
    monkeypatch.setattr(time, "perf_counter", lambda: began + 300.0 * (clock() - began))
    slow = covopt.solve(X[:rows], targets[:rows], **asked)
    assert slow.seconds > plain.seconds
    assert (slow.cost, slow.lower, slow.status) == (plain.cost, plain.lower, plain.status)
    for mine, theirs in zip(slow.weights, plain.weights, strict=True):
        assert torch.equal(mine, theirs)
