"""`Monitor`: watch a network in its training loop, in passes over the samples.

For L(W) = C(F) + lam sum_l |W_l|^2 a look reports the loss and its two parts, and for each layer of weights

    |W_l - M_l^T Zs_{l-1}| / |W_l| = |dL/dW_l| / (2 lam |W_l|),

the residual of stationarity (MATH.md section 5; at kinks the slope that PyTorch takes), 0 at rest, and the rank
#{i : s_i > tau |W_l|} (section 9). With a result of `solve` for the same problem it also reports how far the loss is
above the best known loss and above the proved bound.

Inputs stay in their own dtype, and so do products of matrices; losses and sums are in float64.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from pathlib import Path

import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.model.loss import Loss
from covopt.model.passes import loss_and_slopes
from covopt.model.problem import Problem, make_problem
from covopt.model.ranks import TOLERANCE, check_tolerance, frobenius, threshold_rank
from covopt.model.scalars import as_number
from covopt.model.weights import check_network
from covopt.records.numerals import percent, percent_at_most
from covopt.records.record import known as known_number, table
from covopt.runtime.errors import ProblemError, listed, shown
from covopt.runtime.files import columns_of, write_file
from covopt.runtime.loop import Seed, check_seed
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted
from covopt.studies.audit.given import amount_of_bias, network_of


@dataclass(frozen=True)
class Reading:
    """One look at a network; numbers that are unknown or not finite are None.

    Attributes:
        step: of the training: the argument `step`, or the number of earlier calls.
        rows: number of samples of the look.
        loss, fit, norm: C + lam |W|^2, C, and |W|^2 (without free biases).
        residuals: |dL/dW_l| / (2 lam |W_l|) for l = 1 ... L, 0 at rest; free biases count as 0 in W_l.
        ranks: #{i : s_i > tolerance |W_l|} for l = 1 ... L, bias columns included.
        best: the lowest loss known on these rows: of this training so far, and of the known answer.
        excess: (loss - best) / best.
        lower: a proved lower bound on the minimum, from the known answer or the argument `lower`.
        gap: (loss - lower) / loss: the loss is above the minimum by at most this part of it.
        seconds: the time of the look.
    """

    step: int
    rows: int
    loss: float | None
    fit: float | None
    norm: float | None
    residuals: tuple[float | None, ...]
    ranks: tuple[int, ...]
    best: float | None
    excess: float | None
    lower: float | None
    gap: float | None
    seconds: float

    def row(self) -> dict[str, float | int | None]:
        """Return a flat row of a table; residual_1 ... and rank_1 ... replace the tuples."""
        flat = {name: getattr(self, name) for name in SINGLE}
        for name, values in (("residual", self.residuals), ("rank", self.ranks)):
            flat |= {f"{name}_{layer}": value for layer, value in enumerate(values, start=1)}
        return flat

    def __str__(self) -> str:
        """Return the reading as one line."""
        parts = [f"cost {_shown(self.loss)}"]
        # At the lowest cost so far nothing is said: without a known answer that is the network's own.
        parts += [f"{percent(self.excess)} above the best known"] if self.excess else []
        parts += [] if self.gap is None else [f"the minimum at most {percent_at_most(self.gap)} below"]
        parts.append(f"residuals {', '.join(_shown(value, 2) for value in self.residuals)}")
        parts.append(f"ranks {', '.join(map(str, self.ranks))}")
        return f"step {self.step}: {'; '.join(parts)}"


SINGLE = [field.name for field in fields(Reading) if field.name not in ("residuals", "ranks")]
"""Fields of a look that are one number, and columns of each table."""


class Monitor:
    """Watch a network in a training loop: `monitor(net)` or `monitor(net, epoch)`.

    >>> monitor = covopt.Monitor([[0.0], [1.0]], [0.0, 1.0], lam=0.01)
    >>> look = monitor([[[1.0, 0.0]], [[0.5, 0.0]]])
    >>> look.loss, look.ranks, look.row()["rank_1"]
    (0.1375, (1, 1), 1)
    >>> monitor.to_csv("history.csv")

    A look is one pass over the samples, about what an epoch costs without its optimiser. It changes nothing of the
    network: no gradient, no mode, no number of a random generator.

    Args:
        X: inputs (N, n_0); a float32 tensor stays in float32. They are copied, and to `device`.
        Y: targets (N, n_L) or (N,).
        lam: strength of the penalty, half of PyTorch's `weight_decay` beside the same loss.
        loss: mse (the sum over outputs, the mean over samples), cross_entropy, huber, logistic, or a `Loss`.
        bias, decay: as for `validate`.
        every: look at every `every`-th step only, and return None at the others.
        rows: number of rows to look at, drawn once by `seed`; None: all. Losses are then means over these rows.
        known: a result of `solve` for the same problem on the same rows (those of `monitor.problem`).
        lower: a proved lower bound on the minimum from elsewhere.
        tolerance: tau of the ranks, as for `covopt.ranks`.
        seed: of the rows.
        device: where to compute; None follows X.
        sample_weight: of the rows, as for `solve`.

    Attributes:
        problem: the data on the rows of the looks; its depth is 2, but each look uses the network's own.
        readings: the results of all looks, from the first.

    Raises:
        ProblemError: an option is out of range, or the answer is to another problem, or of another kind.

    Source: stationarity is derived in MATH.md, section 5; the rank is that of [GP22], 4.1.
    """

    @checked
    def __init__(
        self,
        X: object,
        Y: object,
        *,
        lam: float,
        loss: str | Loss = "mse",
        bias: float | str = 1.0,
        decay: str = "all",
        every: int = 1,
        rows: int | None = None,
        known: Result | None = None,
        lower: float | None = None,
        tolerance: float = TOLERANCE,
        seed: Seed = 0,
        device: str | torch.device | None = None,
        sample_weight: object = None,
    ) -> None:
        bias = amount_of_bias(bias, decay)
        question = {"lam": lam, "loss": loss, "bias": bias, "device": device, "sample_weight": sample_weight}
        problem = make_problem(X, Y, free=True, **question)  # type: ignore[arg-type]
        if problem.stated_lam is None:
            raise ProblemError("A Monitor follows a loss with a penalty; use another loss, and give its lam.")
        self.problem = problem if rows is None else problem.on(_drawn(problem, rows, seed))
        self.every, self.tolerance = _whole(every, "every"), as_number(tolerance, "tolerance")
        check_tolerance(self.tolerance)
        self.readings: list[Reading] = []
        self._known, self._calls = known, 0
        self._lower = None if lower is None else as_number(lower, "lower")
        if known is not None:
            self._check_known(known)

    @property
    def history(self) -> list[dict[str, float | int | None]]:
        """The rows of all looks; `pandas.DataFrame(monitor.history)` makes a table of them."""
        return [reading.row() for reading in self.readings]

    @fitted
    def __call__(self, net: object, step: int | None = None) -> Reading | None:
        """Look at the network if it is this step's turn.

        Args:
            net: as for `covopt.validate`.
            step: of the training, such as an epoch, as a whole number; None counts the calls from 0.

        Returns:
            The result of the look; None at steps that `every` leaves out.

        Raises:
            DataError: the network cannot be read, or holds NaN.
            ProblemError: the network does not fit the data, or its loss is below the bound.
        """
        step, self._calls = self._calls if step is None else _whole(step, "step", least=0), self._calls + 1
        if step % self.every:
            return None
        began = time.perf_counter()
        with torch.autocast(self.problem.X.device.type, enabled=False):
            # A module must agree with its weights on some rows: all would make a look two passes over the samples.
            network = network_of(net, self.problem.beta, self.problem.X[:256])
            exact = [W.to(self.problem.X.device) for W in network.weights]
            problem = replace(self.problem, depth=len(exact), activation=network.agreed(None))
            check_network(problem, exact)
            reading = self._reading(problem, exact, step)
        self.readings.append(replace(reading, seconds=time.perf_counter() - began))
        return self.readings[-1]

    def to_csv(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the history as .csv, whole or not at all; None becomes an empty field.

        Args:
            path: of the file.
            force: replace an earlier table of a Monitor.

        Raises:
            RecordError: the file exists (with `force`: and is no table of a Monitor), or cannot be written.
        """
        names = dict.fromkeys([*SINGLE, *(name for row in self.history for name in row)])
        lines = table(lambda: [names, *([row.get(name) for name in names] for row in self.history)])
        write_file(Path(path), lines, force, lambda file: set(SINGLE) <= set(columns_of(file)))

    def _reading(self, problem: Problem, weights: Sequence[Tensor], step: int) -> Reading:
        fit, slopes = loss_and_slopes(problem, weights)
        norm = float(sum(A.square().sum() for A in problem.decayed(weights)))
        loss = known_number(fit + problem.lam * norm)
        lost = [earlier.loss for earlier in self.readings] + [loss]
        if self._known is not None:
            other = self._known.problem
            if (other.depth, other.activation) != (problem.depth, problem.activation):
                raise ProblemError(
                    f"The known answer is for depth {other.depth} and {other.activation.name}, but the network has"
                    f" depth {problem.depth} and {problem.activation.name}; leave it out."
                )
            lost.append(self._known.cost)
        best = min((value for value in lost if value is not None and math.isfinite(value)), default=None)
        lower = self._lower if self._known is None or self._known.lower is None else self._known.lower
        # Numbers in float32 and other orders of summation change less than 1e-4.
        if lower is not None and loss is not None and lower - loss > 1e-4 * abs(loss):
            raise ProblemError(
                f"The lower bound {lower:.8g} is above the loss {loss:.8g} of this network, so that it is none for"
                " these rows; leave it out."
            )
        return Reading(
            step=step,
            rows=problem.samples,
            loss=loss,
            fit=known_number(fit),
            norm=known_number(norm),
            residuals=tuple(_residual(problem, W, G) for W, G in zip(weights, slopes, strict=True)),
            ranks=tuple(threshold_rank(torch.linalg.svdvals(W), self.tolerance) for W in weights),
            best=best,
            excess=None if loss is None or best is None or best <= 0.0 else (loss - best) / best,
            lower=lower,
            gap=None if lower is None or not loss else max(0.0, (loss - lower) / loss),
            seconds=0.0,
        )

    def _check_known(self, answer: Result) -> None:
        """Raise a ProblemError unless `answer` is a result for the Monitor's problem."""
        if not isinstance(answer, Result):
            raise ProblemError(f"known is {shown(answer)}; give an answer of covopt.solve.")
        mine, theirs = self.problem, answer.problem
        off = [name for name in ("loss", "lam", "beta", "free", "skip") if getattr(mine, name) != getattr(theirs, name)]
        for name in ("X", "Y", "weight"):
            A, B = getattr(mine, name), getattr(theirs, name)
            if (A is None) != (B is None) or (A is not None and not _same(A, B)):
                off.append(name)
        if off:
            raise ProblemError(
                f"The known answer is one to another problem, which differs in {listed(off)}; solve the one of the"
                " Monitor, on the rows of its `problem`."
            )


def _same(A: Tensor, B: Tensor) -> bool:
    """Return True if two arrays hold the same numbers, in the coarser of their types."""
    if A.shape != B.shape:
        return False
    coarse = torch.float32 if torch.float32 in (A.dtype, B.dtype) else torch.float64
    return torch.equal(A.to(coarse).cpu(), B.to(coarse).cpu())


def _residual(problem: Problem, W: Tensor, G: Tensor) -> float | None:
    """Return |G + 2 lam W| / (2 lam |W|) without overflow; |G| / (2 lam) for W = 0."""
    pulled = problem.penalised(W)
    off, size = frobenius(G / (2.0 * problem.lam) + pulled), frobenius(pulled)
    return known_number(off / size if size > 0.0 else off)


def _drawn(problem: Problem, rows: int, seed: Seed) -> Tensor:
    """Draw `rows` samples without repetition, in their order."""
    count = _whole(rows, "rows")
    seed = check_seed(seed)
    if count > problem.samples:
        raise ProblemError(f"rows is {count}, but there are {problem.samples}; give at most as many, or leave it out.")
    order = torch.randperm(problem.samples, generator=torch.Generator().manual_seed(seed))
    return order[:count].sort().values.to(problem.X.device)


def _whole(value: object, name: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ProblemError(f"{name} is {shown(value)}; give a whole number, at least {least}.")
    return int(value)


def _shown(value: float | None, digits: int = 6) -> str:
    return "not finite" if value is None else f"{value:.{digits}g}"
