"""Sweeps: the grid, the file that outlives kills, full disks and rivals, the cluster and the command line."""

import csv
import json
import os
import resource
import sqlite3
import time
from pathlib import Path

import pytest
from pyarrow import parquet
from runs import Run
from sweeping import HandMade, finished, kill_again_and_again, spec, start

import covopt
from covopt.runtime.errors import RecordError
from covopt.studies.sweep import grid as cells, sweep as study
from covopt.studies.sweep.grid import make_grid, read_grid
from covopt.studies.sweep.store import Counts, Store, renewing

REAL = """
data = "iris"
rows = 12
bias = 0.0
lam = [0.1, 0.2]
seed = [0, 1]
max_iterations = 2
"""


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HandMade:
    fake = HandMade(tmp_path / "log")
    monkeypatch.setattr(cells, "solve", fake)
    return fake


def test_every_cell_is_what_solve_says(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(REAL)
    seen: list[Counts] = []
    found = study.sweep(tmp_path / "s.toml", tmp_path / "s.sqlite", callback=seen.append)
    assert found.counts == Counts(4, 4, 0, 0)
    assert [counts.finished for counts in seen] == [0, 1, 2, 3, 4, 4]
    assert [(row["lam"], row["seed"]) for row in found.rows] == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]
    iris = covopt.read_data("iris", rows=12)
    for row in found.rows:
        how = {"lam": row["lam"], "seed": row["seed"], "max_iterations": 2, "certify": "fast"}
        asked = covopt.solve(iris.X, iris.Y, bias=0.0, **how)  # type: ignore[arg-type]
        assert (row["cost"], row["lower"], row["status"]) == (asked.cost, asked.lower, str(asked.status))
    found.to_csv(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as stream:
        assert [float(row["cost"]) for row in csv.DictReader(stream)] == [row["cost"] for row in found.rows]
    found.to_parquet(tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == [
        {name: row.get(name) for name in found.columns} for row in found.rows
    ]
    assert not list(tmp_path.glob(".*"))


RANKS = """
task = "ranks"
data = "iris"
loss = "cross_entropy"
lam = 0.05
batch_size = [4, 30]
rate = [0.1, 1e9]
steps = 60
width = 4
"""


def test_a_sweep_of_ranks_stores_networks_once_as_ranks_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after the first cell, it goes on with the others; a cell in which everything diverges is refused."""
    (tmp_path / "s.toml").write_text(RANKS)
    grid, asked = read_grid(tmp_path / "s.toml"), []
    with Store(tmp_path / "s.sqlite", grid.cells) as store:
        key, options = store.claim() or ("", {})
        assert store.finish(*cells.do_cell(grid.task, key, *grid.problem(options)))
    ranks = cells.ranks
    monkeypatch.setattr(
        cells, "ranks", lambda X, Y, **o: asked.append((o["batch_size"], o["rate"])) or ranks(X, Y, **o)
    )
    found = study.sweep(tmp_path / "s.toml", tmp_path / "s.sqlite", resume=True)
    assert found.counts == Counts(4, 4, 2, 0)
    assert asked == [(4, 1e9), (30, 0.1), (30, 1e9)]
    iris = covopt.read_data("iris")
    told = {"loss": "cross_entropy", "lam": 0.05, "steps": 60, "width": 4, "seeds": 1, "reference": 0}
    for row in found.rows[::2]:
        (cell,) = covopt.ranks(iris.X, iris.Y, batch_size=row["batch_size"], **told).cells  # type: ignore[arg-type]
        assert row["cost"] == cell.cost.total
        assert row["ranks"] == " ".join(str(layer.rank[1e-3]) for layer in cell.layers)
        assert (row["taken"], row["left"]) == (60, pytest.approx(0.99**60, rel=1e-12))
    found.to_csv(tmp_path / "t.csv")
    assert study.is_csv(tmp_path / "t.csv")


def test_a_file_is_gone_on_with_only_if_asked_and_only_by_its_sweep(solver: HandMade, tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    study.sweep(spec(2), file)
    with pytest.raises(RecordError, match="--resume"):
        study.sweep(spec(2), file)
    assert solver.started() == [0, 1]
    grown = study.sweep(spec(4), file, resume=True)
    assert solver.started() == [0, 1, 2, 3]
    assert [row["cost"] for row in grown.rows] == [0.0, 1.5, 3.0, 4.5]
    with pytest.raises(RecordError, match="holds another sweep"):
        study.sweep(spec(3), file, resume=True)
    with pytest.raises(RecordError, match="holds another sweep"):
        study.sweep(spec(4) | {"rows": 7}, file, resume=True)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE cells (a)")
    with pytest.raises(RecordError, match="no file of a sweep"):
        study.sweep(spec(2), tmp_path / "other", resume=True)


def test_refused_cells_are_kept_and_failed_ones_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(X: object, Y: object, **options: object) -> None:
        raise ZeroDivisionError("a defect")

    file, question = tmp_path / "s.sqlite", {"data": "iris", "rows": 6, "lam": [0.1, -1.0], "max_iterations": 1}
    with monkeypatch.context() as patched:
        patched.setattr(cells, "solve", broken)
        found = study.sweep(question, file)
    assert (found.counts, found.rows[0]["error"]) == (Counts(2, 2, 0, 2), "ZeroDivisionError: a defect")
    found = study.sweep(question, file, resume=True)
    assert (found.counts, found.rows[0]["error"]) == (Counts(2, 2, 1, 0), None)
    assert "lam" in str(found.rows[1]["error"])


def test_killed_at_any_moment_it_loses_no_result_and_repeats_none(tmp_path: Path) -> None:
    found = kill_again_and_again(tmp_path, kills=6, cells=150)
    assert found.kills == 6
    assert (found.lost, found.twice, found.wrong) == (0, 0, 0)
    assert found.in_flight <= found.kills


def test_two_processes_share_the_cells(tmp_path: Path) -> None:
    solver, file = HandMade(tmp_path / "log", seconds=0.02), tmp_path / "s.sqlite"
    for child in [start(solver, 40, file) for _ in range(2)]:
        assert os.waitpid(child, 0)[1] == 0
    assert sorted(solver.started()) == list(range(40))
    assert finished(file) == {seed: 1.5 * seed for seed in range(40)}


def test_a_full_disk_is_told_and_keeps_what_is_stored(tmp_path: Path) -> None:
    solver, file = HandMade(tmp_path / "log", seconds=0.0), tmp_path / "s.sqlite"

    def narrow() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 * 1024, 32 * 1024))

    child = start(solver, 100, file, narrow)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    said = file.with_suffix(".said").read_text()
    assert "make room" in said
    assert "\n" not in said
    kept = finished(file)
    assert 0 < len(kept) < 100
    before = len(solver.started())
    child = start(solver, 100, file)
    assert os.waitpid(child, 0)[1] == 0
    assert not kept.keys() & set(solver.started()[before:])
    assert finished(file) == {seed: 1.5 * seed for seed in range(100)}


def test_claims_expire_unless_they_are_renewed(tmp_path: Path) -> None:
    cells = {"a": {"seed": 0}, "b": {"seed": 1}}
    outcome: dict[str, object] = {"status": "converged", "cost": 1.0}
    with Store(tmp_path / "s", cells, lease=0.4) as one, Store(tmp_path / "s", cells, resume=True, lease=0.4) as other:
        assert one.claim() == ("a", {"seed": 0})
        other.release_dead()  # `one` lives
        assert other.claim() == ("b", {"seed": 1})
        assert other.claim() is None
        with renewing(one):
            time.sleep(0.8)
            assert other.claim() == ("b", {"seed": 1})  # its own, which it did not renew
            assert other.claim() is None
        time.sleep(0.5)
        assert other.claim() == ("a", {"seed": 0})
        assert other.finish("a", outcome)
        assert not one.finish("a", outcome | {"cost": 2.0})
        assert one.rows() == [{"seed": 0, "status": "converged", "cost": 1.0}]
        other.release()
        assert one.claim() == ("b", {"seed": 1})


def test_ctrl_c_gives_the_claims_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def interrupted(X: object, Y: object, **options: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "s.toml").write_text(REAL)
    monkeypatch.setattr(cells, "solve", interrupted)
    code, _, err = run("sweep", tmp_path / "s.toml")
    assert (code, "--resume" in err) == (130, True)
    with sqlite3.connect(tmp_path / "s.sqlite") as file:
        assert file.execute("SELECT COUNT(*), COUNT(owner), COUNT(outcome) FROM cells").fetchone() == (4, 0, 0)


def test_the_command_line_shows_progress_writes_tables_and_json(
    solver: HandMade, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = tmp_path / "s.toml", tmp_path / "t.csv"
    path.write_text(REAL)
    code, out, err = run("sweep", path, "--csv", table)
    assert (code, err.partition(": Among")[0], err.count("\n")) == (0, "covopt: warning", 1)  # no progress in a pipe
    assert out.startswith("4 cells: 4 solved, 0 refused, 0 failed.")
    assert table.read_text().splitlines()[0].startswith("data,rows,bias,lam,seed,max_iterations,status,cost,lower")
    code, out, _ = run("sweep", path, "--resume", "--json")
    told = json.loads(out)
    assert (code, told["cells"], told["finished"], len(told["rows"])) == (0, 4, 4, 4)
    assert len(solver.started()) == 4
    assert run("sweep", path)[0] == 2
    assert run("sweep", path, "--resume", "--csv", table)[0] == 2
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "4/4" in run("sweep", path, "--database", tmp_path / "again.sqlite")[2]


def test_worker_processes_of_this_machine(tmp_path: Path) -> None:
    small = {"data": "iris", "rows": 8, "bias": 0.0, "lam": 0.2, "seed": 0, "max_iterations": 1}
    found = study.sweep({**small, "seed": [0, 1, 2]}, tmp_path / "s.sqlite", jobs=2)
    assert found.counts == Counts(3, 3, 0, 0)
    assert found.rows[0]["cost"] == study.sweep(small, tmp_path / "alone.sqlite").rows[0]["cost"]


def test_two_workers_of_a_cluster(tmp_path: Path, run: Run) -> None:
    distributed = pytest.importorskip("distributed")
    (tmp_path / "s.toml").write_text(REAL)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        code, out, _ = run("sweep", tmp_path / "s.toml", "--scheduler", cluster.scheduler_address, "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["finished"], told["refused"], told["failed"]) == (4, 0, 0)
    alone = study.sweep(tmp_path / "s.toml", tmp_path / "alone.sqlite")
    assert [row["cost"] for row in told["rows"]] == [row["cost"] for row in alone.rows]


def test_a_scheduler_that_is_not_there(tmp_path: Path, run: Run) -> None:
    dask = pytest.importorskip("dask")
    (tmp_path / "s.toml").write_text(REAL)
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        code, _, err = run("sweep", tmp_path / "s.toml", "--scheduler", "tcp://127.0.0.1:9")
    assert code == 2
    assert "No dask scheduler answers at tcp://127.0.0.1:9" in err


def test_the_key_of_a_cell_knows_its_data(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    keys = []
    for number in (2, 5):
        table.write_text(f"x,y\n1,{number}.5\n3,4.5\n")
        keys += make_grid({"data": str(table), "target": "y", "lam": 0.1}).cells
    assert len(set(keys)) == 2
