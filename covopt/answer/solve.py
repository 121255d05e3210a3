"""`solve`, the answer to a problem with its proof."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.certify import proofs
from covopt.certify.proof import Proof
from covopt.data.coding import Coding, targets_in_words
from covopt.data.tables import column_names
from covopt.model.activation import Activation
from covopt.model.feasible import check_interpolation
from covopt.model.loss import Loss
from covopt.model.problem import Problem, make_problem
from covopt.model.spread import ALONE, Together, check_alike, rank_here
from covopt.model.units import check_strength
from covopt.model.weights import check_network, evaluate
from covopt.runtime.cores import crew
from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.interrupts import gently, interrupted
from covopt.runtime.loop import Budget, Callback, Progress, Seed, Status, Whole, check_seed
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted, fitting
from covopt.solvers.attempt import WIDEST, Attempt, SolveOptions, as_count
from covopt.solvers.checkpoint import Checkpoint
from covopt.solvers.deep.layer import Layer
from covopt.solvers.deep.layers import examine
from covopt.solvers.free import solve_free
from covopt.solvers.needs import check_data, planned
from covopt.solvers.penalised import METHODS

# The part of the time limit after which a deep solve leaves the rest to the examination of its layers.
SOLVING = 0.85


@checked
@gently()
@fitted
def solve(
    X: object,
    Y: object,
    *,
    lam: float | None = None,
    loss: str | Loss | None = None,
    depth: Whole = 2,
    bias: float | str = 1.0,
    skip: bool = False,
    activation: str | Activation = "relu",
    method: str = "cone",
    certify: str = "auto",
    gap: float = 1e-4,
    tol: float | None = None,
    time_limit: float = 300.0,
    max_iterations: Whole | None = None,
    seed: Seed = 0,
    device: str | torch.device | None = None,
    init: Result | Sequence[object] | None = None,
    width: Whole | None = None,
    max_width: Whole | None = None,
    starts: Whole | None = None,
    callback: Callback | None = None,
    sample_weight: object = None,
    spread: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    memory_limit: float | None = None,
    task: str | None = None,
) -> Result:
    """Solve min C + lam |W|^2 over networks of depth L, or min |W|^2 with F = Y.

    The minimum is what the data cost, R(X, Y) in the second case. For depth 2 the problem is convex over covariances,
    and the gap is closed where it can be. Deeper problems return the best of many starts with the spectral bound, and
    each hidden layer's own gap in `layers`.

    Source: [JGHG22, Prop. 3] for the cone of covariances; the dual and its bounds are derived in MATH.md, section 4.

    Args:
        X: inputs (N, n_0).
        Y: targets (N, n_L), numbers or labels (N,).
        lam: strength of the penalty; None asks for the representation cost.
        loss: mse, cross_entropy, huber (or huber:D), logistic or interpolate, or a `Loss` of one's own; None means
            interpolate without lam and mse with it.
        task: classification makes one-hot rows of Y (N,), regression takes its numbers. None: texts, booleans, and
            integers of at most 20 values on five times as many rows are classes; for cross_entropy and logistic all
            whole numbers are.
        depth: L >= 2.
        bias: beta >= 0; "free" for biases that the penalty is not on (beta is 1 in the network; MATH.md section 4).
        skip: a linear function of the inputs is free as well, f(x) + S x, with free biases, mse and exact fits; W_L is
            [A_L, S, b_L].
        activation: relu, leaky:A or linear.
        method: cone, fully corrective Frank-Wolfe over S for depth 2, and beyond that descents in the weights from many
            starts, then Frank-Wolfe layer by layer; hidden, projected gradient on the
            representations Z; train, ordinary training of several starts as one batch.
        certify: none; fast: the exact bound where the oracle knows the maximum (rank(Xt) <= 3, linear networks),
            else the spectral one; full: also branch and bound over cones of directions up to rank 6 (8 with one
            output), in turns with the solver until the gap or the time limit is reached, and beyond that the doubly
            non-negative relaxation with branches on signs; auto: the same with the time that the search leaves, and no
            longer than it pays. Depth >= 3 has bounds from the data alone, and auto is fast there.
        gap: stop at this proved relative gap.
        tol: end the method cone once rounds gain little, with the status `tolerance`: two layers when two rounds in a
            row each lowered the cost by less than tol of it, where no exact oracle knows the gap; more layers when a
            pass over all of them did. A rule of the rounds, not of the clock, so that the answer is repeatable. None:
            the rounds go on until nothing is found.
        time_limit: seconds.
        max_iterations: rounds of the method; None sets no limit. Unlike the time limit it leaves the answer repeatable,
            but for how long a proof of auto or full goes on.
        seed: of the search.
        device: where to compute; None follows X.
        init: a Result, or weights [W_1, ..., W_L], to start from.
        width: of every hidden layer, for the methods hidden and train; None lets it choose.
        max_width: of every hidden layer, for the method cone at depth >= 3.
        starts: number of random starts (cone at depth >= 3), descents or trainings; None lets the method choose.
        callback: gets a `Progress` after each round.
        sample_weight: s_i >= 0 (N,) of the rows, of any scale: C is the mean with these weights, so that weight 2 is a
            row given twice and weight 0 a row left out, also of `Result.problem`; None: all are equal. `interpolate`
            asks the same for all positive ones.
        spread: data parallel: X and Y are the rows of this process, and each process of the default group of
            `torch.distributed` holds others and makes the same call. All of them end with the same network, and what is
            computed from the `problem` of their results is a sum over all rows, which all have to ask for. For the
            method cone, ReLU or leaky ReLU, a number as the bias, lam, and certify="none".
        checkpoint: a new file for the state of the search, for two layers by the method cone with a number as the bias;
            it is replaced as a whole, after a round or within a cycle of mini-batch training, and at the end.
        checkpoint_every: seconds between two states; a round that takes longer comes to its end first.
        resume: go on from the state in `checkpoint`, with the same problem and seed; the seconds before count. Another
            number of processes may go on. Bounds are proved again.
        memory_limit: GB (1e9 bytes) that this process may take, about: where the estimate of the need is above it, the
            search tries fewer starts at a time, random batches take the place of rounds on all samples, or less is
            proved, and a warning says which. It does not count what a user's own program takes later. None: no limit;
            a warning if the machine has less memory than is needed. The logger `covopt` gets the estimate (INFO).

    Returns:
        The best network with its cost recomputed from it in float64, and the bound with the kind of its proof.

    Raises:
        ProblemError: an option out of range, data of the wrong shape, or more memory needed than the limit.
        DataError: the targets are not what `task` says, or texts with missing ones among them.
        InfeasibleError: `interpolate` on data that no network of that kind fits; the rows are named.
        ProcessError: another one of the processes that solve together has ended.
        RecordError: of `checkpoint`: without `resume` there is such a file; with it none, or it is damaged or the state
            of another problem; or it cannot be written.
    """
    check_data(X, Y, memory_limit)
    problem = make_problem(
        X,
        Y,
        lam=lam,
        loss=loss,
        depth=depth,
        bias=bias,
        activation=activation,
        device=device,
        sample_weight=sample_weight,
        free=True,
        skip=skip,
        task=task,
    )
    if method not in METHODS:
        raise ProblemError(f"The method '{method}' is unknown; use {' or '.join(METHODS)}.")
    rounds = as_count(max_iterations, "max_iterations")
    options = SolveOptions(
        Budget(time_limit) if rounds is None else Budget(time_limit, rounds),
        method=method,
        certify=certify,
        gap=gap,
        tol=tol,
        seed=check_seed(seed),
        width=as_count(width, "width", WIDEST),
        max_width=as_count(max_width, "max_width", WIDEST),
        starts=as_count(starts, "starts"),
        callback=callback,
        memory_limit=memory_limit,
    )
    if checkpoint is not None:
        options = replace(options, checkpoint=Checkpoint(checkpoint, checkpoint_every, not spread or rank_here() == 0))
    return solve_problem(problem, options, init, column_names(X), spread=spread, resume=resume)


def solve_problem(
    problem: Problem,
    options: SolveOptions,
    init: Result | Sequence[object] | None = None,
    columns: tuple[str, ...] | None = None,
    *,
    spread: bool = False,
    resume: bool = False,
) -> Result:
    """Run `solve` on an existing problem; its data are not copied again.

    Args:
        problem: to solve.
        options: how to solve it.
        init: a Result, or weights, to start from.
        columns: the names of the inputs.
        spread, resume: as `solve`'s.

    Raises:
        ProblemError, InfeasibleError, ProcessError, RecordError: as `solve`.
    """
    options.check(problem.depth)
    problem = problem.double()
    if spread:
        if problem.weight is not None:
            raise ProblemError("Rows that are spread over processes have no weights so far; leave the weights out.")
        problem = spread_problem(problem, options.method, options.certify)
        options = replace(options, budget=replace(options.budget, agreed=problem.spread.largest))
    check_strength(problem)
    if problem.interpolates:
        check_interpolation(problem)
    options = _resumed(problem, replace(options, init=_initial(problem, init)), resume)
    options = planned(problem, options)
    with fitting(problem.X.numel()), crew():
        return _solved(problem, options, columns)


def _resumed(problem: Problem, options: SolveOptions, resume: bool) -> SolveOptions:
    """Return the options with the state to resume from.

    Raises:
        ProblemError: such solves save no state.
        RecordError: there is no state of this problem.
    """
    checkpoint = options.checkpoint
    if checkpoint is None:
        if resume:
            raise ProblemError(
                "There is nothing to go on from without a checkpoint; give its file, or leave resume out."
            )
        return options
    if options.method != "cone" or problem.depth > 2 or problem.free:
        raise ProblemError(
            "The state of a solve is kept for two layers by the method cone with a number as the bias; leave the"
            " checkpoint out."
        )
    checkpoint.about(_question(problem, options), resume)
    if checkpoint.saved is None:
        return options
    started = options.budget.started - checkpoint.saved.seconds
    return replace(options, budget=replace(options.budget, started=started))


def _question(problem: Problem, options: SolveOptions) -> dict[str, object]:
    """Return what must be the same for a solve to resume; sums over samples identify the data."""
    generator = torch.Generator().manual_seed(0)
    mixed = [
        A @ torch.randn(A.shape[1], generator=generator, dtype=torch.float64).to(A) for A in (problem.X, problem.Y)
    ]
    weight = torch.ones_like(mixed[0]) if problem.weight is None else problem.weight
    sums = problem.spread.sums(
        lambda x, y, s: (x @ x, y @ y, x.abs() @ y.abs(), s @ (x.abs() + y.abs())), *mixed, weight
    )
    return {
        "shape of data": [problem.samples, problem.X.shape[1], problem.Y.shape[1]],
        **dict(zip(("inputs", "targets", "rows", "weights"), map(float, sums), strict=True)),
        "loss": problem.loss.name,
        "lam": problem.lam,
        "bias": problem.beta,
        "activation": problem.activation.name,
        "seed": options.seed,
    }


def _solved(problem: Problem, options: SolveOptions, columns: tuple[str, ...] | None) -> Result:
    """Run `solve` on a checked problem."""
    budget, examining = options.budget, options.certify != "none" and problem.depth > 2 and not problem.free
    within = replace(budget, time_limit=SOLVING * budget.time_limit) if examining else budget
    method = solve_free if problem.free else METHODS[options.method]
    attempt = method(problem, replace(options, budget=within))
    result = Result(
        problem=problem,
        method=options.method,
        certify=options.certify,
        seed=options.seed,
        target=float(options.gap),
        starts=attempt.starts,
        columns=columns,
    )
    if problem.classes is not None:
        result.coding = Coding.unscaled(problem.X.shape[1], columns, problem.classes)
        result.targets = targets_in_words(problem.Y.double().cpu().numpy(), problem.classes)
    if problem.spread is ALONE:
        result.attainable = proofs.attainable(problem)
    if interrupted():
        attempt.status = Status.INTERRUPTED
    if examining and not budget.spent() and attempt.status is not Status.INTERRUPTED:
        with budget.phase("examining layers"):
            result.layers, attempt.weights = _examined(problem, attempt, options)
    _fill(result, attempt.weights, attempt.proof)
    count = attempt.history[-1].iteration + 1 if attempt.history else 0
    last = Progress(count, budget.seconds(), result.cost, result.lower, max(result.widths))
    result.history = [*attempt.history, last]
    proved = result.gap is not None and result.gap <= options.gap and attempt.status is not Status.INTERRUPTED
    result.status = Status.OPTIMAL if proved else attempt.status
    result.seconds = budget.seconds()
    result.timing = budget.timing.seconds
    return result


def on_all_rows(result: Result, X: object, Y: object) -> Result:
    """Return a sharded solve's result for a process that holds all X (N, n_0) and Y (N, n_L)."""
    p = result.problem
    options = {"lam": p.lam, "loss": p.loss, "depth": p.depth, "bias": p.beta, "activation": p.activation}
    whole = make_problem(X, Y, **options, device="cpu").double()
    whole_result = replace(result, problem=whole, weights=[W.cpu() for W in result.weights])
    _fill(whole_result, whole_result.weights, None)
    whole_result.history = [*result.history[:-1], replace(result.history[-1], cost=whole_result.cost)]
    return whole_result


def spread_problem(problem: Problem, method: str, certify: str) -> Problem:
    """Return the problem on all processes' rows, of which this one has those of one process.

    Raises:
        ProblemError: processes cannot solve this problem together, or they hold rows of different data.
    """
    if not problem.can_be_split or method != "cone":
        raise ProblemError(
            "Processes with rows of their own solve together by the method cone, with lam, a number as the bias, and"
            " ReLU or leaky ReLU; ask for these, or let one process solve."
        )
    if problem.classes is not None:
        raise ProblemError("Each process would know the labels of its own rows alone; give one-hot rows as Y.")
    if certify != "none":
        raise ProblemError(
            "A bound is proved by a process that holds all rows; set certify to none where they are spread."
        )
    spread = Together.of(problem.samples)
    check_alike((problem.X.shape[1], problem.Y.shape[1]), spread)
    return replace(problem, spread=spread)


def _examined(problem: Problem, attempt: Attempt, options: SolveOptions) -> tuple[list[Layer], list[Tensor]]:
    """Report each hidden layer; return the network with blocks of lower cost put in."""
    if min(len(W) for W in attempt.weights[:-1]) == 0:
        return [], attempt.weights
    budget = options.budget
    if options.callback is not None and attempt.history:
        options.callback(replace(attempt.history[-1], seconds=budget.seconds(), phase="examining each hidden layer"))
    return examine(
        problem,
        attempt.weights,
        options,
        improve=options.method == "cone",  # rivals are reported as they came
    )


def _fill(result: Result, weights: list[Tensor], proof: Proof | None) -> None:
    """Set the numbers of the result, once, from the weights that it returns."""
    result.weights = weights
    cost = evaluate(result.problem, weights)
    if result.problem.allows(cost.residual):
        result.cost, result.fit, result.norm, result.residual = cost.total, cost.fit, cost.norm, cost.residual
    if proof is not None and not proof.lower <= 0.0:
        lower = proofs.agreed(result.problem, weights, result.cost, proof.lower)
        result.lower, result.certificate = lower, proof.kind
        result.proof = type(proof).read(proof.lower, proof.arrays())  # in the memory of the CPU, as from a file


def _initial(problem: Problem, init: Result | Sequence[object] | None) -> list[Tensor] | None:
    """Weights to start from."""
    if init is None:
        return None
    source = init.weights if isinstance(init, Result) else init
    try:
        weights = [torch.as_tensor(W, dtype=torch.float64, device=problem.X.device) for W in source]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"init is {shown(init)}; give a Result, or arrays of numbers W_1 ... W_L.") from error
    check_network(problem, weights)
    return weights
