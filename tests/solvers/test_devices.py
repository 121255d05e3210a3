"""One contract for the array code on every device, in both precisions; `pytest -m gpu` runs what needs CUDA."""

from dataclasses import replace

import pytest
import torch
from references.hidden_loss import trace_quotient
from torch import Tensor

import covopt
from covopt.linalg.cholesky import factorize
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.oracles.oracle import oracle_values
from covopt.oracles.search import ConvexConcaveOracle
from covopt.solvers.shallow.master import Master
from covopt.solvers.shallow.newton import refine
from covopt.solvers.training.descent import Adam, AdamOptions

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CLOSE = {torch.float64: 1e-8, torch.float32: 2e-3}

pytestmark = [
    pytest.mark.parametrize("device", DEVICES),
    pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"]),
]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize(("N", "d", "rank"), [(12, 30, 12), (30, 8, 8), (30, 12, 5)])
def test_trace_and_its_gradients(N: int, d: int, rank: int, device: str, dtype: torch.dtype) -> None:
    """Tr[K B^+] = |Z^T (Zs^T)^+|^2 on Im Zs, and gradients against the dense formulas in float64 on the CPU."""
    Zs = drawn(N, rank) @ drawn(rank, d) / rank**0.5
    Z = Zs @ drawn(d, 3)
    A = torch.linalg.pinv(Zs @ Zs.T, rtol=1e-9, hermitian=True) @ Z
    leaves = [each.to(device, dtype).requires_grad_() for each in (Z, Zs)]
    value = trace_quotient(*leaves)
    by_Z, by_Zs = torch.autograd.grad(value, leaves)
    assert (by_Zs.device.type, by_Zs.dtype) == (device, dtype)
    assert float(value.detach()) == pytest.approx(float((Z * A).sum()), rel=CLOSE[dtype])
    for mine, expected in ((by_Z, 2.0 * A), (by_Zs, -2.0 * A @ (A.T @ Zs))):
        assert float((mine.cpu().double() - expected).norm() / expected.norm()) < CLOSE[dtype]


@pytest.mark.parametrize(("N", "d"), [(10, 25), (25, 10)])
def test_projection_on_the_range(N: int, d: int, device: str, dtype: torch.dtype) -> None:
    Zs, A = drawn(N, d), drawn(N, 4)
    projected = factorize(Zs.to(device, dtype)).project(A.to(device, dtype))
    expected = Zs @ torch.linalg.lstsq(Zs, A, driver="gelsd").solution
    torch.testing.assert_close(projected.cpu().double(), expected, rtol=0.0, atol=10.0 * CLOSE[dtype])


def test_ascents_rise_and_say_what_they_reached(device: str, dtype: torch.dtype) -> None:
    Xt, Lambda, starts = (each.to(device, dtype) for each in (drawn(40, 6), drawn(40, 3), drawn(50, 6)))
    before = oracle_values(Xt, Activation(), Lambda, torch.nn.functional.normalize(starts, dim=1))
    directions, values = ConvexConcaveOracle(Xt, Activation()).ascend(Lambda, starts)
    assert bool((values >= before).all())
    torch.testing.assert_close(values, oracle_values(Xt, Activation(), Lambda, directions))
    torch.testing.assert_close(directions.norm(dim=1), torch.ones_like(values))


def test_the_master_is_stationary(device: str, dtype: torch.dtype) -> None:
    Phi, Y = torch.relu(drawn(30, 20)).to(device, dtype), drawn(30, 2).to(device, dtype)
    tolerance = CLOSE[dtype]
    mixture = Master(Phi, Y, torch.full_like(Y[:, 0], 0.3), 1.0).solve(torch.zeros_like(Phi[0]), 0.1 * tolerance)
    h = (mixture.Lambda.T @ Phi).norm(dim=0)
    if dtype == torch.float32:  # near the minimum J rises by eta (h - 1)^2, which has to be seen among its roundings
        least = float(mixture.eta[mixture.eta > 0].min())
        tolerance = (4.0 * torch.finfo(dtype).eps * mixture.value / least) ** 0.5
    assert float(h.max()) <= 1.0 + tolerance
    assert float((h - 1.0).abs()[mixture.eta > 0].max()) <= tolerance


def test_solve_on_the_device(device: str, dtype: torch.dtype) -> None:
    """Certified data: the optimum is between the bound and the cost, whatever the device."""
    X, Y = drawn(25, 2).to(device, dtype), drawn(25, 2).to(device, dtype)
    result = covopt.solve(X, Y, lam=1e-2, bias=0.0, gap=1e-5)
    assert (result.status, result.weights[0].device.type) == ("optimal", device)
    elsewhere = covopt.solve(X.cpu(), Y.cpu(), lam=1e-2, bias=0.0, gap=1e-5)
    assert result.lower <= elsewhere.cost
    assert result.cost == pytest.approx(elsewhere.cost, rel=2e-5)


def test_the_outputs_under_cross_entropy(device: str, dtype: torch.dtype) -> None:
    """Newton's method on the CPU and there, in the same precision as the features."""
    Phi, V, b = drawn(12, 4).relu(), drawn(4, 3), drawn(3)
    Y = torch.eye(3, dtype=torch.float64)[torch.arange(12) % 3]
    problem = make_problem(torch.zeros(12, 1, dtype=torch.float64), Y, lam=1e-2, loss="cross_entropy", bias=0.5)
    there = replace(problem, X=problem.X.to(device, dtype), Y=Y.to(device, dtype))
    found = refine(there, *(each.to(device, dtype) for each in (Phi, V, b)), 0.0, lambda: False)
    for mine, theirs in zip(found, refine(problem, Phi, V, b, 0.0, lambda: False), strict=True):
        assert (mine.device.type, mine.dtype) == (device, dtype)
        torch.testing.assert_close(mine.cpu().double(), theirs, rtol=0.0, atol=20.0 * CLOSE[dtype])


@pytest.mark.parametrize("asks", [False, True], ids=["recorded", "asking"])
def test_steps_of_adam_that_draw_batches(asks: bool, device: str, dtype: torch.dtype) -> None:
    """Steps that a GPU records, or cannot record as they ask for a number, are those of the CPU on the same batches."""
    X, start, draws = drawn(400, 6), drawn(1, 6), torch.Generator(device=device).manual_seed(3)
    batches, step = (torch.zeros(shape, dtype=torch.int64, device=device) for shape in ((60, 16), 1))

    def slope(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        some = X.to(x)[rows]
        off = some @ x[0] - 1.0
        return off.square().mean()[None], (2.0 * off @ some / len(rows))[None]

    def drawing(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.randint(400, (16,), generator=draws, device=device)
        batches.index_copy_(0, step, rows[None])
        step.add_(1)
        value, gradient = slope(x, rows)
        return (value if not asks or float(value) >= 0.0 else -value), gradient

    adam = Adam(drawing, start.to(device, dtype), AdamOptions(steps=60, rate=0.1), [draws])
    for _ in range(60):
        adam.iterate()
    assert int(step) == len(torch.unique(batches, dim=0)) == adam.steps_taken == 60
    given = iter(batches.cpu())
    expected = Adam(lambda x: slope(x, next(given)), start, AdamOptions(steps=60, rate=0.1))
    for _ in range(60):
        expected.iterate()
    torch.testing.assert_close(adam.x.cpu().double(), expected.x, rtol=0.0, atol=CLOSE[dtype])
    torch.testing.assert_close(adam.best.cpu().double(), expected.best, rtol=0.0, atol=CLOSE[dtype])
