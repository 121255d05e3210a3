"""Forged runs, whose files agree with each other down to the digests, are refused (`... benchmarks forgeries`: all)."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from editing import holds, states
from forging import PLAIN, Forgery, changed, of_cp_rank, of_solve, restated
from forging_studies import of_study

import covopt
from covopt import check
from covopt.answer.check import gap, numbers
from covopt.records import record
from covopt.runtime.loop import Status
from covopt.studies.compare.check import complaints

X = np.linspace(-1.0, 1.0, 5)[:, None]
SAMPLED = 8
"""Of the forgeries of a run, one in so many."""
CHECKED = 10.0


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of each of several kinds, of other data."""
    here = tmp_path_factory.mktemp("runs")
    half = {"methods": ["cone", "train"], "starts": 1, "time_limit": 0.4}
    for number, Y in enumerate((np.abs(X), np.abs(X - 0.3) - X**2)):
        covopt.solve(X, Y, lam=1e-2, time_limit=2).save(here / f"solve {number}")
        covopt.solve(X, Y, time_limit=2).save(here / f"interpolate {number}")
        covopt.compare(X, Y, lam=1e-2, **half).save(here / f"compare {number}")
        covopt.cp_rank(np.eye(3) + 1.0 + number).save(here / f"cprank {number}")
    return here


FORGERS = {"solve": of_solve, "interpolate": of_solve, "compare": of_study, "cprank": of_cp_rank}


def accepted(forgery: Forgery, target: Path) -> list[str]:
    """Which programs accept a forged run."""
    forgery.write(target)
    found = []
    with suppress(covopt.CovoptError):
        found += ["verify"] if covopt.verify(target).passed else []
    if forgery.cost_or_bound and record.kind_of(target) in (record.SUMMARY, "cprank.json"):
        found += ["covopt-check"] if check.check(target, CHECKED)[0] == 0 else []
    return found


@pytest.mark.parametrize("kind", FORGERS)
def test_a_forged_run_is_refused(stored: Path, tmp_path: Path, kind: str) -> None:
    runs = stored / f"{kind} 0", stored / f"{kind} 1"
    assert all(covopt.verify(run).passed for run in runs)
    forged = list(FORGERS[kind](*runs))
    assert len(forged) > 50
    verdicts = {each.name: accepted(each, tmp_path / str(number)) for number, each in enumerate(forged[::SAMPLED])}
    assert {name: found for name, found in verdicts.items() if found} == {}


SOLVE, FIT, BOTH = "solve 0", "interpolate 0", "compare 0"
ONCE_ACCEPTED = {
    "a residual of a loss that has none": (SOLVE, True, states(record.SUMMARY, residual=-1.0)),
    "unsolved beside a cost": (SOLVE, True, states(record.SUMMARY, status="unsolved", target=None)),
    "a lam of what has none": (FIT, True, holds("problem.npz", lam=np.array(-2.0))),
    "no file is listed": (SOLVE, False, states(record.SUMMARY, files={})),
    "the files are a list": (SOLVE, False, states(record.SUMMARY, files=[])),
}


@pytest.mark.parametrize("name", ONCE_ACCEPTED)
def test_what_once_was_accepted_is_refused(stored: Path, tmp_path: Path, name: str) -> None:
    run, seal, change = ONCE_ACCEPTED[name]
    assert accepted(Forgery(name, changed(stored / run, change, seal=seal)), tmp_path / "forged") == []


def test_the_history_of_a_comparison_is_that_of_its_runs(stored: Path, tmp_path: Path) -> None:
    def later(run: Path) -> None:
        head, first, *lines = (run / "history.csv").read_text().splitlines()
        (run / "history.csv").write_text("\n".join([head, first.replace(",0,", ",1,", 1), *lines]) + "\n")

    changed(stored / BOTH, later)(tmp_path / "forged")
    assert "history.csv of the comparison holds other lines" in covopt.verify(tmp_path / "forged").message


def test_the_best_of_a_comparison_is_the_one_of_lowest_cost(stored: Path) -> None:
    told = record.read_object(stored / BOTH / "comparison.json")
    costs = {method["method"]: method["cost"] for method in told["methods"]}
    worst = max(costs, key=costs.__getitem__)
    assert worst != told["method"]
    forged = told | {"best": costs[worst], "method": worst}
    assert list(complaints(stored / BOTH, told, list(costs), 1e-9)) == []
    assert list(complaints(stored / BOTH, forged, list(costs), 1e-9)) == [
        "comparison.json names another best network than its runs."
    ]


def test_a_table_that_cannot_be_read_is_a_sentence(stored: Path, tmp_path: Path) -> None:
    changed(stored / BOTH, lambda run: (run / "history.csv").write_text("a\n" + "x" * 200_000))(tmp_path / "forged")
    with pytest.raises(covopt.RecordError, match="is not a complete run"):
        covopt.verify(tmp_path / "forged")


def test_a_cost_follows_from_the_stored_weights(stored: Path) -> None:
    """The cost alone: its parts, the gap and the history may follow from what is forged."""
    result, told = covopt.load(stored / SOLVE), record.read_object(stored / SOLVE / record.SUMMARY)
    assert list(numbers(result, told, 1e-9)) == []
    (found,) = numbers(result, told | {"cost": 1.001 * result.cost}, 1e-9)
    assert "The stored network costs" in found


def test_the_cost_of_a_network_that_misses_its_targets_is_refused(stored: Path, tmp_path: Path) -> None:
    """Cost, misfit, gap and history follow from weights that are 1.1 times as large, and all files agree."""
    honest = covopt.load(stored / FIT)
    larger = restated(honest, weights=[1.1 * W for W in honest.weights])
    assert larger.residual > 0.1
    assert accepted(Forgery("no fit", lambda path: larger.save(path, others=PLAIN)), tmp_path / "forged") == []
    assert "misses the targets" in covopt.verify(tmp_path / "forged").message


def test_a_run_is_optimal_exactly_where_its_gap_is_within_the_target() -> None:
    stated = {"cost": 1.0, "lower": 0.5, "gap": 0.5, "target": 0.1, "status": Status.CONVERGED}
    assert list(gap(stated)) == []
    assert len(list(gap(stated | {"status": Status.OPTIMAL}))) == 1
    assert list(gap(stated | {"status": Status.OPTIMAL, "target": 0.5})) == []
    assert len(list(gap(stated | {"target": 0.5}))) == 1
