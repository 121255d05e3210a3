"""The only loop: a solver supplies init, step and finished.

Budget, status and progress are defined here. `run` stops when the solver says so, when the budget is spent, or on
Ctrl-C, and returns the last state; it judges none: the solver evaluates its answer from that state.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Generic, Protocol, TypeVar, runtime_checkable

from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.interrupts import gently, interrupted, remember


class Status(enum.StrEnum):
    """The reason why a solve ended.

    * unsolved: nothing yet, or no network was found.
    * optimal: the proved gap is within the target.
    * converged: the search finds no improvement, which is no proof.
    * tolerance: the last rounds each gained less than `tol`, and the search ended before a round gained nothing.
    * memory_limit: training on random batches ended, and the memory was too small for rounds on all samples.
    * time_limit, iteration_limit: a limit; the best network so far.
    * interrupted: Ctrl-C; the best network so far.
    """

    UNSOLVED = "unsolved"
    OPTIMAL = "optimal"
    CONVERGED = "converged"
    TOLERANCE = "tolerance"
    MEMORY_LIMIT = "memory_limit"
    TIME_LIMIT = "time_limit"
    ITERATION_LIMIT = "iteration_limit"
    INTERRUPTED = "interrupted"


class Certificate(enum.StrEnum):
    """The kind of proof of the lower bound.

    * exact: the maximum of h over all directions itself.
    * branch-and-bound: a bound on that maximum from a tree over cones of directions.
    * relaxation: a bound on it from the doubly non-negative relaxation.
    * sign-branching: a bound on it from that relaxation with a tree over the signs of samples.
    * groups: a bound on it from that relaxation, with multipliers that groups of samples share.
    * laplacian: edges between samples, for every network of its depth.
    * one-input: two numbers of a network of three layers with one input and without biases.
    * shares: a tree over the shares of hidden neurons, for every ReLU network of three layers on a few samples.
    * paths: the path norm, for every ReLU network of three layers on some samples with one or two outputs.
    * convexity: multipliers of one sign, for every ReLU network of its depth.
    * angle: the angle between two samples, for exact fits without biases.
    * loop: winding numbers of a loop of samples, for exact fits.
    * linear: the singular values of the smallest linear map, for exact fits by linear networks.
    * spectral: singular values, for every network of every depth.
    * none: there is no bound.
    """

    EXACT = "exact"
    BRANCH_AND_BOUND = "branch-and-bound"
    RELAXATION = "relaxation"
    SIGN_BRANCHING = "sign-branching"
    GROUPS = "groups"
    LAPLACIAN = "laplacian"
    ONE_INPUT = "one-input"
    SHARES = "shares"
    PATHS = "paths"
    CONVEXITY = "convexity"
    ANGLE = "angle"
    LOOP = "loop"
    LINEAR = "linear"
    SPECTRAL = "spectral"
    NONE = "none"


@dataclass(frozen=True)
class Progress:
    """One line of a run's history: the best network so far and the best proved bound so far.

    >>> seen = []
    >>> result = covopt.solve([[0.0], [1.0]], [0.0, 1.0], lam=0.1, callback=seen.append)
    >>> bool(seen[-1].lower <= seen[-1].cost)
    True

    Attributes:
        iteration: the round; seconds: since the start.
        cost: of the best network so far; width: its widest hidden layer.
        lower: the best proved bound so far, or None.
        phase: what the solver does next, in a few words; not stored.
        gaps: of the problem of each hidden layer, relative to the cost, by the method frank-wolfe; else empty.
    """

    iteration: int
    seconds: float
    cost: float
    lower: float | None
    width: int
    phase: str = field(default="", compare=False)
    gaps: tuple[float, ...] = ()


Callback = Callable[[Progress], None]
Stop = Callable[[], bool]  # called before each step of a search, which ends once it is true
OnIncumbent = Callable[[float, int], None]
"""Takes the cost and the widest hidden layer of each new best network within an iteration."""


def ignore_incumbent(cost: float, width: int) -> None:
    """Report nothing."""


class Timing:
    """The seconds that each phase of a solve took, without those of the phases within it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._within: list[float] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of this block for phase `name`, less that of phases inside it."""
        started = time.perf_counter()
        self._within.append(0.0)
        try:
            yield
        finally:
            took, nested = time.perf_counter() - started, self._within.pop()
            self.seconds[name] = self.seconds.get(name, 0.0) + took - nested
            if self._within:
                self._within[-1] += took


def _own(number: float) -> float:
    """Return the number: a single process agrees with itself."""
    return number


T = TypeVar("T")


@dataclass
class Budget:
    """Wall-clock seconds and iterations of a solve; the clock starts when the budget is made.

    After Ctrl-C no time remains, so loops that check their budget end soon. A budget made from another one by
    `dataclasses.replace` shares its timing.

    Processes that solve together must end together: `agreed` then returns the maximum of a number over all of them, so
    that the fastest clock counts, and a Ctrl-C in any process.
    """

    time_limit: float = 300.0
    max_iterations: int = 100_000
    started: float = field(default_factory=lambda: time.perf_counter())
    agreed: Callable[[float], float] = _own
    timing: Timing = field(default_factory=Timing, compare=False, repr=False)

    @property
    def alone(self) -> bool:
        """Return True if no other process has to agree on the time."""
        return self.agreed is _own

    def part(self, share: float) -> Budget:
        """Return a budget that ends at this share of the time limit."""
        return replace(self, time_limit=share * self.time_limit)

    def turns(self, items: Sequence[T], least: float = 0.0) -> Iterator[tuple[T, Budget]]:
        """Yield each item with a budget: an equal part of the time that is left when its turn comes.

        Each gets at least the part `least` of the time limit, so that the last ones may get none.
        """
        for done, item in enumerate(items):
            part = max(self.remaining() / (len(items) - done), least * self.time_limit)
            yield item, replace(self, time_limit=min(self.time_limit, self.seconds() + part))

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count the time of a block for phase `name`."""
        return self.timing.phase(name)

    def seconds(self) -> float:
        """Return the seconds since the budget was made."""
        return self.agreed(time.perf_counter() - self.started)

    def interrupted(self) -> bool:
        """Return True if Ctrl-C came."""
        return self.agreed(float(interrupted())) > 0.0

    def remaining(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self.time_limit - self._used())

    def spent(self) -> bool:
        """Return True if the time limit is reached, or Ctrl-C came."""
        return self._used() >= self.time_limit

    def overdue(self) -> bool:
        """Return True 1 % after the time limit, when tidying up the result has to end too."""
        return self.seconds() > 1.01 * self.time_limit

    def rest(self, share: float) -> Budget:
        """Return a budget that ends at this share of the time that is left."""
        return replace(self, time_limit=self.seconds() + share * self.remaining())

    def after(self, rounds: int) -> Budget:
        """Return a budget with the iterations that remain after `rounds`."""
        return replace(self, max_iterations=max(0, self.max_iterations - rounds))

    def pace(self) -> Stop:
        """Return a `spent` for one loop, True also when one more turn may end after the time limit."""
        last_look, turn = math.inf, 0.0

        def ends() -> bool:
            nonlocal last_look, turn
            now = self._used()
            if now == math.inf:
                return True
            last_look, turn = now, max(now - last_look, 0.9 * turn)  # after a long turn, the estimate shrinks slowly
            return now + turn >= self.time_limit

        return ends

    def _used(self) -> float:
        """Return the seconds since the budget was made; infinity once Ctrl-C came."""
        return self.agreed(math.inf if interrupted() else time.perf_counter() - self.started)


def check_time_limit(limit: object) -> float:
    """Return a time limit as a float; raise a ProblemError unless it is above 0."""
    if isinstance(limit, bool) or not isinstance(limit, Real) or not float(limit) > 0.0:
        raise ProblemError(f"The time limit is {shown(limit)}; give seconds above 0, or inf for no limit.")
    return float(limit)


Whole = int | Integral  # a whole number, including NumPy's
Seed = Whole  # a seed that `check_seed` accepts


def check_seed(seed: object) -> int:
    """Return a seed for PyTorch's generators; raise a ProblemError unless it is a whole number that they take."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise ProblemError(f"The seed is {shown(seed)}; give a whole number from 0 to 2^63 - 1.")
    return int(seed)


def past(deadline: float) -> bool:
    """Return True if time.perf_counter() has reached the deadline, or after Ctrl-C."""
    return interrupted() or time.perf_counter() >= deadline


def leavable(work: Callable[[], T], deadline: float) -> T | None:
    """Return the result of a library's solver that cannot be stopped, or None if it is abandoned.

    The solver runs in a thread of its own. It is abandoned, to end by its own time limit, half a second after
    `deadline` (of time.perf_counter()) or on Ctrl-C.
    """
    answers: list[T] = []
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            answers.append(work())
        except Exception as error:  # raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    while thread.is_alive() and not past(deadline + 0.5):
        thread.join(timeout=0.02)
    if errors:
        raise errors[0]
    return answers[0] if answers else None


State = TypeVar("State")


@runtime_checkable
class Iteration(Protocol[State]):
    """The parts of a solver that `run` needs."""

    def init(self, budget: Budget) -> State:
        """Return the state before the first step."""
        ...

    def step(self, state: State, budget: Budget) -> State:
        """Take one iteration; the budget may cut it short, but the returned state is always valid."""
        ...

    def finished(self, state: State) -> Status | None:
        """Return `OPTIMAL` or `CONVERGED` when there is nothing more to do, else None."""
        ...

    def progress(self, state: State, iteration: int, seconds: float) -> Progress:
        """Return the line of history for this state."""
        ...


@runtime_checkable
class ReportsIncumbents(Protocol):
    """A solver that reports better networks within an iteration by calling `on_incumbent`."""

    on_incumbent: OnIncumbent


@dataclass
class Outcome(Generic[State]):
    """The last state of a run, why it ended, and its history."""

    state: State
    status: Status
    history: list[Progress]


ROUNDING = 1e-12
"""A cost that rises by no more than this, relative, is that of the same network, summed in another order."""
After = Callable[[State, list[Progress], bool], None]
"""Takes each state, the history up to it, and True for the last one."""


@gently()
def run(
    iteration: Iteration[State],
    budget: Budget,
    callback: Callback | None = None,
    resume: Outcome[State] | None = None,
    after: After[State] | None = None,
) -> Outcome[State]:
    """Iterate until finished, out of budget, or interrupted by Ctrl-C.

    Return the last complete state. With `resume`, continue from the end of an earlier run and extend its history.
    """
    state = iteration.init(budget) if resume is None else resume.state
    history: list[Progress] = [] if resume is None else list(resume.history)
    status, under_way = Status.ITERATION_LIMIT, history[-1].iteration + 1 if history else 0

    def add(line: Progress) -> None:
        if history and history[-1].cost < line.cost <= (1.0 + ROUNDING) * history[-1].cost:
            line = replace(line, cost=history[-1].cost, width=history[-1].width)
        history.append(line)
        if callback is not None:
            callback(line)

    def on_incumbent(cost: float, width: int) -> None:
        nonlocal callback
        if history and cost < history[-1].cost:
            try:
                add(replace(history[-1], iteration=under_way, seconds=budget.seconds(), cost=cost, width=width))
            except KeyboardInterrupt:  # from a callback: the step under way ends soon
                if not remember():
                    raise
                callback = None

    if isinstance(iteration, ReportsIncumbents):
        iteration.on_incumbent = on_incumbent
    try:
        if resume is not None:
            state = iteration.step(state, budget)
        for count in range(budget.max_iterations + 1):
            add(iteration.progress(state, under_way, budget.seconds()))
            under_way += 1
            ended = _ended(iteration.finished(state), budget)
            if after is not None:
                after(state, history, ended is not None or count == budget.max_iterations)
            if ended is not None:
                status = ended
                break
            if count < budget.max_iterations:
                state = iteration.step(state, budget)
    except KeyboardInterrupt:  # from a callback; Ctrl-C itself only uses up the budget
        if not remember():
            raise
        status = Status.INTERRUPTED
    return Outcome(state, status, history)


def _ended(finished: Status | None, budget: Budget) -> Status | None:
    """Return why the run ends, or None; a search that was cut short has not converged."""
    if finished is Status.OPTIMAL:
        return finished
    if budget.interrupted():
        return Status.INTERRUPTED
    return Status.TIME_LIMIT if budget.spent() else finished
