"""The command line as a user runs it: with a solver made by hand where only the command line is meant, else whole."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from runs import Run, covopt_process, printed, toy_result

import covopt
from covopt.answer.progress import progress_text
from covopt.answer.result import Result
from covopt.records import record, storing
from covopt.runtime.errors import InfeasibleError
from covopt.runtime.loop import Progress, Status


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell that runs the tests in the background lets them, and what they start, ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class FakeSolver:
    """Stands in for `covopt.answer.solve.solve`: remembers its options and answers as it is told."""

    def __init__(self) -> None:
        self.options: dict[str, object] = {}
        self.answer: Callable[..., Result] = lambda X, Y, **_: toy_result(X=X, Y=Y)

    def solve(self, data: covopt.Dataset, **options: object) -> Result:
        self.options = options
        return self.answer(data.X, data.Y, **options)


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> FakeSolver:
    fake, module = FakeSolver(), types.ModuleType("covopt.answer.solve")
    module.solve = fake.solve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "covopt.answer.solve", module)
    monkeypatch.setattr("covopt.answer.solve", module, raising=False)
    return fake


def interrupted(X: object, Y: object, **_: object) -> Result:
    """A solver that Ctrl-C ends, as the loop does it."""
    try:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("no Ctrl-C arrived")
    except KeyboardInterrupt:
        return toy_result(X=X, Y=Y, status=Status.INTERRUPTED)


# ---- what a user asks for
def test_options_reach_the_solver(run: Run, solver: FakeSolver) -> None:
    options = "--depth 2 --bias 0.5 --lam 0.01 --loss mse --activation leaky:0.2 --certify none --gap 0.01 --tol 0.005"
    code, _, err = run(
        "solve", "iris", *options.split(), *"--time-limit 7 --memory-limit 3 --seed 9 --device cpu --json".split()
    )
    assert (code, err) == (0, "")
    unset = dict.fromkeys("init width max_width starts callback".split())
    given = {"depth": 2, "bias": 0.5, "lam": 0.01, "loss": "mse", "activation": "leaky:0.2", "certify": "none"}
    given |= {"gap": 0.01, "tol": 0.005, "time_limit": 7.0, "memory_limit": 3.0, "seed": 9, "device": "cpu"}
    assert solver.options == given | unset | {"method": "cone", "skip": False, "spread": False}
    run("solve", "iris")
    usual = {"lam": None, "loss": None, "bias": 1.0, "certify": "auto", "gap": 1e-4, "time_limit": 300.0}
    assert {name: solver.options[name] for name in usual} == usual


def test_json_is_one_object_and_nothing_else(run: Run, solver: FakeSolver, tmp_path: Path) -> None:
    code, out, err = run(
        "solve", "iris", "--rows", 12, "--shuffle", 0, "--scale", "max", "--json", "--out", tmp_path / "run"
    )
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert out.count("\n") == 1
    assert (summary["data"], summary["scale"], summary["rows"]) == ("iris", "max", 12)
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert "report.html" in stored.pop("files")
    assert stored == {"kind": "result", **summary}


def test_summary_is_readable(run: Run, solver: FakeSolver, tmp_path: Path) -> None:
    code, out, err = run("solve", "iris", "--rows", 12, "--shuffle", 0, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    for word in ("iris, 12 rows", "lower bound", "certificate", "proved", "neurons", str(tmp_path / "run")):
        assert word in out
    code, shown, err = run("show", tmp_path / "run")
    assert (code, err) == (0, "")
    assert out.startswith(shown)
    code, shown, _ = run("show", tmp_path / "run", "--json")
    assert json.loads(shown)["data"] == "iris"


def test_warm_start_hands_on_the_stored_run(run: Run, solver: FakeSolver, tmp_path: Path) -> None:
    run("solve", "iris", "--out", tmp_path / "run")
    assert run("solve", "iris", "--init", tmp_path / "run")[0] == 0
    assert isinstance(solver.options["init"], Result)


def test_progress_tells_cost_bound_width_phase_and_time() -> None:
    line = Progress(iteration=3, seconds=12.3, cost=0.1359361, lower=0.1352, width=31)
    assert progress_text(line, 60.0) == "cost 0.135936   lower bound 0.1352   width 31   12 of 60 s"
    assert "none yet" in progress_text(Progress(0, 0.0, 1.0, None, 0), 60.0)
    assert "bound 1.99999 " in progress_text(Progress(0, 0.0, 2.0, 1.99999999998, 1), 60.0)
    line = Progress(0, 3.0, float("inf"), None, 0, "starts 1 to 24 of 48")
    said = "cost none yet   lower bound none yet   width 0   starts 1 to 24 of 48   3 of 20 s"
    assert progress_text(line, 20.0) == said


@pytest.mark.parametrize("asked", [True, False])
def test_progress_in_a_pipe(run: Run, solver: FakeSolver, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    """Lines come while the solver is in a long round, with a clock that runs; without --progress there are none."""
    monkeypatch.setattr("covopt.answer.progress.EVERY", 0.05)

    def slow(X: object, Y: object, **options: object) -> Result:
        callback = options["callback"]
        assert (callback is not None) == asked
        if callable(callback):
            callback(Progress(0, 7.0, 2.5, None, 3, "starts 1 to 24 of 48"))
        time.sleep(0.5)
        return toy_result(X=X, Y=Y)

    solver.answer = slow
    code, out, err = run("solve", "linnerud", "--time-limit", 20, "--json", *(["--progress"] if asked else []))
    assert code == 0
    assert json.loads(out)["status"]
    lines = err.splitlines()
    assert (len(lines) >= 2) == asked
    said = "covopt: cost 2.5   lower bound none yet   width 3   starts 1 to 24 of 48   "
    assert all(line in (f"{said}7 of 20 s", f"{said}8 of 20 s") for line in lines[1:])


# ---- bad input: one sentence, exit code 2, nothing written
def test_what_the_solver_refuses_is_said_in_one_sentence(run: Run, solver: FakeSolver, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> Result:
        raise InfeasibleError("Rows 3 and 7 of X are equal, but their targets differ; give lam.")

    solver.answer = refuse
    code, out, err = run("solve", "iris", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err == "covopt: Rows 3 and 7 of X are equal, but their targets differ; give lam.\n"
    assert not list(tmp_path.iterdir())


def test_existing_out_is_refused_before_any_work(run: Run, solver: FakeSolver, tmp_path: Path) -> None:
    assert run("solve", "iris", "--out", tmp_path / "run")[0] == 0
    solver.options = {}
    code, _, err = run("solve", "iris", "--out", tmp_path / "run")
    assert (code, "--force" in err, solver.options) == (2, True, {})
    assert run("solve", "iris", "--rows", 9, "--out", tmp_path / "run", "--force")[0] == 0
    assert record.read_summary(tmp_path / "run")["rows"] == 9


# ---- Ctrl-C
def test_ctrl_c_writes_the_best_network(run: Run, solver: FakeSolver, tmp_path: Path) -> None:
    solver.answer = interrupted
    code, out, _ = run("solve", "iris", "--json", "--out", tmp_path / "run")
    assert code == 130
    assert json.loads(out)["status"] == "interrupted"
    assert covopt.load(tmp_path / "run").status is Status.INTERRUPTED


def test_a_second_ctrl_c_waits(run: Run, solver: FakeSolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = storing.put

    def pressed_again(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)
        put(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(storing, "put", pressed_again)
    solver.answer = interrupted
    assert run("solve", "iris", "--out", tmp_path / "run")[0] == 130
    assert covopt.load(tmp_path / "run").status is Status.INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---- the whole programme, in a process of its own
def test_version_and_help(tmp_path: Path) -> None:
    version = covopt_process("--version", cwd=tmp_path)
    assert (version.returncode, version.stdout, version.stderr) == (0, f"{covopt.__version__}\n", "")
    for arguments in (["--help"], ["solve", "--help"], []):
        shown = covopt_process(*arguments, cwd=tmp_path)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "Usage: covopt" in shown.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [("--help", ""), ("doctor", "1"), ("solve iris --rows 40 --shuffle 0 --lam 1 --tol 0.5", "")],
)
def test_a_full_disk_behind_standard_output(command: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = covopt_process(*command.split(), stdout=full, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    said = "covopt: The answer cannot be written (No space left on device); send it elsewhere, or make room.\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("command", [["--help"], ["doctor"]])
def test_nobody_reads_the_answer(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = covopt_process(*command, stdout=pipe)
    assert (done.returncode, done.stderr) == (141, "")


def test_help_loads_nothing_heavy() -> None:
    loaded = "[m for m in ('torch', 'numpy', 'sklearn', 'cvxpy') if m in sys.modules]"
    assert printed(f"import sys, covopt.app.cli; print({loaded})") == "[]\n"


def test_a_stored_run_of_any_kind_is_shown_without_torch() -> None:
    code = """import sys
import covopt.app.cli, covopt.app.runs
from covopt.studies.runs import KINDS
words = [kind.module("words") for kind in KINDS]
print(len(words) > 5, "torch" in sys.modules)"""
    assert printed(code) == "True False\n"


def test_a_solve_loads_what_it_needs_alone(tmp_path: Path) -> None:
    """Each of these takes about as long to load as the solve of a small table."""
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,0.5\n2,3,1.5\n3,1,2.5\n")
    options = ["t.csv", "--target", "y", "--time-limit", "1", "--json"]
    heavy = "cvxpy sklearn matplotlib pandas dask sympy torch._dynamo".split()
    commands = [f"{name} --lam 0.1" for name in ("solve --depth 3 --certify none", "plateau", "validate")]
    commands += ["solve", "compare"]
    code = f"""import sys
from covopt.app.cli import main
for command in {commands}:
    try:
        main([*command.split(), *{options}])
    except SystemExit as ended:
        assert not ended.code
    assert "certify" not in command or "scipy.optimize" not in sys.modules
print([m for m in {heavy} if m in sys.modules])"""
    assert printed(code, cwd=tmp_path).splitlines()[-1] == "[]"


def test_solve_then_show(tmp_path: Path) -> None:
    x = np.linspace(-1.0, 1.0, 12)
    np.savez(tmp_path / "wave.npz", X=x[:, None], Y=np.sin(3 * x))
    solved = covopt_process("solve", "wave.npz", "--lam", 0.01, "--out", "run", "--json", cwd=tmp_path)
    assert (solved.returncode, solved.stderr) == (0, "")
    summary = json.loads(solved.stdout)
    assert summary["certificate"] == "exact"
    assert 0 < summary["lower"] <= summary["cost"]
    assert summary["gap"] <= 1e-4
    files = "certificate.npz figure.png history.csv network.npz network.pt origin.json problem.npz report.html"
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [*files.split(), "result.json"]
    again = covopt_process("solve", "wave.npz", "--lam", 0.01, "--out", "run", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    shown = covopt_process("show", "run", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "wave.npz, 12 rows" in shown.stdout


def test_ctrl_c_at_a_terminal(tmp_path: Path) -> None:
    """The progress line appears on the terminal, and Ctrl-C then ends the run with its files written."""
    terminal, side = pty.openpty()
    command = "solve digits --rows 150 --scale max --bias 0 --lam 1e-3 --time-limit 100 --out run --json"
    process = subprocess.Popen(
        [sys.executable, "-m", "covopt", *command.split()],
        stdout=subprocess.PIPE,
        stderr=side,
        cwd=tmp_path,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(side)
    seen = b""
    while b"cost" not in seen:
        seen += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 130
    assert json.loads(out)["status"] == "interrupted"
    assert covopt.load(tmp_path / "run").status is Status.INTERRUPTED


def test_a_warning_is_one_sentence_without_source(tmp_path: Path) -> None:
    done = covopt_process("solve", "iris", "--rows", 20, "--lam", 0.1, "--time-limit", 0.1, "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == (
        "covopt: warning: Among the 20 rows of iris there is none of class versicolor, virginica;"
        " draw them with shuffle=SEED or --shuffle SEED.\n"
    )
    assert json.loads(done.stdout)["targets"] == "3 classes, one-hot (2 not among the rows)"


def test_the_question_tells_what_the_targets_are(run: Run, solver: FakeSolver, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,y\n1,u,3\n2,v,5\n3,u,3\n")
    options = ["solve", tmp_path / "a.csv", "--target", "y", "--one-hot", "b"]
    assert "3 rows, 2 classes, one-hot: " in run(*options, "--task", "classification")[1]
    assert "3 rows, targets read as numbers: " in run(*options)[1]
    code, out, _ = run(*options, "--rows", 2, "--shuffle", 4, "--out", tmp_path / "run")
    assert code == 0
    assert "2 rows drawn with seed 4" in out
    assert run("show", tmp_path / "run")[1] in out
    assert json.loads((tmp_path / "run" / "origin.json").read_text())["columns"] == ["a", "b=u", "b=v"]
