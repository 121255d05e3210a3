"""`ranks`: the rank that SGD with weight decay ends with, explained, beside the solver's.

Networks are trained for every combination of batch sizes, rates, penalties and momenta, to equal decay of the start by
default, and audited one by one (rank_audit.py); the solver solves the same problem beside them. Instead, a given
network can be audited. [GP22] compares batch sizes after equal epochs: `epochs` and `steps` repeat that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covopt.answer.solve import solve
from covopt.model.activation import Activation
from covopt.model.loss import Loss
from covopt.model.noise import check_batch_size
from covopt.model.problem import Problem, make_problem
from covopt.model.ranks import TOLERANCE, check_tolerance
from covopt.model.recursion import LONGEST, Decay
from covopt.model.weights import check_network
from covopt.runtime.errors import CovoptError, ProblemError, shown
from covopt.runtime.interrupts import gently, interrupted
from covopt.runtime.loop import Budget, Callback, Status
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted
from covopt.studies.audit.given import network_of
from covopt.studies.ranks.rank_answer import Ranks
from covopt.studies.ranks.rank_cells import RankCell, Reference, Setting, cell_of, reference_of
from covopt.studies.ranks.sgd import he_start, train_sgd

BATCHES, RATE, KEPT, DEPTH, WIDTH, SEEDS = (4, 16, 64), 0.1, 1e-4, 3, 100, 3
"""Defaults of the training; batches larger than the data are left out."""
REFERENCE = 1.0 / 3.0
"""Default share of the time for the solver."""
TRAINING = 0.9
"""The share of the remaining time after which training ends; the audits take the rest."""
CELLS, WEIGHTS = 1_000, 100_000_000
"""Maximum number of networks of one call, and of weights of one network."""
Numbers = float | Sequence[float]


@checked
@gently()
@fitted
def ranks(
    X: object,
    Y: object,
    *,
    lam: Numbers | None = None,
    batch_size: int | Sequence[int] | None = None,
    rate: Numbers | None = None,
    momentum: Numbers = 0.0,
    nesterov: bool = False,
    kept: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    net: object = None,
    start: object = None,
    loss: str | Loss | None = None,
    depth: int | None = None,
    width: int | None = None,
    bias: float = 1.0,
    activation: str | Activation | None = None,
    tolerance: Numbers = TOLERANCE,
    reference: float | None = None,
    seeds: int | None = None,
    time_limit: float = 300.0,
    seed: int = 0,
    device: str | torch.device | None = None,
    callback: Callback | None = None,
    task: str | None = None,
) -> Ranks:
    """Audit the ranks of networks after SGD, or of a given one, beside the solver's network.

    Args:
        X: inputs (N, n_0).
        Y: targets (N, n_L), numbers or labels (N,).
        lam: strength of the penalty lam |W|^2, half of PyTorch's weight_decay; a list is varied; 0 is allowed.
        batch_size: B; a list is varied. Default: 4, 16 and 64.
        rate: the constant learning rate mu; a list is varied. Default: 0.1.
        momentum: PyTorch's, without dampening; a list is varied. nesterov: Nesterov's form of it.
        kept: train until the retained fraction of the start is at most this; the default, 1e-4, compares at equal
            decay.
        epochs, steps: train for this number instead. At most one of the three.
        net: audit this network instead of training any: weights, a module, a state dict, a Result, or a file.
            `batch_size`, `rate`, `momentum` and `steps` then describe its training, as far as that is known.
        start: the first weights of that network, in any of these forms.
        loss: mse or cross_entropy; None: mse.
        depth: L. width: of every hidden layer. Default: 3 and 100.
        bias, activation, device, task: as for `solve`.
        tolerance: of the threshold ranks #{s_i > tolerance |W|}; a list gives each.
        reference: seconds for the solver, shared by the values of lam; None: a third of the limit, 0: no solver.
        seeds: networks of each setting, from starts `seed`, `seed` + 1, ... Default: 3.
        time_limit: seconds for everything; networks come back as they are then.
        seed: of the first start, and of the order of the samples, which all networks of a batch size share.
        callback: gets a `Progress` now and then.

    Returns:
        Every network with its ranks and their explanation, and the ranks of the solver's network.

    Raises:
        ProblemError: an option is out of range, the grid is empty, or every network diverged.
        DataError: the network cannot be read.

    Source: [GP22]; the proofs on ranks, decay and noise are derived in MATH.md, section 9.
    """
    budget = Budget(_positive(time_limit, "time limit"))
    seed = _whole(seed, "seed", 0)
    tolerances, strengths = _tolerances(tolerance), _strengths(lam, loss)
    options = {"loss": loss, "bias": bias, "device": device, "task": task}
    limits = [limit for limit in (("kept", kept), ("epochs", epochs), ("steps", steps)) if limit[1] is not None]
    if len(limits) > 1:
        raise ProblemError(f"{limits[0][0]} and {limits[1][0]} each say how long to train; give one of them.")
    if net is None:
        if start is not None:
            raise ProblemError("A start is that of a given network; give the network too, or leave the start out.")
        layers = DEPTH if depth is None else depth
        problem = make_problem(X, Y, lam=1.0, depth=layers, activation=activation or "relu", **options)  # type: ignore[arg-type]
        settings = _grid(
            problem, strengths, batch_size, rate, momentum, nesterov, dict(limits or [("kept", KEPT)]), seeds, seed
        )
        widths = [_whole(WIDTH if width is None else width, "width", 1)] * (problem.depth - 1)
        share = _seconds(reference, budget.time_limit) if any(strengths) else 0.0
        cells, status = _trained(problem, settings, widths, tolerances, seed, budget, share, callback)
    else:
        if any(option is not None for option in (kept, epochs, width, depth, seeds)):
            raise ProblemError(
                "A given network is not trained here; leave kept, epochs, width, depth and seeds out, or the network."
            )
        given = network_of(net, bias, X)
        chosen, layers = given.agreed(activation), len(given.weights)
        problem = make_problem(X, Y, lam=1.0, depth=layers, activation=chosen, **options)  # type: ignore[arg-type]
        setting = _of_given(problem, strengths, batch_size, rate, momentum, nesterov, steps)
        share = _seconds(reference, budget.time_limit) if any(strengths) else 0.0
        first = None if start is None else network_of(start, bias).weights
        cells, status = [_given(problem.double(), setting, given.weights, first, tolerances, seed)], Status.CONVERGED
    references, refused = _references(
        problem, [strength for strength in strengths if strength > 0.0], share, tolerances, seed, callback
    )
    status = Status.INTERRUPTED if interrupted() else status
    until = None if net is not None else dict(limits or [("kept", KEPT)])
    return Ranks(
        problem.double(), cells, references, tolerances, until, status, budget.seconds(), seed, refused=refused
    )


def _grid(
    problem: Problem,
    strengths: Sequence[float],
    batch_size: int | Sequence[int] | None,
    rate: Numbers | None,
    momentum: Numbers,
    nesterov: bool,
    until: dict[str, float | int | None],
    seeds: int | None,
    seed: int,
) -> list[Setting]:
    """Return every combination, with the seed varying fastest.

    Args:
        until: `kept`, `epochs` or `steps`, and its value.

    Raises:
        ProblemError: a value is out of range, or twice in a list; a batch is larger than the data; the start never
            fades.
    """
    if batch_size is None:
        batch_size = [size for size in BATCHES if size <= problem.samples] or [problem.samples]
    sizes = [_whole(size, "batch size", 1) for size in _listed(batch_size, "batch size")]
    rates = [_number(value, "rate") for value in _listed(RATE if rate is None else rate, "rate")]
    momenta = [_number(value, "momentum") for value in _listed(momentum, "momentum")]
    starts = range(seed, seed + _whole(SEEDS if seeds is None else seeds, "number of seeds", 1))
    if len(sizes) * len(rates) * len(momenta) * len(strengths) * len(starts) > CELLS:
        raise ProblemError(f"The grid has more than {CELLS:,} networks; give fewer values, or run a sweep.")
    settings = []
    for size, mu, lam, beta in itertools.product(sizes, rates, strengths, momenta):
        check_batch_size(problem, size)
        ahead = nesterov and beta > 0.0
        taken = _steps(problem, Decay(mu, lam, beta, ahead), size, until)
        settings += [Setting(lam, size, mu, beta, ahead, taken, start) for start in starts]
    return settings


def _steps(problem: Problem, decay: Decay, size: int, until: dict[str, float | int | None]) -> int:
    """Return the number of steps of a setting."""
    (name, value), *_ = until.items()
    if name == "steps":
        return _whole(value, "number of steps", 0)
    if name == "epochs":
        epochs = _positive(value, "number of epochs")
        if epochs * problem.samples / size > LONGEST:
            raise ProblemError(f"So many epochs, {epochs:g}, take more than {LONGEST:g} steps; give fewer.")
        return max(1, round(epochs * problem.samples / size))
    if decay.lam == 0.0:
        raise ProblemError("Without a penalty nothing of the start fades; with lam 0, give epochs or steps.")
    return decay.steps_to(_number(value, "part of the start to keep"))


def _trained(
    problem: Problem,
    settings: list[Setting],
    widths: list[int],
    tolerances: list[float],
    seed: int,
    budget: Budget,
    share: float,
    callback: Callback | None,
) -> tuple[list[RankCell], Status]:
    """Train all networks, and audit them; raise an error if all of them diverged."""
    sizes = [problem.X.shape[1], *widths, problem.Y.shape[1]]
    if sum(n * (below + 1) for below, n in itertools.pairwise(sizes)) > WEIGHTS:
        raise ProblemError(f"The network has more than {WEIGHTS:,} weights; give a smaller width.")
    starts = {setting.seed: he_start(problem, widths, int(setting.seed or 0)) for setting in settings}
    limit = TRAINING * max(1e-3, budget.time_limit - share)
    networks, status = train_sgd(
        problem,
        [starts[setting.seed] for setting in settings],
        [setting.options() for setting in settings],
        seed=seed,
        budget=replace(budget, time_limit=limit),
        callback=callback,
    )
    if all(network.diverged for network in networks):
        least = min(setting.rate or 0.0 for setting in settings)
        raise ProblemError(f"Every network diverged, also at the rate {least:g}; give a smaller rate.")
    exact = problem.double()
    pairs = zip(settings, networks, strict=True)
    cells = [
        cell_of(exact, setting, network, starts[setting.seed], tolerances=tolerances, seed=seed)
        for setting, network in pairs
    ]
    return cells, status


def _of_given(
    problem: Problem,
    strengths: list[float],
    batch_size: int | Sequence[int] | None,
    rate: Numbers | None,
    momentum: Numbers,
    nesterov: bool,
    steps: int | None,
) -> Setting:
    """Return the training of a given network; each option must have one value."""
    values = {"lam": strengths, "momentum": _listed(momentum, "momentum")}
    for name, value in (("batch size", batch_size), ("rate", rate)):
        values[name] = [None] if value is None else _listed(value, name)  # type: ignore[list-item]
    for name, choices in values.items():
        if len(choices) > 1:
            raise ProblemError(f"A given network was trained with one {name}; give one.")
    size = values["batch size"][0]
    setting = Setting(
        lam=strengths[0],
        batch_size=None if size is None else _whole(size, "batch size", 1),
        rate=None if values["rate"][0] is None else _number(values["rate"][0], "rate"),
        momentum=_number(values["momentum"][0], "momentum"),
        nesterov=nesterov and bool(values["momentum"][0]),
        steps=None if steps is None else _whole(steps, "number of steps", 0),
    )
    if setting.batch_size is not None:
        check_batch_size(problem, setting.batch_size)
    if setting.decay is None and setting.momentum != 0.0:
        raise ProblemError("A momentum without a rate says nothing; give the rate too.")
    return setting


def _given(
    problem: Problem,
    setting: Setting,
    weights: list[Tensor],
    start: list[Tensor] | None,
    tolerances: list[float],
    seed: int,
) -> RankCell:
    check_network(problem, [W.to(problem.X) for W in weights])
    return cell_of(problem, setting, weights, start, tolerances=tolerances, seed=seed)


def _references(
    problem: Problem,
    strengths: list[float],
    seconds: float,
    tolerances: list[float],
    seed: int,
    callback: Callback | None,
) -> tuple[dict[float, Reference], dict[float, str]]:
    """Solve for each lam in an equal share of the time; return results, and reasons for none."""
    references: dict[float, Reference] = {}
    refused: dict[float, str] = {}
    budget = Budget(seconds)
    for place, lam in enumerate(strengths):
        if budget.spent():
            break
        try:
            result = solve(
                problem.X,
                problem.Y,
                lam=lam,
                loss=problem.loss,
                depth=problem.depth,
                bias=problem.beta,
                activation=problem.activation,
                certify="fast",
                time_limit=budget.remaining() / (len(strengths) - place),
                seed=seed,
                callback=callback,
            )
            references[lam] = reference_of(problem.double(), result, tolerances)
        except CovoptError as error:  # the trained networks must not be lost
            refused[lam] = str(error)
    return references, refused


def _strengths(lam: Numbers | None, loss: str | Loss | None) -> list[float]:
    if loss == "interpolate" or (isinstance(loss, Loss) and loss.name == "interpolate"):
        raise ProblemError(
            "The loss interpolate has no penalty that makes weights decay; give lam and the loss mse or cross_entropy."
        )
    if lam is None:
        raise ProblemError("The strength of the penalty is missing; give lam, half of PyTorch's weight_decay, or 0.")
    values = [_number(value, "lam") for value in _listed(lam, "lam")]
    if min(values) < 0.0:
        raise ProblemError(f"lam is {min(values):g}; give 0 or more.")
    return values


def _tolerances(tolerance: Numbers) -> list[float]:
    values = [_number(value, "tolerance") for value in _listed(tolerance, "tolerance")]
    for value in values:
        check_tolerance(value)
    return values


def _seconds(reference: float | None, limit: float) -> float:
    if reference is None:
        return REFERENCE * limit
    value = _number(reference, "solver's time")
    if not 0.0 <= value < limit:
        raise ProblemError(f"The solver's time is {value:g} s of {limit:g}; give less than the time limit, or 0.")
    return value


def _listed(values: object, name: str) -> list[Any]:
    """Return one number, or several different ones, as a list."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    numbers: list[Any] = list(values) if several else [values]  # type: ignore[call-overload]
    if not numbers:
        raise ProblemError(f"The list of the {name} is empty, and so is the grid; give at least one value.")
    if len(set(map(repr, numbers))) < len(numbers):
        raise ProblemError(f"The {name} has a value twice; give each once.")
    return numbers


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ProblemError(f"The {name} is {shown(value)}; give a number.")
    if not math.isfinite(value):
        raise ProblemError(f"The {name} is {value}; give a finite number.")
    return float(value)


def _positive(value: object, name: str) -> float:
    number = _number(value, name)
    if not number > 0.0:
        raise ProblemError(f"The {name} is {number:g}; give a number above 0.")
    return number


def _whole(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= LONGEST:
        raise ProblemError(f"The {name} is {shown(value)}; give a whole number from {least} to {LONGEST:,}.")
    return int(value)
