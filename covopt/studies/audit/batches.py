"""The training of a network as its user reports it: batches, rate, steps, and effects.

At a constant rate SGD never comes to rest (MATH.md section 9). Once the initial weights have faded and the gradient of
all samples is smaller than the noise of drawing a batch, the batches move the network, and not a descent that is still
under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covopt.model.noise import batch_noise, check_batch_size
from covopt.model.problem import Problem
from covopt.model.recursion import Decay
from covopt.model.scalars import as_number
from covopt.model.weights import Weights
from covopt.records.numerals import percent
from covopt.records.record import Summary, known
from covopt.runtime.errors import ProblemError
from covopt.runtime.options import whole


@dataclass(frozen=True)
class Training:
    """SGD at a constant rate."""

    batch_size: int  # B
    rate: float  # mu
    steps: int  # T
    momentum: float = 0.0  # beta

    def kept(self, lam: float) -> float | None:
        """Return (A^T)_11, the retained fraction of the initial weights; None if float64 cannot hold it."""
        return known(Decay(self.rate, lam, self.momentum).kept(self.steps))


@dataclass(frozen=True)
class Batches:
    """The effects that the batches of its training have on a network.

    The noise of a layer is in units of 2 lam |W_l|: rms of a batch's gradient, its spread about that of all samples,
    its floor, its scale, and the residual |grad L^lam|.
    """

    training: Training  # as the user reports it
    kept: float | None  # the retained fraction of the initial weights; None if float64 cannot hold it
    noise: Sequence[Summary | None]  # for each layer, l = 1 ... L; None where W_l = 0

    @property
    def rms(self) -> list[float]:
        """The root mean squares of the layers that are not 0."""
        return [layer["rms"] for layer in self._noises]

    @property
    def residuals(self) -> list[float]:
        """The residuals of the layers that are not 0."""
        return [layer["residual"] for layer in self._noises]

    @property
    def faded(self) -> bool:
        """True if less than 1 % of the initial weights remains."""
        return self.kept is not None and abs(self.kept) < 1e-2

    def fading(self) -> list[str]:
        """Say how much of the initial weights remains, a reason for further training; nothing if less than 1 %."""
        if self.faded or self.kept is None:
            return []
        return [f"{percent(abs(self.kept))} of the network's initial weights remains."]

    @property
    def move(self) -> bool:
        """True if the initial weights have faded and batch noise exceeds the residual in every layer."""
        return self.faded and bool(self._noises) and all(noise["residual"] < noise["spread"] for noise in self._noises)

    @property
    def _noises(self) -> list[Summary]:
        return [noise for noise in self.noise if noise is not None and None not in noise.values()]

    @classmethod
    def from_summary(cls, summary: Summary) -> Batches | None:
        """Read an audit's JSON; return None if it has no training."""
        if summary["training"] is None:
            return None
        return cls(Training(**summary["training"]), summary["kept"], summary["noise"])


def batches_of(problem: Problem, weights: Weights, training: Training) -> Batches:
    """Compute the effects of batches on this network; raise a ProblemError for the loss `interpolate`."""
    entries = [(noise, noise.summary()) for noise in batch_noise(problem, weights, training.batch_size)]
    by_layer = [None if entry is None else {**entry, "residual": noise.residual} for noise, entry in entries]
    return Batches(training, training.kept(problem.lam), by_layer)


def training_of(
    problem: Problem, batch_size: int | None, rate: float | None, steps: int | None, momentum: float, *, has_net: bool
) -> Training | None:
    """Return the training that a user reports for this problem; None if nothing is reported."""
    if batch_size is None and rate is None and steps is None and momentum == 0.0:
        return None
    if not has_net:
        raise ProblemError(
            "Without a network there is no batch_size, rate or steps of its training; give the network, or leave them"
            " out."
        )
    if batch_size is None or rate is None or steps is None:
        raise ProblemError(
            "The training is described in part only; give batch_size, rate and steps together, or none of them (and"
            " no momentum)."
        )
    size, steps = whole(batch_size, "batch_size"), whole(steps, "steps")
    check_batch_size(problem, size)
    training = Training(size, as_number(rate, "The rate"), steps, as_number(momentum, "The momentum"))
    training.kept(problem.lam)
    return training
