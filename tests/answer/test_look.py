"""A network as a function: kinks and regions against brute force, and pictures of degenerate data."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from runs import toy_result

from covopt.answer import pictures
from covopt.answer.look import draw_look, draw_map, draw_shares, look_at, regions
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import breakpoints, kinks, outputs
from covopt.records.provenance import Origin


def network(depth: int, inputs: int = 1, m: int = 1, activation: str = "relu", seed: int = 0) -> tuple[Problem, list]:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    problem = make_problem(draw(7, inputs), draw(7, m), lam=1.0, depth=depth, activation=activation)
    return problem, [draw(n, below + 1) for below, n in pairwise([inputs, *[6] * (depth - 1), m])]


def test_kinks_of_two_layers_are_where_neurons_switch() -> None:
    problem, weights = network(2)
    w, b = weights[0].T
    expected = np.sort([float(-b[k] / w[k]) for k in range(6) if abs(b[k] / w[k]) < 3.0])
    x = breakpoints(problem, weights, -3.0, 3.0)
    np.testing.assert_allclose(kinks(x, outputs(problem, weights, x[:, None])), expected, rtol=1e-12)


@pytest.mark.parametrize(("depth", "activation"), [(3, "relu"), (4, "leaky:0.2")])
def test_between_breakpoints_a_deep_network_is_linear(depth: int, activation: str) -> None:
    problem, weights = network(depth, m=2, activation=activation)
    x = breakpoints(problem, weights, -3.0, 3.0)
    assert len(x) > 10
    inside = torch.lerp(x[:-1, None], x[1:, None], torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64))
    F, ends = outputs(problem, weights, inside.reshape(-1, 1)), outputs(problem, weights, x[:, None])
    straight = np.stack([np.interp(inside.ravel(), x, ends[:, k]) for k in range(2)], axis=1)
    np.testing.assert_allclose(F, straight, rtol=1e-9, atol=1e-10)


def test_regions_are_those_of_the_largest_output() -> None:
    problem, weights = network(3, m=4, seed=3)
    x = breakpoints(problem, weights, -3.0, 3.0)
    found = regions(x, outputs(problem, weights, x[:, None]))
    assert [found[0][0], found[-1][1]] == [-3.0, 3.0]
    assert len(found) > 2
    grid = torch.linspace(-3.0, 3.0, 5001, dtype=torch.float64)
    largest = outputs(problem, weights, grid[:, None]).argmax(dim=1).tolist()
    for at, k in zip(grid.tolist(), largest, strict=True):
        assert k in [c for left, right, c in found if left - 1e-9 <= at <= right + 1e-9]


def test_shares_and_the_bias_sum_to_the_output() -> None:
    problem, weights = network(3)
    look = look_at(problem, weights, None, None)
    x = torch.linspace(-2.0, 2.0, 9, dtype=torch.float64)
    sums = look.shares(x).sum(dim=1) + problem.beta * weights[-1][0, -1]
    np.testing.assert_allclose(sums, look.outputs(x[:, None])[:, 0], rtol=1e-12)


DEGENERATE = [
    ([[3.0]], [[1.0]]),
    ([[0.0]] * 3, [[0.0]] * 3),
    ([[1e-70], [2e-70]], [[1.0], [2.0]]),
    ([[1e60], [-3e60]], [[1.0], [2.0]]),
    ([[5.0], [5.0]], [[1.0, 0.0], [0.0, 1.0]]),
    ([[1.0, 1.0]] * 2, [[1.0], [2.0]]),
    ([[1e60, 1.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]),
    ([[0.0, 0.0]], [[1.0, 2.0, 3.0]]),
]


@pytest.mark.parametrize(("X", "Y"), DEGENERATE)
@pytest.mark.parametrize("width", [0, 3])
def test_degenerate_data_are_drawn_without_a_word(X: list, Y: list, width: int) -> None:
    result = toy_result(X=X, Y=Y, width=width)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axes = result.plot(Figure().add_subplot())
        axes.figure.canvas.draw()  # type: ignore[union-attr]
        assert len(pictures.function(result, Origin())) >= 1


def test_the_colours_follow_the_ground_of_the_axes() -> None:
    problem, weights = network(2)
    look = look_at(problem, weights, ("dose $x$",), None)
    assert look is not None
    light, dark = Figure().add_subplot(), Figure().add_subplot(facecolor="black")
    for axes in (light, dark):
        draw_look(axes, look)
        draw_shares(axes, look)
    assert light.get_lines()[0].get_color() != dark.get_lines()[0].get_color()
    assert light.get_xlabel() == "dose $x$"


def test_more_inputs_have_no_picture_and_a_map_shows_its_output() -> None:
    problem, weights = network(2, inputs=3)
    assert look_at(problem, weights, None, None) is None
    problem, weights = network(3, inputs=2, m=2)
    look = look_at(problem, weights, None, None)
    assert look is not None
    axes = Figure().add_subplot()
    draw_map(axes, look, 1)
    left, right, low, high = axes.get_images()[0].get_extent()
    values = np.asarray(axes.get_images()[0].get_array())
    corner = [[left + 0.5 * (right - left) / len(values), low + 0.5 * (high - low) / len(values)]]
    expected = outputs(problem, weights, torch.tensor(corner, dtype=torch.float64))[0, 1]
    assert float(values[0, 0]) == pytest.approx(float(expected), rel=1e-9)
