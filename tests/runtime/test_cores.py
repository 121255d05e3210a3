"""Work in pieces on several cores: helpers are processes that start late, are never needed, and never stay behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from instances import gaussian

from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.relaxation.bound import check_maximum
from covopt.certify.relaxation.ground import make_ground
from covopt.certify.relaxation.signs import SignBranch
from covopt.model.activation import Activation
from covopt.oracles.oracle import oracle_values
from covopt.runtime import cores as module
from covopt.runtime.cores import Crew, cores, crew
from covopt.runtime.loop import Budget

CPU = torch.device("cpu")
PATIENCE = 60.0  # seconds to wait for what takes two


@pytest.fixture
def helped(two: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """A crew whose helper is ready."""
    monkeypatch.setattr(module, "WORTH_HELP", -1.0)
    with crew() as hired:
        hired.map(abs, [1, 2], 2)
        _await(lambda: len(_ready(hired)) == 1)
        yield hired


def _ready(hired: Crew) -> list:
    return [helper for helper in hired._helpers or () if helper.ready]


def _await(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _meet(place: tuple[Path, int]) -> tuple[int, int]:
    """Wait for the other piece; who works here, and with how many threads."""
    directory, number = place
    (directory / str(number)).touch()
    _await(lambda: len(list(directory.iterdir())) == 2)
    return os.getpid(), torch.get_num_threads()


def test_pieces_run_side_by_side_in_their_order_with_one_thread_each(helped, tmp_path):
    with cores(CPU) as team:
        assert team.count == 2
        assert team.map(abs, range(-6, 0)) == [6, 5, 4, 3, 2, 1]
        here, there = team.map(_meet, [(tmp_path, 0), (tmp_path, 1)])
        assert {here[0], there[0]} == {os.getpid(), _ready(helped)[0]._process.pid}
        assert here[1] == there[1] == 1
        pairs = team.map(torch.linalg.eigvalsh, [torch.eye(3), 2.0 * torch.eye(3)])
        assert [each.tolist() for each in pairs] == [[1.0] * 3, [2.0] * 3]
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_helpers_are_there_until_the_outermost_block_ends(helped):
    (helper,) = _ready(helped)
    with cores(CPU), crew() as inner:
        assert inner is helped
    assert _is_alive(helper._process.pid)
    helped.dismiss()
    assert helper._process.poll() is not None


def test_an_error_comes_back_from_here_and_from_a_helper(helped):
    with pytest.raises(ValueError, match="math domain"), cores(CPU) as team:
        team.map(_root, [1.0, 4.0, -1.0, -4.0])
    with cores(CPU) as team:
        assert team.map(_root, [1.0, 4.0]) == [1.0, 2.0]
    assert torch.get_num_threads() == 2


def _root(x: float) -> float:
    time.sleep(0.05)
    if x < 0.0:
        raise ValueError("math domain")
    return x**0.5


def test_what_pickle_does_not_take_and_what_a_dead_helper_leaves_is_done_here(helped):
    with cores(CPU) as team:
        assert team.map(lambda x: x + 1, [1, 2, 3]) == [2, 3, 4]
        (helper,) = helped._helpers or ()
        helper.ready = True  # it is well; only the message was not sent
        os.kill(helper._process.pid, signal.SIGKILL)
        assert team.map(_root, [1.0, 4.0, 9.0, 16.0]) == [1.0, 2.0, 3.0, 4.0]
        assert not helper.ready


def test_without_a_python_to_start_there_are_no_helpers(two, monkeypatch):
    monkeypatch.setattr(module, "WORTH_HELP", -1.0)
    for missing in ("/nowhere/python", None, ""):
        monkeypatch.setattr(sys, "executable", missing)
        with cores(CPU) as team:
            assert team.map(abs, [-1, -2]) == [1, 2]
            assert team.map(abs, [-1, -2]) == [1, 2]


def test_where_python_is_ending_pieces_are_done_here(two, monkeypatch):
    """Then no pool takes work any more: of a thread that goes on when its script is over, and of what runs at exit."""
    monkeypatch.setattr(module, "WORTH_HELP", -1.0)
    with crew() as hired, cores(CPU) as team:
        assert team.map(abs, [-1, -2]) == [1, 2]
        _await(lambda: len(_ready(hired)) == 1)
        monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
        assert team.map(abs, [-1, -2]) == [1, 2]
    with cores(CPU) as team:
        assert team.map(abs, [-1, -2]) == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_leaves_the_helpers_to_its_parent(helped):
    """It would wait for ever for threads that it does not have, and take answers that the parent waits for."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with cores(CPU) as team:
            os._exit(int(team.map(abs, [-1, -2]) != [1, 2]))
    assert os.waitpid(child, 0)[1] == 0
    assert len(_ready(helped)) == 1
    with cores(CPU) as team:
        assert team.map(_root, [1.0, 4.0, 9.0]) == [1.0, 2.0, 3.0]


def test_a_helper_is_of_this_covopt(helped, monkeypatch, tmp_path):
    """Paths that are no texts are skipped, as Python does; and another covopt does not compute for this one."""
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    for file, ready in ((module.HERE, True), ("/another/covopt/certify/helper.py", False)):
        monkeypatch.setattr(module, "HERE", file)
        started = module._Helper()
        started.greet()
        assert started.ready == ready
        started.end()
        started.close()


def test_one_core_other_devices_and_short_work_start_nothing(two, monkeypatch):
    monkeypatch.setattr(module, "_Helper", pytest.fail)
    with cores(CPU) as team:
        assert team.map(abs, [-1, -2]) == [1, 2]
    monkeypatch.setattr(module, "WORTH_HELP", -1.0)
    with cores(torch.device("meta")) as team:
        assert team.count == 1
        assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with cores(CPU) as team:
        assert team.map(lambda _: os.getpid(), range(2)) == [os.getpid()] * 2


# A user's script that guards nothing, as most of them do not.
SCRIPT = """
import os, signal, time, torch
from covopt.runtime import cores as module
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it from the start
print("started", flush=True)
torch.set_num_threads(2)
module.WORTH_HELP = -1.0
with module.crew() as hired:
    hired.map(abs, [1, 2], 2)
    while not hired._helpers[0].ready:
        time.sleep(0.02)
    print(hired._helpers[0]._process.pid, flush=True)
    hired.map(time.sleep, [300.0, 300.0], 2)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_helper_dies_with_its_script_in_the_middle_of_its_work(tmp_path, number):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout.readline() == "started\n"
            pid = int(run.stdout.readline())  # not "started" again: the helper does not run the script
            assert _is_alive(pid)
            time.sleep(0.2)
            run.send_signal(number)
            run.wait(PATIENCE)
            _await(lambda: not _is_alive(pid))
        finally:
            run.kill()


@pytest.mark.parametrize("outputs", [1, 2])
def test_cones_prove_the_same_with_and_without_help(helped, outputs):
    X, Lambda = gaussian(30, 4, seed=3), gaussian(30, outputs, seed=4)
    options = BranchOptions(slack=1e-3)

    def found():
        return branch_and_bound(X, Activation(), Lambda, target=0.0, time_limit=60.0, options=options)

    several = found()
    torch.set_num_threads(1)
    one = found()
    assert np.array_equal(several.tree, one.tree)
    assert several.upper_bound == one.upper_bound
    best = float(oracle_values(X, Activation(), Lambda, one.directions).max())
    assert best <= one.upper_bound <= best * (1 + 1.001e-3)
    again = replay(X, Activation(), Lambda, several.tree, claimed=several.upper_bound)
    assert best <= again <= several.upper_bound * (1 + 1e-9)


def test_signs_prove_the_same_with_and_without_help(helped):
    X, Lambda = gaussian(9, 7, seed=3), gaussian(9, 2, seed=4)
    trees = []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        tree = SignBranch(make_ground(X, Activation()), Lambda)
        tree.grow(0.0, Budget(60.0), max_nodes=31)
        trees.append(tree)
    helped_tree, alone = trees
    assert helped_tree.nodes == alone.nodes > 15
    assert helped_tree.maximum == alone.maximum >= alone.attained
    proved, same = helped_tree.multipliers(), alone.multipliers()
    assert torch.equal(proved.splits, same.splits)
    torch.testing.assert_close(proved.values, same.values, rtol=0.0, atol=1e-3)  # of a first-order method in float32
    size = make_ground(X, Activation()).size
    for multipliers in (proved, same):
        assert check_maximum(X, Activation(), Lambda, multipliers) <= size * alone.maximum * (1 + 1e-6)
