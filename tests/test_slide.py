"""The descent of all weights together: L-BFGS on known functions, and never a higher objective."""

import pytest
import scipy.optimize
import torch

from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.model.weights import objective
from covopt.solvers.fits import make_fit
from covopt.solvers.slide import SlideOptions, lbfgs, slide


def never() -> bool:
    return False


def test_minimises_the_rosenbrock_function() -> None:
    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        point = x.numpy()
        return float(scipy.optimize.rosen(point)), torch.tensor(scipy.optimize.rosen_der(point))

    x = lbfgs(value, torch.zeros(6, dtype=torch.float64), never, SlideOptions(slow=0.0, iterations=400))
    assert torch.allclose(x, torch.ones(6, dtype=torch.float64), atol=1e-6)


def test_reaches_the_kink_of_a_nonsmooth_function() -> None:
    """f = |x_1| + x_2^2: weak Wolfe goes on where strong Wolfe cannot."""

    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(x[0].abs() + x[1] ** 2), torch.stack([x[0].sign(), 2 * x[1]])

    x = lbfgs(value, torch.tensor([3.0, -2.0], dtype=torch.float64), never, SlideOptions(slow=0.0, iterations=200))
    assert value(x)[0] <= 1e-6


@pytest.mark.parametrize(
    "options",
    [SlideOptions(), SlideOptions(entries=1), SlideOptions(entries=1, slow=1e-4)],
    ids=["double", "single before double", "single"],
)
@pytest.mark.parametrize(("loss", "slope"), [("mse", 0.0), ("cross_entropy", 0.0), ("mse", 0.2)])
def test_lowers_the_objective_that_weights_have(loss: str, slope: float, options: SlideOptions) -> None:
    g = torch.Generator().manual_seed(4)
    X = torch.randn(20, 4, generator=g, dtype=torch.float64)
    Y = torch.eye(3, dtype=torch.float64)[torch.randint(3, (20,), generator=g)]
    problem = make_problem(X, Y, lam=1e-3, loss=loss, activation=Activation(slope))
    directions = torch.nn.functional.normalize(torch.randn(8, 5, generator=g, dtype=torch.float64), dim=1)
    outputs, bias = torch.randn(8, 3, generator=g, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)

    def cost(U: torch.Tensor, V: torch.Tensor, b: torch.Tensor) -> float:
        return float(objective(problem, [U, torch.cat([V.T, b[:, None]], dim=1)]))

    smooth = make_fit(problem).smooth
    U, V, b = slide(problem.Xt, problem.activation, problem.beta, smooth, directions, outputs, bias, never, options)
    assert {U.dtype, V.dtype, b.dtype} == {torch.float64}
    size = outputs.norm(dim=1, keepdim=True).sqrt()
    assert cost(U, V, b) < 0.5 * cost(directions * size, outputs / size, bias)
    assert torch.allclose(U.norm(dim=1), V.norm(dim=1), rtol=1e-9)


def test_float32_is_dropped_where_it_does_not_lower_the_value() -> None:
    """At a minimum, rounding can only raise the value: the weights stay."""
    X, Y = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    problem = make_problem(X, Y, lam=1e-2, bias=0.0)
    size = 1.0 - 3 * 1e-2  # of each neuron's contribution: (1/3) (1 - a)^2 + 2 lam a is least at a = 1 - 3 lam
    found = slide(
        problem.X,
        problem.activation,
        0.0,
        make_fit(problem).smooth,
        torch.eye(3, dtype=torch.float64),
        size * Y,
        torch.zeros(3, dtype=torch.float64),
        never,
        SlideOptions(entries=1, slow=1e-4),
    )
    assert torch.allclose(found[0], size**0.5 * X, atol=1e-12)
    assert torch.allclose(found[1], size**0.5 * Y, atol=1e-12)


def test_stops_when_told() -> None:
    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(x @ x), 2 * x

    x = torch.ones(3, dtype=torch.float64)
    assert torch.equal(lbfgs(value, x, lambda: True, SlideOptions()), x)
