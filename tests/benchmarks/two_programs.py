"""Two programs, or threads, that write one directory, and killed ones: no run is lost, and no draft is left."""

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import covopt
from tests.benchmarks.harness import Outcome, Settings, benchmark
from tests.benchmarks.machine import ROOT

PAIRS, KILLED, THREADS = 20, 5, 10
X = np.linspace(-1.0, 1.0, 6)[:, None]
KEPT = re.compile(r"this run is in (.+)\.$")
HANGS = """
import sys, time, covopt
wait = {"figure.png": lambda path: (path.write_bytes(b""), time.sleep(600.0))}
covopt.solve([[1.0], [2.0]], [[1.0], [0.3]], lam=0.1, time_limit=2.0).save(sys.argv[1], others=wait)
"""
"""A program that has written most of its run, and hangs."""


@benchmark("two-programs", "one --out for two programs, 20 times, and killed ones (5 min)")
def run_two_programs(settings: Settings) -> Outcome:
    """Count what was lost, and what was left, of each kind."""
    share = 4 if settings.quick else 1
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        for seed, slope in enumerate((1.0, 3.0)):
            np.savez(here / f"{seed}.npz", X=X, Y=slope * np.abs(X))
        pairs = [_pair(here, number) for number in range(PAIRS // share)]
        threads = [_threads(here, number) for number in range(THREADS // share)]
        left = [_killed(here, number) for number in range(KILLED)]
    rows = [
        ("two programs: runs kept", len(pairs), sum(pair.count("kept") for pair in pairs)),
        ("two programs: refused at their start", len(pairs), sum(pair.count("refused") for pair in pairs)),
        ("two programs: runs lost", len(pairs), sum(pair.count("lost") for pair in pairs)),
        ("two threads: runs lost", len(threads), sum(pair.count("lost") for pair in threads)),
        ("killed programs: drafts left after the next run", len(left), sum(left)),
    ]
    lost, drafts = rows[2][2] + rows[3][2], rows[4][2]
    return Outcome(
        target="0 lost runs of two programs with one --out, 20 times, and of two threads; 0 drafts of killed programs",
        reached=f"{rows[2][2]} lost in {len(pairs)} pairs of programs, {rows[3][2]} in {len(threads)} pairs of threads;"
        f" {drafts} drafts left of {len(left)} killed programs",
        met=lost == 0 and drafts == 0 and len(pairs) >= 20,
        columns=("what", "times", "number"),
        rows=list(rows),
    )


def _pair(here: Path, number: int) -> list[str]:
    """What became of the runs of two programs that start together."""
    out = here / f"pair{number}"
    command = [sys.executable, "-m", "covopt", "solve"]
    options = ["--lam", "0.01", "--time-limit", "1", "--out", str(out)]
    both = [
        subprocess.Popen([*command, str(here / f"{seed}.npz"), *options], cwd=ROOT, stderr=subprocess.PIPE,
                         stdout=subprocess.DEVNULL, text=True)
        for seed in (0, 1)
    ]  # fmt: skip
    said = [program.communicate()[1] for program in both]
    return [_fate(out, seed, both[seed].returncode == 0, said[seed]) for seed in (0, 1)]


def _fate(out: Path, seed: int, done: bool, said: str) -> str:
    """kept where it was told; refused before it began; or lost."""
    kept = KEPT.search(" ".join(said.split()))
    if not done and kept is None:
        return "refused" if "exists already" in said else "lost"
    place = out if kept is None else Path(kept[1])
    return "kept" if place.is_dir() and covopt.verify(place).passed and _is_of(place, seed) else "lost"


def _is_of(place: Path, seed: int) -> bool:
    return bool(np.array_equal(covopt.load(place).problem.Y.numpy(), (1.0, 3.0)[seed] * np.abs(X)))


def _threads(here: Path, number: int) -> list[str]:
    """What became of the runs of two threads that save together."""
    out, said, done = here / f"threads{number}", ["", ""], [False, False]
    answers = [covopt.solve(X, slope * np.abs(X), lam=0.01, time_limit=1.0) for slope in (1.0, 3.0)]
    begin = threading.Barrier(2)

    def save(seed: int) -> None:
        begin.wait()
        try:
            answers[seed].save(out, others={"figure.png": lambda path: path.write_bytes(b"")})
            done[seed] = True
        except covopt.RecordError as error:
            said[seed] = str(error)

    both = [threading.Thread(target=save, args=(seed,)) for seed in (0, 1)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    return [_fate(out, seed, done[seed], said[seed]) for seed in (0, 1)]


def _killed(here: Path, number: int) -> int:
    """How many drafts are left of a program that was killed while it wrote, once another has written its run."""
    out = here / f"killed{number}"
    program = subprocess.Popen([sys.executable, "-c", HANGS, str(out)], cwd=ROOT)
    while not any(here.glob(f".{out.name}.*/figure.png")):
        time.sleep(0.05)
    program.send_signal(signal.SIGKILL)
    program.wait()
    covopt.solve(X, np.abs(X), lam=0.01, time_limit=1.0).save(out)
    return len(list(here.glob(f".{out.name}.*")))
