"""The memory that a solve will need, and what it goes without to stay within a limit.

need = what the process holds when the problem is put + the libraries that it loads later + the most that a phase
takes. The phases follow one another, and each is an expression in N (the rows of this process), d, m, the widths, and
how many networks or directions are worked on together. How many arrays there are in each was counted in the code and
fitted to peaks that processes of their own reached (docs/notes/2026-11-memory.md). Where the time sufficed for all
phases, the need was between 0.9 and 1.7 times the peak; where it did not, it is more.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from covopt.certify.spectral import PAIRS as PAIRED
from covopt.model.loss import LOSSES
from covopt.model.problem import Problem
from covopt.model.spread import ALONE, rank_here
from covopt.model.units import unit_of_inputs
from covopt.oracles.exact import MOST_CIRCLES, inputs_have_rank_at_most, problem_has_exact_oracle
from covopt.runtime import memory
from covopt.runtime.errors import CovoptWarning, ProblemError
from covopt.solvers.attempt import DRAWS_TOGETHER, SolveOptions, check_memory_limit
from covopt.solvers.deep.exploration import Exploration, usual_width
from covopt.solvers.deep.representations import POOL
from covopt.solvers.deep.solver import BATCHES, ELITE, DeepOptions
from covopt.solvers.deep.stream import SHARE as DRAWN_SHARE
from covopt.solvers.deep.stream import few_count, suits_few_samples
from covopt.solvers.penalised import DRAWS, TRAININGS
from covopt.solvers.shallow.alternation import prover_for
from covopt.solvers.shallow.solver import EFFORTS, ShallowSolver
from covopt.solvers.shallow.starts import first_neurons
from covopt.solvers.shallow.stream import FEWEST_BATCHES, StreamOptions, descent_is_long, suits_streaming
from covopt.solvers.training.trainer import default_width, fitting

LOG = logging.getLogger("covopt")
"""Hears, at the level INFO, what a solve will need."""

LOADED = 40e6
"""Of libraries that a solve loads, and the small things."""
DOUBLE, SINGLE, GIGABYTE = 8.0, 4.0, 1e9
PAIRS = 2 * 20
"""Arrays of the parameters that L-BFGS remembers."""
STARTS = max(effort.starts for effort in EFFORTS)


@dataclass(frozen=True)
class Need:
    """Bytes of memory.

    Attributes:
        data: of inputs and targets.
        held: by the process before the solve, the data included.
        phases: what each phase takes besides, at most; they follow one another.
    """

    data: float
    held: float
    phases: Mapping[str, float]

    @property
    def total(self) -> float:
        """The peak."""
        return self.held + LOADED + self.phases[self.largest]

    @property
    def largest(self) -> str:
        """The phase that takes the most."""
        return max(self.phases, key=lambda name: self.phases[name])


def estimate(problem: Problem, options: SolveOptions) -> Need:
    """Estimate the memory that a solve will need.

    Args:
        problem: in float64.
        options: how it is solved.
    """
    data = DOUBLE * (problem.X.numel() + problem.Y.numel())
    if options.method == "train":
        phases = _training(problem, options)
    elif options.method == "hidden":
        phases = {"descents": 4 * DOUBLE * POOL * len(problem.X) ** 2}
    else:
        phases = _shallow(problem, options) if problem.depth == 2 else _deep(problem, options)
    if options.certify != "none":
        (N, d), pairs = problem.X.shape, min(len(problem.X), PAIRED) ** 2
        spectral = 1.7 * DOUBLE * N * (d + 1) + 7 * DOUBLE * pairs  # singular values of X, distances of rows
        phases |= {"proof": max(phases.get("proof", 0.0), spectral)}
    largest = problem.spread.largest  # all processes have to decide alike
    return Need(data, largest(memory.held(problem.X.device)), {name: largest(size) for name, size in phases.items()})


def _shallow(problem: Problem, options: SolveOptions) -> dict[str, float]:
    """Cycles on random batches, rounds, or both; the proof that takes turns with the rounds."""
    seconds, alone = options.budget.time_limit, options.thrift.batches_alone
    streams = alone or (options.init is None and suits_streaming(problem, seconds) and not problem.free)
    if not streams:
        return _rounds(problem, options)
    N, d = problem.X.shape
    rows = 2048  # of which the features of a network that was trained on batches are held
    chunks = 8 * DOUBLE * min(N, rows) * StreamOptions().neurons
    rough = SINGLE * N * (d + 1)
    phases = {"batches": _in_units(problem) + rough + 10 * DOUBLE * problem.Y.numel() + chunks}
    if alone or descent_is_long(problem, StreamOptions().neurons, seconds):
        return phases
    return phases | _rounds(problem, options)


def _rounds(problem: Problem, options: SolveOptions) -> dict[str, float]:
    """Return the needs of the search, of the descent or master before it, and of the proof."""
    (N, d), m = problem.X.shape, problem.Y.shape[1]
    copies = _in_units(problem) + 3.5 * DOUBLE * N * (d + 1)
    proving = options.certify != "none"
    if problem.activation.is_linear or (proving and problem_has_exact_oracle(problem)):
        return {"proof": copies + _exact(problem)}
    n, least_squares = first_neurons(problem), problem.loss.name in ("mse", "interpolate")
    features, more = DOUBLE * N * n, n + ShallowSolver.new_atoms
    base = copies + PAIRS * DOUBLE * n * (min(problem.samples, d + 1) + m)
    # Losses other than least squares have their outputs finished by Newton's method, for which features are scaled.
    passed, held = (6, 2) if least_squares else (16, 10)
    entries = max(N, min(options.thrift.entries, (STARTS + n) * N))
    phases = {
        "search": base + held * features + 16 * DOUBLE * entries,  # arrays (starts, N)
        "rounds": base + max(passed * features, DOUBLE * (4 * N * more + 6 * more * more)),
    }
    if options.certify in ("auto", "full"):
        prover = prover_for(problem, options.certify)
        phases["proof"] = copies + (0.0 if prover is None else prover.memory(problem))
    return phases


def _exact(problem: Problem) -> float:
    """Return the bytes for arc sums on a circle, or for the crossings of any two circles."""
    N, m = problem.X.shape[0], problem.Y.shape[1]
    if N > MOST_CIRCLES or problem.activation.is_linear or inputs_have_rank_at_most(problem, 2):
        return 400.0 * N * m
    return min(2000.0 * N * N, 250e6) + 620.0 * N * N


def _deep(problem: Problem, options: SolveOptions) -> dict[str, float]:
    """Return the needs of many starts in float32, some of them in float64, and blocks."""
    (N, d), m, seconds = problem.X.shape, problem.Y.shape[1], options.budget.time_limit
    effort = DeepOptions(starts=options.starts or DRAWS, batch=options.thrift.draws)
    few = problem.spread is not ALONE or (options.init is None and suits_few_samples(problem, seconds, DRAWS_TOGETHER))
    rows = few_count(problem, DRAWN_SHARE * seconds, DRAWS_TOGETHER) if few else N
    width = usual_width(rows, m)
    neurons = (problem.depth - 1) * 2 * min(width, options.max_width or width)
    copies = _in_units(problem) + 3.5 * DOUBLE * N * (d + 1)
    exploration = Exploration()
    draws, part = min(effort.batch, effort.starts), replace(problem, X=problem.X[:rows], Y=problem.Y[:rows])
    trained = exploration.count(replace(part, spread=ALONE), seconds, BATCHES * effort.batch)
    elite = exploration.elite if trained else ELITE
    phases = {
        "draws": copies + max(9 * draws, 4 * trained) * SINGLE * neurons * rows,
        "networks": copies + 6 * DOUBLE * neurons * max(elite * rows, N * (1 if few else 3)),
    }
    block = replace(part, depth=2, loss=LOSSES["mse"])
    return phases | {"blocks": copies + max(_rounds(block, replace(options, certify="none")).values())}


def _training(problem: Problem, options: SolveOptions) -> dict[str, float]:
    """Return the bytes of activations forward and back, and of L-BFGS's memory of parameters."""
    (N, d), starts = problem.X.shape, options.starts or TRAININGS
    width = options.width or default_width(problem, starts, options.budget.time_limit)
    starts = min(starts, fitting(problem, [width] * (problem.depth - 1), options.budget))
    parameters = sum(n * k for n, k in problem.shapes([width] * (problem.depth - 1)))
    activations = 3 * N * width * (problem.depth - 1)
    copies = _in_units(problem) + 2 * DOUBLE * N * (d + 1)
    return {"training": copies + DOUBLE * starts * (activations + (PAIRS + 8) * parameters)}


def _in_units(problem: Problem) -> float:
    """Return the bytes of the copy of the inputs in the solver's units, if it needs one."""
    return DOUBLE * problem.X.numel() if unit_of_inputs(problem) != 1.0 else 0.0


# ---- to stay within a limit


def planned(problem: Problem, options: SolveOptions) -> SolveOptions:
    """Return options with which a solve stays within its memory limit; report its need.

    Args:
        problem: in float64.
        options: how it is to be solved.

    Raises:
        ProblemError: it needs more than the limit, whatever it goes without.

    Warns:
        CovoptWarning: it goes without something, or the machine has less memory than it needs.
    """
    need, limit, changes = estimate(problem, options), options.memory_limit, list[str]()
    while limit is not None and need.total > GIGABYTE * limit:
        thriftier = next(filter(None, (change(problem, options) for change in CHANGES.get(need.largest, ()))), None)
        if thriftier is None:
            raise _refused(need, limit, _spreads(problem, options.method))
        options, words = thriftier
        changes += [words] if words not in changes else []
        need = estimate(problem, options)
    if rank_here() == 0:
        _tell(need, problem, options, changes)
    return options


def check_data(X: object, Y: object, limit: float | None) -> None:
    """Raise a ProblemError if not even the data, before their copy, fit into the memory limit."""
    check_memory_limit(limit)
    if limit is None:
        return
    data = DOUBLE * sum(math.prod(values.shape) for values in (X, Y) if isinstance(values, (np.ndarray, torch.Tensor)))
    need = Need(data, memory.held(torch.device("cpu")) + data, {"data": 0.0})
    if need.total > GIGABYTE * limit:
        raise _refused(need, limit, spreads=True)


def _refused(need: Need, limit: float, spreads: bool) -> ProblemError:
    """Return the error for a solve that does not fit into memory."""
    message = f"The solve needs at least about {_shown(need.total)} of memory, and the limit is {limit:g} GB"
    without = need.held - need.data + LOADED
    if without > GIGABYTE * limit:
        return ProblemError(f"{message}, less than the {_shown(without)} of the process without data; raise the limit.")
    return ProblemError(f"{message}; {', '.join(_remedies(need, spreads))}, or raise the limit.")


def _remedies(need: Need, spreads: bool) -> list[str]:
    """Return what a user can do if a phase needs too much; `spreads`: samples can be sharded."""
    sharding = ["spread them over more processes"] if spreads else []
    return ["take fewer rows", *sharding, *REMEDIES.get(need.largest, [])]


def _spreads(problem: Problem, method: str) -> bool:
    """Return True if processes that each hold some samples can solve it, without a bound."""
    return method == "cone" and problem.can_be_split and problem.weight is None


def _tell(need: Need, problem: Problem, options: SolveOptions, changes: list[str]) -> None:
    """Log what a solve will need; warn of changed options and of too little memory."""
    who = "The solve" if problem.spread is ALONE else "Each process"
    needs = f"{who} will need about {_shown(need.total)} of memory"
    LOG.info("%s (%s of it the data).", needs, _shown(need.data))
    if changes:
        within = f"To stay within {options.memory_limit:g} GB of memory"
        warnings.warn(f"{within}, the solve {' and '.join(changes)}.", CovoptWarning, stacklevel=2)
    room = memory.available(problem.X.device)
    if room is not None and need.total - need.held > room:
        place = "GPU" if problem.X.is_cuda else "machine"
        message = f"{needs}, {_shown(need.held)} of it are taken, and the {place} has {_shown(room)} left"
        remedies = ", ".join(_remedies(need, _spreads(problem, options.method)))
        warnings.warn(f"{message}; {remedies}, or set a memory limit.", CovoptWarning, stacklevel=2)


def _shown(size: float) -> str:
    """Bytes as GB."""
    gigabytes = size / GIGABYTE
    return "less than 0.1 GB" if gigabytes < 0.05 else f"{gigabytes:.{1 if gigabytes < 9.95 else 0}f} GB"


Thriftier = tuple[SolveOptions, str] | None
"""Options with which a phase takes less memory, and what the solve does then; None where that is not possible."""


def _fewer_starts(problem: Problem, options: SolveOptions) -> Thriftier:
    thrift, rows = options.thrift, int(problem.spread.largest(len(problem.X)))
    entries = min(thrift.entries, (STARTS + first_neurons(problem)) * rows) // 2
    if entries < max(2**18, rows):
        return None
    return replace(options, thrift=replace(thrift, entries=entries)), "searches from fewer starts at a time"


def _batches_alone(problem: Problem, options: SolveOptions) -> Thriftier:
    suits = problem.samples >= FEWEST_BATCHES * StreamOptions().batch and problem.can_be_split
    begun = options.init is not None or (options.checkpoint is not None and options.checkpoint.saved is not None)
    if not suits or begun or options.thrift.batches_alone:
        return None
    thrift = replace(options.thrift, batches_alone=True)
    return replace(options, thrift=thrift), "trains on random batches alone, without rounds on all samples"


def _less_proof(problem: Problem, options: SolveOptions) -> Thriftier:
    if options.certify == "none":
        return None
    fast = replace(options, certify="fast")
    if estimate(problem, fast).phases["proof"] < estimate(problem, options).phases["proof"]:
        return fast, "proves no more than the data tell (certify fast)"
    return replace(options, certify="none"), "proves nothing (certify none)"


def _fewer_draws(problem: Problem, options: SolveOptions) -> Thriftier:
    draws = min(options.thrift.draws, options.starts or DRAWS) // 2
    if not draws:
        return None
    return replace(options, thrift=replace(options.thrift, draws=draws)), "explores fewer networks at a time"


CHANGES: dict[str, tuple[Callable[[Problem, SolveOptions], Thriftier], ...]] = {
    "search": (_fewer_starts, _batches_alone),
    "rounds": (_batches_alone,),
    "proof": (_less_proof,),
    "draws": (_fewer_draws,),
}
"""What can be done where a phase takes too much, the smallest loss first."""
REMEDIES = {
    **{name: ["set a smaller max_width"] for name in ("draws", "networks", "blocks")},
    "training": ["fewer starts, a smaller width"],
    "descents": ["use the method cone"],
}
"""What a user can do besides, by the phase."""
