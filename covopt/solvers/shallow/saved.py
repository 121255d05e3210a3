"""The state of a two-layer search as numbers and arrays, to save and to resume.

What has a row for each sample is kept for all of them, in their order, so that other processes can share them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.model.spread import Alone
from covopt.oracles.oracle import Answer
from covopt.runtime.loop import After, Budget, Callback, Iteration, Outcome, Progress, Status, run
from covopt.solvers.checkpoint import Checkpoint, Facts, Saved
from covopt.solvers.shallow.master import Mixture
from covopt.solvers.shallow.networks import Network
from covopt.solvers.shallow.rounds import State
from covopt.solvers.shallow.solver import ShallowSolver
from covopt.solvers.shallow.stream import Streamed, StreamSolver

ROWS = "rows_"  # the prefix of the names of arrays with a row for each sample
LINE = ("iteration", "seconds", "cost", "lower", "width")
# Where in a state of the rounds the numbers and arrays are that files hold by these names.
NUMBERS = {name: name for name in ("effort", "stalled", "slow", "smoothing_stage", "misfit")}
NUMBERS |= {"value": "mixture.value", "cost": "best.cost"}
ARRAYS = {name: f"mixture.{name}" for name in ("eta", "outputs", "bias")} | {name: f"best.{name}" for name in "UVb"}
ARRAYS |= {"directions": "directions", "rows_Lambda": "mixture.Lambda"}
ARRAYS |= {"answer": "answer.directions", "values": "answer.values"}


def keeping_rounds(checkpoint: Checkpoint, stage: str, solver: ShallowSolver, budget: Budget) -> After[State]:
    """Return a function that saves the state of the rounds when due, and when they end."""
    spread = solver.problem.spread

    def after(state: State, history: list[Progress], ended: bool) -> None:
        seconds = budget.seconds()
        if ended or checkpoint.due(seconds):
            own, arrays = solver.memory()
            facts = {"solver": own} | {name: attrgetter(place)(state) for name, place in NUMBERS.items()}
            arrays |= {name: attrgetter(place)(state) for name, place in ARRAYS.items()}
            checkpoint.keep(stage, seconds, facts | _lines(history), _arrays(arrays, spread))

    return after


def rounds_from(saved: Saved, solver: ShallowSolver) -> Outcome[State]:
    """Restore the rounds, and the memory of `solver`, from a saved state."""
    with saved.understood():
        facts, arrays = saved.facts, _tensors(saved.arrays, solver.problem.X, solver.problem.spread)
        solver.recall(facts["solver"], arrays)
        mixture = Mixture(arrays["eta"], arrays["outputs"], arrays["bias"], arrays["rows_Lambda"], facts["value"])
        state = State(
            arrays["directions"],
            mixture,
            Answer(arrays["answer"], arrays["values"]),
            Network(arrays["U"], arrays["V"], arrays["b"], facts["cost"]),
            **{name: facts[name] for name in ("effort", "stalled", "slow", "smoothing_stage", "misfit")},
        )
        return Outcome(state, Status.TIME_LIMIT, _history(facts))


def keeping_training(checkpoint: Checkpoint, stage: str, solver: StreamSolver, budget: Budget) -> After[Streamed]:
    """Return a function that saves the state of the training when due, also between evaluations, and at the end."""
    spread, so_far = solver.problem.spread, list[Progress]()

    def keep(state: Streamed, seconds: float) -> None:
        facts, arrays = solver.memory(state)
        checkpoint.keep(stage, seconds, facts | _lines(so_far), _arrays(arrays, spread))

    def after(state: Streamed, history: list[Progress], ended: bool) -> None:
        so_far[:] = history
        seconds = budget.seconds()
        if ended or (not solver.descending and checkpoint.due(seconds)):
            keep(state, seconds)

    def within(state: Callable[[], Streamed]) -> None:
        if checkpoint.due(seconds := budget.seconds()):
            keep(state(), seconds)

    solver.within = within
    return after


def training_from(saved: Saved, solver: StreamSolver) -> Outcome[Streamed]:
    """Restore the training from a saved state."""
    with saved.understood():
        arrays = _tensors(saved.arrays, solver.problem.X, solver.problem.spread)
        return Outcome(solver.recalled(saved.facts, arrays), Status.TIME_LIMIT, _history(saved.facts))


def going_on(
    iteration: Iteration[Any],
    budget: Budget,
    callback: Callback | None,
    saved: Outcome[Any] | None,
    after: After[Any] | None,
) -> Outcome[Any]:
    """Call `run`, from a saved state if there is one, for the rounds that remain in all."""
    if saved is None:
        return run(iteration, budget, callback, after=after)
    done, status = saved.history[-1].iteration, iteration.finished(saved.state)
    if status is not None or done >= budget.max_iterations:
        return replace(saved, status=status or Status.ITERATION_LIMIT)
    return run(iteration, budget.after(done + 1), callback, resume=saved, after=after)


def _arrays(tensors: Mapping[str, Tensor], spread: Alone) -> dict[str, NDArray]:
    whole = {name: spread.stacked(tensor) if name.startswith(ROWS) else tensor for name, tensor in tensors.items()}
    return {name: tensor.cpu().numpy() for name, tensor in whole.items()}


def _tensors(arrays: Mapping[str, NDArray], X: Tensor, spread: Alone) -> dict[str, Tensor]:
    tensors = {}
    for name, array in arrays.items():
        # A copy: torch needs an array that is writable.
        tensor = torch.from_numpy(np.array(array))
        tensors[name] = tensor if tensor.dtype == torch.uint8 else tensor.to(X.device)
        if name.startswith(ROWS):
            tensors[name] = spread.own(tensors[name], len(X))
    return tensors


def _lines(history: list[Progress]) -> dict[str, object]:
    return {"history": [[asdict(line)[name] for name in LINE] for line in history]}


def _history(facts: Facts) -> list[Progress]:
    """Return the saved lines without their bounds, which are proved again."""
    lines = [replace(Progress(*line), lower=None) for line in facts["history"]]
    if not lines:
        raise ValueError("A state is kept after a line.")
    return lines
