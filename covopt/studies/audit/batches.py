"""How a network was trained, where its user tells: batches, rate and steps, and what follows for an audit.

At a constant rate SGD never comes to rest (MATH.md section 9). Where its start has faded and the gradient of all
samples is below what the draw of a batch adds to it, the network moves because of its batches, and not because it has
still somewhere to go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from covopt.model.noise import Noise, batch_noise, check_batch_size
from covopt.model.problem import Problem, as_number
from covopt.model.recursion import Decay
from covopt.model.weights import Weights
from covopt.records.record import known
from covopt.runtime.errors import ProblemError, shown

# The start has faded where less than this of it is left.
FADED = 1e-2


@dataclass(frozen=True)
class Training:
    """SGD at a constant rate.

    Attributes:
        batch_size: B.
        rate: mu.
        steps: T.
        momentum: beta.
    """

    batch_size: int
    rate: float
    steps: int
    momentum: float = 0.0

    def kept(self, lam: float) -> float | None:
        """(A^T)_11, the part of the start that is left; None where it grows beyond what float64 holds.

        Raises:
            ProblemError: a number is out of range.
        """
        return known(Decay(self.rate, lam, self.momentum).kept(self.steps))


@dataclass(frozen=True)
class Batches:
    """What the batches of its training do to a network.

    Attributes:
        training: what the user tells.
        kept: the part of the start that is left; None where it grows beyond what float64 holds.
        noise: of each layer, l = 1 ... L, in units of 2 lam |W_l|: rms of a batch's gradient, its spread about that of
            all samples, its floor, its scale, and the residual |grad L^lam|; None where W_l = 0.
    """

    training: Training
    kept: float | None
    noise: Sequence[Mapping[str, Any] | None]

    @property
    def batch_size(self) -> int:
        """B."""
        return self.training.batch_size

    @property
    def rms(self) -> list[float]:
        """Of the layers that are not 0."""
        return [layer["rms"] for layer in self._told]

    @property
    def residuals(self) -> list[float]:
        """Of the layers that are not 0."""
        return [layer["residual"] for layer in self._told]

    @property
    def faded(self) -> bool:
        """Whether the start is forgotten."""
        return self.kept is not None and abs(self.kept) < FADED

    @property
    def move(self) -> bool:
        """Whether the start has faded and in every layer the spread of the batches is above the residual."""
        return self.faded and bool(self._told) and all(each["residual"] < each["spread"] for each in self._told)

    @property
    def _told(self) -> list[Mapping[str, Any]]:
        return [each for each in self.noise if each is not None and None not in each.values()]

    def summary(self) -> dict[str, object]:
        """For JSON: what is added to that of an audit."""
        return {"training": vars(self.training), "kept": self.kept, "noise": self.noise}

    @classmethod
    def from_summary(cls, told: Mapping[str, Any]) -> Batches | None:
        """What `summary` told; None where the training is not known, as in audits from before that was asked."""
        if not any(name in told for name in ("training", "kept", "noise")) or told["training"] is None:
            return None
        return cls(Training(**told["training"]), told["kept"], told["noise"])


def batches_of(problem: Problem, weights: Weights, training: Training) -> Batches:
    """What batches do to this network.

    Raises:
        ProblemError: a batch size, rate, momentum or number of steps out of range, or the loss `interpolate`.
    """
    noises = batch_noise(problem, weights, training.batch_size)
    return Batches(training, training.kept(problem.lam), [_told(noise) for noise in noises])


def _told(noise: Noise) -> dict[str, float | None] | None:
    summary = noise.summary()
    return None if summary is None else {**summary, "residual": noise.residual}


def training_of(
    problem: Problem, batch_size: int | None, rate: float | None, steps: int | None, momentum: float, *, given: bool
) -> Training | None:
    """What a user tells of a training for this problem, or None where nothing is told.

    Raises:
        ProblemError: only a part of it is told, a number is out of range, the loss is `interpolate`, or no network is
            `given` that was trained so.
    """
    if batch_size is None and rate is None and steps is None and momentum == 0.0:
        return None
    if not given:
        raise ProblemError(
            "Without a network there is no batch_size, rate or steps of its training; give the network, or leave them"
            " out."
        )
    if problem.free:
        raise ProblemError(
            "What batches do is known of penalised biases; leave batch_size, rate and steps out, or ask with the decay"
            " all."
        )
    if batch_size is None or rate is None or steps is None:
        raise ProblemError(
            "Only a part of the training is told; give batch_size, rate and steps together, or none of them (and no"
            " momentum)."
        )
    for name, number in (("batch_size", batch_size), ("steps", steps)):
        if isinstance(number, bool) or not isinstance(number, Integral):
            raise ProblemError(f"{name} is {shown(number)}; give a whole number.")
    check_batch_size(problem, int(batch_size))
    told = Training(int(batch_size), as_number(rate, "The rate"), int(steps), as_number(momentum, "The momentum"))
    told.kept(problem.lam)
    return told
