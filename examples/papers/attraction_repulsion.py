"""Attraction and repulsion: two forces on the hidden representations of digits balance.

As a function of the hidden representations Z_1, ..., Z_{L-1}, the penalty of a network pulls each Z_l in two ways: the
weights below cost least where the samples lie together (attraction), those above where they lie apart (repulsion).
Where training has come to rest, the two cancel.

A network is trained on 42 images by plain gradient descent on all of them. The singular values of its layers fall to
zero without a gap, so that (Ks + t I)^-1 takes the place of the pseudo-inverse of Ks (Tikhonov), as in the paper.

Source: [JGHG22, section 3.2 and Figure 1].
"""

from __future__ import annotations

import numpy as np
import torch
from figure_design import (
    Arrays,
    Asked,
    Claim,
    Design,
    Made,
    Numbers,
    Setting,
    canvas,
    ended,
    network,
    preactivations,
    stored,
)
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import covopt
from covopt.answer.forces import (
    ATTRACTION_COLOR,
    RAY_COLOR,
    REPULSION_COLOR,
    ForcesPicture,
    draw_neuron_plane,
    draw_samples,
)
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate, gradient
from covopt.studies.ranks.sgd import he_start

DIGITS, EACH = (7, 8, 9), 14
DEPTH, WIDTH = 3, 50
LAM, RATE = 1e-2, 0.1
TIKHONOV = 0.03
"""t, as a part of the largest eigenvalue of Ks; with 1e-3 the cosine of the forces on layer 1 is 0.67."""
BALANCED, IN_PLANE = 0.85, 0.95
"""Forces are called opposite if the cosine of one and the other reversed is above this; the neurons' in their plane."""
COLUMNS = ("layer", "|attraction|", "|repulsion|", "cosine", "samples in their plane", "neurons in theirs")


def images(seed: int, data_dir: str | None) -> tuple[Float[np.ndarray, "N n0"], Float[np.ndarray, " N"]]:
    """Return images of the three digits, the same number of each, and their digits."""
    data = covopt.read_data("digits" if data_dir is None else "mnist", scale="max", data_dir=data_dir)
    labels = data.Y.argmax(axis=1)
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.choice(np.flatnonzero(labels == digit), EACH, replace=False) for digit in DIGITS])
    return data.X[rows], labels[rows].astype(np.float64)


def problem_of(X: Float[np.ndarray, "N n0"], labels: Float[np.ndarray, " N"], device: str = "cpu") -> Problem:
    """Return the problem of telling the digits apart."""
    Y = (labels[:, None] == np.array(DIGITS)).astype(np.float64)
    return make_problem(X, Y, lam=LAM, loss="cross_entropy", depth=DEPTH, device=device)


def _make(asked: Asked) -> Made:
    X, labels = images(asked.seed, asked.images)
    problem, steps = problem_of(X, labels, asked.device), asked.size(quick=2000, usual=8000)
    weights = he_start(problem, [WIDTH] * (DEPTH - 1), asked.seed)
    for _ in range(steps):
        if asked.budget.spent():
            break
        for W, slope in zip(weights, gradient(problem, weights), strict=True):
            W.sub_(slope, alpha=RATE)
    settings = [
        Setting("data", f"digits {', '.join(map(str, DIGITS))}, {len(X)} images", True),
        Setting("network", f"L = {DEPTH}, width {WIDTH}", True),
        Setting("training", "gradient descent on all images", True),
        Setting("steps", f"{steps} of rate {RATE}, from He's start", False),
        Setting("penalty", f"lam {LAM:g}, cross-entropy", False),
        Setting("Tikhonov", f"t = {TIKHONOV:g} of the largest eigenvalue of Ks", False),
    ]
    return Made(settings, {"X": X, "labels": labels, **stored("network", weights)}, ended(asked.budget))


def pictures(arrays: Arrays) -> list[ForcesPicture]:
    """Return the representations of each hidden layer, and the forces on them."""
    layers, X = network(arrays, "network"), arrays["X"]
    labels, shown = arrays["labels"].astype(int), []
    for layer, Z in enumerate(preactivations(layers, X)[:-1], start=1):
        Zs = np.column_stack([np.maximum(Z, 0.0), np.ones(len(Z))])
        t = TIKHONOV * float(np.linalg.norm(Zs, 2) ** 2)
        forces = covopt.forces(layers, layer, X=X, tikhonov=t)
        shown.append(ForcesPicture("", Z, forces.attraction, forces.feasible_repulsion, labels, classes=True))
    return shown


def _numbers(arrays: Arrays) -> Numbers:
    problem = problem_of(arrays["X"], arrays["labels"])
    weights = [torch.from_numpy(W) for W in network(arrays, "network")]
    slopes = torch.cat([slope.ravel() for slope in gradient(problem, weights)])
    cost = evaluate(problem, weights)
    return {
        "cost": cost.total,
        "fit": cost.fit,
        "slope": float(slopes.norm()),
        "layers": [_balance(picture) for picture in pictures(arrays)],
    }


def _balance(picture: ForcesPicture) -> Numbers:
    """Return the size of both forces, and the cosine of one and the other reversed: whole, and in each plane drawn."""
    attraction, repulsion = picture.attraction, picture.repulsion
    U, _, Vh = np.linalg.svd(picture.Z, full_matrices=False)
    return {
        "attraction": float(np.linalg.norm(attraction)),
        "repulsion": float(np.linalg.norm(repulsion)),
        "cosine": opposite(attraction, repulsion),
        "samples": opposite(attraction @ Vh[:2].T, repulsion @ Vh[:2].T),
        "neurons": opposite(U[:, :2].T @ attraction, U[:, :2].T @ repulsion),
    }


def opposite(attraction: Float[np.ndarray, "k n"], repulsion: Float[np.ndarray, "k n"]) -> float:
    """Return the cosine of one force and the other reversed: 1 if they point against each other."""
    return float(-(attraction * repulsion).sum() / (np.linalg.norm(attraction) * np.linalg.norm(repulsion)))


def _claims(numbers: Numbers) -> list[Claim]:
    layers = numbers["layers"]
    return [
        Claim("gradient descent has come to rest: the gradient is below 0.01", numbers["slope"] < 0.01),
        *(
            Claim(
                f"layer {place}: the forces are opposite, with a cosine above {BALANCED}, and of one size up to 20 %",
                layer["cosine"] > BALANCED and abs(layer["attraction"] / layer["repulsion"] - 1.0) < 0.2,
            )
            for place, layer in enumerate(layers, start=1)
        ),
        Claim(
            f"in the plane of the neurons the cosine is above {IN_PLANE} on each layer",
            all(layer["neurons"] > IN_PLANE for layer in layers),
        ),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    columns = ("attraction", "repulsion", "cosine", "samples", "neurons")
    return [[place, *(layer[name] for name in columns)] for place, layer in enumerate(numbers["layers"], start=1)]


def _draw(arrays: Arrays, numbers: Numbers) -> Figure:
    """Draw samples and neurons of each layer in their planes."""
    shown = pictures(arrays)
    figure, places = canvas(len(shown), 2)
    for number, picture in enumerate(shown, start=1):
        samples, neurons = places[2 * number - 2 : 2 * number]
        draw_samples(samples, picture)
        draw_neuron_plane(neurons, picture)
        for axes in (samples, neurons):
            title = axes.get_title().replace(r"\ell", str(number))
            axes.set_title(f"layer {number}: {title}", fontsize=10)
    colors = (ATTRACTION_COLOR, REPULSION_COLOR, RAY_COLOR)
    names = ("attraction", "repulsion (both as arrows in one scale)", "ray of aligned neurons")
    marks = [Line2D([], [], color=color, linewidth=2, label=name) for color, name in zip(colors, names, strict=True)]
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False)
    return figure


DESIGN = Design(
    title="attraction and repulsion of hidden representations",
    source="[JGHG22, Figure 1]",
    question="Do the two forces on the hidden representations of a trained network balance?",
    differs=(
        "The paper's images are of MNIST, 28 x 28; without --data-dir these are scikit-learn's digits, 8 x 8."
        " The penalty, the steps and t are chosen here."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    draw=_draw,
    images=True,
)

if __name__ == "__main__":
    DESIGN.run()
