"""The memory that a solve is said to need, against peaks of processes of their own; and limits of it."""

import logging
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from runs import covopt_process

import covopt
from covopt.answer.plan import prepared
from covopt.model.activation import Activation
from covopt.model.problem import Problem, make_problem
from covopt.oracles.search import ENTRIES, ConvexConcaveOracle
from covopt.runtime import memory
from covopt.runtime.errors import CovoptWarning, ProblemError
from covopt.runtime.loop import Budget, Status
from covopt.solvers import plan
from covopt.solvers.options import DRAWS_TOGETHER, SolveOptions, Thrift
from covopt.solvers.plan import Plan
from tests.benchmarks.memory import LEAST, MOST, Case, measure

LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from Linux")
CPU = torch.device("cpu")


def data(samples: int, inputs: int, outputs: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((samples, inputs))
    return X, np.maximum(X[:, :1], 0.0) + rng.standard_normal((samples, outputs))


def question(samples: int, inputs: int, outputs: int = 1, **options: object) -> Problem:
    return make_problem(*data(samples, inputs, outputs), **{"lam": 1e-3} | options)  # type: ignore[arg-type]


def asked(time_limit: float = 300.0, **options: Any) -> SolveOptions:
    given: dict[str, Any] = {"certify": "none"} | options
    return SolveOptions(Budget(time_limit), **given)


# ---- the estimate
@LINUX
@pytest.mark.parametrize(
    "case",
    [
        Case((200, 10, 1), {"time_limit": 2.0, "certify": "none"}),
        Case((300, 2, 1), {"max_iterations": 1, "certify": "fast"}),
        Case((400, 10, 2), {"time_limit": 2.0, "certify": "none", "method": "hidden", "starts": 1}),
        Case((5000, 20, 5), {"time_limit": 2.0, "certify": "none", "method": "train", "width": 100, "starts": 10}),
        Case((500, 20, 5), {"time_limit": 3.0, "certify": "none", "depth": 3}),
        Case((20_000, 200, 3), {"time_limit": 2.0, "certify": "none", "memory_limit": 0.9}),
    ],
    ids=lambda case: str(case.sizes),
)
def test_the_need_is_near_the_peak(case: Case) -> None:
    """Cases of all methods that reach their peak soon; `python -m tests.benchmarks memory` has more and larger ones."""
    found = measure(case)
    assert LEAST * found.peak <= found.need <= MOST * found.peak, found


def test_the_data_are_counted_in_each_process() -> None:
    """100,000 samples: copies of the inputs, and none of them for processes that hold other rows."""
    X = torch.ones(1, 1, dtype=torch.float64).expand(10**5, 100)
    large = make_problem(np.ones((4, 100)), np.ones((4, 1)), lam=1e-3)
    large = Problem(X, X[:, :1], large.loss, 1e-3, 2, 1.0, large.activation)
    found = Plan.of(large, asked()).need
    assert found.data == 8 * 10**5 * 101
    assert found.total > 1.4 * found.data
    assert found.largest in ("batches", "search", "rounds")
    few = Plan.of(large.on(torch.arange(5 * 10**4)), asked()).need
    assert found.phases["batches"] - few.phases["batches"] == 4 * 5e4 * 101 + 80 * 5e4


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (question(300, 5), question(3000, 5)),
        (question(300, 5), question(300, 50)),
        (question(300, 5, depth=3), question(300, 5, depth=6)),
        (question(300, 2), question(1500, 2)),
    ],
)
@pytest.mark.parametrize("certify", ["none", "auto", "full"])
def test_more_of_anything_needs_no_less(less: Problem, more: Problem, certify: str) -> None:
    one, other = (sum(Plan.of(each, asked(certify=certify)).need.phases.values()) for each in (less, more))
    assert 0.0 < one <= other


# ---- what is told
def test_the_need_is_told_before_the_first_round(caplog: pytest.LogCaptureFixture) -> None:
    X, Y = data(50, 3)
    seen: list[int] = []
    with caplog.at_level(logging.INFO, "covopt"):
        covopt.solve(X, Y, lam=0.1, max_iterations=1, callback=lambda _: seen.append(len(caplog.records)))
    assert [record.getMessage() for record in caplog.records] == [
        f"The solve will need about {caplog.text.split('about ')[1].split(' GB')[0]} GB of memory"
        " (less than 0.1 GB of it the data)."
    ]
    assert set(seen) == {1}


@pytest.mark.parametrize(("size", "words"), [(1.0, "less than 0.1 GB"), (1.7e9, "1.7 GB"), (2.4e10, "24 GB")])
def test_sizes_are_shown_in_gigabytes(size: float, words: str) -> None:
    assert plan.shown(size) == words


def test_the_command_tells_where_progress_is_told(tmp_path: Path) -> None:
    X, Y = data(40, 2)
    file = tmp_path / "data.npz"
    np.savez(file, X=X, Y=Y)
    words = "solve", file, *"--lam 0.1 --certify none --json --time-limit 1".split()
    quiet, told, limited = (
        covopt_process(*words, *more) for more in ((), ("--progress",), ("--memory-limit", "0.001"))
    )
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert told.stdout.startswith("{")
    assert told.stderr.startswith("covopt: The solve will need about 0.")
    assert limited.returncode == 2
    assert limited.stderr.count("\n") == 1
    assert "and the limit is 0.001 GB" in limited.stderr


def test_a_machine_with_less_memory_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the solve goes on."""
    monkeypatch.setattr(memory, "available", lambda device: 1e6)
    with pytest.warns(
        CovoptWarning, match=r"will need about .* GB of memory, .* the machine has less than 0.1 GB left"
    ):
        found = covopt.solve(*data(30, 2), lam=0.1, max_iterations=1, certify="none")
    assert found.cost < math.inf
    monkeypatch.setattr(memory, "available", lambda device: None)
    covopt.solve(*data(30, 2), lam=0.1, max_iterations=1, certify="none")  # warnings are errors here


# ---- limits
def test_a_limit_that_is_high_enough_changes_nothing() -> None:
    for options in (asked(), asked(certify="full"), asked(method="train")):
        high = SolveOptions(**{**vars(options), "memory_limit": 1e3})
        assert plan.planned(question(300, 5), high).options == high


def limited(problem: Problem, part: float, **options: Any) -> SolveOptions:
    """The plan for a limit that leaves this part of what the largest phase takes."""
    before = Plan.of(problem, asked(**options)).need
    room = plan.LOADED + part * before.phases[before.largest]
    return plan.planned(problem, asked(**options, memory_limit=(before.held + room) / 1e9)).options


def test_a_search_takes_fewer_starts_first() -> None:
    with pytest.warns(CovoptWarning, match="searches from fewer starts at a time."):
        found = limited(question(4000, 20), 0.7)
    assert found.thrift == Thrift(entries=found.thrift.entries)
    assert found.thrift.entries < ENTRIES


def test_batches_take_the_place_of_rounds() -> None:
    with pytest.warns(CovoptWarning, match="trains on random batches alone"):
        found = limited(question(20_000, 20), 0.4, time_limit=10_000.0)
    assert found.thrift.batches_alone


def test_less_is_proved() -> None:
    problem = question(450, 100, 10)
    with pytest.warns(CovoptWarning, match="proves no more than the data tell"):
        assert limited(problem, 0.6, certify="full").certify == "fast"
    with pytest.warns(CovoptWarning, match="proves nothing"):
        assert limited(question(1000, 2), 0.5, certify="fast").certify == "none"


def test_fewer_networks_are_explored_at_a_time() -> None:
    with pytest.warns(CovoptWarning, match="explores fewer networks at a time"):
        found = limited(question(3000, 5, depth=8), 0.6)
    assert 1 <= found.thrift.draws < DRAWS_TOGETHER


@pytest.mark.parametrize("part", [0.2, 0.5])
def test_what_cannot_be_changed_is_refused(part: float) -> None:
    init = list(covopt.solve(*data(30, 5), lam=0.1, max_iterations=1, certify="none").weights)
    for problem, options in (
        (question(3000, 5, lam=None), {}),
        (question(3000, 5), {"method": "hidden"}),
        (question(3000, 5), {"method": "train", "width": 200, "starts": 30}),
        (question(20_000, 5), {"init": init, "time_limit": 10_000.0}),
    ):
        with pytest.raises(ProblemError, match=r"needs at least about .* and the limit is"):
            limited(problem, 0.05 * part, **options)


def test_a_refusal_comes_before_the_memory_is_taken() -> None:
    """Two gigabytes of data that are not there: each row is the same one."""
    X = np.broadcast_to(np.ones(1000), (250_000, 1000))
    started, before = time.process_time(), memory.held(CPU)
    with pytest.raises(ProblemError, match="needs at least about") as told:
        covopt.solve(X, X[:, :1], lam=0.1, memory_limit=1.5)
    assert float(str(told.value).split()[6]) == pytest.approx((before + 8.0 * 1001 * len(X)) / 1e9, abs=0.2)
    assert memory.held(CPU) - before < 1e8
    assert time.process_time() - started < 1.0


# ---- what is done without
def test_batches_alone_end_with_the_limit() -> None:
    """On few samples, where the cycles end by themselves; the status says why nothing followed."""
    problem = question(2048, 3, lam=0.1)
    found = prepared(problem, asked(60.0, thrift=Thrift(batches_alone=True))).carried_out()
    assert found.status is Status.MEMORY_LIMIT
    assert found.history[-1].cost == pytest.approx(found.cost)
    rounds = prepared(problem, asked(4.0)).carried_out()
    assert rounds.cost <= found.cost * (1.0 + 1e-9)
    assert found.cost <= 1.05 * rounds.cost


def test_fewer_starts_at_a_time_find_the_same() -> None:
    X, Y = data(60, 3)
    Xt, Lambda = torch.as_tensor(X), torch.as_tensor(Y)
    starts = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = ConvexConcaveOracle(Xt, Activation())(Lambda, starts)
    parts = ConvexConcaveOracle(Xt, Activation(), entries=60 * 7)(Lambda, starts)
    assert float(parts.values[0]) == pytest.approx(float(whole.values[0]), rel=1e-9)


# ---- the machine
def machine(root: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> float | None:
    """What is available where these files are the machine's."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(memory, "ROOT", root)
    return memory.available(CPU)


MEMINFO = {"proc/meminfo": "MemTotal:  100 kB\nMemAvailable:   5000000 kB\nHugePages_Total:  0\n"}


@pytest.mark.parametrize(
    ("files", "bytes_left"),
    [
        ({}, None),
        (MEMINFO, 5.12e9),
        (MEMINFO | {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 5.12e9),
        (
            MEMINFO
            | {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "3000000000\n",
                "sys/fs/cgroup/a/memory.current": "1000000000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 900000000\ninactive_file 100000000\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "1000000000\n",
            },
            2.1e9,
        ),
        (  # a container of version 1, which sees its own group at the top
            MEMINFO
            | {
                "proc/self/cgroup": "5:cpu:/docker/x\n4:memory:/docker/x\n1:name=systemd:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1500000000\n",
                "sys/fs/cgroup/memory/memory.stat": "cache 1\ntotal_inactive_file 100\n",
            },
            5.000001e8,
        ),
        (MEMINFO | {"proc/self/cgroup": "damaged\n"}, 5.12e9),
    ],
)
def test_what_the_machine_has_left(
    files: dict[str, str], bytes_left: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine(tmp_path, files, monkeypatch) == bytes_left


def test_what_the_process_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = memory.held(CPU)
    block = np.ones(25_000_000)
    assert memory.held(CPU) - before == pytest.approx(block.nbytes, rel=0.1)
    assert before > 1e8
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    assert memory.held(CPU) == memory.LIBRARIES
