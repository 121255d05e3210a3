"""The stages that a solve consists of, and that a changed plan solves otherwise."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import covopt
from covopt.answer.plan import SolvePlan
from covopt.certify.proof import Unproved
from covopt.model.problem import Problem
from covopt.model.weights import evaluate
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Status
from covopt.solvers.incumbent import Incumbent
from covopt.solvers.options import SolveOptions
from covopt.solvers.stages.more_layers import DeepSearch
from covopt.solvers.stages.stage import Stage
from tests.conftest import Run


def planned(samples: int = 30, inputs: int = 3, **options: object) -> SolvePlan:
    X = np.random.default_rng(0).standard_normal((samples, inputs))
    return covopt.plan(X, np.maximum(X[:, 0], 0.0), **{"lam": 0.1} | options)


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ({}, ["rounds"]),
        ({"lam": None}, ["rounds"]),
        ({"samples": 30_000, "inputs": 20, "time_limit": 3.0}, ["mini-batches", "rounds"]),
        ({"depth": 3}, ["bound", "search", "layers"]),
        ({"depth": 3, "samples": 4, "bias": 0.0}, ["bound", "cases", "search", "layers"]),
        ({"depth": 3, "certify": "none"}, ["search"]),
        ({"depth": 3, "samples": 5000, "time_limit": 1.0}, ["bound", "batches", "improvement", "layers"]),
        ({"method": "train"}, ["training", "bound"]),
        ({"method": "hidden", "depth": 3}, ["descents", "bound", "layers"]),
        ({"bias": "free"}, ["rounds"]),
        ({"bias": "free", "depth": 3}, ["descents"]),
    ],
)
def test_the_stages_follow_from_the_question(options: dict, stages: list[str]) -> None:
    plan = planned(**options)
    assert [stage.name for stage in plan.stages] == stages
    table = str(plan).splitlines()
    assert len(table) == len(stages) + 2
    assert [line.split("  ")[0] for line in table[1:-1]] == stages
    assert plan.summary()["memory"] == pytest.approx(plan.need.total, rel=0.1)


def test_a_short_bound_a_network_and_then_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 200 digits the bound of a default solve takes 13 seconds, in which there was no network."""
    lines, asked = [], []

    def prove(problem: Problem, seconds: float) -> Unproved:
        asked.append((seconds, len(lines) > 0))
        return Unproved(0.0)

    monkeypatch.setattr("covopt.certify.proofs.data_proof", prove)
    solved = planned(depth=3, time_limit=20.0, max_iterations=2, callback=lines.append).solve()
    assert asked == [(0.2, False), (pytest.approx(0.1 * 0.85 * 20.0), True)]
    assert solved.cost <= lines[-1].cost


def test_a_plan_carried_out_is_the_solve() -> None:
    """Twice, because a plan is not used up; the second time has a clock of its own."""
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((4, 2)), rng.standard_normal((4, 1))
    asked = {"lam": 0.1, "depth": 3, "max_iterations": 1, "starts": 1}
    plan, solved = covopt.plan(X, Y, **asked), covopt.solve(X, Y, **asked)
    assert [plan.solve().cost, plan.solve().cost] == [solved.cost] * 2


def test_changed_settings_are_used() -> None:
    plan = planned(depth=3, certify="none", max_iterations=8)
    (search,) = plan.stages
    assert isinstance(search, DeepSearch)
    plan.stages = [replace(search, effort=replace(search.effort, starts=3))]
    assert len(plan.solve().starts) == 3
    plan = planned(10, 2, method="hidden", depth=3, max_iterations=1, certify="none")
    plan.stages = [replace(plan.stages[0], starts=2)]
    assert len(plan.solve().starts) == 2


@dataclass(frozen=True)
class Offer(Stage):
    """A stage from outside: it has a network."""

    name = "offer"
    why = "Somebody has a network."
    weights: tuple[torch.Tensor, ...] = ()

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        incumbent.offer(self.weights)
        incumbent.status = Status.CONVERGED


def test_a_stage_of_ones_own_takes_part() -> None:
    plan = planned(8, 2, depth=3, starts=1, max_iterations=1, certify="none")
    first = plan.solve()
    plan.stages = [Offer(weights=tuple(first.weights))]
    again = plan.solve()
    assert (again.cost, again.status) == (first.cost, Status.CONVERGED)


def test_an_incumbent_never_gets_worse() -> None:
    problem = planned().problem
    incumbent, rng = Incumbent(problem), torch.Generator().manual_seed(0)
    costs = []
    for n in (1, 2, 3, 2, 1):
        shapes = problem.shapes([n])
        incumbent.offer([torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes])
        costs.append(incumbent.cost)
    assert costs == sorted(costs, reverse=True)
    assert evaluate(problem, incumbent.weights).total == costs[-1]


def test_the_command_prints_the_plan_and_solves_nothing(tmp_path: Path, run: Run) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "run"
    np.savez(data, X=np.eye(4), Y=np.ones((4, 1)))
    asked = ["solve", str(data), "--lam", "0.1", "--depth", "3", "--plan", "--out", str(out)]
    code, told, _ = run(*asked)
    assert code == 0
    assert [line.split()[0] for line in told.splitlines()] == ["stage", "bound", "search", "layers", "The"]
    summary = json.loads(run(*asked, "--json")[1])
    assert [stage["until"] for stage in summary["stages"]] == [255.0, 255.0, 300.0]
    assert not out.exists()


def test_what_solve_refuses_has_no_plan() -> None:
    wrong = [
        {"method": "best"},
        {"lam": -1.0},
        {"time_limit": 0},
        {"skip": "yes"},
        {"method": "hidden", "bias": "free"},
    ]
    for options in wrong:
        with pytest.raises(ProblemError):
            planned(**options)
    with pytest.raises(TypeError, match="speed"):
        planned(speed=3)


def test_an_exact_fit_is_never_replaced_by_a_cheaper_network_that_does_not_fit() -> None:
    plan = planned(6, 2, lam=None, depth=3, max_iterations=2, starts=2, certify="none")
    zero = tuple(torch.zeros(shape, dtype=torch.float64) for shape in plan.problem.shapes([0, 0]))
    plan.stages = [Offer(weights=zero), *plan.stages, Offer(weights=zero)]
    result = plan.solve()
    assert result.cost > 0.0
    assert result.residual <= plan.problem.allowed_misfit


def test_a_plan_that_finds_nothing_is_refused() -> None:
    plan = planned(depth=3)
    plan.stages = plan.stages[:1]
    with pytest.raises(ProblemError, match="No stage of the plan finds a network"):
        plan.solve()
    plan.stages = []
    assert str(plan).startswith("stage")
    with pytest.raises(ProblemError, match="until is 2; give a part of the time limit"):
        replace(planned().stages[0], until=2.0)
