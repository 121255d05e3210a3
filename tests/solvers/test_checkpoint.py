"""The state of a solve in a file: what goes on from it ends as if there had been no break."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import Run
from test_spread import data, group, solve, spawned

import covopt
from covopt.model.problem import make_problem
from covopt.runtime.errors import CovoptWarning, RecordError
from covopt.runtime.loop import Budget, Callback, Progress, run
from covopt.solvers.checkpoint import FACTS, Checkpoint
from covopt.solvers.shallow.saved import going_on, keeping_training, training_from
from covopt.solvers.shallow.stream import StreamSolver
from covopt.solvers.shallow.stream_options import StreamOptions

OFTEN = 1e-6
QUESTIONS: dict[str, dict[str, object]] = {
    "mse": {"lam": 1e-3},
    "small lam": {"lam": 1e-13},
    "cross_entropy": {"lam": 1e-2, "loss": "cross_entropy"},
    "bounds": {"lam": 1e-2, "certify": "fast"},
}


class Break(Exception):
    """Something ends the process."""


def breaking_at(iteration: int) -> Callback:
    def callback(line: Progress) -> None:
        if line.iteration == iteration:
            raise Break

    return callback


@pytest.mark.parametrize("name", QUESTIONS)
def test_rounds_go_on_as_without_a_break(name: str, tmp_path: Path) -> None:
    asked = {"certify": "none", "max_iterations": 3, "time_limit": 1e5, **QUESTIONS[name]}
    X, Y = data(16)
    whole = covopt.solve(X, Y, **asked)  # type: ignore[arg-type]
    asked |= {"checkpoint": tmp_path / "state.npz", "checkpoint_every": OFTEN}
    with pytest.raises(Break):
        covopt.solve(X, Y, callback=breaking_at(2), **asked)  # type: ignore[arg-type]
    resumed = covopt.solve(X, Y, resume=True, **asked)  # type: ignore[arg-type]
    assert (resumed.cost, resumed.status, resumed.lower) == (whole.cost, whole.status, whole.lower)
    assert all(torch.equal(a, b) for a, b in zip(resumed.weights, whole.weights, strict=True))
    assert [line.iteration for line in resumed.history] == [line.iteration for line in whole.history]
    seconds = [line.seconds for line in resumed.history]
    assert seconds == sorted(seconds)
    assert resumed.seconds >= seconds[-1]
    ended = covopt.solve(X, Y, resume=True, **asked)  # type: ignore[arg-type]
    assert (ended.cost, ended.status) == (whole.cost, whole.status)


@pytest.mark.parametrize("directions", [1, 64])
@pytest.mark.parametrize("steps", [1, 33, 50])
def test_batches_go_on_unbroken(steps: int, directions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamSolver, "most_passes", 1)
    monkeypatch.setattr(StreamSolver, "turns", 2)  # so that a descent takes several steps of the loop
    X = data(400)[0] * [5.0, *[0.1] * (data(400)[0].shape[1] - 1)]
    problem = make_problem(X, np.abs(X[:, :1]) + X[:, 1:2], lam=1e-3).double()
    options = StreamOptions(neurons=12, batch=16, first=1, directions=directions)
    budget = Budget(1e6, max_iterations=2 if directions == 64 else 12)
    whole = run(StreamSolver(problem, options), budget)
    checkpoint, solver, taken = Checkpoint(tmp_path / "state.npz", OFTEN), StreamSolver(problem, options), []
    checkpoint.about({}, resume=False)
    after = keeping_training(checkpoint, "mini-batches", solver, budget)
    keep = solver.within

    def within(state: object) -> None:
        taken.append(state)
        keep(state)  # type: ignore[arg-type]
        if len(taken) == steps:
            raise Break

    solver.within = within
    with pytest.raises(Break):
        run(solver, budget, after=after)
    found = Checkpoint(tmp_path / "state.npz")
    found.about({}, resume=True)
    assert found.saved is not None
    again = StreamSolver(problem, options)
    resumed = going_on(again, budget, None, training_from(found.saved, again), lambda *_: None)
    assert resumed.state.cost == whole.state.cost
    assert all(torch.equal(a, b) for a, b in zip(resumed.state.best, whole.state.best, strict=True))
    assert [line.cost for line in resumed.history] == [line.cost for line in whole.history]


def _rounds(rank: int, _: int, path: Path) -> None:
    """Two of three processes solve one round and keep the state; then all three, and one alone, go on from there."""
    asked = {"lam": 1e-2, "checkpoint": path / "state.npz", "checkpoint_every": OFTEN}
    if rank < 2:
        with group(rank, 2, str(path / "two")):
            solve(rank, 2, *data(120), max_iterations=1, **asked)
    with group(rank, 3, str(path / "three")):
        torch.distributed.barrier()
        state = (path / "state.npz").read_bytes()
        torch.distributed.barrier()
        asked |= {"max_iterations": 2, "resume": True, "checkpoint_every": 1e6}
        cost = solve(rank, 3, *data(120), **asked).cost
    torch.save({"cost": cost, "state": state}, path / f"{rank}.pt")


def test_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    """Two keep the state; three and one go on, and end where one that was never broken off does."""
    three = spawned(_rounds, 3, tmp_path)
    (tmp_path / "state.npz").write_bytes(three[0]["state"])
    asked = {"lam": 1e-2, "max_iterations": 2}
    with group(0, 1, str(tmp_path / "one")):
        one = solve(0, 1, *data(120), checkpoint=tmp_path / "state.npz", resume=True, **asked).cost
    with group(0, 1, str(tmp_path / "whole")):
        whole = solve(0, 1, *data(120), **asked).cost
    assert [one, *(ended["cost"] for ended in three)] == pytest.approx([whole] * 4, rel=1e-6)


def test_a_killed_program_goes_on(tmp_path: Path, run: Run) -> None:
    X, Y = data(40)
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    words = ["solve", str(tmp_path / "data.npz"), "--lam", "1e-3", "--certify", "none", "--tol", "1e-3"]
    words += ["--out", str(tmp_path / "run"), "--checkpoint", "0.001"]
    state = tmp_path / "run.checkpoint.npz"
    first = subprocess.Popen([sys.executable, "-m", "covopt", *words])
    while not state.exists() and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    code, out, _ = run(*words, "--resume", "--json")
    whole = covopt.solve(X, Y, lam=1e-3, certify="none", tol=1e-3)
    assert code == 0
    assert f'"cost": {whole.cost!r}' in out.replace("\n", "")
    assert covopt.verify(tmp_path / "run").passed


def test_where_nothing_can_be_written_the_solve_goes_on(tmp_path: Path) -> None:
    X, Y = data(20)
    place = tmp_path / "gone"
    place.mkdir()
    asked = {"lam": 1e-1, "certify": "none", "max_iterations": 1, "checkpoint": place / "state.npz"}

    def remove(line: Progress) -> None:
        if place.exists():
            place.rmdir()

    with pytest.warns(CovoptWarning, match="cannot be written"):
        result = covopt.solve(X, Y, callback=remove, **asked)  # type: ignore[arg-type]
    assert result.cost == covopt.solve(X, Y, **{**asked, "checkpoint": None}).cost  # type: ignore[arg-type]


SHORT = {"lam": 1e-2, "certify": "none", "max_iterations": 1}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state of a short solve of `data(20)`."""
    covopt.solve(*data(20), checkpoint=tmp_path / "state.npz", **SHORT)  # type: ignore[arg-type]
    return tmp_path / "state.npz"


def resumed(state: Path, **other: object) -> covopt.Result:
    return covopt.solve(*data(20), checkpoint=state, resume=True, **{**SHORT, **other})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["thesis.npz", "notes.txt", "empty"])
def test_no_other_file_is_replaced(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes({"notes.txt": b"of years", "empty": b""}.get(name, b""))
    if name == "thesis.npz":
        np.savez(path, X=data(20)[0])
    before = path.read_bytes()
    with pytest.raises(RecordError, match="not replaced"):
        covopt.solve(*data(20), checkpoint=path, **SHORT)  # type: ignore[arg-type]
    with pytest.warns(CovoptWarning, match="not replaced"):  # what came there while the solve ran
        Checkpoint(path).keep("rounds", 1.0, {}, {})
    assert path.read_bytes() == before


def test_force_begins_anew_on_the_command_line(tmp_path: Path, run: Run) -> None:
    X, Y = data(20)
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    words = ["solve", tmp_path / "data.npz", "--lam", "0.1", "--certify", "none", "--out", tmp_path / "run"]
    words += ["--checkpoint", "5", "--tol", "0.1"]
    assert [run(*words)[0], run(*words, "--force", "--seed", "1")[0]] == [0, 0]
    (tmp_path / "run.checkpoint.npz").write_bytes(b"another's")
    code, _, err = run(*words, "--force")
    assert (code, "not replaced" in err) == (2, True)
    assert (tmp_path / "run.checkpoint.npz").read_bytes() == b"another's"


def test_a_damaged_state_is_refused(state: Path) -> None:
    """Bytes that change anywhere, and ends that are missing; a byte that tells nothing changes nothing."""
    whole, random = state.read_bytes(), np.random.default_rng(0)
    cost, refused = resumed(state).cost, 0
    for place in random.integers(len(whole), size=30):
        state.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert resumed(state).cost == cost
        except RecordError:
            refused += 1
    for place in random.integers(len(whole), size=10):
        state.write_bytes(whole[:place])
        with pytest.raises(RecordError, match="no state"):
            resumed(state)
    assert refused > 20


def test_a_state_of_other_names_is_refused(state: Path) -> None:
    """As another version might write it."""
    arrays = dict(np.load(state))
    told = json.loads(str(arrays.pop(FACTS)))
    del arrays["digest"]
    names = sorted(arrays)

    def write(facts: dict[str, object], kept: list[str]) -> None:
        state.unlink()
        checkpoint = Checkpoint(state)
        checkpoint.about(told["question"], resume=False)
        checkpoint.keep(told["stage"], 1.0, facts, {name: arrays[name] for name in kept})

    write(told["facts"], names)
    assert resumed(state).cost > 0.0
    other = [(told["facts"], [kept for kept in names if kept != name]) for name in names]
    other += [({key: told["facts"][key] for key in told["facts"] if key != name}, names) for name in told["facts"]]
    changes = {"history": []}, {"history": [[1]]}, {"solver": []}, {"solver": None}
    for facts, kept in [*other, *((told["facts"] | change, names) for change in changes)]:
        write(facts, kept)
        with pytest.raises(RecordError, match="no state"):
            resumed(state)
