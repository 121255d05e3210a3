"""`validate`: does a trained network sit at the minimum, and if not, what is missing (MATH.md sections 2, 3 and 5)?

What is asked of the network: its loss against the solver's; how much of its weights acts on nothing in the data;
whether neurons are balanced and the weights stationary; and for each hidden layer which neuron is missing, what its
block would gain, and which neurons are one. From the best of these moves a descent leads to a better network.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt import markup, record, storing, words
from covopt.answer import in_double, solve
from covopt.arrays import write_npz
from covopt.directories import Writer
from covopt.errors import ProblemError
from covopt.layers import report, solve_block
from covopt.loop import Budget, Callback, Certificate, Status, run
from covopt.model.activation import Activation
from covopt.model.hidden import from_weights, to_weights
from covopt.model.loss import Loss
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import Cost, check_network, evaluate
from covopt.networks import Network, as_network, read_network
from covopt.origin import ORIGIN, write_origin
from covopt.result import Layer, Result
from covopt.solvers.deep import DeepOptions, DeepSolver
from covopt.solvers.escape import Escape, find_escape
from covopt.solvers.pruning import mergeable, parts
from covopt.solvers.subgradient import multiplier, residuals
from covopt.study import verdicts
from covopt.study.verdicts import STILL

# Parts of the time limit after which each stage ends: training (without a network), the solver, the blocks.
TRAINED, SOLVED, EXAMINED = 0.2, 0.6, 0.8
# The arrays of a file with weights.
WEIGHTS = r"W\d+"
# Trainings, where nobody says how many.
TRAININGS = 5


@dataclass(frozen=True)
class LayerAudit:
    """What an audit found in one hidden layer.

    Attributes:
        facts: stationarity, gap, ranks, number of groups that merge.
        escape: the neuron to add, as a search found it; None where the multiplier is not determined.
        solved: the network's loss after the layer's block was solved; None where it was not.
        merging: groups of neurons (numbered from 0) that could be one each.
        unbalanced: | |W_l|^2 - |W_{l+1} without its bias column|^2 | / (their sum).
        unbalanced_neuron: the same for the worst neuron, relative to the largest neuron.
        verdict: in words.
    """

    facts: Layer
    escape: Escape | None
    solved: float | None
    merging: list[list[int]]
    unbalanced: float
    unbalanced_neuron: float
    verdict: str = ""

    def summary(self) -> dict[str, object]:
        """For JSON."""
        found = self.escape
        return {
            **self.facts.summary(),
            "direction": None if found is None else found.direction.tolist(),
            "output": None if found is None else found.output.tolist(),
            "loss_with_neuron": None if found is None else record.known(found.cost),
            "loss_with_block": record.known(self.solved),
            "merging": self.merging,
            "unbalanced": record.known(self.unbalanced),
            "unbalanced_neuron": record.known(self.unbalanced_neuron),
            "verdict": self.verdict,
        }


@dataclass
class Audit:
    """The answer of `validate`.

    Attributes:
        problem: the question, of the network's depth.
        weights: the network's.
        cost: its loss and the parts of it.
        reference: the solver's answer to the same question.
        layers: each hidden layer, from the first.
        inert: |W_l - Z_l^T (Zs_{l-1}^T)^+| / |W_l| for l = 1 ... L, the part of the weights that acts on nothing.
        residuals: |W_l - M_l^T Zs_{l-1}| / |W_l| for l = 1 ... L, 0 at stationary weights, with the best slopes at
            kinks; None where the multiplier is not determined.
        escape: a better network, reached from this one by new neurons, blocks and descents; None if none was found.
        escape_cost: its loss.
        trained: the trainings, where the network is the best of them.
        interrupted: whether Ctrl-C ended it.
    """

    problem: Problem
    weights: list[Tensor]
    cost: Cost
    reference: Result
    layers: list[LayerAudit] = field(default_factory=list)
    inert: list[float] = field(default_factory=list)
    residuals: list[float] | None = None
    escape: list[Tensor] | None = None
    escape_cost: float | None = None
    trained: Result | None = None
    interrupted: bool = False

    @property
    def loss(self) -> float:
        """C + lam |W|^2, or |W|^2 for `interpolate`."""
        return self.cost.total

    @property
    def best(self) -> float:
        """The lowest loss known: of the network, the solver's, or what was reached from the network."""
        known = [self.loss, self.reference.cost, math.inf if self.escape_cost is None else self.escape_cost]
        return min(cost for cost in known if math.isfinite(cost))

    @property
    def excess(self) -> float:
        """(loss - best) / best."""
        return (self.loss - self.best) / self.best if self.best > 0.0 else 0.0

    @property
    def stationary(self) -> bool:
        """Whether no first-order move lowers the loss: weights at a stand, no neuron missing in any layer."""
        moving = self.residuals is not None and max(self.residuals) > STILL
        return not moving and not any(self.missing(layer) for layer in self.layers)

    @property
    def verdict(self) -> str:
        """In words."""
        last = self.problem.depth - 1
        return verdicts.of_network(
            loss=self.loss,
            best=self.best,
            reference=self.reference,
            residual=None if self.residuals is None else max(self.residuals),
            missing=[
                verdicts.of_neuron(layer, self.loss, layer.facts.layer == last)
                for layer in self.layers[::-1]
                if self.missing(layer)
            ],
            escape_cost=self.escape_cost,
        )

    def missing(self, layer: LayerAudit) -> bool:
        """Whether adding the neuron found in `layer`, one of `layers`, lowers the loss, as first order promises."""
        return layer.escape is not None and verdicts.is_missing(layer.escape.value, layer.escape.cost, self.loss)

    def summary(self) -> dict[str, object]:
        """The JSON of `covopt validate`; what is unknown or unproved is None."""
        return {
            "loss": record.known(self.loss),
            "fit": record.known(self.cost.fit),
            "norm": record.known(self.cost.norm),
            "best": record.known(self.best),
            "excess": record.known(self.excess),
            "lower": record.known(self.reference.lower),
            "certificate": str(self.reference.certificate),
            "stationary": self.stationary,
            "verdict": self.verdict,
            "inert": [record.known(part) for part in self.inert],
            "residuals": None if self.residuals is None else [record.known(part) for part in self.residuals],
            "layers": [layer.summary() for layer in self.layers],
            "escape": record.known(self.escape_cost),
            "widths": [len(W) for W in self.weights[:-1]],
            "trained": None if self.trained is None else [record.known(cost) for cost in self.trained.starts],
            "solver": self.reference.summary(),
        }

    def describe(self) -> list[tuple[str, str]]:
        """The audit as a person reads it: pairs of a label and its text."""
        return words.audit_pairs(self.summary())

    def _repr_html_(self) -> str:
        return markup.summary(self.verdict, [pair for pair in self.describe() if pair[0] != "verdict"])

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write audit.json, network.npz (what was audited), better.npz (where a better network was found), origin.json
        and the solver's run, `solution`; force and others as for `Result.save`.

        Raises:
            RecordError: the directory exists, or cannot be written.
        """
        writers: dict[str, Writer] = {
            record.AUDIT: lambda path: record.write_summary(path, self.summary()),
            record.NETWORK: lambda path: write_npz(path, _named(self.weights)),
            record.SOLUTION: self.reference.save,
            ORIGIN: write_origin(),
        }
        if self.escape is not None:
            better = _named(self.escape)
            writers["better.npz"] = lambda path: write_npz(path, better)
        storing.put(directory, record.AUDIT, writers | dict(others or {}), force=force)

    def save_escape(self, path: str | os.PathLike[str], *, force: bool = False) -> bool:
        """Write the better network, W1 ... WL, into a .npz file; False where there is none.

        Args:
            path: of the file.
            force: replace an earlier file.

        Raises:
            RecordError: the file exists, or cannot be written.
        """
        if self.escape is None:
            return False
        write_npz(Path(path), _named(self.escape), force, WEIGHTS)
        return True


def validate(
    net: object,
    X: object,
    Y: object,
    *,
    lam: float | None = None,
    loss: str | Loss | None = None,
    depth: int | None = None,
    bias: float = 1.0,
    activation: str | Activation | None = None,
    certify: str = "auto",
    gap: float = 1e-4,
    time_limit: float = 60.0,
    seed: int = 0,
    device: str | torch.device | None = None,
    width: int | None = None,
    starts: int | None = None,
    callback: Callback | None = None,
) -> Audit:
    """Whether a trained network is at the minimum of C + lam |W|^2 (or of |W|^2 at F = Y), and what it lacks.

    Args:
        net: an nn.Sequential of Linear and ReLU, LeakyReLU or Identity; its state dict; weights [W_1, ..., W_L] with
            the bias column last; a Result; a file (.pt with a state dict, .npz with W1 ... WL); None trains networks
            the ordinary way and takes the best.
        X: inputs (N, n_0).
        Y: targets (N, n_L) or (N,).
        lam: strength of the penalty; None means the representation cost.
        loss: mse, cross_entropy or interpolate.
        depth: L, that of the network; 2 without one.
        bias: beta; PyTorch's bias is beta W[:, -1].
        activation: relu, leaky:A or linear; None takes the network's own, relu where it does not tell.
        certify, gap, seed, device, callback: as for `solve`.
        time_limit: seconds for everything.
        width, starts: of the trainings without a network.

    Returns:
        The network's loss beside the lowest known, each hidden layer, and a better network where one was found.

    Raises:
        DataError: a network that cannot be read or is of another kind.
        ProblemError: one that does not fit the data, or an option out of range.
        InfeasibleError: as `solve`.

    Source: stationarity is derived in MATH.md, section 5; stuck minima are those of [JGHG22, Prop. 19].
    """
    if net is not None and (width is not None or starts is not None):
        raise ProblemError("width and starts are for the trainings without a network; leave them out, or the network.")
    budget = Budget(time_limit)
    slope, given = (None, None) if net is None else _weights_of(net, bias)
    chosen = _activation(activation, slope)
    layers = (depth or 2) if given is None else len(given)
    if depth is not None and depth != layers:
        raise ProblemError(f"The network has depth {layers}, not {depth}; leave the depth out.")
    question = {"lam": lam, "loss": loss, "depth": layers, "bias": bias, "activation": chosen, "device": device}
    problem = in_double(make_problem(X, Y, **question))  # type: ignore[arg-type]
    trained = None
    if given is None:
        effort = {"method": "train", "certify": "none", "time_limit": TRAINED * time_limit, "seed": seed}
        trained = solve(X, Y, width=width, starts=starts or TRAININGS, **effort, **question)  # type: ignore[arg-type]
        given = trained.weights
    weights = [torch.as_tensor(W, dtype=torch.float64, device=problem.X.device) for W in given]
    cost = _checked(problem, weights)
    limit = max(1e-3, SOLVED * time_limit - budget.seconds())
    effort = {"certify": certify, "gap": gap, "seed": seed, "time_limit": limit, "callback": callback}
    reference = solve(X, Y, **effort, **question)  # type: ignore[arg-type]
    audit = Audit(problem, weights, cost, reference, trained=trained)
    audit.interrupted = reference.status is Status.INTERRUPTED
    try:
        _examine(audit, Budget(EXAMINED * time_limit, started=budget.started), certify, gap, seed)
        if not audit.interrupted:
            _improve(audit, budget, seed)
    except KeyboardInterrupt:  # what was found until then is the answer
        audit.interrupted = True
    return audit


def _named(weights: Sequence[Tensor]) -> dict[str, NDArray]:
    return {f"W{i}": W.cpu().numpy() for i, W in enumerate(weights, start=1)}


def _weights_of(net: object, bias: float) -> tuple[float | None, Sequence[object]]:
    """The activation's slope where the source tells it, and the weights."""
    if isinstance(net, Result):
        return net.problem.activation.slope, net.weights
    found: Network = read_network(net, bias) if isinstance(net, (str, os.PathLike)) else as_network(net, bias)
    return found.slope, found.weights


def _activation(asked: str | Activation | None, slope: float | None) -> Activation:
    if asked is None:
        return Activation(slope or 0.0)
    chosen = Activation.parse(asked)
    if slope is not None and slope != chosen.slope:
        own = Activation(slope).name
        raise ProblemError(f"The network's activation is {own}, not {chosen.name}; leave the activation out.")
    return chosen


def _checked(problem: Problem, weights: list[Tensor]) -> Cost:
    """The network's cost, if it has one on these data."""
    check_network(problem, weights)
    cost = evaluate(problem, weights)
    if not math.isfinite(cost.total):
        raise ProblemError("The network's loss on these data is not finite; check its weights and the scale of X.")
    if not problem.allows(cost.residual):
        raise ProblemError(
            f"The network misses the targets by up to {cost.residual:.3g}, so that it has no representation cost; give"
            " the lam that it was trained with."
        )
    return cost


def _examine(audit: Audit, budget: Budget, certify: str, gap: float, seed: int) -> None:
    """Fill in what is known of the weights and of each layer."""
    problem, weights = audit.problem, audit.weights
    pairs = zip(weights, to_weights(problem, from_weights(problem, weights)), strict=True)
    audit.inert = [float((W - acting).norm() / W.norm()) if bool(W.any()) else 0.0 for W, acting in pairs]
    Lambda = multiplier(problem, weights)
    audit.residuals = None if Lambda is None else residuals(problem, weights, Lambda)
    for layer in range(problem.depth - 1, 0, -1):
        escape = None if Lambda is None else find_escape(problem, weights, layer, Lambda=Lambda, seed=seed)
        lower, certificate, solved = audit.reference.lower, audit.reference.certificate, None
        if problem.depth > 2:
            lower, certificate = None, Certificate.NONE
            if not (audit.interrupted or budget.spent()):
                share = Budget(budget.seconds() + budget.remaining() / layer, started=budget.started)
                lower, certificate, _, better = solve_block(problem, weights, layer, share, certify, gap, seed)
                solved = evaluate(problem, better).total
        facts = report(problem, weights, layer, lower, certificate, None if escape is None else escape.value)
        whole, worst = _unbalanced(weights, layer)
        found = LayerAudit(facts, escape, solved, mergeable(weights, layer), whole, worst)
        words = verdicts.of_layer(found, audit.loss, last=layer == problem.depth - 1, deep=problem.depth > 2)
        audit.layers.insert(0, replace(found, verdict=words))


def _unbalanced(weights: Sequence[Tensor], layer: int) -> tuple[float, float]:
    """How far the layer, and its worst neuron, are from equal incoming and outgoing norms ([J23a, Prop. 12])."""
    incoming, outgoing = (part.square().sum(dim=1) for part in parts(weights, layer))
    total, largest = float((incoming + outgoing).sum()), float((incoming + outgoing).max()) if len(incoming) else 0.0
    if total == 0.0:
        return 0.0, 0.0
    return abs(float((incoming - outgoing).sum())) / total, float((incoming - outgoing).abs().max()) / largest


def _improve(audit: Audit, budget: Budget, seed: int) -> None:
    """Look for a better network from the best single move: descents and block solves, until they gain nothing."""
    problem = audit.problem
    moves = [layer.escape.network(problem, audit.weights) for layer in audit.layers if layer.escape is not None]
    start = min([audit.weights, *moves], key=lambda weights: evaluate(problem, weights).total)
    effort = DeepOptions(starts=1, widening=())
    outcome = run(DeepSolver(problem, budget, effort, seed, start), budget)
    audit.interrupted = outcome.status is Status.INTERRUPTED
    better = evaluate(problem, outcome.state.best)
    if problem.allows(better.residual) and better.total < audit.loss:
        audit.escape, audit.escape_cost = outcome.state.best, better.total
