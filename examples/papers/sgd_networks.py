"""Networks of three architectures on images of digits, trained by SGD with a rate that falls in steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from figure_design import Asked, Setting

import covopt
from covopt.answer.held_out import HeldOut
from covopt.model.problem import make_problem
from covopt.model.ranks import frobenius, predicted_rank, threshold_rank
from covopt.studies.ranks import sgd
from covopt.studies.ranks.architectures import ARCHITECTURES

SAMPLES, WIDTH, TOLERANCE = 1000, 50, 1e-3
MILESTONES, GAMMA = (0.5, 0.75), 0.2
"""Shares of the epochs after which the rate is multiplied by GAMMA."""
NAMES = {"plain": "MLP", "batch_norm": "MLP-BN", "residual": "residual"}
Choice = tuple[int, float, float]
"""Batch size, rate and lam."""


class Trained:
    """A network after its training.

    Attributes:
        kept: the share of its start that is left.
        ranks: of its matrices, of the values above TOLERANCE |W|_F; start: what this share alone would give.
        train, test: accuracies.
    """

    def __init__(self, setting: sgd.Setting, network: sgd.Descended) -> None:
        decay, course = setting.decay(network.steps), network.course
        assert decay is not None
        assert course is not None
        self.kept = decay.kept(course.steps[-1])
        self.ranks = [threshold_rank(values, TOLERANCE) for values in course.spectra[-1]]
        pairs = zip(course.spectra[0], course.spectra[-1], strict=True)
        self.start = [predicted_rank(first, self.kept, frobenius(last), TOLERANCE) for first, last in pairs]
        self.train, self.test = course.accuracies[-1], course.test_accuracies[-1]


def train(asked: Asked, name: str, depth: int, choices: Sequence[Choice], epochs: int) -> list[Trained]:
    """Train a network of the architecture for each choice, all from one start."""
    data = covopt.read_data("digits" if asked.images is None else "mnist", scale="max", data_dir=asked.images)
    X, Y = torch.from_numpy(data.X).float(), torch.from_numpy(data.Y).float()
    problem = make_problem(X[:SAMPLES], Y[:SAMPLES], lam=1.0, loss="cross_entropy", depth=depth)
    settings = [
        sgd.Setting(
            batch,
            rate,
            lam,
            steps=epochs * SAMPLES // batch,
            milestones=tuple(round(share * epochs * SAMPLES / batch) for share in MILESTONES),
            gamma=GAMMA,
        )
        for batch, rate, lam in choices
    ]
    starts = [sgd.he_start(problem, [WIDTH] * (depth - 1), asked.seed)] * len(settings)
    networks, _ = sgd.train_sgd(
        problem,
        starts,
        settings,
        architecture=ARCHITECTURES[name],
        test=HeldOut(X[SAMPLES:], Y[SAMPLES:]),
        seed=asked.seed,
        budget=asked.budget,
    )
    return [Trained(setting, network) for setting, network in zip(settings, networks, strict=True)]


def settings(asked: Asked, depth: int, epochs: int) -> list[Setting]:
    """Return the settings that all figures share."""
    name, falls = "digits" if asked.images is None else "mnist", ", ".join(f"{share:.0%}" for share in MILESTONES)
    return [
        Setting("data", f"the first {SAMPLES} images of {name}, tested on the others", False),
        Setting("networks", f"{depth} matrices, width {WIDTH}, ReLU, He's start", False),
        Setting("residual", "z + BN(W' relu(BN(W z))) between a first normalised and a last layer", True),
        Setting("training", f"SGD, cross-entropy, {epochs} epochs, the rate times {GAMMA:g} after {falls}", False),
        Setting("rank", f"singular values above {TOLERANCE:g} |W|_F, the column of biases or shifts included", False),
    ]
