"""Networks of three layers and more on rows that are spread over processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from test_spread import data, group, share_of, solve, spawned

import covopt
from covopt.model.problem import make_problem
from covopt.model.spread import Together
from covopt.model.weights import evaluate
from covopt.runtime.loop import Budget
from covopt.solvers.deep import stream
from covopt.solvers.deep.stream import descended, few_samples
from covopt.solvers.training.batch import Batch

ASKED = {"lam": 1e-3, "depth": 3, "max_iterations": 1, "starts": 1}


def _deep(rank: int, processes: int, path: Path) -> None:
    torch.manual_seed(rank)
    X, Y = data(300)
    cuts = share_of(len(X), processes)
    mine = slice(cuts[rank], cuts[rank + 1])
    with group(rank, processes, str(path / f"meeting{processes}")):
        spread = Together.of(cuts[rank + 1] - cuts[rank])
        few = few_samples(make_problem(X, Y, lam=1e-3, depth=3).double(), 1e-3, 24, 0)
        problem = make_problem(X[mine], Y[mine], lam=1e-3, depth=3).double()
        problem = problem.__class__(**{**vars(problem), "spread": spread})
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 6), (3, 5), (3, 4))]
        batch = Batch(problem, [[4, 3]])
        cost, slopes = batch.evaluate(batch.pack([weights]))
        low = descended(problem, weights, Budget(1e5, agreed=spread.largest))
        found = {
            "few": few_samples(problem, 1e-3, 24, 0).X,
            "rows": few.samples,
            "value": (cost, slopes),
            "low": (evaluate(problem, low).total, low),
            "cheapest": spread.cheapest(-float(rank), [torch.full((rank + 1, 2), 7.0 * rank)]),
        }
        stream.WHOLE = 0.0  # the cycles are never needless
        kept = np.r_[0:20, 150:170]
        result = solve(rank, processes, X[kept], Y[kept], **ASKED)
        found["solve"] = (result.cost, result.weights)
        torch.save(found, path / f"{rank}.pt")


def test_two_processes_descend_on_all_rows(tmp_path: Path) -> None:
    """Values and gradients are those of all rows; each process ends with the same network, no worse than on few."""
    found, other = spawned(_deep, 2, tmp_path)
    X, Y = data(300)
    problem = make_problem(X, Y, lam=1e-3, depth=3).double()
    batch = Batch(problem, [[4, 3]])
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 6), (3, 5), (3, 4))]
    cost, slopes = batch.evaluate(batch.pack([weights]))
    for one in (found, other):
        torch.testing.assert_close(one["value"][0], cost, rtol=1e-13, atol=0.0)
        torch.testing.assert_close(one["value"][1], slopes, rtol=1e-11, atol=1e-13)
        assert torch.equal(one["cheapest"][0], torch.full((2, 2), 7.0))
        total, low = one["low"]
        assert total == pytest.approx(evaluate(problem, low).total, rel=1e-12)
        assert total < 0.5 * float(cost)
        rows = {tuple(row) for row in one["few"].tolist()}
        assert len(rows) == len(one["few"]) <= one["rows"] < 300
        assert rows <= {tuple(row) for row in X.tolist()}
    assert torch.equal(found["few"], other["few"])
    cost, weights = found["solve"]
    few = np.r_[0:20, 150:170]
    problem = make_problem(X[few], Y[few], lam=1e-3, depth=3).double()
    assert cost == other["solve"][0]
    assert all(torch.equal(a, b) for a, b in zip(weights, other["solve"][1], strict=True))
    assert cost == pytest.approx(evaluate(problem, weights).total, rel=1e-12)
    zeros = [torch.zeros_like(W) for W in weights]
    assert cost < 0.2 * evaluate(problem, zeros).total


def test_one_process_of_a_group_goes_on_from_a_network(tmp_path: Path) -> None:
    X, Y = data(300)
    first = covopt.solve(X[:60], Y[:60], lam=1e-2, depth=3, certify="none", time_limit=5.0, starts=2)
    with group(0, 1, str(tmp_path / "meeting")):
        result = solve(0, 1, X, Y, lam=1e-2, depth=3, init=first, time_limit=5.0)
    problem = make_problem(X, Y, lam=1e-2, depth=3)
    assert result.cost <= evaluate(problem, first.weights).total
    assert result.cost == pytest.approx(evaluate(problem, result.weights).total, rel=1e-12)
    assert np.isfinite(result.cost)


@pytest.mark.parametrize(("share", "status"), [(0.3, "converged"), (1e-12, "time_limit")])
def test_no_neurons_are_the_answer_of_a_search_that_was_not_cut(
    share: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a lam above lam_max the zero network is best; only a search that had its time may say so."""
    monkeypatch.setattr(stream, "SHARE", share)
    X, Y = data(40)
    with group(0, 1, str(tmp_path / "meeting")):
        result = solve(0, 1, X, Y, lam=1e3, depth=3, bias=0.0, starts=2, max_iterations=1000)
    assert result.cost == pytest.approx(float((Y**2).sum(axis=1).mean()), rel=1e-12)
    assert min(result.widths) == 0
    assert result.status == status
