"""The options of a solve, and the savings by which it stays within a memory limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

from covopt.model.scalars import read_gap, read_tol
from covopt.model.weights import Weights
from covopt.oracles.search import ENTRIES
from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.loop import Budget, Callback, check_seed, check_time_limit
from covopt.solvers.checkpoint import Checkpoint, Saved

METHODS = ("cone", "frank-wolfe", "hidden", "train")
"""Ways to solve: Frank-Wolfe over covariances with descents, and without, descent on representations, ordinary
training."""
CERTIFY = ("none", "fast", "full", "auto")
DRAWS_TOGETHER = 24  # networks of three layers and more that are explored together
WIDEST = 1_000_000  # the maximum width that an option may ask for
_USES = {
    "width": "the methods hidden and train",
    "max_width": "the method cone at depth 3 and more",
    "starts": "the methods hidden and train, and for cone and frank-wolfe at depth 3 and more",
    "tol": "the method cone",
}


@dataclass(frozen=True)
class Thrift:
    """The savings by which a solve stays within a memory limit."""

    entries: int = ENTRIES  # the maximum number of entries of a search's arrays
    batches_alone: bool = False  # two layers are trained on random batches, and there are no rounds on all samples
    draws: int = DRAWS_TOGETHER  # networks of more layers that are explored together, at most


@dataclass(frozen=True)
class SolveOptions:
    """The user's options of a solve, besides the problem."""

    budget: Budget  # the clock
    method: str = "cone"  # cone, frank-wolfe, hidden or train
    certify: str = "auto"  # none, fast, full or auto
    gap: float = 1e-4  # proved relative gap to stop at
    tol: float | None = None  # relative gain of the rounds of `cone` below which they end; None: they continue
    seed: int = 0  # the seed of every random choice
    init: Weights | None = None  # weights to start from
    width: int | None = None  # hidden width of `hidden` and `train`; None lets them choose
    max_width: int | None = None  # the maximum width of hidden layers; the deep solver alone uses it
    starts: int | None = None  # how many; None lets the method choose
    callback: Callback | None = None  # gets a `Progress` after each round
    checkpoint: Checkpoint | None = None  # the file for the state; None: it is not saved
    memory_limit: float | None = None  # the limit for each process, in GB (1e9 bytes); None: no limit
    thrift: Thrift = Thrift()  # the savings that keep a solve within it

    @property
    def saved(self) -> Saved | None:
        """The state of an earlier solve to continue from."""
        return None if self.checkpoint is None else self.checkpoint.saved

    def check(self, depth: int) -> None:
        """Refuse, by a ProblemError, what no solver of networks of this depth could follow or has a use for."""
        limit = self.budget.time_limit
        if self.method not in METHODS:
            raise ProblemError(f"The method '{self.method}' is unknown; use {' or '.join(METHODS)}.")
        if self.certify not in CERTIFY:
            raise ProblemError(f"'{self.certify}' is no level of certification; use {' or '.join(CERTIFY)}.")
        read_gap(self.gap)
        check_time_limit(limit)
        check_seed(self.seed)
        if self.tol is not None:
            read_tol(self.tol)
        check_memory_limit(self.memory_limit)
        for name, most in (("width", WIDEST), ("max_width", WIDEST), ("starts", None)):
            as_count(getattr(self, name), name, most)
        as_count(self.budget.max_iterations, "max_iterations")
        descends, deep, cone = self.method in ("hidden", "train"), depth > 2, self.method == "cone"
        used = {"width": descends, "max_width": deep and cone, "starts": deep or descends, "tol": cone}
        for name, use in _USES.items():
            if getattr(self, name) is not None and not used[name]:
                at = f"The method {self.method} at depth {depth}"
                raise ProblemError(f"{at} has no use for {name}, which is for {use}; leave it out.")


def check_memory_limit(limit: object) -> None:
    """Raise a ProblemError unless it is a number of GB, or None."""
    number = isinstance(limit, (int, float)) and not isinstance(limit, bool) and 0 < limit < math.inf
    if limit is not None and not number:
        raise ProblemError(f"The memory limit is {shown(limit)}; give GB above 0, or leave it out.")


def as_count(count: object, name: str, most: int | None = None) -> int | None:
    """Return a whole number from 1 to `most`, NumPy's among them, or None; a ProblemError refuses others."""
    if count is None:
        return None
    number = int(count) if isinstance(count, Integral) and not isinstance(count, bool) else 0
    if number < 1:
        raise ProblemError(f"{name} is {shown(count)}; give a whole number, at least 1, or leave it out.")
    if most is not None and number > most:
        raise ProblemError(f"{name} is {number}; give at most {most:,}.")
    return number
