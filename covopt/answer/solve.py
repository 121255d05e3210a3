"""`solve`, the answer to a problem with its proof, and `plan`, what it would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Annotated, Any, ParamSpec, TypedDict, TypeVar

import torch

from covopt.answer.plan import SolvePlan, fill, prepared
from covopt.answer.progress import followed
from covopt.answer.result import Result
from covopt.data.tables import column_names
from covopt.model.activation import Activation
from covopt.model.loss import Loss
from covopt.model.problem import make_problem
from covopt.model.spread import rank_here
from covopt.runtime.interrupts import gently
from covopt.runtime.loop import Budget, Callback, Seed, Whole, check_seed
from covopt.runtime.options import by_rule, checked, taking, unpacked
from covopt.runtime.threads import fitted
from covopt.solvers.checkpoint import Checkpoint
from covopt.solvers.options import WIDEST, SolveOptions, as_count
from covopt.solvers.plan import check_data

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class Keywords(TypedDict, total=False):
    """Options of `solve` that every study takes, with their defaults."""

    certify: Annotated[str, "auto"]
    gap: Annotated[float, 1e-4]
    seed: Annotated[Seed, 0]
    device: Annotated[str | torch.device | None, None]
    task: Annotated[str | None, None]


class Question(Keywords, total=False):
    """Options of `solve` that studies of one loss and penalty take, with their defaults."""

    lam: Annotated[float | None, None]
    loss: Annotated[str | Loss | None, None]
    sample_weight: Annotated[object, None]


def study(options: type) -> Callable[[Callable[Arguments, Returned]], Callable[Arguments, Returned]]:
    """Decorate the public function of a study, whose last keywords are the TypedDict `options`.

    Its options are checked, its progress is shown, Ctrl-C ends it with what there is, and its threads fit its data.
    """
    return lambda public: checked(followed(gently()(fitted(taking(options)(public)))))


@checked
@followed
@gently()
@fitted
def solve(
    X: object,
    Y: object = None,
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
    init: Result | torch.nn.Module | Sequence[object] | None = None,
    width: Whole | None = None,
    max_width: Whole | None = None,
    starts: Whole | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    sample_weight: object = None,
    spread: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    memory_limit: float | None = None,
    task: str | None = None,
) -> Result:
    """Solve min C + lam |W|^2 over networks of depth L, or min |W|^2 with F = Y.

    >>> result = covopt.solve([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], lam=0.01)
    >>> round(result.cost, 4), round(result.lower, 4), result.widths
    (0.0608, 0.0608, [3])
    >>> result.predict([[1.0]]).round(2).tolist()
    [[0.89]]

    The minimum is what the data cost, R(X, Y) in the second case. For depth 2 the problem is convex over covariances
    [JGHG22, Prop. 3], and the gap is closed where it can be (MATH.md, section 4). Deeper problems return the best of
    many starts with a bound from the data, and each hidden layer's own gap in `layers`.

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`. Arrays of
            float64, and tensors, with 4 million numbers and more are not copied; the result refers to them.
        lam: strength of the penalty; None asks for the representation cost.
        loss: mse, cross_entropy, huber (or huber:D), logistic or interpolate, or a `Loss` of one's own; None means
            interpolate without lam and mse with it.
        task: classification makes one-hot rows of Y (N,), regression takes its numbers. None: texts, booleans, and
            integers of at most 20 values on five times as many rows are classes; for cross_entropy and logistic all
            whole numbers are.
        depth: L >= 2.
        bias: beta >= 0; "free" for unpenalised biases (beta is 1 in the network; MATH.md section 4).
        skip: a linear function of the inputs is free as well, f(x) + S x, with free biases, mse and exact fits; W_L is
            [A_L, S, b_L].
        activation: relu, leaky:A or linear.
        method: cone, fully corrective Frank-Wolfe over S for depth 2, and beyond that descents in the weights from many
            starts, then Frank-Wolfe layer by layer; frank-wolfe, Frank-Wolfe over S alone, with no descent in the
            weights: at depth 2, and beyond that the layers in turn, with a Tikhonov parameter between them that falls;
            hidden, descent on the representations Z, with such a parameter; train, ordinary training of several starts
            as one batch.
        certify: none; fast: the exact bound where the oracle knows the maximum (rank(Xt) <= 3, linear networks), else
            the spectral one; full: also branch and bound up to rank 6 (8 with one output), alternating with the solver,
            and beyond that the doubly non-negative relaxation with branches on signs; auto: the same in the time that
            the search leaves, while it pays off. Depth >= 3 has bounds from the data, and three layers on at most 32
            samples better ones with auto and full.
        gap: stop at this proved relative gap.
        tol: end the method cone, with the status `tolerance`, once two rounds in a row (two layers, where no exact
            oracle knows the gap) or a pass over all layers (more) gain less than this part of the cost. Unlike the time
            limit it leaves the answer repeatable. None: end when rounds find nothing.
        time_limit: seconds.
        max_iterations: rounds of the method; None: no limit. Repeatable as well, but for the length of a proof.
        seed: of the search.
        device: where to compute; None follows X.
        init: a Result, an nn.Module as for `validate`, or weights [W_1, ..., W_L], to start from.
        width: of every hidden layer, for the methods hidden and train; None lets it choose.
        max_width: of every hidden layer, for the method cone at depth >= 3.
        starts: random starts (cone and frank-wolfe at depth >= 3), descents or trainings; None lets the method choose.
        callback: gets a `Progress` after each round.
        progress: true: show a line with cost, bound and time on standard error; None: on a terminal and in a notebook
            alone.
        sample_weight: s_i >= 0 (N,) of the rows, of any scale: C is the mean with these weights, so that weight 2 is a
            row given twice and weight 0 a row left out, also of `Result.problem`; None: all are equal. `interpolate`
            asks the same for all positive ones.
        spread: data parallel: X and Y are the rows of this process; each process of the default group of
            `torch.distributed` holds others, makes the same call, and ends with the same network. Sums over all rows,
            as of the `problem` of the results, all have to ask for. For the method cone, ReLU or leaky ReLU, a number
            as the bias, lam, and certify="none".
        checkpoint: a new file for the state of the search, for two layers by the method cone with a number as the bias;
            it is replaced as a whole, after a round or within the training on mini-batches, and at the end.
        checkpoint_every: seconds between two states; a round that takes longer comes to its end first.
        resume: continue from the state in `checkpoint`, with the same problem and seed; the seconds before count.
            The number of processes may differ. Bounds are proved again.
        memory_limit: GB (1e9 bytes) that this process may take, about: where the estimate of the need is above it, the
            search tries fewer starts at a time, random batches take the place of rounds on all samples, or less is
            proved, and a warning says which. None: a warning if the machine has less than is needed. The logger
            `covopt` gets the estimate (INFO).

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
    return _planned(**locals()).carried_out()


@fitted
def plan(X: object, Y: object = None, **options: Any) -> SolvePlan:
    """Return what `solve` would do with the same arguments, without solving.

    >>> plan = covopt.plan([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], lam=0.1, depth=3, time_limit=10)
    >>> [stage.name for stage in plan.stages]
    ['bound', 'cases', 'search', 'layers']
    >>> result = plan.solve()

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`. Arrays of
            float64, and tensors, with 4 million numbers and more are not copied; the result refers to them.
        **options: those of `solve`.

    Returns:
        The stages in their order, with the settings of each, when each ends at the latest, and the memory it needs;
        `print` shows them as a table, and `solve()` runs them.

    Raises:
        CovoptError: as `solve`, before it begins.
    """
    call = signature(solve).bind(X, Y, **options)
    call.apply_defaults()
    defaults = {name: parameter.default for name, parameter in call.signature.parameters.items()}
    arguments: dict[str, Any] = dict(call.arguments) | by_rule(call.arguments, defaults)
    arguments |= unpacked(arguments, defaults)
    return _planned(**arguments)


def _planned(
    X: object,
    Y: object,
    *,
    max_iterations: Whole | None,
    time_limit: float,
    seed: Seed,
    width: Whole | None,
    max_width: Whole | None,
    starts: Whole | None,
    memory_limit: float | None,
    init: Result | torch.nn.Module | Sequence[object] | None,
    checkpoint: str | os.PathLike[str] | None,
    checkpoint_every: float,
    spread: bool,
    resume: bool,
    **given: Any,
) -> SolvePlan:
    """Make the problem and the options from the arguments of `solve`, and return the plan."""
    check_data(X, Y, memory_limit)
    how = {name: given.pop(name) for name in ("method", "certify", "gap", "tol", "callback")}
    del given["progress"]  # which `followed` reads
    problem = make_problem(X, Y, **given, free=True)
    rounds = as_count(max_iterations, "max_iterations")
    options = SolveOptions(
        Budget(time_limit) if rounds is None else Budget(time_limit, rounds),
        **how,
        seed=check_seed(seed),
        width=as_count(width, "width", WIDEST),
        max_width=as_count(max_width, "max_width", WIDEST),
        starts=as_count(starts, "starts"),
        memory_limit=memory_limit,
    )
    if checkpoint is not None:
        options = replace(options, checkpoint=Checkpoint(checkpoint, checkpoint_every, not spread or rank_here() == 0))
    return prepared(problem, options, init, column_names(X), spread=spread, resume=resume)


def on_all_rows(result: Result, X: object, Y: object) -> Result:
    """Return a sharded solve's result for a process that holds all X (N, n_0) and Y (N, n_L)."""
    p = result.problem
    options = {"lam": p.lam, "loss": p.loss, "depth": p.depth, "bias": p.beta, "activation": p.activation}
    whole = make_problem(X, Y, **options, device="cpu").double()
    whole_result = replace(result, problem=whole, weights=[W.cpu() for W in result.weights])
    fill(whole_result, whole_result.weights, None)
    whole_result.history = [*result.history[:-1], replace(result.history[-1], cost=whole_result.cost)]
    return whole_result
