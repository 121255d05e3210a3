"""The options and the state of a search for networks of three layers and more."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from covopt.solvers.deep.exploration import Cycle
from covopt.solvers.deep.fine_tuning import FurtherTraining
from covopt.solvers.deep.frank_wolfe import InTurn
from covopt.solvers.options import DRAWS_TOGETHER


@dataclass(frozen=True)
class DeepOptions:
    """Options of the effort."""

    starts: int = 48  # networks drawn in all; 0: the given network is improved, and there are no others
    batch: int = DRAWS_TOGETHER  # the number of networks that are explored together
    # neurons added to each hidden layer of copies of the best network, and their strength; relative to the layer's
    # width and root mean square
    widening: tuple[tuple[float, float], ...] = ((0.5, 0.5), (1.0, 1.0))
    # starts come in smaller batches, and end with a pass over the blocks of less relative gain; None: all are drawn
    tol: float | None = None
    in_turn: InTurn = field(default_factory=InTurn)  # how the layers of the best network move in turn


@dataclass
class State:
    """The state of the solve."""

    best: list[Tensor]  # the best network so far
    cost: float  # its cost
    costs: list[float] = field(default_factory=list)  # the lowest cost that came from each start so far
    # networks at full depth that are still to descend, the most promising last
    waiting: list[list[Tensor]] = field(default_factory=list)
    ranks: range = range(0)  # the next ranks to be built outer layers first; none once that is over
    begins: bool = False  # True if the answer of two layers is still to be made deeper
    early: list[list[Tensor]] = field(default_factory=list)  # the starts in training
    cycles: list[Cycle] = field(default_factory=list)  # their remaining cycles
    early_end: float = math.inf  # the second by which these end
    descended: int = 0  # the number of deepened networks that have descended
    pool: dict[int, list[Tensor]] = field(default_factory=dict)  # starts explored but not refined yet, by their numbers
    trained: bool = False  # True if the last batch of starts was trained by Adam
    stalled: bool = False  # True if the last pass over the blocks gained nothing
    slow: bool = False  # True if that pass gained less than the tolerance
    further: FurtherTraining | None = None  # the next cycle of further training, if any
    in_vain: int = 0  # how many copies of lower rank in a row gained little
    skipped: int = 0  # how many of the widest copies SOAP does not train: 1 if lam is small or they gain little
    ended_high: int = 0  # how many trained copies ended high (`FineTuning.high`)
    due: bool = False  # True if the best network is improved before the next batch
