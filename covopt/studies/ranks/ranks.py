"""`ranks`: the rank that SGD with weight decay ends with, explained, beside the solver's.

Networks are trained for every combination of batch sizes, rates, penalties and momenta, to equal decay of the initial
weights by default, and audited one by one (rank_audit.py); the solver solves the same problem beside them. Instead, a
given network can be audited. [GP22] compares batch sizes after equal epochs: `epochs` and `steps` repeat that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from covopt.answer.held_out import HeldOut
from covopt.answer.solve import solve, study
from covopt.model.loss import Loss
from covopt.model.noise import check_batch_size
from covopt.model.problem import Problem, make_problem
from covopt.model.ranks import TOLERANCE, check_tolerance
from covopt.model.recursion import LONGEST, Decay, StepwiseDecay
from covopt.model.scalars import as_number
from covopt.model.weights import check_network
from covopt.runtime.errors import CovoptError, ProblemError, shown
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Callback, Status
from covopt.studies.audit.given import network_of
from covopt.studies.ranks.architectures import PLAIN, Architecture, architecture_of
from covopt.studies.ranks.rank_answer import Ranks
from covopt.studies.ranks.rank_cells import RankCell, Reference, cell_of, reference_of
from covopt.studies.ranks.sgd import Descended, Numbers, Setting, Training, he_start, train_sgd


@study(Training)
def ranks(
    X: object,
    Y: object = None,
    *,
    lam: Numbers | None = None,
    net: object = None,
    start: object = None,
    test: tuple[object, object] | None = None,
    architecture: str = "plain",
    depth: int | None = None,
    width: int | None = None,
    tolerance: Numbers = TOLERANCE,
    time_limit: float = 300.0,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool | None = None,
    **training: Unpack[Training],
) -> Ranks:
    """Audit the ranks of networks after SGD, or of a given one, beside the solver's network.

    >>> answer = covopt.ranks([[0.0], [1.0]], [0.0, 1.0], lam=0.01, batch_size=1, steps=20, seeds=1, reference=0)
    >>> answer.rank(1)
    1.0

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`.
        lam: strength of the penalty lam |W|^2, half of PyTorch's weight_decay; a list is varied; 0 is allowed.
        batch_size: B; a list is varied. Default: 4, 16 and 64.
        rate: the learning rate mu; a list is varied. Default: 0.1.
        momentum: PyTorch's, without dampening; a list is varied. nesterov: Nesterov's form of it.
        milestones: epochs after which the rate falls, as PyTorch's `MultiStepLR`; give `epochs` or `steps` too.
        gamma: the factor of the rate at each of them.
        kept: train until the retained fraction of the initial weights is at most this; the default, 1e-4, compares at
            equal decay.
        epochs, steps: train for this number instead. At most one of the three.
        net: audit this network instead of training any: weights, a module, a state dict, a Result, or a file.
            `batch_size`, `rate`, `momentum` and `steps` then describe its training; give what you know.
        start: the first weights of that network, in any of these forms.
        test: held-out inputs and targets, on which accuracies are measured.
        architecture: plain, batch_norm or residual (batch-normalised blocks of two layers); the solver's network is
            computed for plain networks only.
        loss: mse or cross_entropy; None: mse.
        depth: L. width: of every hidden layer. Default: 3 and 100.
        bias, activation, device, task: as for `solve`.
        tolerance: of the threshold ranks #{s_i > tolerance |W|}; a list for several.
        reference: seconds for the solver, shared by the values of lam; None: a third of the limit, 0: no solver.
        seeds: networks of each setting, from starts `seed`, `seed` + 1, ... Default: 3.
        time_limit: seconds for everything; then unfinished networks are returned as they are.
        seed: of the first start, and of the order of the samples, which all networks of a batch size share.
        callback: gets a `Progress` now and then.
        progress: as for `covopt.solve`.

    Returns:
        Every network with its ranks and their explanation, and the ranks of the solver's network.

    Raises:
        ProblemError: an option is out of range, the grid is empty, or every network diverged.
        DataError: the network cannot be read.

    Source: [GP22]; the proofs on ranks, decay and noise are derived in MATH.md, section 9.
    """
    sgd: dict[str, Any] = {**training}
    options, activation = {name: sgd.pop(name) for name in ("loss", "bias", "device", "task")}, sgd.pop("activation")
    limits = {name: sgd.pop(name) for name in ("kept", "epochs", "steps")}
    strengths, tolerances = _strengths(lam, options["loss"]), _numbers(tolerance, "tolerance")
    for value in tolerances:
        check_tolerance(value)
    until = {name: limit for name, limit in limits.items() if limit is not None}
    if len(until) > 1:
        first, second, *_ = until
        raise ProblemError(f"{first} and {second} each say how long to train; give one of them.")
    milestones, gamma = sgd.pop("milestones"), as_number(sgd.pop("gamma"), "gamma")
    request = _Request(
        architecture=architecture_of(architecture),
        strengths=strengths,
        milestones=[] if milestones is None else _numbers(milestones, "milestone"),
        gamma=gamma,
        until=until or {"kept": 1e-4},
        seed=seed,
        tolerances=tolerances,
        budget=Budget(as_number(time_limit, "The time limit")),
        callback=callback,
        **sgd,
    )
    if net is None:
        if start is not None:
            raise ProblemError("A start is that of a given network; give the network too, or leave the start out.")
        layers = 3 if depth is None else depth
        problem = make_problem(X, Y, lam=1.0, depth=layers, activation=activation or "relu", **options)
        settings = request.grid(problem)
        widths = [_whole(100 if width is None else width, "width", 1)] * (problem.depth - 1)
        held = HeldOut.of(test, problem)
        cells, status = request.train(problem, settings, widths, held)
    else:
        if any(option is not None for option in (limits["kept"], limits["epochs"], width, depth, request.seeds)):
            raise ProblemError(
                "A given network is not trained here; leave kept, epochs, width, depth and seeds out, or the network."
            )
        if request.milestones or request.architecture is not PLAIN:
            raise ProblemError(
                "A given network is plain and of a constant rate; leave milestones and architecture out."
            )
        given = network_of(net, options["bias"], X)
        chosen, layers = given.agreed(activation), len(given.weights)
        problem = make_problem(X, Y, lam=1.0, depth=layers, activation=chosen, **options)
        setting = request.setting(problem, limits["steps"])
        first = None if start is None else network_of(start, options["bias"]).weights
        check_network(problem.double(), [W.to(problem.X.device) for W in given.weights])
        network = Descended(given.weights, setting.steps)
        held = HeldOut.of(test, problem)
        cells = [cell_of(problem.double(), setting, network, first, test=held, tolerances=tolerances, seed=seed)]
        status = Status.CONVERGED
    references, refused = request.solve(problem)
    return Ranks(
        problem=problem.double(),
        cells=cells,
        references=references,
        tolerances=tolerances,
        until=request.until if net is None else None,
        status=Status.INTERRUPTED if interrupted() else status,
        seconds=request.budget.seconds(),
        seed=seed,
        refused=refused,
        architecture=request.architecture,
        test=held,
    )


@dataclass(frozen=True)
class _Request:
    """The options of a call: batch sizes, rates, momenta and seeds as the caller gave them."""

    architecture: Architecture
    strengths: list[float]  # the values of lam
    batch_size: int | Sequence[int] | None
    rate: Numbers | None
    momentum: Numbers
    nesterov: bool
    milestones: list[float]  # in epochs
    gamma: float
    until: dict[str, Any]  # `kept`, `epochs` or `steps`, and its value
    seeds: int | None
    seed: int
    tolerances: list[float]
    budget: Budget
    reference: float | None  # seconds for the solver; None: a third of the time
    callback: Callback | None
    most: tuple[int, int] = (1_000, 100_000_000)  # networks, and weights of one network

    @property
    def share(self) -> float:
        """The seconds for the solver; raise a ProblemError if they leave no time for the training."""
        limit = self.budget.time_limit
        if self.architecture is not PLAIN and self.reference:
            raise ProblemError("The solver knows plain networks alone; leave its time, reference, out.")
        if self.architecture is not PLAIN or not any(self.strengths):
            return 0.0
        if self.reference is None:
            return limit / 3.0
        value = as_number(self.reference, "The solver's time")
        if not 0.0 <= value < limit:
            raise ProblemError(f"The solver's time is {value:g} s of {limit:g}; give less than the time limit, or 0.")
        return value

    def grid(self, problem: Problem) -> list[Setting]:
        """Return every combination, with the seed varying fastest."""
        batch_size = self.batch_size
        if batch_size is None:
            batch_size = [size for size in (4, 16, 64) if size <= problem.samples] or [problem.samples]
        sizes = [_whole(size, "batch size", 1) for size in _listed(batch_size, "batch size")]
        rates = _numbers(0.1 if self.rate is None else self.rate, "rate")
        momenta = _numbers(self.momentum, "momentum")
        starts = range(self.seed, self.seed + _whole(3 if self.seeds is None else self.seeds, "number of seeds", 1))
        if len(sizes) * len(rates) * len(momenta) * len(self.strengths) * len(starts) > self.most[0]:
            raise ProblemError(f"The grid has more than {self.most[0]:,} networks; give fewer values, or run a sweep.")
        self.architecture.check(problem.depth, sizes)
        settings = []
        for size, mu, lam, beta in itertools.product(sizes, rates, self.strengths, momenta):
            check_batch_size(problem, size)
            ahead = self.nesterov and beta > 0.0
            steps = self._steps(problem, Decay(mu, lam, beta, ahead), size)
            falls = tuple(round(min(epoch * problem.samples / size, LONGEST)) for epoch in self.milestones)
            StepwiseDecay(Decay(mu, lam, beta, ahead), falls, self.gamma, steps)  # refuses wrong milestones
            gamma = self.gamma if falls else 1.0
            settings += [Setting(size, mu, lam, steps, beta, ahead, falls, gamma, start) for start in starts]
        return settings

    def _steps(self, problem: Problem, decay: Decay, size: int) -> int:
        ((name, value),) = self.until.items()
        if name == "steps":
            return _whole(value, "number of steps", 0)
        if name == "epochs":
            epochs = as_number(value, "The number of epochs")
            if not epochs > 0.0:
                raise ProblemError(f"The number of epochs is {epochs:g}; give a number above 0.")
            if epochs * problem.samples / size > LONGEST:
                raise ProblemError(f"These {epochs:g} epochs take more than {LONGEST:g} steps; give fewer.")
            return max(1, round(epochs * problem.samples / size))
        if self.milestones:
            raise ProblemError(
                "With milestones the rate falls before enough of the initial weights has faded; give epochs or steps."
            )
        if decay.lam == 0.0:
            raise ProblemError("Without a penalty the initial weights never fade; with lam 0, give epochs or steps.")
        return decay.steps_to(as_number(value, "The retained fraction, kept,"))

    def setting(self, problem: Problem, steps: int | None) -> Setting:
        """Return the training of a given network; each option must have one value."""
        options = {"momentum": self.momentum, "batch size": self.batch_size, "rate": self.rate}
        values = {name: [None] if value is None else _listed(value, name) for name, value in options.items()}
        for name, choices in {"lam": self.strengths, **values}.items():
            if len(choices) > 1:
                raise ProblemError(f"A given network was trained with one {name}; give one.")
        (momentum,), (size,), (rate,) = values.values()
        setting = Setting(
            lam=self.strengths[0],
            batch_size=None if size is None else _whole(size, "batch size", 1),
            rate=None if rate is None else as_number(rate, "The rate"),
            momentum=as_number(momentum, "The momentum"),
            nesterov=self.nesterov and bool(momentum),
            steps=None if steps is None else _whole(steps, "number of steps", 0),
        )
        if setting.batch_size is not None:
            check_batch_size(problem, setting.batch_size)
        if setting.rate is None and setting.momentum != 0.0:
            raise ProblemError("A momentum without a rate says nothing; give the rate too.")
        return setting

    def train(
        self, problem: Problem, settings: list[Setting], widths: list[int], test: HeldOut | None
    ) -> tuple[list[RankCell], Status]:
        """Train all networks, and audit them; raise an error if all of them diverged."""
        sizes = [problem.X.shape[1], *widths, problem.Y.shape[1]]
        if sum(n * (below + 1) for below, n in itertools.pairwise(sizes)) > self.most[1]:
            raise ProblemError(f"The network has more than {self.most[1]:,} weights; give a smaller width.")
        starts = {setting.seed: he_start(problem, widths, int(setting.seed or 0)) for setting in settings}
        limit = 0.9 * max(1e-3, self.budget.time_limit - self.share)  # the audits take the rest
        networks, status = train_sgd(
            problem,
            [starts[setting.seed] for setting in settings],
            settings,
            architecture=self.architecture,
            test=test,
            seed=self.seed,
            budget=replace(self.budget, time_limit=limit),
            callback=self.callback,
        )
        if all(network.diverged for network in networks):
            least = min(setting.rate or 0.0 for setting in settings)
            raise ProblemError(f"Every network diverged, also at the rate {least:g}; give a smaller rate.")
        exact, audit = problem.double(), {"tolerances": self.tolerances, "seed": self.seed}
        cells = [
            cell_of(exact, setting, network, starts[setting.seed], architecture=self.architecture, test=test, **audit)
            for setting, network in zip(settings, networks, strict=True)
        ]
        return cells, status

    def solve(self, problem: Problem) -> tuple[dict[float, Reference], dict[float, str]]:
        """Solve for each lam in an equal share of the time; return results, and reasons for none."""
        references: dict[float, Reference] = {}
        refused: dict[float, str] = {}
        budget = Budget(self.share)
        for lam, turn in budget.turns([strength for strength in self.strengths if strength > 0.0]):
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
                    time_limit=turn.remaining(),
                    seed=self.seed,
                    callback=self.callback,
                )
                references[lam] = reference_of(problem.double(), result, self.tolerances)
            except CovoptError as error:  # the trained networks must not be lost
                refused[lam] = str(error)
        return references, refused


def _strengths(lam: Numbers | None, loss: str | Loss | None) -> list[float]:
    if getattr(loss, "name", loss) == "interpolate":
        raise ProblemError(
            "The loss interpolate has no penalty that makes weights decay; give lam and the loss mse or cross_entropy."
        )
    if lam is None:
        raise ProblemError("The strength of the penalty is missing; give lam, half of PyTorch's weight_decay, or 0.")
    values = _numbers(lam, "lam")
    if min(values) < 0.0:
        raise ProblemError(f"lam is {min(values):g}; give 0 or more.")
    return values


def _listed(values: object, name: str) -> list[Any]:
    """Return one value, or several different ones, as a list."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    choices: list[Any] = list(values) if several else [values]  # type: ignore[call-overload]
    if not choices:
        raise ProblemError(f"The list of the {name} is empty, and so is the grid; give at least one value.")
    if len(set(map(repr, choices))) < len(choices):
        raise ProblemError(f"The {name} has a value twice; give each once.")
    return choices


def _numbers(values: object, name: str) -> list[float]:
    return [as_number(value, f"The {name}") for value in _listed(values, name)]


def _whole(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= LONGEST:
        raise ProblemError(f"The {name} is {shown(value)}; give a whole number from {least} to {LONGEST:,}.")
    return int(value)
