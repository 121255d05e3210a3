"""`Monitor`: what a look tells, against `validate`, autograd and closed forms; and that it leaves no trace."""

import copy
import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from instances import gaussian
from torch import Tensor, nn

import covopt
from covopt.model import passes
from covopt.studies.monitor.monitor import Monitor, Reading


def data(samples: int = 50) -> tuple[Tensor, Tensor]:
    return gaussian(samples, 3, seed=1), gaussian(samples, 2, seed=2)


def network(depth: int = 2, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    widths, parts = [3, *[7] * (depth - 1), 2], []
    for below, n in pairwise(widths):
        parts += [nn.Linear(below, n), nn.ReLU()]
    return nn.Sequential(*parts[:-1]).double()


class Own(nn.Module):
    """A module of one's own around a network."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.drop = network(), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.inner(x))


def looked(monitor: Monitor, net: object, step: int | None = None) -> Reading:
    reading = monitor(net, step)
    assert reading is not None
    return reading


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("bias", [1.0, "free"])
def test_a_look_says_what_validate_does(depth: int, bias: float | str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data()
    net = network(depth)
    audit = covopt.validate(net, X, Y, lam=0.02, bias=bias, time_limit=1.0, certify="none")
    monkeypatch.setattr(passes, "CHUNK", 13)
    reading = looked(Monitor(X, Y, lam=0.02, bias=bias), net)
    assert audit.residuals is not None
    assert reading.residuals == pytest.approx(audit.residuals, rel=1e-10)  # no sample is near a kink
    assert (reading.loss, reading.fit, reading.norm) == pytest.approx((audit.loss, audit.cost.fit, audit.cost.norm))


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_residuals_are_autograd_s_gradients(loss: str) -> None:
    """|dL/dW_l| / (2 lam |W_l|) of W_l = [A_l, b_l], from PyTorch's own losses, with weights of the rows."""
    X, Y = data()
    Y = Y if loss == "mse" else Y.softmax(dim=1)
    net, lam, weight = network(3), 0.03, torch.rand(len(X), generator=torch.Generator().manual_seed(0)).double()
    F = net(X)
    each = (F - Y).square().sum(dim=1) if loss == "mse" else -(Y * F.log_softmax(dim=1)).sum(dim=1)
    total = (weight * each).sum() / weight.sum() + lam * torch.stack([p.square().sum() for p in net.parameters()]).sum()
    total.backward()
    linear = [part for part in net if isinstance(part, nn.Linear)]
    expected = []
    for part in linear:
        assert part.weight.grad is not None
        slope = torch.cat([part.weight.grad, part.bias.grad[:, None]], dim=1)
        size = torch.cat([part.weight, part.bias[:, None]], dim=1).norm()
        expected.append(float((slope.norm() / (2.0 * lam * size)).detach()))
    reading = looked(Monitor(X, Y, lam=lam, loss=loss, sample_weight=weight), net)
    assert reading.loss == pytest.approx(float(total.detach()), rel=1e-12)
    assert reading.residuals == pytest.approx(expected, rel=1e-10)


def test_ranks_are_those_of_the_weights() -> None:
    """W_1 of rank 1, W_2 with singular values 1 and 1/100."""
    weights = [torch.outer(torch.ones(5), torch.tensor([1.0, 2.0, 3.0, 0.5])).double(), torch.zeros(2, 6).double()]
    weights[1][0, 0], weights[1][1, 1] = 1.0, 0.01
    assert looked(Monitor(*data(), lam=0.1), weights).ranks == (1, 2)
    assert looked(Monitor(*data(), lam=0.1, tolerance=0.02), weights).ranks == (1, 1)


def test_a_network_at_rest_and_one_of_zeros() -> None:
    """Prop. 19 of [JGHG22]: stationary at |a|^2 = 1 - lam', lam = lam' / 2; and W = 0 where nothing pulls."""
    a = 0.8**0.5 * torch.tensor([np.cos(0.3), np.sin(0.3)], dtype=torch.float64)
    weights = [torch.column_stack([a, torch.zeros(2)]), torch.cat([a, torch.zeros(1)])[None]]
    monitor = Monitor(np.array([[1.0], [-1.0]]), np.ones(2), lam=0.1, bias=0.0)
    reading = looked(monitor, weights)
    assert reading.residuals == pytest.approx((0.0, 0.0), abs=1e-14)
    assert 2.0 * (reading.loss or 0.0) == pytest.approx(1.0 + 2.0 * 0.2 - 0.2**2, rel=1e-12)
    zeros = looked(monitor, [torch.zeros(2, 2).double(), torch.zeros(1, 3).double()])
    assert (zeros.residuals, zeros.ranks, zeros.loss) == ((0.0, 0.0), (0, 0), pytest.approx(1.0))


def test_it_leaves_no_trace() -> None:
    """Modes of every part, gradients, weights and random generators stay; of a module of one's own as well."""
    for net in (network(), Own().double(), nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2)).float()):
        net.train()
        next(net.children()).eval()
        net(torch.ones(1, 3).to(next(net.parameters()))).sum().backward()
        modes = [part.training for part in net.modules()]
        before, grads = copy.deepcopy(net.state_dict()), [copy.deepcopy(p.grad) for p in net.parameters()]
        drawn = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002 # pyright: ignore
        looked(Monitor(*data(), lam=0.1, rows=20), net)
        assert np.array_equal(np.random.get_state()[1], drawn[0])  # noqa: NPY002 # pyright: ignore
        assert torch.equal(torch.get_rng_state(), drawn[1])
        assert [part.training for part in net.modules()] == modes
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
        for p, grad in zip(net.parameters(), grads, strict=True):
            assert (p.grad is None) == (grad is None)
            assert p.grad is None or grad is None or torch.equal(p.grad, grad)
            assert p.requires_grad


def test_a_refused_network_leaves_no_trace_either() -> None:
    """One whose dropout is a function draws random numbers even in evaluation."""

    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(self.inner(x), 0.5)

    net = Dropping()
    drawn = torch.get_rng_state()
    with pytest.raises(covopt.DataError):
        Monitor(*data(), lam=0.1)(net)
    assert torch.equal(torch.get_rng_state(), drawn)


def test_within_autocast_numbers_stay_as_they_are() -> None:
    """A training in bfloat16 is looked at in the numbers of X; a module of one's own is still recognised."""
    X, Y = data()
    net, monitor = Own().float().eval(), Monitor(X.float(), Y.float(), lam=0.1)
    outside = looked(monitor, net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = looked(monitor, net)
    assert (inside.loss, inside.residuals) == (outside.loss, outside.residuals)


def test_a_gap_is_told_as_a_part_of_the_loss_and_rounded_up() -> None:
    """A gap of 0.99 lets the minimum lie 99 % below the loss, which may then be 100 times the minimum."""
    weights = [torch.zeros(2, 2).double(), torch.zeros(1, 3).double()]
    reading = looked(Monitor(np.array([[1.0], [-1.0]]), np.ones(2), lam=0.1, lower=0.0100049), weights)
    assert reading.loss == 1.0
    assert "the minimum at most 99 % below" in str(reading)


def test_a_compiled_network_is_the_one_inside() -> None:
    net, monitor = network(), Monitor(*data(), lam=0.1)
    assert looked(monitor, torch.compile(net)).loss == looked(monitor, net).loss


def test_float32_stays_float32_and_loses_little() -> None:
    X, Y = data(5000)
    net = network().float()
    monitor = Monitor(X.float(), Y.float(), lam=0.02)
    assert monitor.problem.X.dtype == torch.float32
    single = looked(monitor, net)
    double = looked(Monitor(X.float().double(), Y.float().double(), lam=0.02), net)
    assert single.loss == pytest.approx(double.loss, rel=1e-6)
    assert single.residuals == pytest.approx(double.residuals, rel=1e-4)


def test_above_the_known_answer() -> None:
    X, Y = torch.linspace(-1, 1, 8)[:, None].double(), torch.linspace(-1, 1, 8).square()[:, None].double()
    result = covopt.solve(X, Y, lam=0.01, time_limit=10)
    monitor = Monitor(X, Y, lam=0.01, known=result)
    at_best = looked(monitor, result)
    assert at_best.excess == pytest.approx(0.0, abs=1e-9)
    assert at_best.gap == pytest.approx(result.gap, abs=1e-9)
    worse = looked(monitor, [1.1 * W for W in result.weights])
    assert worse.best == pytest.approx(result.cost, rel=1e-9)
    assert worse.excess == pytest.approx((worse.loss - result.cost) / result.cost, rel=1e-6)
    assert worse.gap == pytest.approx(1.0 - result.lower / worse.loss, rel=1e-9)
    assert "above the best known" in str(worse)
    alone = Monitor(X, Y, lam=0.01, lower=result.lower)
    first, second = looked(alone, [1.1 * W for W in result.weights]), looked(alone, result)
    assert first.excess == 0.0
    assert "best known" not in str(first)  # which is only its own
    assert (second.excess, second.best) == (0.0, second.loss)
    assert looked(alone, [1.1 * W for W in result.weights]).best == second.loss


def test_the_rows_are_drawn_once_and_told() -> None:
    X, Y = data(200)
    first, again, other = (Monitor(X, Y, lam=0.1, rows=30, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.problem.X, again.problem.X)
    assert not torch.equal(first.problem.X, other.problem.X)
    net = network()
    reading = looked(first, net)
    assert reading.rows == 30
    F = net(first.problem.X)
    assert reading.fit == pytest.approx(float((F - first.problem.Y).square().sum(dim=1).mean().detach()), rel=1e-12)


def test_the_history_is_a_table(tmp_path: Path) -> None:
    monitor = Monitor(*data(), lam=0.1, every=2)
    net = network()
    assert [monitor(net, epoch) is None for epoch in range(5)] == [False, True, False, True, False]
    assert [row["step"] for row in monitor.history] == [0, 2, 4]
    names = {"step", "rows", "loss", "fit", "norm", "best", "excess", "lower", "gap", "seconds"}
    assert set(monitor.history[0]) == names | {"residual_1", "residual_2", "rank_1", "rank_2"}
    monitor.to_csv(tmp_path / "history.csv")
    with (tmp_path / "history.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in monitor.history]
    assert rows[0]["lower"] == ""
    counting = Monitor(*data(), lam=0.1, every=3)
    assert [counting(net) is None for _ in range(4)] == [False, True, True, False]


def test_a_table_replaces_no_other_file(tmp_path: Path) -> None:
    """Not even with `force`; a table without a look has a head, and is replaced."""
    monitor, notes, table = Monitor(*data(), lam=0.1), tmp_path / "notes.csv", tmp_path / "table.csv"
    notes.write_text("what,when\n")
    with pytest.raises(covopt.RecordError, match="not replaced"):
        monitor.to_csv(notes, force=True)
    assert notes.read_text() == "what,when\n"
    monitor.to_csv(table)
    assert table.read_text().startswith("step,rows,loss")
    looked(monitor, network())
    with pytest.raises(covopt.RecordError, match="exists"):
        monitor.to_csv(table)
    monitor.to_csv(table, force=True)
    assert "residual_1" in table.read_text()


@pytest.mark.parametrize("size", [1e-70, 1e70])
def test_numbers_that_float64_does_not_hold_are_unknown(size: float) -> None:
    """Far scales give numbers or None, and never NaN."""
    X, Y = data()
    row = looked(Monitor(size * X, Y, lam=0.1), [W * size for W in covopt.solve(X, Y, lam=0.1, time_limit=1).weights])
    assert all(value is None or np.isfinite(value) for value in row.row().values())


@pytest.mark.gpu
def test_a_network_on_a_gpu() -> None:
    X, Y = data(5000)
    net = network()
    here = looked(Monitor(X, Y, lam=0.02), net)
    there = looked(Monitor(X, Y, lam=0.02, device="cuda"), net.cuda())
    assert there.loss == pytest.approx(here.loss, rel=1e-10)
    assert there.residuals == pytest.approx(here.residuals, rel=1e-8)
    assert next(net.parameters()).is_cuda
