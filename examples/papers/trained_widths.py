"""Train and test loss of trained networks against their width: what both panels of Figure 2 share.

The train loss is the cost, penalty included; the test loss is C alone, on other samples. All widths and trials are
trained together, the ordinary way. A network of width n is one of width n + 1 with a neuron of weight zero in each
layer, of the same cost; so the curve never rises: its value at n is the lowest loss of all trials of at most n neurons.
The dots prove nothing: `covopt plateau` gives intervals.

Source: [JGHG22, Figure 2].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from figure_design import Arrays, Asked, Claim, Made, Numbers, Setting, worst
from jaxtyping import Float

from covopt.answer import drawing
from covopt.model.problem import make_problem
from covopt.model.weights import outputs
from covopt.runtime.loop import Budget
from covopt.solvers.training.descent import AdamOptions
from covopt.solvers.training.trainer import TrainerOptions, train

SAMPLES, DEPTH = 1000, 3
CLOSE = (0.1, 0.01, 0.001)
"""The smallest width is reported whose lowest train loss is within each of these of the lowest of all."""
COLUMNS = ("lam", "width", "train loss", "test loss")


@dataclass(frozen=True)
class Samples:
    """Rows to train and to test on, and what they are."""

    X: Float[np.ndarray, "N n0"]
    Y: Float[np.ndarray, "N nL"]
    X_test: Float[np.ndarray, "M n0"]
    Y_test: Float[np.ndarray, "M nL"]
    name: str


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes:
        samples: reads or makes the samples.
        loss, strengths: the loss function, and the values of lam.
        widths, small: in the paper's sizes, and by default.
        stated: whether the paper states each of the strengths.
        trials: random starts of each width.
    """

    samples: Callable[[Asked], Samples]
    loss: str
    strengths: Sequence[float]
    widths: Sequence[int]
    small: Sequence[int]
    stated: bool = True
    trials: int = 3

    def make(self, asked: Asked) -> Made:
        """Train all widths and trials; the rows of `trials` are lam, width, seed, train loss and test loss."""
        data, found, ended = self.samples(asked), [], []
        widths = asked.size(quick=(1, 3), usual=self.small, paper=self.widths)
        options = asked.size(quick=TrainerOptions(AdamOptions(steps=50), iterations=50), usual=TrainerOptions())
        for place, lam in enumerate(self.strengths):
            problem = make_problem(data.X, data.Y, lam=lam, loss=self.loss, depth=DEPTH, device=asked.device)
            budget = Budget(asked.budget.remaining() / (len(self.strengths) - place))
            seeds = range(asked.seed, asked.seed + self.trials)
            trained = train(problem, list(widths), seeds=seeds, budget=budget, options=options)
            X, Y = (torch.as_tensor(array).to(problem.X) for array in (data.X_test, data.Y_test))
            for network in trained.networks:
                test = float(problem.loss.values(outputs(problem, network.weights, X), Y).mean())
                seed = -1.0 if network.seed is None else float(network.seed)
                found.append((lam, float(max(network.widths)), seed, network.cost.total, test))
            ended.append(trained.status)
        settings = [
            Setting("data", data.name, data.name != "digits"),
            Setting("depth", f"{DEPTH}", True),
            Setting("loss", self.loss, True),
            Setting("penalty", f"lam {' and '.join(f'{lam:g}' for lam in self.strengths)}", self.stated),
            Setting("widths", ", ".join(map(str, widths)), False),
            Setting("training", f"Adam, then L-BFGS; best of {self.trials}", False),
        ]
        return Made(settings, {"trials": np.array(found)}, worst(ended))

    def numbers(self, arrays: Arrays) -> Numbers:
        """Return, for each width, the lowest train loss up to that width, with the test loss of that network.

        Also the lowest of the trials of that width alone, and where the plateau begins.
        """
        curves = []
        for lam in self.strengths:
            mine = arrays["trials"][arrays["trials"][:, 0] == lam]
            widths = np.unique(mine[:, 1])
            alone = [float(mine[mine[:, 1] == n, 3].min()) for n in widths]
            best = [min(mine[mine[:, 1] <= n], key=lambda t: t[3]) for n in widths]
            curve = [(int(n), float(t[3]), float(t[4])) for n, t in zip(widths, best, strict=True)]
            level = min(train for _, train, _ in curve)
            start = {f"{eps:g}": min(n for n, train, _ in curve if train <= (1.0 + eps) * level) for eps in CLOSE}
            curves.append({"lam": lam, "level": level, "start": start, "curve": curve, "alone": alone})
        return {"curves": curves}

    def claims(self, numbers: Numbers) -> list[Claim]:
        """A plateau, on every curve."""
        claims = []
        for each in numbers["curves"]:
            losses, widest = [train for _, train, _ in each["curve"]], each["curve"][-1][0]
            level, start = each["level"], each["start"]["0.01"]
            at_widths = zip(each["curve"], each["alone"], strict=True)
            flat = all(train <= 1.01 * level for (n, _, _), train in at_widths if n >= start)
            lam = f"lam {each['lam']:g}"
            claims += [
                Claim(f"{lam}: the train loss falls to within 1 % of its lowest before the widest", start < widest),
                Claim(f"{lam}: so do the trials of each larger width, without the narrower networks", flat),
                Claim(f"{lam}: the narrowest network costs more than the plateau", losses[0] > 1.1 * level),
            ]
        return claims

    def rows(self, numbers: Numbers) -> list[list[object]]:
        """lam, width, lowest train loss, test loss."""
        return [[each["lam"], *point] for each in numbers["curves"] for point in each["curve"]]

    def panels(self, arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
        """A picture for each lam: all trials as dots, the lowest train loss so far and its test loss as lines."""
        drawn = []
        for each in numbers["curves"]:
            mine = arrays["trials"][arrays["trials"][:, 0] == each["lam"]]
            widths, train, test = (np.array(column, dtype=np.float64) for column in zip(*each["curve"], strict=True))
            lines = [
                drawing.Line("train loss, each trial", mine[:, 1], mine[:, 3], "o", 0),
                drawing.Line("train loss, at most this width", widths, train, "-", 0),
                drawing.Line("test loss, no penalty", widths, test, "-", 1),
            ]
            title = f"lam {each['lam']:g}: within 1 % from width {each['start']['0.01']}"
            drawn.append(drawing.Panel(title, "width", "loss", lines, logarithmic="xy"))
        return drawn
