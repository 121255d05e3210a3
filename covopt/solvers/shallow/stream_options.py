"""When two-layer networks are trained on batches, and the settings of that training (stream.py)."""

from __future__ import annotations

from dataclasses import dataclass

from covopt.model.problem import Problem
from covopt.oracles.exact import problem_has_exact_oracle
from covopt.solvers.shallow.starts import first_neurons

FEWEST_BATCHES = 8  # of the samples, fewer than which are no reason for batches
RATE_OF_TURNS = 1e10  # multiplications in a second of a descent's turns, and of products, on one core of a CPU, roughly


@dataclass(frozen=True)
class StreamOptions:
    """When data are streamed, and how."""

    entries: int = 2**22  # data are streamed above this number of entries of Xt
    # They are streamed as well where 40 turns of a descent would take longer than these seconds. 5,000 rows of 30
    # inputs (3.9 s) cost 0.0155 after 1.5 s, and 0.0196 by rounds; 3,000 rows (1.5 s) cost less by rounds.
    soon: float = 2.0
    neurons: int = 500  # maximum number of neurons of the network
    fewer_neurons: int = 400  # the same for fewer data, where the first steps see all directions
    narrow: int = 120  # number of neurons at first for fewer data (docs/notes/2026-11-many-samples.md)
    batch: int = 256  # samples of a step; of each part, where rows are spread
    first: int = 1  # passes over the samples before their loss is evaluated first
    directions: int = 64  # the first steps see this number of directions of the inputs, where these are few enough


def suits_streaming(problem: Problem, seconds: float, options: StreamOptions | None = None) -> bool:
    """Return True if rounds on all samples would take long to show a good network; never for `interpolate`.

    Where an oracle is exact, rounds have no descent and are short.
    """
    if not (problem.can_be_split and problem.fits_single):
        return False
    options = options or StreamOptions()
    many = problem.samples >= FEWEST_BATCHES * options.batch
    long = many and descent_is_long(problem, first_neurons(problem), min(seconds, options.soon))
    return has_large_inputs(problem, options) or (long and not problem_has_exact_oracle(problem))


def has_large_inputs(problem: Problem, options: StreamOptions) -> bool:
    """Return True if the inputs are so many that they are streamed whatever the time."""
    return problem.samples * (problem.X.shape[1] + 1) > options.entries


def descent_is_long(problem: Problem, neurons: int, seconds: float) -> bool:
    """Return True if 40 turns of a round's descent, fewer than which are not worth beginning, take longer on CPUs."""
    rows_each = problem.samples / problem.spread.processes
    turns = 40.0 * rows_each * neurons * (0.5 * neurons + 2.0 * (problem.X.shape[1] + 1))
    return not problem.X.is_cuda and turns > RATE_OF_TURNS * seconds


def products_are_long(problem: Problem, seconds: float) -> bool:
    """Return True if the inputs' products, for a spectrum or linear map, take longer on CPUs."""
    rows_each, d = problem.samples / problem.spread.processes, problem.X.shape[1]
    return not problem.X.is_cuda and rows_each * d * min(rows_each, d) > RATE_OF_TURNS * seconds
