"""Deep solves: the smoothed descents, the blocks, the pruning, the exact fits, and `solve --depth L`."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from instances import Instance, gaussian, instances

import covopt
from covopt.certify.proofs import spectral_proof
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate, outputs, preactivations
from covopt.runtime.loop import Budget, Progress, run
from covopt.solvers.deep.blocks import block_problem, solve_block
from covopt.solvers.deep.descent import Descent, descent_for
from covopt.solvers.deep.exploration import Cycle, Exploration, Networks
from covopt.solvers.deep.fine_tuning import FineTuning, FurtherTraining
from covopt.solvers.deep.first_training import FIRST_OF_MORE_LAYERS, first_training
from covopt.solvers.deep.frank_wolfe import InTurn
from covopt.solvers.deep.layers import examine
from covopt.solvers.deep.missing_neuron import find_missing_neuron
from covopt.solvers.deep.penalty_first import PenaltyFirst
from covopt.solvers.deep.pruning import balanced, mergeable, of_lower_rank, reduced, with_parts
from covopt.solvers.deep.solver import DeepSolver
from covopt.solvers.deep.starts import BRIEFLY, from_two_layers, lowest_of_random
from covopt.solvers.deep.state import DeepOptions, State
from covopt.solvers.options import SolveOptions
from covopt.solvers.training.exact_fit import explored_problem, fit_exactly, nearest_fit, usual_penalty
from covopt.solvers.training.homotopy import EXPLORING, POLISHING, REFINING, Smoothed, descend
from covopt.solvers.training.tangent import gauss_newton
from covopt.solvers.training.trainer import initial

FEW = DeepOptions(starts=4, batch=4)


def small(depth: int = 3, loss: str = "mse", beta: float = 1.0, seed: int = 0):
    X, Y = gaussian(8, 3, seed=seed), gaussian(8, 2, seed=seed + 1)
    Y = torch.softmax(Y, dim=1) if loss == "cross_entropy" else Y
    return make_problem(X, Y, lam=1e-2, loss=loss, depth=depth, bias=beta)


# -- smoothed kinks -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("slope", [0.0, 0.1, -0.3, 1.0])
def test_the_smoothed_activation(slope: float) -> None:
    z = torch.linspace(-2.0, 2.0, 401, dtype=torch.float64)
    for mu in (1.0, 0.1, 1e-3):
        smoothed, exact = Smoothed(slope=slope, mu=mu), Activation(slope)
        assert float(smoothed(torch.zeros(1, dtype=torch.float64))) == 0.0  # padding stays zero
        assert float((smoothed(z) - exact(z)).abs().max()) <= 0.25 * (1.0 - slope) * mu + 1e-15
        step = 1e-3 * mu  # the function is a parabola inside, so central differences are exact but at |z| = mu
        difference = (smoothed(z + step) - smoothed(z - step)) / (2.0 * step)
        torch.testing.assert_close(difference, smoothed.derivative(z), rtol=0, atol=1e-3)
        up = gaussian(len(z), seed=1)
        torch.testing.assert_close(smoothed.pull_back(up.clone(), z), up * smoothed.derivative(z))


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("options", [EXPLORING, REFINING, POLISHING])
def test_descents_never_rise_and_repeat_themselves(loss: str, options) -> None:
    problem = small(loss=loss)
    starts = [initial(problem, [4, 6], 0, 0.5), initial(problem, [5, 3], 1, 0.5)]
    reported: list[list[torch.Tensor]] = []
    found, again = (descend(problem, starts, options, report=reported.append) for _ in range(2))
    assert len(reported) > 4
    for before, after, same in zip(starts, found, again, strict=True):
        assert evaluate(problem, after).total < evaluate(problem, before).total
        assert [W.shape for W in after] == [W.shape for W in before]
        assert any(weights is after for weights in reported)
        assert all(W.dtype == torch.float64 and torch.equal(W, V) for W, V in zip(after, same, strict=True))


def test_a_stopped_descent_gives_back_what_it_was_given() -> None:
    problem = small()
    start = initial(problem, [4, 4], 0)
    (same,) = descend(problem, [start], REFINING, lambda: True)
    assert all(torch.equal(a, b) for a, b in zip(same, start, strict=True))


# -- blocks -------------------------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(instances(depths=(3, 4)))
def test_a_block_costs_what_the_network_costs_less_the_other_layers(instance: Instance) -> None:
    problem, weights = instance.problem, instance.weights
    total = evaluate(problem, weights)
    for layer in range(1, problem.depth):
        block = block_problem(problem, weights, layer)
        own = evaluate(block, weights[layer - 1 : layer + 1])
        others = sum(float(W.square().sum()) for W in [*weights[: layer - 1], *weights[layer + 1 :]])
        if layer == problem.depth - 1:
            assert own.total + problem.lam * others == pytest.approx(total.total, rel=1e-10)
        else:
            assert own.residual <= 1e-12 * max(1.0, float(block.Y.abs().max()))
            assert problem.lam * (own.norm + others) + total.fit == pytest.approx(total.total, rel=1e-10)


@pytest.mark.parametrize("layer", [1, 2])
def test_improving_a_block_never_raises_the_loss_and_touches_only_it(layer: int) -> None:
    problem = small(seed=3)
    weights = descend(problem, [initial(problem, [6, 6], 0)], EXPLORING)[0]
    changed = solve_block(problem, weights, layer, SolveOptions(Budget(30.0, max_iterations=6), certify="none")).weights
    assert evaluate(problem, changed).total <= evaluate(problem, weights).total
    untouched = 2 if layer == 1 else 0
    assert torch.equal(changed[untouched], weights[untouched])
    if layer == 1:  # Z_2 is kept
        before, after = (preactivations(problem, W)[1] for W in (weights, changed))
        torch.testing.assert_close(before, after, rtol=0, atol=1e-7)


# -- pruning ------------------------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(instances(depths=(3, 4), deficient=False))
def test_balancing_keeps_the_outputs_and_does_not_raise_the_norm(instance: Instance) -> None:
    problem, weights = instance.problem, instance.weights
    after = balanced(weights)
    F, same = (outputs(problem, W, problem.X) for W in (after, weights))
    torch.testing.assert_close(F, same, rtol=1e-9, atol=1e-9)
    assert evaluate(problem, after).norm <= evaluate(problem, weights).norm * (1.0 + 1e-12)
    incoming, outgoing = after[0].norm(dim=1), after[1][:, :-1].norm(dim=0)
    torch.testing.assert_close(incoming, outgoing, rtol=1e-2, atol=1e-9)


def test_copies_and_dead_neurons_go() -> None:
    problem = small(seed=5)
    weights = balanced(initial(problem, [4, 4], 0))
    incoming, outgoing = weights[0], weights[1][:, :-1].T
    # Each neuron of layer 1 twice, each with half of its outgoing weights, and one that nobody listens to.
    doubled = with_parts(
        weights,
        1,
        torch.cat([incoming, incoming, incoming[:1]]) / 2**0.5,
        torch.cat([outgoing, outgoing, 0.0 * outgoing[:1]]) / 2**0.5,
    )
    assert evaluate(problem, doubled).fit == pytest.approx(evaluate(problem, weights).fit)
    assert len(mergeable(doubled, 1)) == 4
    less = reduced(problem, doubled)
    assert len(less[0]) == 4
    assert evaluate(problem, less).total <= evaluate(problem, doubled).total * (1 + 1e-10)


def test_a_copy_of_lower_rank_keeps_half_of_the_directions_and_trains() -> None:
    problem, generator = small(depth=5, seed=6), torch.Generator().manual_seed(0)
    weights = initial(problem, [12, 12, 12, 12], 0)
    copy = of_lower_rank(weights, generator)
    assert all(torch.equal(copy[k], weights[k]) for k in (0, -1))
    for before, after in zip(weights[1:-1], copy[1:-1], strict=True):
        sizes, rank = torch.linalg.svdvals(before[:, :-1]), torch.linalg.matrix_rank(before[:, :-1], rtol=0.2) // 2
        cut = torch.linalg.svdvals(after[:, :-1])
        assert float((cut[:rank] / sizes[:rank] - 1.0).abs().max()) < 0.5
        assert float(cut[rank] / sizes[0]) < 0.5
        assert torch.equal(before[:, -1], after[:, -1])
    zeros = [torch.zeros_like(W) for W in weights]
    assert all(map(torch.equal, of_lower_rank(zeros, generator), zeros))
    training = replace(FIRST_OF_MORE_LAYERS, copies=(Cycle(40, 2.0), Cycle(200)))
    trained = training.restart(problem, weights, generator, Budget(60.0))
    assert evaluate(problem, trained).total < 0.5 * evaluate(problem, weights).total
    assert max(map(len, trained[:-1])) <= 12


# -- exact fits ---------------------------------------------------------------------------------------------------
def test_an_exact_fit_is_exact_and_cheaper_than_its_start() -> None:
    X, Y = gaussian(4, 3, seed=0), gaussian(4, 1, seed=1)
    problem = make_problem(X, Y, depth=3, bias=1.0)
    rough = descend(explored_problem(problem), [initial(explored_problem(problem), [6, 6], 0, 0.5)], EXPLORING)[0]
    found, fitted = descent_for(problem).at_fixed_widths(rough, lambda: False), fit_exactly(problem, rough)
    assert evaluate(problem, found).residual <= 1e-12 * float(Y.abs().max())
    assert evaluate(problem, found).norm < evaluate(problem, fitted).norm


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_fit_is_exact_and_near_where_one_neuron_carries_all_outputs(seed: int) -> None:
    X = gaussian(6, 3, seed=seed)
    exact = [gaussian(5, 4, seed=seed), gaussian(1, 6, seed=seed + 1).abs(), gaussian(2, 2, seed=seed + 2)]
    problem = make_problem(X, preactivations(make_problem(X, X[:, :2], depth=3), exact)[-1], depth=3)
    noise = [1e-5 * gaussian(*W.shape, seed=100 + k) for k, W in enumerate(exact)]
    rough = [W + change for W, change in zip(exact, noise, strict=True)]
    found = nearest_fit(problem, rough)
    largest = float(problem.Y.abs().max())
    assert evaluate(problem, fit_exactly(problem, rough)).residual > 1e-8 * largest  # W_3 alone cannot
    assert evaluate(problem, found).residual <= 1e-13 * largest
    moved, needed = (math.hypot(*((a - b).norm() for a, b in zip(W, rough, strict=True))) for W in (found, exact))
    assert moved <= 1.001 * needed


@pytest.mark.parametrize("dense", [2.0**24, 0.0], ids=["derivative as a matrix", "products with it"])
def test_equal_inputs_with_other_targets_are_fitted_at_their_mean(dense: float, monkeypatch) -> None:
    monkeypatch.setattr("covopt.solvers.training.exact_fit.DENSE", dense)
    X, W = gaussian(4, 3, seed=2)[[0, 0, 1, 2, 3, 3, 3]], [gaussian(*s, seed=3) for s in ((8, 4), (7, 9), (2, 8))]
    F = preactivations(make_problem(X, X[:, :2], depth=3), W)[-1]
    problem = make_problem(X, F + 1e-3 * gaussian(7, 2, seed=4), depth=3)
    means = torch.cat([Y.mean(dim=0).expand(len(Y), -1) for Y in problem.Y.split([2, 1, 1, 3])])
    torch.testing.assert_close(preactivations(problem, nearest_fit(problem, W))[-1], means, rtol=0.0, atol=1e-13)


def test_a_network_that_fits_for_the_first_time_is_a_gain_and_none_is_not() -> None:
    X = gaussian(3, 2, seed=0)
    solver = DeepSolver(make_problem(X, gaussian(3, 1, seed=1), depth=3))
    state = solver.init(Budget(60.0))
    state.best = [state.best[0][:0], state.best[1][:0, -1:], state.best[2][:, -1:]]
    state.cost = math.inf  # as where no network that is there at once fits
    state.costs = [math.inf] * solver.options.starts
    first = solver.step(state, Budget(60.0))
    assert first.due == math.isfinite(first.cost)
    assert not first.stalled
    assert solver.finished(first) is None


# -- solves -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("depth", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_linear_networks_meet_their_closed_form(depth: int) -> None:
    rng = np.random.default_rng(depth)
    X, A = rng.standard_normal((7, 4)), rng.standard_normal((4, 3))
    exact = depth * np.sum(np.linalg.svd(A, compute_uv=False) ** (2.0 / depth))
    result = covopt.solve(X, X @ A, depth=depth, bias=0.0, activation="linear", starts=3, time_limit=90)
    assert result.cost == pytest.approx(exact, rel=1e-9)
    assert result.residual <= 1e-12 * np.abs(X @ A).max()
    assert result.lower <= exact * (1.0 + 1e-9)


def test_a_deep_solve_reports_its_layers_and_survives_storage(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((6, 2)), rng.standard_normal((6, 2))
    result = covopt.solve(X, Y, lam=1e-2, depth=3, starts=3, max_iterations=8, seed=4)
    assert len(result.starts) == 3
    assert result.cost <= min(result.starts) * (1.0 + 1e-12)
    assert result.certificate == "paths"
    assert result.status != "optimal"
    assert 0.0 <= result.lower <= result.cost
    assert [layer.layer for layer in result.layers] == [1, 2]
    assert [layer.width for layer in result.layers] == result.widths
    last = result.layers[-1]
    assert last.stationarity == pytest.approx(1.0, abs=0.02)
    assert 0.0 <= last.gap < 1.0
    assert last.rank_K <= last.width
    result.save(tmp_path / "run")
    assert covopt.load(tmp_path / "run").cost == pytest.approx(result.cost, rel=1e-12)
    assert covopt.verify(tmp_path / "run").passed
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [layer["gap_certificate"] for layer in told["layers"]] == [str(x.gap_certificate) for x in result.layers]
    assert told["depth"] == 3


@pytest.mark.parametrize(("number", "depth", "adam"), [(5, 4, 1.99761), (4, 5, 2.555706)])
def test_a_batch_of_random_starts_ends_at_adams_cost_at_a_large_penalty(number: int, depth: int, adam: float) -> None:
    """Starts that descend through smoothed kinks end 1.2 % and 4.6 % above; Adam is the best of 144 starts."""
    rng = np.random.default_rng(number)
    problem = make_problem(rng.normal(size=(12, 4)), rng.normal(size=(12, 3)), lam=0.1, bias=1.0, depth=depth)
    assert run(DeepSolver(problem), Budget(600.0, max_iterations=2)).state.cost <= (1.0 + 1e-3) * adam


def test_as_many_random_starts_are_trained_as_fit_the_time() -> None:
    problem, exploration = small(depth=4), Exploration()
    counts = [exploration.count(problem, seconds, 96) for seconds in (0.1, 2.0, 1e7)]
    assert counts[0] == 0
    assert exploration.fewest[0] <= counts[1] < counts[2] == exploration.together
    assert exploration.count(problem, 1e7, 5) == exploration.count(problem, math.inf, 5) == 5
    assert exploration.count(make_problem(problem.X, problem.Y, depth=4), 1e7, 96) == 0


def test_a_start_is_trained_first_where_many_descents_would_take_long() -> None:
    """On 60 digits the descents of 24 starts, the best refined, end at 0.0250 after 5 seconds; better ones are told."""
    digits = covopt.read_data("digits", rows=60, scale="max")
    problem, budget = make_problem(digits.X, digits.Y, lam=1e-3, depth=3), Budget(6.0)
    solver, costs = DeepSolver(problem), []
    state, solver.on_incumbent = solver.init(budget), lambda cost, width: costs.append(cost)
    while (not state.costs or state.due) and not budget.spent():
        state = solver.step(state, budget)
    assert state.cost == min(costs) < 0.0246


@pytest.mark.parametrize("depth", [3, 4])
def test_small_problems_train_a_start_first_too(depth: int) -> None:
    """At three layers it is the first of the starts; with more layers, the search then begins as without it."""
    problem, budget = small(depth=depth), Budget(60.0)
    solver, reported = DeepSolver(problem, DeepOptions(starts=3)), []
    solver.on_incumbent = lambda cost, _: reported.append(cost)
    state = solver.init(budget)
    simple = state.cost
    for _ in range({3: 2, 4: 1}[depth]):
        assert (state.begins, state.costs) == (True, [])
        state = solver.step(state, budget)
    assert sum(cost < 0.95 * simple for cost in reported) > 2  # while it is trained
    assert state.begins == (depth == 3)  # the answer of two layers comes with later starts
    assert len(state.costs) == {3: 1, 4: 3}[depth]


@pytest.mark.parametrize(
    ("depth", "lam", "best", "few"), [(3, 0.02, 2, 3), (3, 0.02, 9, 4), (3, 1e-6, 2, 1), (4, 0.02, 2, 1)]
)
def test_a_few_other_starts_come_early(
    depth: int, lam: float, best: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end as soon as one is better, and there are none with a small lam or more layers."""
    problem, budget = replace(small(depth=depth), lam=lam), Budget(60.0)
    solver = DeepSolver(problem)
    state = solver.init(budget)
    good, poor = state.best, [0.0 * W for W in state.best]
    late = State(poor, 2.0 * state.cost, costs=[1.0], begins=True)
    monkeypatch.setattr(Exploration, "train_briefly", lambda *_: good if len(late.costs) == best else poor)
    assert solver._start_again(late, budget) == (few == 3)
    assert len(late.costs) == few
    assert late.begins
    assert late.cost == (state.cost if few == 3 else 2.0 * state.cost)


def test_with_a_small_penalty_copies_get_fewer_new_neurons() -> None:
    """Half as many neurons, half as strong as the old ones, gain 6.6 % here."""
    X, budget = np.random.default_rng(7).uniform(-2.0, 2.0, (60, 2)), Budget(60.0)
    Y = np.where(np.floor(X).sum(axis=1) % 2 == 0, 1.0, -1.0)[:, None]  # a checkerboard
    solver, other = (DeepSolver(make_problem(X, Y, lam=lam, depth=3)) for lam in (1e-4, 1e-3))
    state = solver.init(budget)
    assert (state.skipped, other.init(budget).skipped) == (1, 0)
    while not state.costs:
        state = solver.step(state, budget)
    before, lowest = state.cost, replace(state, cost=0.0, skipped=0)
    assert (solver._train_wider(state, budget), state.cost < 0.95 * before) == (True, True)
    assert (solver._train_wider(lowest, budget), lowest.skipped) == (False, 1)


@pytest.mark.parametrize(("extensions", "factors"), [(1, [1, 3]), (2, [1, 3, 9])])
def test_copies_after_one_that_ends_high_are_trained_longer(
    extensions: int, factors: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two wider copies the second one, and that once more."""
    solver, budget, seen = DeepSolver(small(depth=4), DeepOptions(starts=1)), Budget(60.0), []

    def tuned(own: Exploration, problem: object, networks: Networks, *_: object) -> Networks:
        seen.append((own.tuning.steps, own.tuning.rate))
        return [[1.2 * W for W in weights] for weights in networks]

    state = solver.init(budget)
    monkeypatch.setattr(Exploration, "fine_tune", tuned)
    solver._training = replace(solver._training, tuning=FineTuning(50, 0.4, high=0.1, extensions=extensions))
    assert not solver._train_wider(state, budget)
    assert [steps for steps, _ in seen] == [50 * factor for factor in factors]
    assert [rate for _, rate in seen] == [0.4, 0.2, 0.1][: len(factors)]


def test_training_starts_takes_a_part_of_the_time_and_never_raises_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, exploration, now = small(depth=4), Exploration(), [0.0]
    starts = [exploration.starts.draw(problem, number, 0) for number in range(6)]

    def seconds() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("time.perf_counter", seconds)
    found = exploration.train(problem, starts, Budget(300.0, started=0.0))
    assert now[0] <= 0.5 * 300.0
    for before, after in zip(starts, found, strict=True):
        assert [W.shape for W in after] == [W.shape for W in before]
        assert evaluate(problem, after).total < evaluate(problem, before).total


def test_fine_tuning_goes_on_where_the_other_descent_stops() -> None:
    """L-BFGS stops at kinks; what it ends at is no minimum, though its steps are rounding."""
    rng = np.random.default_rng(3)
    problem = make_problem(rng.normal(size=(12, 4)), rng.normal(size=(12, 3)), lam=0.15, bias=1.0, depth=3)
    exploration, budget = Exploration(), Budget(600.0)
    starts = [exploration.starts.draw(problem, number, 0) for number in range(6)]
    stopped = descend(problem, starts, POLISHING, budget.pace())
    reported: list[Networks] = []
    tuned = exploration.fine_tune(problem, stopped, budget, reported.append)
    before, *between, after = ([evaluate(problem, W).total for W in every] for every in (stopped, *reported, tuned))
    assert len(between) == exploration.tuning.steps // exploration.report_every
    assert [min(costs) for costs in between] == sorted(map(min, between), reverse=True)
    assert between[-1] == after
    assert all(later <= earlier for earlier, later in zip(before, after, strict=True))
    assert min(after) < (1.0 - 1e-5) * min(before)
    assert exploration.fine_tune(problem, stopped, Budget(1.0)) == []
    assert exploration.fine_tune(problem, [[0.0 * W for W in weights] for weights in stopped], budget) == []


@pytest.mark.parametrize(
    ("starts", "given", "short"), [(96, False, False), (96, True, False), (4, False, True), (1, True, True)]
)
def test_short_descents_stay_where_few_random_starts_are_trained(
    starts: int, given: bool, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, begun = small(depth=4), []
    monkeypatch.setattr(Descent, "briefly", lambda *_: begun.append(True) or [])
    monkeypatch.setattr("covopt.solvers.deep.solver.from_two_layers", lambda *_: [])
    init = initial(problem, [3, 3, 3], 0) if given else None
    solver = DeepSolver(problem, DeepOptions(starts=starts), init=init)
    state = solver.init(Budget(600.0))
    if state.begins:
        solver._begin(state, Budget(600.0))
    assert bool(begun) == short


def test_draws_that_lower_no_cost_are_not_followed_by_a_pass_over_the_blocks() -> None:
    problem = small()
    solver, budget = DeepSolver(problem, FEW), Budget(600.0)
    state = State(initial(problem, [4, 4], 0), 0.0)  # no draw costs less than 0
    while len(state.costs) < FEW.starts or state.pool:
        state = solver.step(state, budget)
    assert not state.due


@pytest.mark.parametrize("max_width", [None, 8])
@pytest.mark.parametrize("seed", [1, 3])
def test_layers_in_turn_leave_a_minimum_at_which_descents_and_blocks_end(max_width: int | None, seed: int) -> None:
    """On these data 12 starts with passes over the blocks alone end at 0.5355, at a minimum of lower rank.

    Where a descent from a start ends, between 0.535 and 0.539, depends on how the processor rounds.
    """
    rng = np.random.default_rng(1)
    problem = make_problem(rng.standard_normal((8, 2)), rng.standard_normal((8, 2)), lam=1e-2, depth=3)
    local = reduced(problem, descend(problem, [initial(problem, [8, 8], seed, 0.5)], POLISHING)[0])
    assert evaluate(problem, local).total > 0.53
    effort = DeepOptions(starts=0, in_turn=InTurn(steps=2))
    search = DeepSolver(problem, effort, init=local, max_width=max_width)
    state = search.init(Budget(60.0))
    search._move_in_turn(state, Budget(60.0))
    assert evaluate(problem, state.best).total == pytest.approx(state.cost, rel=1e-12)
    if max_width is None:
        assert 0.5025 < state.cost < 0.5027
    else:
        assert state.cost <= evaluate(problem, local).total
        assert max(len(W) for W in state.best[:-1]) <= max_width


def test_a_start_is_never_made_worse_and_time_may_be_up_at_once() -> None:
    problem = small(seed=7)
    weights = descend(problem, [initial(problem, [8, 8], 3, 0.5)], POLISHING)[0]
    hurried = covopt.solve(problem.X, problem.Y, lam=1e-2, depth=3, init=weights, time_limit=1e-3)
    assert hurried.status == "time_limit"
    assert hurried.cost <= evaluate(problem, weights).total
    assert np.isfinite(covopt.solve(problem.X, problem.Y, lam=1e-2, depth=3, time_limit=1e-3).cost)


def assert_layers_are_those_of_the_network(result: covopt.Result) -> None:
    """That everything told of each hidden layer follows from the weights that are returned."""
    problem, weights = result.problem, result.weights
    assert [told.layer for told in result.layers] == list(range(1, problem.depth))
    for told in result.layers:
        Z = preactivations(problem, weights)[told.layer - 1]
        Zs = torch.cat([problem.activation(Z), torch.full_like(Z[:, :1], problem.beta)], dim=1)
        assert told.width == len(weights[told.layer - 1])
        assert told.rank_K == int(torch.linalg.matrix_rank(Z, rtol=1e-8))
        assert told.rank_Ks == int(torch.linalg.matrix_rank(Zs, rtol=1e-8))
        escape = find_missing_neuron(problem, weights, told.layer, seed=result.seed)
        assert told.stationarity == pytest.approx(escape.value, rel=1e-9)
        if told.gap is None:  # the time was up
            assert told.gap_certificate == "none"
            continue
        block = block_problem(problem, weights, told.layer)
        own = evaluate(block, weights[told.layer - 1 : told.layer + 1]).total
        scale = result.cost if told.layer == problem.depth - 1 else result.cost / problem.lam
        lower = own - told.gap * scale  # the bound that the gap was made of
        if told.gap_certificate == "spectral":
            assert lower == pytest.approx(spectral_proof(block, 10.0).lower, rel=1e-9)
        else:
            lam = None if block.interpolates else block.lam
            solved = covopt.solve(block.X, block.Y, lam=lam, bias=block.beta, certify="fast")
            assert lower <= solved.cost * (1.0 + 1e-9)
            assert result.certify == "full" or lower >= solved.lower * (1.0 - 1e-3)  # full goes on until the time is up


@pytest.mark.parametrize("method", ["hidden", "train"])
def test_rivals_come_back_as_they_are_where_a_block_needs_no_neuron(method: str) -> None:
    X, Y = gaussian(8, 3, seed=1), gaussian(8, 2, seed=2)
    question = {"lam": 10.0, "depth": 3, "method": method, "width": 3, "starts": 1, "max_iterations": 1}
    result = covopt.solve(X, Y, time_limit=100, **question)
    assert (result.widths, result.cost) == ([3, 3], pytest.approx(result.starts[0], rel=1e-12))
    assert_layers_are_those_of_the_network(result)


def test_progress_says_what_a_deep_solve_does_next() -> None:
    """A small problem is first searched by cases, of which one alone leaves the time to the random starts."""
    rng, asked = np.random.default_rng(3), {"lam": 3e-2, "depth": 3, "starts": 3, "certify": "fast", "time_limit": 100}
    X, Y = rng.standard_normal((6, 1)), rng.standard_normal((6, 1))
    lines: list[Progress] = []
    covopt.solve(X, Y, callback=lines.append, **asked)
    phases, bounds = [line.phase for line in lines], [line.lower or 0.0 for line in lines]
    assert bounds == sorted(bounds)
    assert phases[0] == "bounding the minimum by a tree of cases"
    between = {"descending from deepened networks", "refining the best of 3 starts", "improving the best network"}
    assert between | {"random starts from number 2 of 3 on"} <= set(phases)
    assert phases[-1] == "examining each hidden layer"


def test_a_block_without_inputs_is_no_problem() -> None:
    """A block that is solved may leave the layer below without neurons; what is beside it is then only a bias."""
    problem = small(4)
    weights = initial(problem, [0, 3, 2], 0)
    assert solve_block(problem, weights, 2, SolveOptions(Budget(5.0), certify="fast")).block is None
    found = solve_block(problem, weights, 1, SolveOptions(Budget(5.0, max_iterations=3), certify="fast"))
    _, improved = examine(problem, found.weights, SolveOptions(Budget(5.0, max_iterations=3)), improve=True)
    assert evaluate(problem, improved).total <= evaluate(problem, weights).total


def test_an_exact_fit_of_many_points_of_a_line_comes_from_two_layers() -> None:
    """Three rounds of two layers do not fit 40 random points; other starts do not within 20 s."""
    rng = np.random.default_rng(1000)
    problem = make_problem(rng.normal(size=(40, 1)), rng.normal(size=(40, 1)), depth=3)
    assert problem.allows(evaluate(problem, from_two_layers(problem, Budget(100.0), 0, BRIEFLY)[0]).residual)


def test_random_starts_lead_to_the_minimum_of_four_samples() -> None:
    """Of networks that fit, none costs less than 36.3262 by more than 0.1 %, as `shares` proves."""
    rng = np.random.default_rng(1004)
    problem = make_problem(np.sort(rng.standard_normal((4, 1)), axis=0), rng.standard_normal((4, 1)), depth=3)
    starts = lowest_of_random(problem, 24, 0, None, lambda: False)
    fits = descent_for(problem).descend(starts, POLISHING, Budget(600.0))
    costs = [evaluate(problem, weights) for weights in fits]
    assert len(fits) == 2
    assert max(cost.residual for cost in costs) <= 1e-9
    assert min(cost.total for cost in costs) == pytest.approx(36.3262, rel=1e-3)


def test_exact_fits_come_from_a_search_at_a_small_penalty() -> None:
    """The answer of two layers costs 8.4043."""
    rng = np.random.default_rng(1)
    problem = make_problem(rng.standard_normal((4, 2)), rng.standard_normal((4, 2)), depth=3)
    search, budget = PenaltyFirst(problem, DeepOptions(starts=1, batch=1)), Budget(600.0)
    state = search.init(budget)
    assert 8.35 < state.cost < 8.45
    assert search.progress(state, 0, 0.0).phase.startswith("with a small penalty in place of the exact fit")
    while not state.costs:
        assert search.finished(state) is None
        state = search.step(state, budget)
    assert search.progress(state, 0, 0.0).phase == "descending from deepened networks"
    assert evaluate(problem, state.best).residual < 1e-9
    assert state.cost == pytest.approx(7.7473, rel=5e-4)


@pytest.mark.parametrize(
    ("depth", "part", "widest", "says"),
    [
        (13, 1.0, None, "the first starts"),
        (13, 0.01, None, "networks of ranks 1 to 3"),
        (13, 1.0, 3, "networks of ranks 1 to 3"),
        (20, 1.0, None, "networks of ranks 1 to 3"),
    ],
)
def test_a_start_is_trained_first_up_to_sixteen_layers_unless_lam_or_width_is_small(
    depth: int, part: float, widest: int | None, says: str
) -> None:
    problem = make_problem(gaussian(60, 3, seed=0), gaussian(60, 2, seed=1), lam=1.0, bias=1.0, depth=depth)
    problem = replace(problem, lam=part * usual_penalty(problem))
    solver = DeepSolver(problem, max_width=widest)
    assert solver.progress(solver.init(Budget(2.0)), 0, 0.0).phase.startswith(says)


def test_a_first_start_of_many_layers_or_few_inputs_is_narrow() -> None:
    X, Y = gaussian(1000, 40, seed=0), gaussian(1000, 2, seed=1)
    every = [first_training(make_problem(X, Y, lam=1e-3, depth=L), 60.0).starts for L in (3, 4, 5, 13)]
    for inputs, widths in {40: [119, 126, 60, 60], 5: [60, 60, 60, 60]}.items():
        problem = make_problem(X[:, :inputs], Y, lam=1e-3)
        assert [starts.width(problem, starts.widths[0]) for starts in every] == widths
    problem = make_problem(X, Y, lam=1e-3, depth=3)
    small, large = (every[0].draw(replace(problem, X=size * X), 0, seed=0)[0] for size in (0.1, 10.0))
    torch.testing.assert_close(large, small / (10.0 / 0.5 * (X.square().sum() / X.new_tensor(41_000.0)).sqrt()))


def test_four_layers_are_trained_wider_where_time_allows_and_gentler_where_lam_is_small() -> None:
    problem = make_problem(gaussian(300, 50, seed=0), gaussian(300, 2, seed=1), lam=1e-3, depth=4)
    wide, narrow = (first_training(problem, seconds) for seconds in (30.0, 3.0))
    gentle = first_training(replace(problem, lam=1e-5), 30.0)
    assert (wide.starts.widths, narrow.starts.widths, wide.cycles) == ((2.0,), (1.25,), narrow.cycles)
    assert (wide.tuning.penalties, gentle.tuning.penalties) == ((1.5, 1.0), (1.0,))
    assert (wide.further, gentle.further) == (None, FurtherTraining())


def test_with_a_small_penalty_further_training_goes_on_while_it_gains_much() -> None:
    """Of 79 samples, at six layers, the first cycle gains a quarter of the cost."""
    X, budget, reported = gaussian(79, 2, seed=0), Budget(60.0), []
    Y = torch.relu(X @ gaussian(2, 8, seed=1)) @ gaussian(8, 1, seed=2)
    solver = DeepSolver(make_problem(X, Y / Y.std(), lam=1e-5, depth=6, bias=0.0))
    state = solver.init(budget)
    while not state.costs:
        state = solver.step(state, budget)
    solver.on_incumbent = lambda cost, _: reported.append(cost)
    before, further = state.cost, FurtherTraining()
    assert (state.further, solver._train_further(state, further, budget)) == (further, True)
    assert state.further == FurtherTraining(2 * further.steps)
    assert state.cost < 0.9 * before
    assert len(reported) > 2
    lowest = replace(state, cost=0.5 * state.cost)
    assert (solver._train_further(lowest, further, budget), lowest.further) == (False, None)


def test_a_network_of_too_few_weights_to_fit_is_widened_before_further_training() -> None:
    X, Y = gaussian(200, 5, seed=0), gaussian(200, 4, seed=1)
    weights = initial(make_problem(X, Y, depth=3), [20, 20], 0)  # 604 weights
    for targets, lam, width in ((4, 1e-6, 30), (4, 1e6, 20), (3, 1e-6, 20)):
        descents = descent_for(make_problem(X, Y[:, :targets], lam=lam, depth=3))
        start = [*weights[:-1], weights[-1][:targets]]
        assert list(map(len, descents.wide_enough(start, ((0.5, 0.5),)))) == [width, width, targets]


@settings(max_examples=10, deadline=None)
@given(instances(losses=("mse",)))
def test_gauss_newton_steps_never_raise_the_cost(instance: Instance) -> None:
    found = gauss_newton(instance.problem, instance.weights)
    assert evaluate(instance.problem, found).total <= evaluate(instance.problem, instance.weights).total


def test_gauss_newton_steps_meet_the_minimum_of_linear_networks_at_a_small_lam() -> None:
    """With orthonormal inputs the singular values of the targets, 1 and 0.2, lose lam."""
    X, lam = 2.0 * torch.eye(4, dtype=torch.float64)[:, :2], 1e-3
    Y = X @ torch.diag(torch.tensor([1.0, 0.2], dtype=torch.float64))
    problem = make_problem(X, Y, lam=lam, bias=0.0, activation="linear")
    found = gauss_newton(problem, initial(problem, [4], 0, 1.0))
    lowest = 2.0 * lam**2 + 2.0 * lam * (1.2 - 2.0 * lam)
    assert evaluate(problem, found).total == pytest.approx(lowest, rel=1e-3)


def test_a_descent_reports_exact_fits_before_it_ends() -> None:
    problem = make_problem(gaussian(12, 3, seed=0), gaussian(12, 2, seed=1), depth=4, bias=1.0)
    descents, fits = descent_for(problem), []
    descents.on_network = fits.append
    start = initial(problem, [12] * 3, 0, 0.7)
    ended = descents.descend([start], POLISHING, Budget(600.0))[0]
    costs = [evaluate(problem, weights) for weights in fits]
    assert len(costs) >= 3
    assert max(cost.residual for cost in costs) <= 1e-9
    assert evaluate(problem, ended).total == min(cost.total for cost in costs)
