"""L-BFGS on known functions, and its recursion beside the updates that it stands for."""

import pytest
import scipy.optimize
import torch
from instances import never

from covopt.linalg.lbfgs import DescentOptions, Memory, descend, lbfgs


def test_minimises_the_rosenbrock_function() -> None:
    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        point = x.numpy()
        return float(scipy.optimize.rosen(point)), torch.tensor(scipy.optimize.rosen_der(point))

    x = descend(value, torch.zeros(6, dtype=torch.float64), never, DescentOptions(slow=0.0, iterations=400))
    assert torch.allclose(x, torch.ones(6, dtype=torch.float64), atol=1e-6)


def test_reaches_the_kink_of_a_nonsmooth_function() -> None:
    """f = |x_1| + x_2^2: weak Wolfe goes on where strong Wolfe cannot."""

    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(x[0].abs() + x[1] ** 2), torch.stack([x[0].sign(), 2 * x[1]])

    start = torch.tensor([3.0, -2.0], dtype=torch.float64)
    assert value(descend(value, start, never, DescentOptions(slow=0.0, iterations=200)))[0] <= 1e-6


def test_never_rises_and_begins_where_it_is_told() -> None:
    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        f = (x**4).sum() - (x[:-1] * x[1:]).sum()
        slope = 4 * x**3
        slope[:-1] -= x[1:]
        slope[1:] -= x[:-1]
        return float(f), slope

    start = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64)
    path = list(lbfgs(value, start, DescentOptions(slow=0.0, iterations=50)))
    assert torch.equal(path[0], start)
    costs = [value(x)[0] for x in path]
    assert costs == sorted(costs, reverse=True)


def test_goes_around_places_where_there_is_no_value() -> None:
    """f = x - log x, infinite for x <= 0."""

    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return (float(x - x.log()) if x > 0 else float("inf")), 1.0 - 1.0 / x

    x = descend(value, torch.tensor([9.0], dtype=torch.float64), never)
    assert float(x) == pytest.approx(1.0, abs=1e-3)


def test_scales_the_steps_by_the_preconditioner() -> None:
    """f = sum_j h_j x_j^2 / 2 with h from 1 to 10^8: with H^-1 for it the minimum is one full step away."""
    curvature = torch.logspace(0.0, 8.0, 9, dtype=torch.float64)

    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(curvature @ x.square()) / 2.0, curvature * x

    start = curvature.rsqrt() / 9.0
    path = list(lbfgs(value, start, DescentOptions(slow=0.0), lambda x: 1.0 / curvature))
    assert value(path[1])[0] <= 1e-20 * value(start)[0]
    plain = list(lbfgs(value, start, DescentOptions(slow=0.0)))
    assert len(plain) > 10
    assert value(plain[-1])[0] <= 1e-12 * value(start)[0]


@pytest.mark.parametrize(("renews", "asked"), [(False, [0]), (True, [0, 5, 15, 35])])
def test_asks_for_the_preconditioner_on_its_way(renews: bool, asked: list[int]) -> None:
    """A chain that each iteration lengthens by one entry goes on for as many iterations as it has entries."""
    points: list[torch.Tensor] = []

    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        slope = 2.0 * x
        slope[0] -= 1.0
        slope[1:] -= x[:-1]
        slope[:-1] -= x[1:]
        return float(x @ slope - x[0]) / 2.0, slope

    def preconditioner(x: torch.Tensor) -> torch.Tensor:
        points.append(x)
        return torch.ones_like(x)

    options = DescentOptions(iterations=40, slow=0.0, renews=renews)
    path = list(lbfgs(value, torch.zeros(50, dtype=torch.float64), options, preconditioner))
    assert len(path) == 41
    assert len(points) == len(asked)
    assert all(torch.equal(point, path[count]) for point, count in zip(points, asked, strict=True))


def test_stops_when_told() -> None:
    def value(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(x @ x), 2 * x

    x = torch.ones(3, dtype=torch.float64)
    assert torch.equal(descend(value, x, lambda: True), x)


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9, 23])
def test_the_recursion_is_the_bfgs_update_of_the_last_pairs(count: int, preconditioned: bool) -> None:
    """H <- (I - s y^T / s^T y) H (I - y s^T / s^T y) + s s^T / s^T y, from c D, with the last 4 pairs."""
    g, p, size = torch.Generator().manual_seed(count), 7, 4
    D = torch.rand(p, generator=g, dtype=torch.float64) + 0.1 if preconditioned else None
    memory, pairs = Memory(size, D), []
    for _ in range(count):
        step, noise = (torch.randn(p, generator=g, dtype=torch.float64) for _ in range(2))
        change = noise if step @ noise > 0 else -noise
        memory.add(step, change, float(step @ change))
        pairs.append((step, change))
    identity = torch.eye(p, dtype=torch.float64)
    H = identity if D is None else D.diag()
    if pairs:
        step, change = pairs[-1]
        H = H * float(step @ change / (change @ H @ change))
    for step, change in pairs[-size:]:
        left = identity - torch.outer(step, change) / (step @ change)
        H = left @ H @ left.T + torch.outer(step, step) / (step @ change)
    gradient = torch.randn(p, generator=g, dtype=torch.float64)
    assert len(memory) == min(count, size)
    torch.testing.assert_close(memory.times(gradient), H @ gradient, rtol=1e-8, atol=1e-10)
