"""`validate`: is a trained network at the minimum, and if not, what does it lack?

See MATH.md, sections 2, 3 and 5. An audit reports what further training gains and where it ends; the loss beside the
solver's; how much of the weights acts on nothing in the data; whether neurons are balanced; and for each hidden layer
which neuron is missing at the end of further training, what its block would gain, and which neurons could be merged.
Descents from the best of these moves lead to a better network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Unpack

import torch
from torch import Tensor

from covopt.answer.plan import prepared
from covopt.answer.result import Result
from covopt.answer.solve import Question, solve, study
from covopt.data.networks import FoundWeights
from covopt.data.tables import column_names
from covopt.model.activation import Activation
from covopt.model.problem import Problem, make_problem
from covopt.model.scalars import as_number
from covopt.model.weights import Cost, check_network, evaluate
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Callback, Status, run
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.deep.further_training import train_on_batches
from covopt.solvers.deep.solver import DeepSolver
from covopt.solvers.deep.state import DeepOptions
from covopt.solvers.options import SolveOptions
from covopt.solvers.plan import Plan
from covopt.solvers.training.exact_fit import fit_exactly
from covopt.studies.audit.audited import Audit
from covopt.studies.audit.batches import batches_of, training_of
from covopt.studies.audit.examination import examine, inert_parts, residuals_of
from covopt.studies.audit.function import checked_inputs, function_of
from covopt.studies.audit.given import Given, amount_of_bias, network_of
from covopt.studies.audit.hypotheses import Scalings, hint, scalings_of


@dataclass(frozen=True)
class Schedule:
    """The shares of an audit's time limit after which each stage ends."""

    trained: float = 0.15  # training, without a network
    fitted: float = 0.1  # further training among exact fits, which only the time ends
    descended: float = 0.25  # further training on other losses
    suspected: float = 0.3  # the search for other problems
    solved_in_passes: float = 0.4  # the solver on many samples, where the layers take about ten passes over all of them
    solved: float = 0.6  # the solver on fewer
    examined: float = 0.8  # the layers; the rest is for a better network


SCHEDULE = Schedule()


class Examining(Question, total=False):
    """Options of `solve`, of trainings without a network, and of the network's own training; with their defaults."""

    width: Annotated[int | None, None]
    starts: Annotated[int | None, None]
    batch_size: Annotated[int | None, None]
    rate: Annotated[float | None, None]
    steps: Annotated[int | None, None]
    momentum: Annotated[float, 0.0]


@study(Examining)
def validate(
    net: object,
    X: object,
    Y: object = None,
    *,
    depth: int | None = None,
    bias: float | str = 1.0,
    decay: str = "all",
    activation: str | Activation | None = None,
    time_limit: float = 60.0,
    callback: Callback | None = None,
    progress: bool | None = None,
    scalings: Scalings | None = None,
    function: bool = False,
    at: object = None,
    orbits: object = None,
    **options: Unpack[Examining],
) -> Audit:
    """Check whether a trained network minimises C + lam |W|^2 (|W|^2 at F = Y), and why not.

    >>> audit = covopt.validate([[[1.0, 0.0]], [[0.5, 0.0]]], [[0.0], [1.0]], [0.0, 1.0], lam=0.01, time_limit=2)
    >>> str(audit.finding), audit.save_escape("better.npz")
    ('untrained', True)

    Args:
        net: an nn.Sequential of Linear and ReLU, LeakyReLU or Identity (Flatten and Dropout do nothing), or a module
            with the outputs of one; its state dict; weights [W_1, ..., W_L] with the bias column last; a Result; a file
            (.pt with a state dict, .npz with W1 ... WL); None trains networks by the method `train`; the best counts.
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`.
        lam: strength of the penalty; None means the representation cost.
        loss: mse, cross_entropy, huber (or huber:D), logistic or interpolate.
        depth: L, that of the network; 2 without one.
        bias: beta; PyTorch's bias is beta W[:, -1]; "free" for unpenalised biases.
        decay: the penalised parameters: all, or weights, which is the bias "free".
        activation: relu, leaky:A or linear; None takes the network's own, relu if that is unknown.
        certify, gap, seed, device, callback, progress, sample_weight, task: as for `solve`.
        time_limit: seconds for everything.
        width, starts: of the trainings without a network.
        scalings: returns X in other scales by name, for the hint that another scale fits better; None tries X /
            max|X| and columns of mean 0 and deviation 1.
        function: describe the network as a function too: Jacobians, bottleneck, tangent kernel.
        at: inputs (M, n_0) at which to do so; None: X.
        orbits: the same inputs after a transformation, row by row, to see how far each layer identifies the two.
        batch_size, rate, steps, momentum: of the training by SGD at a constant rate, all of the first three or none.
            They distinguish a network that SGD noise keeps moving from one that is not fully trained.

    Returns:
        The network's loss beside the lowest known, the end of further training, each hidden layer there, a better
        network if one was found, and with `function` the properties of the network as a function.

    Raises:
        DataError: the network cannot be read, or is of another kind.
        ProblemError: the network does not fit the data, or an option is out of range.
        InfeasibleError: as `solve`.

    Source: stationarity is derived in MATH.md, section 5; stuck minima are those of [JGHG22, Prop. 19].
    """
    asked: dict[str, Any] = {**options}
    effort = {name: asked.pop(name) for name in ("certify", "gap", "seed")}
    reported = {name: asked.pop(name) for name in ("batch_size", "rate", "steps", "momentum")}
    size = {name: asked.pop(name) for name in ("width", "starts")}
    if net is not None and any(value is not None for value in size.values()):
        raise ProblemError("width and starts are for the trainings without a network; leave them out, or the network.")
    budget, bias = Budget(time_limit), amount_of_bias(bias, decay)
    beta = 1.0 if bias == FREE else as_number(bias, "bias")
    given = None if net is None else network_of(net, beta, X)
    chosen = Activation.parse(activation or "relu") if given is None else given.agreed(activation)
    layers = (depth or 2) if given is None else len(given.weights)
    if depth is not None and depth != layers:
        raise ProblemError(f"The network has depth {layers}, not {depth}; leave the depth out.")
    task, question = asked.pop("task"), asked | {"depth": layers, "bias": bias, "activation": chosen}
    problem = make_problem(X, Y, free=True, task=task, **question).double()
    solving = SolveOptions(budget, **effort)
    solving.check(layers)
    training = training_of(problem, **reported, has_net=given is not None)
    trained = None
    if given is None:
        question |= {"sample_weight": problem.weight, "width": size["width"], "starts": size["starts"] or 5}
        limit = SCHEDULE.trained * time_limit
        question |= {"method": "train", "certify": "none", "time_limit": limit, "seed": solving.seed}
        trained = solve(problem.X, problem.Y, **question)
        given = Given([W.double() for W in trained.weights])
    weights, cost = _checked(problem, given)
    audit = Audit(problem, weights, cost, Result(problem, "cone", solving.certify, solving.seed), trained=trained)
    audit.stored, (audit.at, audit.orbits) = given.stored, checked_inputs(problem, at, orbits)
    audit.batches = None if training is None else batches_of(problem, weights, training)
    audit.interrupted = trained is not None and trained.status is Status.INTERRUPTED
    if not audit.interrupted:
        _descend(audit, budget, scalings or (lambda: scalings_of(problem.X)))
        audit.interrupted = interrupted()
    _solve(audit, replace(solving, callback=callback), column_names(X))
    _examine(audit, replace(solving, budget=budget.part(SCHEDULE.examined)))
    if not (audit.interrupted or interrupted()):
        if function or audit.at is not None or audit.orbits is not None:
            audit.function = function_of(problem, weights, at=audit.at, orbits=audit.orbits)
        _improve(audit, budget, solving.seed)
    audit.interrupted = audit.interrupted or interrupted()
    return audit


def _checked(problem: Problem, given: Given) -> tuple[list[Tensor], Cost]:
    """Return the network and its cost; mend a fit that its rounding alone spoils."""
    weights = [W.to(problem.X.device) for W in given.weights]
    check_network(problem, weights)
    cost, size = evaluate(problem, weights), float(problem.Y.abs().max())
    if not math.isfinite(cost.total):
        raise ProblemError("The network's loss on these data is not finite; check its weights and the scale of X.")
    allowed = problem.allows(cost.residual)
    if not allowed and given.stored is not torch.float64 and cost.residual <= 1e-4 * size:
        fitted = fit_exactly(problem, weights)
        if problem.allows((exact := evaluate(problem, fitted)).residual):
            return fitted, exact
    if not allowed:
        raise ProblemError(
            f"The network misses the targets by up to {cost.residual:.3g}, so that it has no representation cost; give"
            " the lam that it was trained with."
        )
    return weights, cost


def _descend(audit: Audit, budget: Budget, scalings: Scalings) -> None:
    """Train further; if that gains much, look for another problem (not on many samples)."""
    problem, exact = audit.problem, audit.problem.interpolates
    until = budget.part(SCHEDULE.fitted if exact else SCHEDULE.descended)
    if audit.in_passes:
        audit.descended, audit.finished = train_on_batches(problem, audit.weights, until, audit.reference.seed)
    else:
        networks, audit.finished = descent_for(problem).further([audit.weights], until.spent)
        audit.descended = networks[0]
    audit.descended_loss = _offer(audit, audit.descended)
    if not (audit.in_passes or exact):
        until = budget.part(SCHEDULE.suspected)
        audit.hint = hint(problem, audit.weights, audit.gain, scalings, until.spent)


def _solve(audit: Audit, options: SolveOptions, columns: tuple[str, ...] | None) -> None:
    """Fill in the solver's result; after an interrupt this takes almost no time."""
    problem, budget, least = audit.problem, options.budget, 1e-3
    share = SCHEDULE.solved_in_passes if audit.in_passes else SCHEDULE.solved
    limit = least if audit.interrupted else max(least, share * budget.time_limit - budget.seconds())
    # The solver caches large arrays in its problem, such as inputs with a bias column; they go with the copy.
    result = prepared(replace(problem), replace(options, budget=Budget(limit)), columns=columns).carried_out()
    audit.reference = replace(result, problem=problem)
    audit.interrupted = audit.interrupted or result.status is Status.INTERRUPTED


def _examine(audit: Audit, options: SolveOptions) -> None:
    """Fill in the facts on the weights, and on each layer at the end of further training."""
    problem, weights = audit.problem, audit.weights
    end, stored = audit.descended or weights, audit.stored
    audit.inert = inert_parts(problem, weights)
    audit.residuals, audit.left = residuals_of(problem, weights), residuals_of(problem, end)
    if stored is not torch.float64:
        coarse = [W.to(stored).double() for W in end]
        exact = all(torch.equal(*pair) for pair in zip(coarse, end, strict=True))
        audit.rounded = audit.descended_loss, audit.left
        if not exact:
            audit.rounded = evaluate(problem, coarse).total, residuals_of(problem, coarse)
    if audit.interrupted:
        options = replace(options, budget=Budget(0.0))
    layers, grown = examine(problem, weights, end, (audit.reference.lower, audit.reference.certificate), options)
    for layer, network in zip(layers, grown, strict=True):
        judged = replace(layer, missing=audit.lacks_neuron(layer))
        audit.layers.append(replace(judged, verdict=audit.of_layer(judged)))
        if network is not None:
            _offer(audit, network)


def _offer(audit: Audit, weights: list[Tensor]) -> float:
    """Store the network as the better one if it fits and costs less; return its cost."""
    problem, cost = audit.problem, evaluate(audit.problem, weights)
    best = audit.loss if audit.escape_cost is None else audit.escape_cost
    if problem.allows(cost.residual) and cost.total < best:
        audit.escape, audit.escape_cost = FoundWeights(weights, problem.beta, problem.activation.slope), cost.total
    return cost.total


def _improve(audit: Audit, budget: Budget, seed: int) -> None:
    """Look for a better network by descents and block solves from the best one so far."""
    problem, start = audit.problem, audit.escape or audit.descended or audit.weights
    if audit.in_passes:
        better = train_on_batches(problem, start, budget, seed + 1)[0]
    elif not problem.has_blocks:
        within = replace(budget, time_limit=max(budget.time_limit, budget.seconds() + 1e-3))
        better = Plan.of(problem, SolveOptions(within, certify="none", seed=seed, init=list(start))).run().weights
    else:
        better = run(DeepSolver(problem, DeepOptions(starts=1, widening=()), seed, start), budget).state.best
    _offer(audit, better)
