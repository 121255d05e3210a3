"""The training of deep networks on random batches: its cycles, its starts, its end; and solves that begin with it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from instances import gaussian

import covopt
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import Cost, evaluate
from covopt.runtime.loop import Budget, Status, run
from covopt.solvers.deep import batch_cycles, stream
from covopt.solvers.deep.batch_cycles import CyclePenalty, StoppingRule, batch_size
from covopt.solvers.deep.stream import DeepStream, suits_batches
from covopt.solvers.training.exact_fit import usual_penalty
from tests.benchmarks import works


def made(samples: int = 700, loss: str = "mse", depth: int = 3, lam: float = 1e-3, beta: float = 0.7) -> Problem:
    X = gaussian(samples, 5, seed=0)
    Y = torch.nn.functional.one_hot((X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] > 0).long(), 3).double()
    return make_problem(X, Y, lam=lam, loss=loss, depth=depth, bias=beta)


def nothing(problem: Problem) -> float:
    return evaluate(problem, [problem.X.new_zeros(shape) for shape in problem.shapes([0] * (problem.depth - 1))]).total


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "OPENING", (20, 60))
    monkeypatch.setattr(batch_cycles, "CYCLES", (20, 30))
    monkeypatch.setattr(stream, "OPENS_ON_ALL", 0)


def test_batches_are_for_samples_that_take_too_long() -> None:
    assert suits_batches(made(20_000), 1.0)
    assert not suits_batches(made(20_000), 1e4)
    assert not suits_batches(made(256), 1e-3)  # one batch: nothing is saved
    assert suits_batches(made(257), 1e-3)
    assert not suits_batches(made(20_000), 4.0, max_width=3)  # so narrow a network is trained on all


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "huber:0.3"])
@pytest.mark.usefixtures("short")
def test_each_cycle_keeps_the_lowest_network(loss: str) -> None:
    problem, costs = made(loss=loss), []
    solver, budget = DeepStream(problem, max_width=20), Budget(1e6)
    state = solver.init(budget)
    for number in range(1, 7):
        state = solver.step(state, budget)
        assert state.cycle == number or state.ended
        assert state.cost == evaluate(problem, state.best).total
        assert all(len(W) <= 20 for W in state.best[:-1])
        costs.append(state.cost)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.6 * nothing(problem)


def test_the_penalty_falls_from_four_layers_on_where_lam_is_small() -> None:
    """From six times lam, or from three times the usual lam if that is less; in the first two cycles alone."""
    small, usual = made(depth=4, lam=1e-4), usual_penalty(made(depth=4).evenly(stream.FEW))
    asked = [made(depth=3), small, made(depth=4, lam=1.0), made(depth=4, loss="cross_entropy")]
    assert [DeepStream(problem)._penalty.first for problem in asked] == [1.0, 6.0, 1.0, 1.0]
    assert DeepStream(replace(small, lam=0.9 * usual))._penalty.first == pytest.approx(3.0 / 0.9)
    factors = [CyclePenalty(6.0).factor(*at) for at in ((0, 0), (0, 300), (1, 0), (1, 100), (2, 0))]
    assert factors == pytest.approx([6.0, 1.0 + 5.0 / math.e, 4.0, 1.0 + 3.0 / math.e, 1.0])


def test_batches_grow_up_to_all_samples() -> None:
    """In the opening from step to step, then from cycle to cycle; the cycle after the opening has large ones."""
    problem, wide = made(5000), replace(made(3000), X=gaussian(3000, 301, seed=0))
    assert [batch_size(problem, 0, step) for step in (1, 300, 1000)] == [256, 384, 704]
    assert [batch_size(problem, cycle, 5) for cycle in (1, 2, 3, 5, 6)] == [4096, 1088, 1600, 3648, 5000]
    assert batch_size(made(3000), 1, 5) == 3000
    assert [batch_size(wide, cycle, 1) for cycle in (0, 1)] == [512, 1408]


@pytest.mark.usefixtures("short")
def test_networks_on_the_way_are_shown_and_kept() -> None:
    """The costs shown fall, and the state after the step has the lowest of them, or a lower one."""
    problem, shown = made(), []
    solver, budget = DeepStream(problem, max_width=20), Budget(1e6)
    solver.on_incumbent = lambda cost, width: shown.append((cost, width))
    state = solver.init(budget)
    before = state.cost
    for cycles in range(2):
        state = solver.step(state, budget)
        costs = [cost for cost, _ in shown]
        assert len(costs) > 3 + cycles
        assert costs == sorted(costs, reverse=True)
        assert state.cost <= costs[-1] < before
    assert all(width <= 20 for _, width in shown)


@pytest.mark.usefixtures("short")
def test_subnormal_numbers_are_zero_during_the_steps_only() -> None:
    solver, budget, rounded = DeepStream(made(), max_width=20), Budget(1e6), []
    solver.on_incumbent = lambda cost, width: rounded.append(float(torch.full((), 1e-40) * 1.0) == 0.0)
    solver.step(solver.init(budget), budget)
    assert set(rounded) == {True}
    assert float(torch.full((), 1e-40) * 1.0) > 0.0


def test_a_network_gets_more_neurons_only_if_nearly_all_are_needed() -> None:
    solver = DeepStream(made())
    trained, needed = ([torch.ones(s).double() for s in solver.problem.shapes([n, n])] for n in (10, 9))
    assert [len(W) for W in solver._resized(needed, trained)] == [9, 9, 3]
    assert [len(W) for W in solver._resized(trained, trained)] == [20, 20, 3]


@pytest.mark.parametrize("depth", [3, 4])
def test_the_training_opens_on_all_of_few_samples(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, shown, budget = made(300, depth=depth), [], Budget(1e6)
    monkeypatch.setattr(DeepStream, "_descended", None)  # no batches
    solver = DeepStream(problem, max_width=20)
    solver.on_incumbent = lambda cost, width: shown.append(cost)
    state = solver.step(solver.init(budget), budget)
    assert (state.cycle, len(shown)) == (2, 20)
    assert sorted(shown, reverse=True) == shown
    assert state.cost <= shown[-1] < 0.6 * nothing(problem)


def test_an_opening_stops_once_its_cost_falls_slowly_or_rises() -> None:
    """The loss is half of the cost and less where weights grow in vain."""

    def ends(costs: dict[int, float], part_of_loss: float) -> tuple[int | None, float]:
        rule = StoppingRule()
        for step, cost in costs.items():
            if rule.stops(step, Cost(part_of_loss * cost, 0.0, cost, 0.0), torch.tensor([float(step)])):
                return step, float(rule.lowest)
        assert not rule.stopped
        return None, float(rule.lowest)

    fast, slow = ({step: 100.0 / step**power for step in range(10, 500, 10)} for power in (1.1, 0.9))
    turns = {step: 1.0 / step if step < 80 else 0.001 * step for step in range(10, 500, 10)}
    assert ends(fast, 0.9) == (None, 490)
    assert ends(slow, 0.9) == (120, 120)
    assert ends(turns, 0.4) == (80, 70)
    assert ends(turns, 0.9) == (120, 70)


@pytest.mark.parametrize(("inputs", "ends"), [(5, True), (301, False)])
def test_with_inputs_too_many_for_soap_the_opening_takes_all_of_its_steps(
    inputs: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "OPENS_ON_ALL", 0)
    monkeypatch.setattr(stream, "OPENING", (200, 200))
    descent, descents = stream.BatchCycle.descent, []

    def noted(cycle: stream.BatchCycle, steps: int) -> object:
        return descents.append(descent(cycle, steps)) or descents[-1]

    monkeypatch.setattr(stream.BatchCycle, "descent", noted)
    solver, budget = DeepStream(replace(made(), X=gaussian(700, inputs, seed=0)), max_width=20), Budget(1e6)
    solver.step(solver.init(budget), budget)
    assert (descents[-1].steps_taken < 200) == ends


def test_separable_classes_are_trained_at_a_lower_rate_on_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """There weights grow while the loss is close to 0, and with the rate for a large loss the cost would rise."""
    monkeypatch.setattr(stream, "OPENS_ON_ALL", 0)
    X, costs = gaussian(400, 20, seed=0), {}
    Y = torch.nn.functional.one_hot((X[:, 0] > 0).long() + (X[:, 1] > 0).long(), 3).double()
    for rate in (batch_cycles.FAST, batch_cycles.LATER):
        monkeypatch.setattr(batch_cycles, "FAST", rate)
        solver = DeepStream(make_problem(X, Y, lam=1e-5, loss="cross_entropy", depth=3), max_width=20)
        opened = solver.step(solver.init(budget := Budget(1e6)), budget)
        costs[rate] = solver.step(opened, budget).cost
    # The loss is less than half of the cost, so FAST is not used.
    assert min(costs.values()) == max(costs.values()) < 0.7 * opened.cost


def test_only_the_first_cycles_may_end_higher(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, budget = made(300), Budget(1e6)
    solver = DeepStream(problem, max_width=20)
    state = solver.step(solver.init(budget), budget)
    ended, last = {}, evaluate(problem, state.best)
    for size in (1.02, 1.0):
        scaled = replace(state, weights=[size * W for W in state.best])
        monkeypatch.setattr(DeepStream, "_descended", lambda *_, scaled=scaled: scaled)
        for cycle in (1, 2, 3, 4):
            ended[size, cycle] = solver.step(replace(state, cycle=cycle, last=last), budget).ended
    assert {place for place, status in ended.items() if status is None} == {(1.02, 1), (1.02, 2), (1.02, 3)}


@pytest.mark.usefixtures("short")
def test_the_next_start_follows_one_that_ends_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, drawn = made(), []
    draw = DeepStream._drawn

    def dead_first(self: DeepStream, number: int, budget: Budget) -> list[torch.Tensor]:
        drawn.append(number)
        return [W * (number > 0) for W in draw(self, number, budget)]

    monkeypatch.setattr(DeepStream, "_drawn", dead_first)
    state = run(DeepStream(problem, starts=3), Budget(60.0, max_iterations=4)).state
    assert drawn == [0, 1]
    assert state.cost < 0.8 * nothing(problem)


@pytest.mark.parametrize("lam", [10.0, 1e20])
def test_where_every_network_costs_more_than_none(lam: float) -> None:
    problem = made(lam=lam, beta=0.0)
    outcome = run(DeepStream(problem, starts=2), Budget(60.0))
    assert outcome.status is Status.CONVERGED
    assert outcome.state.cost == nothing(problem)
    assert not any(len(W) for W in outcome.state.best[:-1])


def test_no_network_is_wider_than_allowed() -> None:
    """The linear network of these data needs more than one neuron, and costs less than narrow networks at first."""
    X = gaussian(700, 5, seed=0)
    problem = make_problem(X, X[:, :1] - X[:, 1:2], lam=1e-3, depth=3)
    wide, narrow = (run(DeepStream(problem, max_width=w), Budget(0.2)).history[0] for w in (None, 1))
    assert wide.width > 1 >= narrow.width
    state = run(DeepStream(problem, starts=3, max_width=1), Budget(1e6, max_iterations=3)).state
    assert all(len(W) <= 1 for W in state.best[:-1])


def test_the_training_ends_at_what_is_enough() -> None:
    problem = made()
    outcome = run(DeepStream(problem, enough=0.9 * nothing(problem)), Budget(60.0))
    assert outcome.status is Status.OPTIMAL
    assert outcome.state.cost <= 0.9 * nothing(problem)


@pytest.mark.parametrize("seconds", [0.2, 1.0, 2.5])
def test_the_training_ends_in_time(seconds: float) -> None:
    budget = Budget(seconds)
    outcome = run(DeepStream(made(5000)), budget)
    assert outcome.status is Status.TIME_LIMIT
    assert budget.seconds() < seconds + 0.5


def test_the_same_seed_draws_the_same_batches() -> None:
    problem = made()
    costs = [run(DeepStream(problem, seed=seed), Budget(1e6, max_iterations=2)).state.cost for seed in (0, 0, 1)]
    assert costs[0] == costs[1] != costs[2]


def test_samples_in_the_order_of_their_classes() -> None:
    problem = made(loss="cross_entropy")
    order = problem.Y.argmax(dim=1).argsort()
    ordered = problem.on(order)
    costs = [run(DeepStream(one), Budget(1e6, max_iterations=4)).state.cost for one in (problem, ordered)]
    assert costs[1] < 1.1 * costs[0]


@pytest.mark.parametrize("rate", [1e30, float("nan")])
def test_training_that_leaves_numbers_keeps_the_network_before_it(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = made()
    for name in ("RATE", "FAST", "LATER"):
        monkeypatch.setattr(batch_cycles, name, rate)
    state = run(DeepStream(problem), Budget(60.0)).state
    assert state.cost == evaluate(problem, state.best).total < nothing(problem)


def test_solve_trains_on_batches_and_ends_near_the_search_on_all_samples() -> None:
    """In a tenth of the time that the search on all samples is given."""
    work = works.digits(600, 1e-3, 3)
    found = covopt.solve(work.X, work.Y, time_limit=2.0, certify="none", **work.question)
    longer = covopt.solve(work.X, work.Y, time_limit=20.0, certify="none", **work.question)
    assert any("training on batches" in line.phase for line in found.history)
    assert not any("training on batches" in line.phase for line in longer.history)
    assert found.cost < 1.05 * longer.cost


def test_a_constant_costs_less_than_a_network_cut_short() -> None:
    X, Y = np.random.default_rng(0).standard_normal((5000, 30)), np.full((5000, 1), 3.0)
    result = covopt.solve(X, Y, lam=0.5, depth=4, time_limit=0.3, certify="none")
    zero = float(np.mean(Y**2))
    assert result.cost < zero


def test_a_solve_stopped_by_its_callback_returns_the_network_that_it_was_shown() -> None:
    problem, costs = made(5000), []

    def stop(line: covopt.Progress) -> None:
        costs.append(line.cost)
        if len(costs) == 3:  # within the first cycle
            raise KeyboardInterrupt

    result = covopt.solve(problem.X, problem.Y, lam=1e-3, depth=3, bias=0.7, time_limit=4.0, callback=stop)
    assert result.status is Status.INTERRUPTED
    assert len(costs) == 3
    assert result.cost * (1.0 - 1e-14) <= costs[-1] < costs[0]  # up to rounding
