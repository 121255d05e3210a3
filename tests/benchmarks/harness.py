"""Runs contenders one after another, each in a process of its own, and judges them by one NumPy function."""

import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from tests.benchmarks import machine
from tests.benchmarks.objective import Array, objective
from tests.benchmarks.works import Work

sys.path.append(str(machine.ROOT / "tests"))  # for what the tests share and benchmarks run at length
RESULTS = Path(__file__).resolve().parent / "results"
KEPT = 60  # points of a history that are stored
_PACKAGES = {name: name for name in ("adelie", "skglm")} | dict.fromkeys(
    ("muon", "soap", "schedule-free"), "optimizers"
)
_OWN = {name: os.environ.get(f"COVOPT_{package.upper()}", sys.executable) for name, package in _PACKAGES.items()}
"""The interpreters that have the packages of these rivals."""
LATE = 1.05  # times the time limit: a run that ends later has not met a target of so many seconds


@dataclass(frozen=True)
class Settings:
    """What the command line asks for.

    Attributes:
        quick: time limits of seconds; shows that everything runs, and measures nothing.
        repeats: runs of each contender, with seeds 0, 1, ...
        threads: of each contender.
        reference: seconds of the longer runs of `growth`; None makes none.
        device: cpu or cuda, for the benchmarks that take either.
        rows: samples of `soon`, `spread` and `audit-many`.
        seconds: a limit on the seconds of each contender; None leaves those of the benchmark.
        number, limits: how many problems of `scales` with each time limit; seed: of the first one, and of
            the first of `rivals-drawn`.
    """

    quick: bool = False
    repeats: int = 1
    threads: int = 1
    reference: float | None = None
    device: str = "cpu"
    rows: int = 60_000
    seconds: float | None = None
    number: tuple[int, ...] = (330, 140, 30)
    seed: int = 0
    limits: tuple[float, ...] = (0.5, 4.0, 30.0)

    @property
    def directory(self) -> Path:
        """Where results go: those of quick runs beside the others, outside version control."""
        kept = RESULTS if self.device == "cpu" else RESULTS / self.device
        return kept / "quick" if self.quick else kept

    def limit(self, seconds: float) -> float:
        """A time limit; short in a quick run, and where the command line asks for less."""
        return min(seconds, 4.0 if self.quick else seconds, seconds if self.seconds is None else self.seconds)


@dataclass
class Run:
    """One run of one contender: its cost by `objective`, its time, and its memory.

    Attributes:
        seconds, cpu_seconds: wall clock and processor time, without imports.
        peak_mib: peak memory of the process, interpreter and torch included.
        lower, certificate, gap: what the contender proved; the gap is taken from our own cost.
        searched_gap: of Frank-Wolfe, the largest of its layers, if its search missed no neuron; no proof.
        history: (seconds, cost) as the contender saw them.
        error: what went wrong; every number is NaN then.
    """

    contender: str
    work: str
    seed: int
    options: dict
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    peak_mib: float = math.nan
    cost: float = math.nan
    fit: float = math.nan
    norm: float = math.nan
    residual: float = math.nan
    width: int | None = None
    lower: float | None = None
    gap: float | None = None
    certificate: str | None = None
    searched_gap: float | None = None
    status: str | None = None
    history: list[tuple[float, float]] = field(default_factory=list)
    error: str | None = None

    def time_to(self, target: float) -> float | None:
        """Seconds until the history first showed a cost of at most `target`."""
        return next((seconds for seconds, cost in self.history if cost <= target), None)

    def stored(self) -> dict:
        """For JSON: nothing infinite or NaN, and a thinned history."""
        finite = [point for point in self.history if math.isfinite(point[1])]
        kept = sorted({round(i) for i in np.linspace(0, len(finite) - 1, min(KEPT, len(finite)))})
        told = vars(self) | {"history": [[round(finite[i][0], 3), finite[i][1]] for i in kept]}
        return {key: _storable(value) for key, value in told.items()}


@dataclass
class Outcome:
    """What a benchmark found.

    Attributes:
        target: what is to be reached, and `reached`: what was, both in words.
        met: whether every run met it; None where that cannot be said.
        columns, rows: the table.
        runs: all that was run.
    """

    target: str
    reached: str
    met: bool | None
    columns: Sequence[str]
    rows: list[Sequence[object]]
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark and what the list says of it."""

    run: Callable[[Settings], Outcome]
    says: str


BENCHMARKS: dict[str, Benchmark] = {}
MODULES = (
    "proofs limits scales spread deep_penalties deep_proofs deep_search teachers hostile copositivity modules mutants"
    " one_input audit sweep cores kernels paths rivals drawn scale gpu costs memory truth signals forgeries"
    " two_programs reformulations estimators"
).split()
"""Where the benchmarks are, in the order of the list."""


def benchmark(name: str, says: str) -> Callable[[Callable[[Settings], Outcome]], Callable[[Settings], Outcome]]:
    """Put the function that follows into the list."""

    def listed(run: Callable[[Settings], Outcome]) -> Callable[[Settings], Outcome]:
        BENCHMARKS[name] = Benchmark(run, says)
        return run

    return listed


def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks by their names."""
    for module in MODULES:
        importlib.import_module(f"tests.benchmarks.{module}")
    return BENCHMARKS


def references(settings: Settings, name: str, better: dict | None = None) -> dict:
    """What earlier runs reached on any device, from NAME-references.json; `better` is stored there first."""
    path = (settings.directory if settings.quick else RESULTS) / f"{name}-references.json"
    if better is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(better, indent=1) + "\n")
    return json.loads(path.read_text()) if path.exists() else {}


def repeated(
    contender: str, work: Work, settings: Settings, seeds: Iterable[int] | None = None, **options: object
) -> list[Run]:
    """Run a contender on the work for each seed, `repeats` times by default, with the options of its own."""
    runs = []
    for n in range(settings.repeats) if seeds is None else seeds:
        runs += _run(contender, work, settings, n, options | {"seed": n})
    return runs


covopt = partial(repeated, "covopt")
"""Run covopt.solve on a work."""


def _run(contender: str, work: Work, settings: Settings, seed: int, options: dict) -> list[Run]:
    limit = float(options.get("time_limit", options.get("seconds", 300.0)))  # type: ignore[arg-type]
    job = {"contender": contender, "question": work.question, "options": options, "threads": settings.threads}
    module, python = "contender", sys.executable
    if contender.startswith("rival-"):
        module, python = "rival", _OWN.get(contender.removeprefix("rival-"), sys.executable)
    slack = 20.0 if options.get("clock") == "processor" else 4.0  # other programs stretch the seconds of the processor
    try:
        answers = spawn(job, work.X, work.Y, slack * limit + 120.0, module, python)
        runs = [judged(Run(contender, work.name, seed, options), work, *answer) for answer in answers]
    except Failed as error:
        runs = [Run(contender, work.name, seed, options, error=str(error))]
    for run in runs:
        shown = f"{run.cost:.8g} in {run.seconds:.1f} s" if run.error is None else run.error
        print(f"  {contender} on {work.name}, seed {seed}: {shown}", file=sys.stderr, flush=True)
    return runs


class Failed(Exception):
    """A contender came to no end; the last line of what it says of it."""


def spawn(
    job: dict, X: Array, Y: Array, patience: float, module: str = "contender", python: str = sys.executable
) -> list[tuple[list[Array], dict]]:
    """Run a job in a process of its own, as tests/benchmarks/job.py has it; its runs: weights, and what is told."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        np.savez(directory / "data.npz", X=X, Y=Y)
        (directory / "job.json").write_text(json.dumps(job))
        try:
            done = subprocess.run(
                [python, "-m", f"tests.benchmarks.{module}", name],
                cwd=machine.ROOT,
                env=os.environ | dict.fromkeys(names, str(job["threads"])),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=patience,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"ended after {patience:.0f} s, far beyond its time limit") from None
        if done.returncode != 0:
            raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        told = json.loads((directory / "run.json").read_text())
        with np.load(directory / "weights.npz") as archive:
            networks = [[archive[name] for name in archive.files if name.startswith(f"{k}_")] for k in range(len(told))]
    return list(zip(networks, told, strict=True))


def judged(run: Run, work: Work, weights: list[Array], told: dict) -> Run:
    """The run with what it tells of itself, what its network costs, and the gap of its bound to that."""
    for key in told.keys() & vars(run).keys():
        setattr(run, key, told[key])
    loss = work.loss or "mse"
    value = objective(work.X, work.Y, weights, lam=work.lam, beta=work.beta, slope=work.slope, loss=loss)
    run.cost, run.fit, run.norm, run.residual = value.cost, value.fit, value.norm, value.residual
    run.gap = None if run.lower is None else (run.cost - run.lower) / run.cost
    return run


def median(values: Iterable[float | None]) -> float | None:
    """The median; None as soon as one value is missing."""
    listed = list(values)
    if not listed or any(value is None or math.isnan(value) for value in listed):
        return None
    return statistics.median(value for value in listed if value is not None)


def worst(values: Iterable[float | None]) -> float:
    """The largest; infinite where one is missing or NaN."""
    return max(math.inf if value is None or math.isnan(value) else value for value in values)


def rounded(value: float | None, digits: int = 2) -> float | None:
    """A measured number, for a table."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


ENDED = ("neurons", "status", "seconds", "peak MiB")


def ended(run: Run) -> tuple[object, ...]:
    """How a run ended, for the columns `ENDED`."""
    return run.width, run.status, rounded(run.seconds), rounded(run.peak_mib, 0)


def write(name: str, outcome: Outcome, settings: Settings, before: dict) -> Path:
    """Store a benchmark's result as JSON.

    Args:
        before: the machine as it was when the benchmark began.
    """
    told = {
        "name": name,
        "target": outcome.target,
        "reached": outcome.reached,
        "met": outcome.met,
        "quick": settings.quick,
        "repeats": settings.repeats,
        "commit": machine.commit(),
        "machine": before,
        "columns": list(outcome.columns),
        "rows": [[_storable(cell) for cell in row] for row in outcome.rows],
        "runs": [run.stored() for run in outcome.runs],
    }
    settings.directory.mkdir(parents=True, exist_ok=True)
    path = settings.directory / f"{name}.json"
    path.write_text(json.dumps(told, indent=1, allow_nan=False) + "\n")
    return path


def _storable(value: object) -> object:
    """JSON knows no NaN and nothing infinite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns of text, numbers short."""
    shown = [list(columns), *([show(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def show(cell: object) -> str:
    """A cell of a table."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if not isinstance(cell, float):
        return str(cell)
    if not math.isfinite(cell):
        return "-"
    return f"{cell:.7g}" if cell == 0.0 or abs(cell) >= 1e-3 else f"{cell:.1e}"
