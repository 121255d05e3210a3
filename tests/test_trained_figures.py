"""Figures of the papers whose networks are trained from random starts, by their quick versions."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import trained_depths
import trained_recovery
import trained_symmetry
from figure_design import Arrays, Asked, Numbers, network
from random_starts import Schedule, best, cost, trained

from covopt.model.problem import make_problem
from covopt.model.weights import evaluate


@pytest.fixture(scope="module")
def depths() -> tuple[Arrays, Numbers]:
    arrays = trained_depths.DESIGN.make(Asked(quick=True)).arrays
    return arrays, trained_depths.DESIGN.numbers(arrays)


def test_numbers_of_trained_depths_are_those_of_the_networks(depths: tuple[Arrays, Numbers], tmp_path: Path) -> None:
    """Costs by covopt, ranks by torch; the best of a depth is that of the lowest cost."""
    arrays, numbers = depths
    lines = numbers["networks"]
    assert [line["depth"] for line in lines] == [3] * 4 + [6] * 4
    for line in lines:
        weights = [torch.from_numpy(W) for W in network(arrays, line["key"])]
        assert len(weights) == line["depth"]
        problem = make_problem(arrays["X"], arrays["Y"], lam=1e-3, loss="mse", depth=line["depth"])
        value = evaluate(problem, weights)
        assert line["cost"] == pytest.approx(value.total, rel=1e-10)
        assert line["norm"] == pytest.approx(value.norm, rel=1e-10)
        middle = weights[1 if line["depth"] == 3 else 2]
        assert line["rank"] == int((torch.linalg.svdvals(middle[:, :-1]) > 0.1).sum())
    trained_depths.DESIGN.picture(arrays, numbers).savefig(tmp_path / "figure.png")
    assert all(len(row) == len(trained_depths.COLUMNS) for row in trained_depths.DESIGN.rows(numbers))


def test_training_lowers_the_cost_from_each_start(depths: tuple[Arrays, Numbers]) -> None:
    """The zero network costs the mean of |y|^2, which is 4; a start costs about 2 n for each layer in norm alone."""
    arrays, numbers = depths
    zero = float((arrays["Y"] ** 2).sum(axis=1).mean())
    assert zero == pytest.approx(4.0)
    assert all(line["cost"] < 2.0 * zero for line in numbers["networks"] if line["depth"] == 3)
    again = trained(arrays["X"], arrays["Y"], [20, 20], 1e-3, 4, 0, trained_depths.QUICK_SCHEDULE)
    assert np.array_equal(again[1][0], arrays["start1_L3_W1"])


def test_what_its_claims_say_of_networks_that_are_known() -> None:
    lines = [
        {"depth": L, "cost": 0.1, "fit": 0.01, "norm": 2.0 * L, "rank": k, "key": ""}
        for L, k in zip((3, 5, 9), (4, 3, 2), strict=True)
    ]
    zero = {"depth": 9, "cost": 4.0, "fit": 4.0, "norm": 0.0, "rank": 0, "key": ""}
    assert trained_depths.best_of_each_depth({"networks": [*lines, zero, lines[0] | {"cost": 0.2}]}) == lines
    assert all(claim.seen for claim in trained_depths.DESIGN.claims({"networks": [*lines, zero]}))
    changes = [(2, {"fit": 0.2}, {0, 2, 3}), (1, {"norm": 30.0}, {1}), (2, {"rank": 3}, {2, 3})]
    for line, change, lost in changes:
        changed = [each | (change if place == line else {}) for place, each in enumerate(lines)]
        claims = trained_depths.DESIGN.claims({"networks": [*changed, zero]})
        assert {place for place, claim in enumerate(claims) if not claim.seen} == lost
    assert not trained_depths.DESIGN.claims({"networks": lines})[4].seen


# ---- the training
def test_the_schedule_warms_up_and_weakens_the_penalty() -> None:
    schedule = Schedule(steps=1000, rate=0.01, stronger=16.0, warm=10)
    assert schedule.rate_at(0) == pytest.approx(0.001)
    assert schedule.rate_at(500) == pytest.approx(0.005)
    assert schedule.rate_at(999) < 1e-6
    assert [schedule.penalty_at(step) for step in (0, 250, 500, 900)] == pytest.approx([16.0, 4.0, 1.0, 1.0])


def test_the_best_start_has_the_lowest_cost_by_covopt() -> None:
    """A least-squares problem in one layer: training reaches its closed form."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    networks = trained(X, Y, [], 0.1, 2, 0, Schedule(steps=2000, rate=0.02))
    lifted = np.column_stack([X, np.ones(30)])
    exact = np.linalg.solve(lifted.T @ lifted / 30 + 0.1 * np.eye(4), lifted.T @ Y / 30).T
    problem = make_problem(X, Y, lam=0.1, loss="mse", depth=3)
    deep = trained(X, Y, [4, 4], 0.1, 3, 0, Schedule(steps=20))
    costs = [evaluate(problem, [torch.from_numpy(W) for W in layers]).total for layers in deep]
    assert [layers[0] for layers in networks] == [pytest.approx(exact, abs=1e-5)] * 2
    assert cost(best(deep, X, Y, 0.1), X, Y, 0.1) == pytest.approx(min(costs), rel=1e-10)


# ---- rank recovery and symmetry
@pytest.mark.parametrize("module", [trained_recovery, trained_symmetry])
def test_quick_versions_draw_and_cost_what_covopt_says(module: ModuleType, tmp_path: Path) -> None:
    """The network is the best of its random starts, of the paper's depth."""
    made = module.DESIGN.make(Asked(quick=True))
    arrays, numbers = made.arrays, module.DESIGN.numbers(made.arrays)
    layers = network(arrays, "network")
    problem = make_problem(arrays["X"], arrays["Y"], lam=module.LAM, loss="mse", depth=module.DEPTH)
    value = evaluate(problem, [torch.from_numpy(W) for W in layers])
    costs = numbers["network"] if module is trained_recovery else numbers
    assert costs["cost"] == pytest.approx(value.total, rel=1e-10)
    assert len(layers) == module.DEPTH == len(numbers["layers"])
    module.DESIGN.picture(arrays, numbers).savefig(tmp_path / "figure.png")
    assert all(len(row) == len(module.DESIGN.columns) for row in module.DESIGN.rows(numbers))
    assert len(module.DESIGN.claims(numbers)) >= 4


def test_what_the_claims_of_trained_recovery_say() -> None:
    layer = {"weights": [1.3, 1.2, 1.1, 1.0, 0.3], "nonlinearity": 0.02}
    network_line = {"singular_values": [4.0, 3.0, 2.0, 1.0, 0.1], "test": 4.0}
    known = {"network": network_line, "kernel": {"ranks": [50, 50], "test": 7.0}, "layers": [layer] * 13}
    assert all(claim.seen for claim in trained_recovery.DESIGN.claims(known))
    changes = [
        ({"layers": [layer | {"weights": [1.3, 1.2, 1.1, 1.0, 0.9, 0.3]}] * 13}, [0]),
        ({"layers": [layer | {"weights": [1.3, 1.2, 1.1, 1.0, 0.9, 0.8]}] * 13}, [0, 1]),
        ({"layers": [layer | {"nonlinearity": 0.2}] * 13}, [2]),
        ({"network": network_line | {"singular_values": [4.0, 3.0, 2.0, 1.0, 0.6]}}, [3]),
        ({"kernel": {"ranks": [49, 50], "test": 7.0}}, [4]),
        ({"kernel": {"ranks": [50, 50], "test": 3.0}}, [5]),
    ]
    for change, lost in changes:
        seen = [claim.seen for claim in trained_recovery.DESIGN.claims(known | change)]
        assert [place for place, there in enumerate(seen) if not there] == lost


def test_what_the_claims_of_trained_symmetry_say() -> None:
    layer = {"weights": [1.3, 1.1, 0.3], "collapse": 0.1}
    known = {"test": 0.01, "variance": 1.0, "crossings": 0, "layers": [layer] * 25}
    assert all(claim.seen for claim in trained_symmetry.DESIGN.claims(known))
    changes = [
        {"test": 0.2},
        {"layers": [layer | {"weights": [1.3, 1.1, 1.0]}] * 25},
        {"layers": [layer | {"collapse": 0.5}] * 25},
        {"crossings": 1},
    ]
    for place, change in enumerate(changes):
        seen = [claim.seen for claim in trained_symmetry.DESIGN.claims(known | change)]
        assert [k for k, there in enumerate(seen) if not there] == [place]
