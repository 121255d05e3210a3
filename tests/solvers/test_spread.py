"""Rows spread over processes of a gloo group on the loopback: the answer of one process, and the end of a dead one."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed
from instances import gaussian
from numpy.typing import NDArray
from signalling import has_joined, started
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

import covopt
from covopt.data.arrays import share_of
from covopt.data.data import read_data
from covopt.model.problem import make_problem
from covopt.model.spread import ALONE, Together
from covopt.model.weights import evaluate
from covopt.runtime.loop import Budget, run
from covopt.solvers.deep.stream import DeepStream, descended
from covopt.solvers.shallow.stream import StreamSolver
from covopt.solvers.shallow.stream_options import StreamOptions
from covopt.solvers.training.batch import Batch
from covopt.solvers.training.cycles import MEETING, ScheduleFree

QUESTIONS: dict[str, dict[str, object]] = {
    "mse": {"lam": 1e-2},
    "leaky, no bias": {"lam": 1e-2, "activation": "leaky:0.2", "bias": 0.0},
    "small lam": {"lam": 1e-12},
    "cross_entropy": {"lam": 1e-2, "loss": "cross_entropy"},
    "huber": {"lam": 1e-2, "loss": "huber:0.3"},
}
OF_SEVERAL, SHORT = ("mse", "cross_entropy"), {"tol": 0.03}  # descents so short that rounding leads none elsewhere


def data(samples: int = 90, inputs: int = 5) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    X = np.random.default_rng(0).standard_normal((samples, inputs))
    return X, np.eye(3)[(X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0)]


@contextmanager
def group(rank: int, processes: int, meeting: str) -> Iterator[None]:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def spawned(work: Callable[..., None], processes: int, path: Path) -> list[dict]:
    """What `work(rank, processes, path)` stores in each of so many processes."""
    start_processes(work, args=(processes, path), nprocs=processes, start_method="spawn")
    return [torch.load(path / f"{rank}.pt") for rank in range(processes)]


def solve(rank: int, processes: int, X: NDArray, Y: NDArray, **options: object) -> covopt.Result:
    cuts = share_of(len(X), processes)
    mine = slice(cuts[rank], cuts[rank + 1])
    given = {"certify": "none", "max_iterations": 1, "time_limit": 1e5, "spread": True} | options
    return covopt.solve(X[mine], Y[mine], **given)  # type: ignore[arg-type]


def _solve_some(rank: int, processes: int, path: Path) -> None:
    found = {}
    with group(rank, processes, str(path / "meeting")):
        for name in OF_SEVERAL:
            result = solve(rank, processes, *data(), **QUESTIONS[name], **SHORT)
            found[name] = (result.cost, result.residual, result.weights)
        torch.save(found, path / f"{rank}.pt")


def test_two_processes_give_the_answer_of_one(tmp_path: Path) -> None:
    """Every process the same network; its cost is that of all rows, and what one process finds the same way."""
    found, other = spawned(_solve_some, 2, tmp_path)
    X, Y = data()
    for name in OF_SEVERAL:
        cost, residual, weights = found[name]
        assert (cost, residual) == other[name][:2]
        assert all(torch.equal(a, b) for a, b in zip(weights, other[name][2], strict=True))
        whole = evaluate(make_problem(X, Y, **QUESTIONS[name]), weights)  # type: ignore[arg-type]
        assert (cost, residual) == pytest.approx((whole.total, whole.residual), rel=1e-12)
        with group(0, 1, str(tmp_path / name)):
            one = solve(0, 1, X, Y, **QUESTIONS[name], **SHORT)
        assert cost == pytest.approx(one.cost, rel=1e-6)


@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_in_parts_cost_what_they_cost_together(name: str, tmp_path: Path) -> None:
    """Up to the search's own freedom after one round: rounding leads a descent elsewhere."""
    X, Y = data()
    with group(0, 1, str(tmp_path / "meeting")):
        parts = solve(0, 1, X, Y, **QUESTIONS[name])
    alone = covopt.solve(X, Y, certify="none", max_iterations=1, time_limit=1e5, **QUESTIONS[name])  # type: ignore[arg-type]
    assert parts.cost == pytest.approx(evaluate(alone.problem, parts.weights).total, rel=1e-12)
    assert parts.cost == pytest.approx(alone.cost, rel=0.05)


def _sums(rank: int, processes: int, path: Path) -> None:
    X = torch.arange(44.0, dtype=torch.float64).view(11, 4).square() % 7.0
    rows = X[:7] if rank == 0 else X[7:]
    with group(rank, processes, str(path / "meeting")):
        spread = Together.of(len(rows))
        found = {
            "samples": spread.samples(len(rows)),
            "sum": spread.sum(lambda A: A.T @ A, rows),
            "largest": spread.largest(float(rank)),
            "norm": spread.norm(rows),
            "stacked": spread.stacked(rows),
            "condensed": spread.condensed(rows[:, :1], rows[:, 1:]),
            "few": spread.some(lambda n, k: torch.arange(min(n, k)), len(rows), 6)[0],
        }
        torch.save(found, path / f"{rank}.pt")


def test_rows_that_are_not_shared_evenly(tmp_path: Path) -> None:
    X = torch.arange(44.0, dtype=torch.float64).view(11, 4).square() % 7.0
    for rank, found in enumerate(spawned(_sums, 2, tmp_path)):
        assert (found["samples"], found["largest"]) == (11, 1.0)
        torch.testing.assert_close(found["sum"], X.T @ X, rtol=1e-14, atol=0.0)
        assert found["norm"] == pytest.approx(float(X.norm()), rel=1e-14)
        assert torch.equal(found["stacked"], X)
        first, others = found["condensed"]
        torch.testing.assert_close(first.T @ others, X[:, :1].T @ X[:, 1:], rtol=1e-13, atol=1e-12)
        torch.testing.assert_close(others.T @ others, X[:, 1:].T @ X[:, 1:], rtol=1e-13, atol=1e-12)
        assert found["few"].tolist() == [0, 1, 2], rank


def _batches(rank: int, processes: int, path: Path) -> None:
    """Train in the one direction that tells the target until two evaluations, descend in all, and train again."""
    StreamSolver.most_passes, StreamSolver.little_gain, StreamSolver.turns = 5, -1.0, 100
    X = data(100)[0] * [5.0, 0.1, 0.1, 0.1, 0.1]
    Y = np.abs(X[:, :1])
    mine = slice(rank * 100 // processes, (rank + 1) * 100 // processes)
    with group(rank, processes, str(path / f"meeting{processes}")):
        problem = make_problem(X[mine], Y[mine], lam=1e-3).double()
        problem = replace(problem, spread=Together.of(len(problem.X)))
        options = StreamOptions(neurons=12, batch=16, first=1, directions=1)
        solver, budget = StreamSolver(problem, options), Budget(1e6, agreed=problem.spread.largest)
        state, seen = solver.init(budget), []
        for _ in range(4):
            state = solver.step(state, budget)
            seen.append((state.due > 0, state.descents))
        torch.save({"seen": seen, "cost": state.cost, "weights": state.weights()}, path / f"{rank}.pt")


def test_batches_of_two_processes_are_those_of_one_to_the_last_bit(tmp_path: Path) -> None:
    alone, two = (spawned(_batches, processes, tmp_path) for processes in (1, 2))
    assert alone[0]["seen"] == [(True, 0), (False, 0), (True, 1), (False, 1)]
    for each in two:
        assert (each["seen"], each["cost"]) == (alone[0]["seen"], alone[0]["cost"])
        assert all(torch.equal(a, b) for a, b in zip(each["weights"], alone[0]["weights"], strict=True))


@pytest.mark.parametrize(("rows", "parts", "cuts"), [(10, 3, (0, 3, 6, 10)), (250, 3, (0, 72, 144, 250))])
def test_shares_of_the_rows(rows: int, parts: int, cuts: tuple[int, ...]) -> None:
    assert share_of(rows, parts) == cuts


@pytest.mark.parametrize("rows", [1, 7, 239, 240, 241, 479, 480, 1797, 60_000, 60_001])
def test_parts_of_fewer_processes_are_whole_parts_of_more(rows: int) -> None:
    for few, more in ((1, 2), (1, 3), (2, 6), (3, 6), (4, 8)):
        if rows >= more:
            cuts = share_of(rows, more)
            assert cuts[:: more // few] == share_of(rows, few)
            assert min(b - a for a, b in pairwise(cuts)) >= max(1, rows // more - 47)


def test_one_process_alone_takes_no_detour() -> None:
    X = torch.randn(5, 3, dtype=torch.float64)
    assert ALONE.condensed(X)[0] is X
    assert ALONE.stacked(X) is X
    assert torch.equal(ALONE.sum(lambda A: A.sum(dim=0), X), X.sum(dim=0))


@pytest.mark.parametrize("compressed", [False, True])
def test_each_process_reads_its_rows(compressed: bool, tmp_path: Path) -> None:
    X, Y = data(50)
    file = tmp_path / "data.npz"
    (np.savez_compressed if compressed else np.savez)(file, X=X, Y=Y.argmax(axis=1))
    for scale in ("none", "max", "standard"):
        whole = read_data(file, scale=scale, rows=47)
        parts = [read_data(file, scale=scale, rows=47, share=(k, 3)) for k in range(3)]
        assert np.array_equal(np.vstack([part.X for part in parts]), whole.X)
        assert np.array_equal(np.vstack([part.Y for part in parts]), whole.Y)
        assert [part.rows for part in parts] == [15, 16, 16]


@pytest.mark.parametrize("killed", [0, 1])
def test_the_end_of_one_process_ends_the_other_with_one_sentence(killed: int, tmp_path: Path) -> None:
    X, Y = data(3000)
    file = tmp_path / "data.npz"
    np.savez(file, X=X, Y=Y)
    words = f"covopt solve {file} --lam 1e-3 --certify none --time-limit 600"
    both = started(words.split(), 2)
    while not all(map(has_joined, both)):  # before that, torchrun would end the others
        assert [process.poll() for process in both] == [None, None]
        time.sleep(0.1)
    both[killed].send_signal(signal.SIGKILL)
    out, err = both[1 - killed].communicate(timeout=120)
    assert both[killed].wait() == -signal.SIGKILL
    assert both[1 - killed].returncode == 2
    assert out == ""
    assert "Another process of this solve has ended" in err
    assert err.count("\n") == 1, err


@pytest.mark.parametrize("options", ["--tol 0.1", "--depth 3 --time-limit 3 --starts 1"])
def test_what_two_processes_store_is_verified(options: str, tmp_path: Path) -> None:
    """It is proved again from all rows, whose sums round otherwise."""
    X, Y = data(61)
    file, run = tmp_path / "data.npz", tmp_path / "run"
    np.savez(file, X=X, Y=Y)
    words = f"covopt solve {file} --lam 1e-3 --certify none --out {run} {options}"
    for process in started(words.split(), 2):
        assert process.communicate(timeout=200)[1] == ""
        assert process.returncode == 0
    assert covopt.verify(run).passed


# ---- schedule-free Adam on parts of the rows, which meet
STEPS = 2 * MEETING + 3
RATE = 0.1
START = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
CENTRES = torch.tensor([[3.0, 0.0, 1.0], [0.0, 5.0, 1.0]], dtype=torch.float64)


def _towards(centres: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """|x - c|^2 and its gradient, in each row."""
    return (x - centres).square().sum(dim=1), 2.0 * (x - centres)


def test_alone_it_follows_the_paper() -> None:
    """The updates of Defazio et al. 2024 without warm-up, in NumPy."""
    ours = ScheduleFree(lambda x: _towards(CENTRES[:1], x), START, RATE, ALONE)
    x, z, v = START.numpy().copy(), START.numpy().copy(), np.zeros(3)
    for step in range(1, STEPS + 1):
        ours.iterate()
        assert ours.met
        g = 2.0 * (0.9 * x + 0.1 * z - CENTRES[0].numpy())
        v = 0.97 * v + 0.03 * g**2
        z = z - RATE * g / (np.sqrt(v / (1.0 - 0.97**step)) + 1e-8)
        x = (1.0 - 1.0 / step) * x + z / step
        np.testing.assert_allclose(ours.x[0].numpy(), x, rtol=1e-12)


@pytest.mark.parametrize("parts", [1, 2])
def test_parts_go_alone_between_meetings(tmp_path: Path, parts: int) -> None:
    """After each meeting all points and memories are the means of those that each part has by itself."""
    with group(0, 1, str(tmp_path / "meeting")):
        spread = replace(Together.of(4), cuts=(0, 4)).in_parts(parts)
        centres = CENTRES[:parts]
        ours = ScheduleFree(lambda x: _towards(centres, x), START, RATE, spread)
        alone = [ScheduleFree(lambda x, c=c: _towards(c[None], x), START, RATE, ALONE) for c in centres]
        for step in range(1, STEPS + 1):
            ours.iterate()
            for each in alone:
                each.iterate()
            if step in (MEETING, 2 * MEETING):
                found = [each.memory() for each in alone]
                means = {name: sum(one[name] for one in found) / parts for name in ("x", "fast", "second")}
                for each in alone:
                    each.recall({name: mean.clone() for name, mean in means.items()} | {"steps": found[0]["steps"]})
                assert ours.met
                assert all(torch.allclose(ours.memory()[name], mean, rtol=1e-14) for name, mean in means.items())
            assert ours.met == (parts == 1 or step in (MEETING, 2 * MEETING))
            assert torch.allclose(ours.x, torch.cat([each.x for each in alone]), rtol=1e-14)


def test_goes_on_from_a_meeting(tmp_path: Path) -> None:
    with group(0, 1, str(tmp_path / "meeting")):
        spread = replace(Together.of(4), cuts=(0, 4)).in_parts(2)
        whole, again = (ScheduleFree(lambda x: _towards(CENTRES, x), START, RATE, spread) for _ in range(2))
        for _ in range(MEETING):
            whole.iterate()
        again.recall({name: each.clone() for name, each in whole.memory().items()})
        for _ in range(STEPS - MEETING):
            whole.iterate()
            again.iterate()
        assert torch.equal(whole.x, again.x)


# ---- networks of three layers and more
ASKED = {"lam": 1e-3, "depth": 3, "max_iterations": 1, "starts": 1}
NETWORK = [gaussian(*shape, seed=0) for shape in ((4, 6), (3, 5), (3, 4))]


def _deep(rank: int, processes: int, path: Path) -> None:
    torch.manual_seed(rank)
    X, Y = data(300)
    cuts = share_of(len(X), processes)
    mine = slice(cuts[rank], cuts[rank + 1])
    with group(rank, processes, str(path / f"meeting{processes}")):
        spread = Together.of(cuts[rank + 1] - cuts[rank])
        problem = make_problem(X[mine], Y[mine], lam=1e-3, depth=3).double()
        problem = problem.__class__(**{**vars(problem), "spread": spread})
        batch = Batch(problem, [[4, 3]])
        cost, slopes = batch.evaluate(batch.pack([NETWORK]))
        low = descended(problem, NETWORK, Budget(1e5, agreed=spread.largest))
        found = {
            "trained": run(DeepStream(problem, max_width=9), Budget(1e5, max_iterations=2)).state.best,
            "value": (cost, slopes),
            "low": (evaluate(problem, low).total, low),
            "cheapest": spread.cheapest(-float(rank), [torch.full((rank + 1, 2), 7.0 * rank)]),
        }
        kept = np.r_[0:20, 150:170]
        result = solve(rank, processes, X[kept], Y[kept], **ASKED)
        found["solve"] = (result.cost, result.weights)
        torch.save(found, path / f"{rank}.pt")


def test_two_processes_descend_on_all_rows(tmp_path: Path) -> None:
    """Values and gradients are those of all rows; each process ends with the same network, trained on all."""
    found, other = spawned(_deep, 2, tmp_path)
    X, Y = data(300)
    problem = make_problem(X, Y, lam=1e-3, depth=3).double()
    batch = Batch(problem, [[4, 3]])
    cost, slopes = batch.evaluate(batch.pack([NETWORK]))
    for one in (found, other):
        torch.testing.assert_close(one["value"][0], cost, rtol=1e-13, atol=0.0)
        torch.testing.assert_close(one["value"][1], slopes, rtol=1e-11, atol=1e-13)
        assert torch.equal(one["cheapest"][0], torch.full((2, 2), 7.0))
        total, low = one["low"]
        assert total == pytest.approx(evaluate(problem, low).total, rel=1e-12)
        assert total < 0.5 * float(cost)
        assert evaluate(problem, one["trained"]).total < 0.7 * float((Y**2).sum(axis=1).mean())
    assert all(torch.equal(a, b) for a, b in zip(found["trained"], other["trained"], strict=True))
    cost, weights = found["solve"]
    few = np.r_[0:20, 150:170]
    problem = make_problem(X[few], Y[few], lam=1e-3, depth=3).double()
    assert cost == other["solve"][0]
    assert all(torch.equal(a, b) for a, b in zip(weights, other["solve"][1], strict=True))
    assert cost == pytest.approx(evaluate(problem, weights).total, rel=1e-12)
    assert cost < 0.2 * evaluate(problem, [torch.zeros_like(W) for W in weights]).total


def test_one_process_of_a_group_goes_on_from_a_network(tmp_path: Path) -> None:
    X, Y = data(300)
    first = covopt.solve(X[:60], Y[:60], lam=1e-2, depth=3, certify="none", time_limit=2.0, starts=2)
    with group(0, 1, str(tmp_path / "meeting")):
        result = solve(0, 1, X, Y, lam=1e-2, depth=3, init=first, time_limit=2.0)
    problem = make_problem(X, Y, lam=1e-2, depth=3)
    assert result.cost <= evaluate(problem, first.weights).total
    assert result.cost == pytest.approx(evaluate(problem, result.weights).total, rel=1e-12)
    assert np.isfinite(result.cost)


@pytest.mark.parametrize(("seconds", "status"), [(1e5, "converged"), (0.02, "time_limit")])
def test_no_neurons_are_the_answer_of_a_search_that_was_not_cut(seconds: float, status: str, tmp_path: Path) -> None:
    """With a lam above lam_max the zero network is best; only a search that had its time may say so."""
    X, Y = data(40)
    with group(0, 1, str(tmp_path / "meeting")):
        result = solve(0, 1, X, Y, lam=1e3, depth=3, bias=0.0, starts=2, max_iterations=1000, time_limit=seconds)
    assert result.cost == pytest.approx(float((Y**2).sum(axis=1).mean()), rel=1e-12)
    assert min(result.widths) == 0
    assert result.status == status
