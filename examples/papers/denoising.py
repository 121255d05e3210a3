"""Autoencoders of a curve in the plane: what is learned beside the curve.

The samples x = g(z) lie on a curve, z one Gaussian number and g a random ReLU network, and F(x) = x is learned on them
alone. A network of nonlinear rank 1 maps the whole plane onto a curve: its Jacobian has one singular value, and noise
across the curve is taken out, though no noise was ever shown to it. A shallow network keeps a part of it.

Three networks: two layers, trained; eight layers, trained from random draws; and eight layers of the family of rank 1,
built ends first with one neuron in the middle layers, which all get random neurons more, so that a higher rank is open
to them, and descend.

Source: [J23a, section 5.2 and Fig. 3].
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
    applied,
    ended,
    network,
    square,
    stored,
    worst,
)
from jaxtyping import Float
from torch import Tensor

from covopt.answer import panels
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.runtime.loop import Budget
from covopt.solvers.deep.pruning import widened
from covopt.solvers.deep.starts import ends_first
from covopt.solvers.training.homotopy import REFINING, descend
from covopt.solvers.training.trainer import train
from covopt.studies.audit.jacobians import jacobians

SAMPLES, NEURONS = 60, 6
NOISE = 0.2
"""Deviation of the noise in each coordinate; the curve has deviation 1."""
LAM = 1e-4
DEEP = 8
SHALLOW_WIDTH, DEEP_WIDTH, STARTS = 40, 20, 3
FAMILY, TIMES = (1, 1), 2
"""The rank of each set of draws, and how many networks built ends first are refined."""
MORE, STRENGTH = 5, 0.3
"""Neurons that each hidden layer gets then, and how strong they are."""
FINE, FARTHEST = 4001, 3.0
"""Points along the curve to which distances are measured, and the largest z of them; z farther out is drawn again."""
TRAINED = {"shallow": f"2 layers, width {SHALLOW_WIDTH}", "deep": f"{DEEP} layers, trained from draws"}
NAMES = {**TRAINED, "rank_one": f"{DEEP} layers, rank 1"}
"""Of each network, what it is called."""
SHARES = {"shallow": 0.15, "deep": 0.3, "rank_one": 1.0}
"""Of each network, its part of the time that is left for it and the later ones."""
FLAT, HALF = 0.05, 0.5
"""What counts as one singular value, and as denoised."""
COLUMNS = ("network", "loss", "fit", "|W|^2", "median s1", "largest s2", "distance before", "after", "ratio")


def curve(seed: int) -> tuple[Float[np.ndarray, "N 2"], Float[np.ndarray, "N 2"], Float[np.ndarray, "M 2"]]:
    """Samples on the curve, the same with noise, and points all along it; centred, of deviation 1."""
    rng = np.random.default_rng(seed)
    slopes, shifts, V = rng.standard_normal(NEURONS), rng.standard_normal(NEURONS), rng.standard_normal((NEURONS, 2))
    z = rng.standard_normal(SAMPLES)
    while (far := np.abs(z) > FARTHEST).any():
        z[far] = rng.standard_normal(int(far.sum()))

    def g(at: Float[np.ndarray, " M"]) -> Float[np.ndarray, "M 2"]:
        return np.maximum(at[:, None] * slopes + shifts, 0.0) @ V

    middle = g(z).mean(axis=0)
    size = (g(z) - middle).std()
    clean = (g(z) - middle) / size
    return (
        clean,
        clean + NOISE * rng.standard_normal(clean.shape),
        (g(np.linspace(-FARTHEST, FARTHEST, FINE)) - middle) / size,
    )


def _make(asked: Asked) -> Made:
    X, noisy, fine = curve(asked.seed)
    found, ends = {"X": X, "noisy": noisy, "curve": fine}, []
    for name in NAMES:
        depth = 2 if name == "shallow" else DEEP
        problem = make_problem(X, X, lam=LAM, loss="mse", depth=depth, device=asked.device)
        budget = Budget(max(SHARES[name] * asked.budget.remaining(), 1e-3))
        if name in TRAINED:
            width = SHALLOW_WIDTH if name == "shallow" else DEEP_WIDTH
            seeds = range(asked.seed, asked.seed + STARTS)
            trained = train(problem, [width], seeds=seeds, budget=budget)
            weights, status = trained.best.weights, trained.status
        else:
            weights = rank_one(problem, asked.seed, budget)
            status = ended(budget)
        found |= stored(name, weights)
        ends.append(status)
    return Made(_settings(), found, worst(ends))


def rank_one(problem: Problem, seed: int, budget: Budget) -> list[Tensor]:
    """The family of rank 1: built ends first with one neuron in the middle layers, widened, and at a minimum again."""
    built = ends_first(problem, FAMILY, DEEP_WIDTH, seed, budget.spent)[:TIMES]
    narrow = descend(problem, [each.weights for each in built], REFINING, budget.spent)
    best = min(narrow, key=lambda weights: evaluate(problem, weights).total)
    wider = widened(best, [MORE] * (problem.depth - 1), STRENGTH, torch.Generator().manual_seed(seed))
    return descend(problem, [wider], REFINING, budget.spent)[0]


def _settings() -> list[Setting]:
    return [
        Setting("data", "a curve in the plane, x = g(z), z one Gaussian number, g a random ReLU network", True),
        Setting("penalty", f"lam {LAM:g}", True),
        Setting(
            "samples", f"{SAMPLES} on the curve, centred and scaled to deviation 1; |z| at most {FARTHEST:g}", False
        ),
        Setting("g", f"{NEURONS} neurons, all weights Gaussian", False),
        Setting("noise", f"Gaussian, deviation {NOISE} in each coordinate, on the inputs that are tested only", False),
        Setting("depths", f"L = 2 and L = {DEEP} (the paper: shallow and deep)", False),
        Setting("training", f"Adam, then L-BFGS; widths {SHALLOW_WIDTH} and {DEEP_WIDTH}, best of {STARTS}", False),
        Setting("family of rank 1", f"built ends first, then {MORE} random neurons more in each hidden layer", False),
    ]


def _numbers(arrays: Arrays) -> Numbers:
    return {"networks": [_of_network(arrays, name) for name in NAMES]}


def _of_network(arrays: Arrays, name: str) -> Numbers:
    """The line of the table of one network; singular values and distances at the inputs with noise."""
    layers, X, noisy = network(arrays, name), arrays["X"], arrays["noisy"]
    fit, norm = float(((applied(layers, X) - X) ** 2).sum(axis=1).mean()), square(layers)
    s = np.linalg.svd(jacobians(layers, noisy, activation="relu"), compute_uv=False)
    before, after = (float(distances(points, arrays["curve"]).mean()) for points in (noisy, applied(layers, noisy)))
    return {
        "name": name,
        "cost": fit + LAM * norm,
        "fit": fit,
        "norm": norm,
        "s1": float(np.median(s[:, 0])),
        "s2": float(s[:, 1].max()),
        "before": before,
        "after": after,
        "ratio": after / before,
    }


def distances(P: Float[np.ndarray, "N 2"], curve: Float[np.ndarray, "M 2"]) -> Float[np.ndarray, " N"]:
    """The distance of each point to the nearest one of the curve."""
    return np.sqrt(((P[:, None] - curve) ** 2).sum(axis=2).min(axis=1))


def _claims(numbers: Numbers) -> list[Claim]:
    shallow, _, one = numbers["networks"]
    return [
        Claim(f"the network of rank 1 has one singular value everywhere: the second is below {FLAT}", one["s2"] < FLAT),
        Claim("it takes out at least half of the noise across the curve", one["ratio"] <= HALF),
        Claim("it takes out more than the network of 2 layers", one["ratio"] < shallow["ratio"]),
        Claim("the network of 2 layers keeps a second singular value", shallow["s2"] > FLAT),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    columns = ("cost", "fit", "norm", "s1", "s2", "before", "after", "ratio")
    return [[NAMES[line["name"]], *(line[column] for column in columns)] for line in numbers["networks"]]


def _panels(arrays: Arrays, numbers: Numbers) -> list[panels.Panel]:
    drawn = []
    for line in numbers["networks"]:
        after = applied(network(arrays, line["name"]), arrays["noisy"])
        lines = [
            panels.through("the curve", arrays["curve"], "-", 4),
            panels.through("with noise", arrays["noisy"], ".", 1),
            panels.through("what the network makes of it", after, "o", 0),
        ]
        drawn.append(panels.Panel(NAMES[line["name"]], "x", "y", lines, alike=True))
    return drawn


DESIGN = Design(
    title="autoencoders that take out noise",
    source="[J23a, Fig. 3]",
    question="What does an autoencoder of points on a curve do to points beside it?",
    differs=(
        "The paper also shows an autoencoder of MNIST, which is not made here, and it prints no depths, widths or"
        " numbers of samples. It trains its deep network; here training from draws is shown beside a network that is"
        " built with rank 1. Which of these two costs less is another one for other seeds and depths."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    panels=_panels,
    limit=45.0,
)

if __name__ == "__main__":
    DESIGN.run()
