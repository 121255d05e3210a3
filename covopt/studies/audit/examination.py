"""Examine the weights, and each hidden layer at the end of further training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.passes import all_outputs, has_many, inputs_triangle, parts_of
from covopt.model.problem import Problem
from covopt.model.ranks import frobenius
from covopt.model.subgradient import multiplier, residuals
from covopt.model.weights import Weights, evaluate, preactivations
from covopt.records import record
from covopt.records.record import Summary
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Certificate
from covopt.solvers.deep.blocks import solve_block
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.deep.layers import relative_gap, report
from covopt.solvers.deep.missing_neuron import MissingNeuron, find_missing_neuron, find_missing_on_many
from covopt.solvers.deep.pruning import mergeable, parts
from covopt.solvers.layer import Layer
from covopt.solvers.options import SolveOptions

OWN = ("missing", "dead", "merging", "unbalanced", "unbalanced_neuron", "verdict")
"""The fields of a layer that have the same names in JSON."""


@dataclass(frozen=True)
class LayerAudit:
    """The facts of an audit on one hidden layer."""

    facts: Layer  # stationarity and gap at the end of further training; ranks and mergeable groups of the network
    escape: MissingNeuron | None  # the neuron to add there; None if the multiplier is not determined
    solved: float | None  # the loss there after the layer's block was solved; None if it was not
    merging: list[list[int]]  # groups of neurons (numbered from 0) that could be merged into one each
    unbalanced: float  # | |W_l|^2 - |W_{l+1} without its bias column|^2 | / (their sum)
    unbalanced_neuron: float  # the same for the worst neuron, relative to the largest neuron
    grown: float | None = None  # the loss after further training with it; None if no size of the neuron lowers the loss
    missing: bool = False  # True if that neuron lowers the loss, at first order and trained with it
    dead: int = 0  # number of neurons of the network without effect on these data
    verdict: str = ""  # in words

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        neuron = self.escape
        own = {name: getattr(self, name) for name in OWN} | {
            "direction": None if neuron is None else neuron.direction.tolist(),
            "output": None if neuron is None else neuron.output.tolist(),
            "cut": None if neuron is None else neuron.cut,
            "loss_with_neuron": None if neuron is None else neuron.cost,
            "loss_trained_with_neuron": self.grown,
            "loss_with_block": self.solved,
        }
        return record.plain(vars(self.facts) | own)

    @classmethod
    def from_summary(cls, summary: Summary) -> LayerAudit:
        """Read what `summary` returned; missing values are NaN, and so is the neuron's size."""
        facts = Layer.from_summary({name: summary[name] for name in record.LAYER})
        escape = None
        if summary["direction"] is not None:
            direction, output = (torch.tensor(summary[name], dtype=torch.float64) for name in ("direction", "output"))
            stated = (summary["stationarity"], summary["loss_with_neuron"])
            value, cost = (math.nan if number is None else number for number in stated)
            escape = MissingNeuron(facts.layer, value, direction, output, cost, math.nan, summary["cut"])
        return cls(
            facts=facts,
            escape=escape,
            solved=summary["loss_with_block"],
            grown=summary["loss_trained_with_neuron"],
            **{name: summary[name] for name in OWN},
        )


LEAST = 0.4
"""Minimum seconds of the search for missing neurons, also if the budget is spent."""


def examine(
    problem: Problem, weights: Weights, end: Weights, proved: tuple[float | None, Certificate], options: SolveOptions
) -> tuple[list[LayerAudit], list[list[Tensor] | None]]:
    """Examine each hidden layer: its neurons in the network, and what it lacks at the end of further training.

    Return the layers, not judged yet, and the networks with their neurons; None if no size of a neuron lowers the loss.
    On many samples no block is solved, and no network with a missing neuron is trained. The solver's bound and its
    kind, `proved`, hold for the only block at depth 2; other blocks are solved until the budget is spent.
    """
    many, layers = has_many(problem, end), range(1, problem.depth)
    escapes = _escapes(problem, end, options, many)
    networks = _grown(problem, end, escapes, options.budget, many)
    blocks = [_block(problem, end, layer, proved, options, many) for layer in reversed(layers)][::-1]
    audits = []
    for layer, escape, network, (gap, certificate, solved) in zip(layers, escapes, networks, blocks, strict=True):
        facts = report(problem, weights, layer, None, Certificate.NONE, None if escape is None else escape.value)
        facts = replace(facts, gap=gap, gap_certificate=certificate)
        grown = None if network is None or many else evaluate(problem, network).total
        merging, off = mergeable(weights, layer), unbalanced(problem, weights, layer)
        idle = dead(problem, weights, layer)
        audits.append(LayerAudit(facts, escape, solved, merging, *off, grown=grown, dead=idle))
    return audits, networks


def _escapes(problem: Problem, weights: Weights, options: SolveOptions, many: bool) -> list[MissingNeuron | None]:
    """Find the best neuron of each hidden layer; None if the multiplier is not determined."""
    Lambda, layers, budget = multiplier(problem, weights), range(1, problem.depth), options.budget
    if Lambda is None or not bool(Lambda.isfinite().all()):
        return [None] * len(layers)
    search = {"Lambda": Lambda, "seed": options.seed}
    if many:
        return [find_missing_on_many(problem, weights, layer, **search) for layer in layers]
    turns = replace(budget, time_limit=max(budget.time_limit, budget.seconds() + LEAST)).turns(layers)
    return [find_missing_neuron(problem, weights, layer, stop=turn.spent, **search) for layer, turn in turns]


def _grown(
    problem: Problem, weights: Weights, escapes: Sequence[MissingNeuron | None], budget: Budget, many: bool
) -> list[list[Tensor] | None]:
    """Return the networks that have one more neuron, trained further where samples are few."""
    starts = [None if e is None or not e.size > 0.0 else e.network(problem, weights) for e in escapes]
    if many:
        return starts
    paying = [start for start in starts if start is not None]
    ended = iter(descent_for(problem).further(paying, budget.pace(), passes=1)[0])
    return [None if start is None else next(ended) for start in starts]


def _block(
    problem: Problem,
    weights: Weights,
    layer: int,
    proved: tuple[float | None, Certificate],
    options: SolveOptions,
    many: bool,
) -> tuple[float | None, Certificate, float | None]:
    """Return the gap of a layer's block, its kind, and the loss after the block was solved; None for unknown ones."""
    (lower, certificate), solved, budget = proved, None, options.budget
    if problem.depth > 2:
        lower, certificate = None, Certificate.NONE
        if problem.has_blocks and not (budget.spent() or many):
            block = solve_block(problem, weights, layer, replace(options, budget=budget.rest(1.0 / layer)))
            # A block that Ctrl-C ended was not solved, so that its loss says nothing.
            solved = None if interrupted() else evaluate(problem, block.weights).total
            if block.proof is not None:
                lower, certificate = block.proof.lower, block.proof.kind
    gap = relative_gap(problem, weights, layer, lower)
    return gap, Certificate.NONE if gap is None else certificate, solved


def inert_parts(problem: Problem, weights: Weights) -> list[float]:
    """Return the share of each weight matrix that acts on nothing in the data.

    It is |W_l - Z_l^T (Zs_{l-1}^T)^+| / |W_l|: as Z_l = Zs_{l-1} W_l^T, the part of W_l outside the row space of
    Zs_{l-1}. With free biases it is that of A_l, W_l without its bias column, which acts on centred inputs.
    """
    ratios = []
    for layer, whole in enumerate(problem.decayed(weights), start=1):  # free biases take the means
        factor = thin(inputs_triangle(problem, weights, layer))
        rows = factor.V.T[factor.significant > 0]
        size = frobenius(whole)
        ratios.append(frobenius(whole - (whole @ rows.T) @ rows) / size if size > 0.0 else 0.0)
    return ratios


def residuals_of(problem: Problem, weights: Weights) -> list[float] | None:
    """Return |W_l - M_l^T Zs_{l-1}| / |W_l| for each l; None if undetermined or not finite."""
    Lambda = multiplier(problem, weights)
    if Lambda is None or not bool(Lambda.isfinite().all()):
        return None
    try:
        ratios = residuals(problem, weights, Lambda)
    except ValueError:  # a number overflows float64 on the way back through the layers
        return None
    return ratios if all(math.isfinite(ratio) for ratio in ratios) else None


def is_constant(problem: Problem, weights: Weights) -> bool:
    """Return True if all samples have the same outputs although their targets differ."""
    F, Y = all_outputs(problem, weights), problem.Y
    return bool((F[:1] == F).all()) and not bool((Y[:1] == Y).all())


def dead(problem: Problem, weights: Weights, layer: int) -> int:
    """Count hidden neurons with activation 0 on all samples, or without outgoing weights."""
    alive = torch.zeros(len(weights[layer - 1]), dtype=torch.bool, device=problem.X.device)
    for _, part in parts_of(problem):
        alive |= part.activation(preactivations(part, weights)[layer - 1]).ne(0.0).any(dim=0)
    return int((~(alive & parts(weights, layer)[1].ne(0.0).any(dim=1))).sum())


def unbalanced(problem: Problem, weights: Weights, layer: int) -> tuple[float, float]:
    """Return how far incoming and outgoing norms differ, for the layer and its worst neuron.

    At a minimum they are equal ([J23a, Prop. 12]). Free biases do not count.
    """
    incoming, outgoing = parts(weights, layer)
    incoming, outgoing = (part.square().sum(dim=1) for part in (problem.penalised(incoming), outgoing))
    total, largest = float((incoming + outgoing).sum()), float((incoming + outgoing).max()) if len(incoming) else 0.0
    if total == 0.0:
        return 0.0, 0.0
    return abs(float((incoming - outgoing).sum())) / total, float((incoming - outgoing).abs().max()) / largest
