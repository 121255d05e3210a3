"""Commands that get signals: each in a process of its own, and what it left behind.

The moment of a signal and the time until the end are counted in the process's own CPU seconds, which other work on the
machine does not stretch; the wall clock stands beside them.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import covopt
from covopt.records import record
from covopt.studies.runs import find

# Every kind of work that takes long: losses, depths, methods, proofs and studies. OUT is where the answer goes.
COMMANDS = {
    "solve": "solve digits --rows 300 --scale max --lam 1e-3 --out OUT",
    "all digits": "solve digits --scale max --lam 1e-4 --out OUT",
    "cross-entropy": "solve digits --rows 200 --scale max --lam 1e-3 --loss cross_entropy --out OUT",
    "interpolate": "solve digits --rows 100 --scale max --out OUT",
    "interpolate diabetes": "solve diabetes --scale standard --out OUT",
    "relaxation": "solve digits --rows 40 --scale max --lam 1e-2 --certify full --out OUT",
    "large relaxation": "solve digits --rows 500 --scale max --lam 1e-3 --certify full --out OUT",
    "branches": "solve iris --lam 1e-3 --certify full --out OUT",
    "exact": "solve line.npz --lam 1e-4 --out OUT",
    "linear": "solve digits --rows 300 --lam 1e-2 --activation linear --out OUT",
    "deep": "solve digits --rows 60 --scale max --lam 1e-3 --depth 3 --out OUT",
    "deep, full": "solve iris --lam 1e-3 --depth 3 --certify full --out OUT",
    "deep interpolate": "solve digits --rows 40 --scale max --depth 4 --out OUT",
    "hidden": "solve digits --rows 100 --scale max --lam 1e-3 --method hidden --out OUT",
    "hidden interpolate": "solve digits --rows 40 --scale max --depth 3 --method hidden --out OUT",
    "train": "solve digits --rows 200 --scale max --lam 1e-3 --method train --out OUT",
    "plateau": "plateau digits --rows 40 --scale max --lam 1e-2 --out OUT",
    "plateau interpolate": "plateau iris --rows 100 --shuffle 0 --lam 1e-3 --depth 3 --out OUT",
    "plateau of an identity": "plateau eye.npz --bias 0 --out OUT",
    "validate": "validate digits --rows 60 --scale max --lam 1e-3 --out OUT",
    "validate deep": "validate iris --lam 1e-3 --depth 3 --out OUT",
    "compare": "compare digits --rows 60 --scale max --lam 1e-3 --out OUT",
    "cprank": "cprank matrix.npy --out OUT.npz",
    "large cprank": "cprank large.npy --out OUT.npz",
    "stored cprank": "cprank large.npy --out OUT",
    "sweep": "sweep grid.toml --database OUT.sqlite",
    "sweep of two": "sweep grid.toml --database OUT.sqlite --jobs 2",
}
SHORT = {"forces": "forces run --out OUT.png", "report": "show run --report OUT.html", "verify": "verify run"}
"""Commands on a stored run, `run`, that end by themselves in a moment."""
INPUTS = {"line.npz", "eye.npz", "matrix.npy", "large.npy", "grid.toml", "run"}
SAID = ("covopt: Interrupted",)
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@dataclass(frozen=True)
class Ended:
    """How a process ended that got signals.

    Attributes:
        code: its exit code; negative where a signal killed it.
        cpu_seconds, seconds: from the first signal to the end.
        alive: whether it was still at work when the signal came.
        out, err: what it printed.
        left: names in its directory that are neither inputs nor answers.
        answered: whether its answer is there.
    """

    code: int
    cpu_seconds: float
    seconds: float
    alive: bool
    out: str
    err: str
    left: list[str]
    answered: bool

    @property
    def faults(self) -> list[str]:
        """What must not be."""
        found = [f"left {name}" for name in self.left]
        if self.code not in ((130, 143) if self.alive else (0, 130, 143)):
            found.append(f"exit code {self.code}")
        if self.err.count("\n") > 1 or (self.err and not self.err.startswith(SAID)):
            found.append(f"said {self.err.strip()[-400:]!r}")
        return found


def write_inputs(directory: Path) -> None:
    """The files that COMMANDS read."""
    rng = np.random.default_rng(0)
    x = np.linspace(-2.0, 2.0, 1000)
    np.savez(directory / "line.npz", X=x[:, None], Y=np.column_stack([np.sin(2 * x), np.cos(3 * x)]))
    np.savez(directory / "eye.npz", X=np.eye(12), Y=rng.random((12, 9)))
    for name, n, r in (("matrix.npy", 12, 10), ("large.npy", 30, 28)):
        B = np.maximum(rng.standard_normal((r, n)), 0.0)
        np.save(directory / name, B.T @ B)
    (directory / "grid.toml").write_text(
        'data = "diabetes"\nrows = 60\nlam = [1e-3, 1e-4]\ndepth = [2, 3]\nseed = [0, 1]\n'
    )


def interrupt(
    command: str, directory: Path, after: float, presses: int = 1, number: int = signal.SIGINT, patience: float = 120.0
) -> Ended:
    """Start the command, send the signals once it has worked for `after` CPU seconds, and see what it leaves.

    Args:
        command: a value of COMMANDS; its files lie in `directory`.
        presses: signals, a tenth of a second apart.
        patience: seconds after which it is killed, and fails.
    """
    environment = os.environ | {"PYTHONPATH": str(Path(covopt.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "covopt", *command.replace("OUT", "out").split()]
    # A shell that runs this in the background lets it, and what it starts, ignore Ctrl-C.
    hear = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    process = subprocess.Popen(words, cwd=directory, env=environment, preexec_fn=hear, **PIPES)
    used = _cpu_seconds(process.pid)
    while process.poll() is None and used < after:
        time.sleep(0.005)
        used = max(used, _cpu_seconds(process.pid))
    began, alive = time.perf_counter(), process.poll() is None
    for press in range(presses if alive else 0):
        time.sleep(0.1 if press else 0.0)
        process.send_signal(number)
    try:
        out, err, total = _waited(process, patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Ended(-9, patience, patience, True, "", "it did not end", [], False)
    seconds = time.perf_counter() - began
    answers = {path.name for path in directory.iterdir() if path.name.split(".")[0] == "out"}
    left = sorted(p.name for p in directory.iterdir() if p.name not in INPUTS | answers)
    left += [name for name in answers if not _is_whole(directory / name)]
    return Ended(process.returncode, max(0.0, total - used), seconds, alive, out, err, left, bool(answers))


def _cpu_seconds(process: int) -> float:
    """User and system time of a process so far; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _waited(process: subprocess.Popen[str], patience: float) -> tuple[str, str, float]:
    """What it printed, and its CPU seconds at the end, as far as they could be seen."""
    deadline, total = time.perf_counter() + patience, 0.0
    while True:
        total = max(total, _cpu_seconds(process.pid))
        try:
            out, err = process.communicate(timeout=0.02)
            return out, err, total
        except subprocess.TimeoutExpired:
            if time.perf_counter() > deadline:
                raise


def _is_whole(path: Path) -> bool:
    """Whether a file or directory that an answer consists of can be read."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return all(archive[name].size >= 0 for name in archive.files)  # reads all of it
    if path.suffix == ".html":
        return path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    if path.suffix == ".png":
        return path.read_bytes().endswith(b"IEND\xaeB`\x82")
    if path.suffix != "":
        return True  # SQLite's own: tests/sweeping.py
    find(path)
    arrays, pictures = path.rglob("*.npz"), [path / name for name in record.PICTURES if (path / name).exists()]
    return all(_is_whole(file) for file in [*arrays, *pictures])


def started(words: list[str], processes: int) -> list[subprocess.Popen[str]]:
    """A program in so many processes, with one thread each, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = os.environ | {"TORCHELASTIC_RUN_ID": "covopt", "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
    known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command, here = [sys.executable, "-m", *words], Path(__file__).parents[1]
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    return [subprocess.Popen(command, env=known | rank, cwd=here, **PIPES) for rank in ranks]


def has_joined(process: subprocess.Popen[str]) -> bool:
    """Whether it is in its group; the threads of a group's work begin then, those of its connections before. Linux."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/comm")
    return any("gloo_runloop" in thread.read_text() for thread in threads)
