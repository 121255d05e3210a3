"""Depth against rank: the rank of the best networks falls with the depth, and their norm grows by it.

A network that passes k dimensions through its layers costs about k in each layer, |W|^2 = k L + R1 + R2 / L, and the
more in its outer layers, the smaller k is. So the best rank depends on the depth, and is smaller in deeper networks.

Families of networks are built outer layers first at the smallest depth with k neurons between. Identity layers are
inserted for the next depth, and the networks descend. For comparison, networks are trained from random starts, as in
the paper.

Source: [J23b, section 2 and Fig. 1].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import known_teachers as teachers
import numpy as np
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
    through,
    worst,
)
from layer_spectra import largest, seen_in, spectrum_panel
from torch import Tensor

from covopt.answer import drawing
from covopt.model.bottleneck import bottleneck, layer_shapes
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.runtime.loop import Budget
from covopt.solvers.deep.insertion import at_place
from covopt.solvers.deep.starts import ends_first
from covopt.solvers.training.descent import AdamOptions
from covopt.solvers.training.homotopy import REFINING, descend
from covopt.solvers.training.trainer import TrainerOptions, train

TEACHER = teachers.Teacher(latent=8, rank=2, inputs=20, outputs=20, neurons=50)
LAM = 1e-3
DEPTHS = (5, 9, 13, 17, 21, 29)
ZERO_FROM = 25
"""Beyond this depth the paper's networks are zero."""
SMALL, PAPER = (100, 20, 2), (500, 100, 4)
"""Samples, width, and random draws at each depth."""
SIZE = 2.0
"""The root of the mean of |y|^2."""
FAMILIES = (2, 4)
"""Neurons between the ends, of each family at the smallest depth."""
TRAINING = TrainerOptions(AdamOptions(steps=600), iterations=600)
BUILDING = 0.7
"""The part of the time that the families may take."""
COUNTED, FITS = 0.1, 0.1
"""Singular values of W_{L/2} above this count for the rank; a network with a smaller train cost fits [Fig. 1]."""
CLOSE = 0.1
"""A slope is the rank if it is off by no more than this part of it."""
COLUMNS = ("L", "network", "loss", "train cost", "|W|^2", "rank of W_{L/2}", "slope")


def _make(asked: Asked) -> Made:
    samples, width, trials = PAPER if asked.paper else SMALL
    [(X, Y)] = teachers.drawn(TEACHER, [samples], asked.seed, SIZE)
    problems = [make_problem(X, Y, lam=LAM, loss="mse", depth=L, device=asked.device) for L in DEPTHS]
    budget = Budget(BUILDING * asked.budget.remaining())
    found = {"X": X, "Y": Y}
    for depth, networks in zip(DEPTHS, _families(problems, width, budget, asked), strict=True):
        for rank, weights in networks.items():
            found |= stored(_family(rank, depth), weights)
    ends = [ended(budget)]
    for place, problem in enumerate(problems):
        share = Budget(max(asked.budget.remaining() / (len(problems) - place), 1e-3))
        seeds = range(asked.seed, asked.seed + trials)
        trained = train(problem, [width], seeds=seeds, budget=share, options=TRAINING)
        for number, each in enumerate(trained.networks):
            found |= stored(_draw(number, problem.depth), each.weights)
        ends.append(trained.status)
    return Made(_settings(samples, width, trials), found, worst(ends))


def _families(
    problems: Sequence[Problem], width: int, budget: Budget, asked: Asked
) -> Iterator[dict[int, list[Tensor]]]:
    """At each depth the networks of all families."""
    built = ends_first(problems[0], FAMILIES, width, asked.seed, budget.spent, of_each=True)
    networks = {rank: next(each.weights for each in built if each.rank == rank) for rank in FAMILIES}
    for place, problem in enumerate(problems):
        if place:
            networks = {rank: _inserted(problems[place - 1], W, problem) for rank, W in networks.items()}
        lower = descend(problem, list(networks.values()), REFINING, budget.spent)
        networks = dict(zip(networks, lower, strict=True))
        yield networks


def _inserted(shallow: Problem, weights: list[Tensor], deep: Problem) -> list[Tensor]:
    """The network with identity layers where the fewest dimensions pass."""
    place = bottleneck(layer_shapes(shallow, weights))
    return min(at_place(shallow, weights, deep, place), key=lambda W: evaluate(deep, W).total)


def _family(rank: int, depth: int) -> str:
    return f"k{rank}_L{depth}"


def _draw(number: int, depth: int) -> str:
    return f"draw{number}_L{depth}"


def _settings(samples: int, width: int, trials: int) -> list[Setting]:
    t = TEACHER
    return [
        Setting("data", f"x = g(z) in R^{t.inputs}, y = h(z_1, z_2) in R^{t.outputs}, z in R^{t.latent}", True),
        Setting("penalty", f"lam {LAM:g}", True),
        Setting(
            "rank", f"singular values of W_L/2 above {COUNTED}; a network fits with a train cost below {FITS}", True
        ),
        Setting("trials", f"{trials} random draws at each depth (the paper: 4 of those whose spectra it shows)", False),
        Setting("depths", ", ".join(str(L) for L in DEPTHS), False),
        Setting("samples", f"{samples}, z Gaussian", False),
        Setting("g, h", f"random ReLU networks of {t.neurons} neurons, biases {teachers.BIASES:g}", False),
        Setting("scales", f"y centred, mean |y|^2 {SIZE**2:g}", False),
        Setting("widths", f"{width}; of families {', '.join(str(k) for k in FAMILIES)} between the ends", False),
        Setting("training", "outer layers first, then L-BFGS; random starts: Adam, then L-BFGS, 600 steps each", False),
    ]


def _names(arrays: Arrays, depth: int) -> list[tuple[str, str]]:
    """Return the name of the arrays of each network of a depth, and its label."""
    trials = sum(key.startswith("draw") and key.endswith(f"_L{depth}_W1") for key in arrays)
    families = [(_family(rank, depth), f"family {rank}") for rank in FAMILIES]
    return families + [(_draw(number, depth), f"draw {number + 1}") for number in range(trials)]


def _numbers(arrays: Arrays) -> Numbers:
    points = [_of_network(arrays, depth, *name) for depth in DEPTHS for name in _names(arrays, depth)]
    before: dict[str, Numbers] = {}
    for point in points:
        shallower = before.get(point["name"])
        point["slope"] = None
        if shallower is not None and point["name"].startswith("family"):
            point["slope"] = (point["norm"] - shallower["norm"]) / (point["depth"] - shallower["depth"])
        before[point["name"]] = point
    return {"networks": points}


def _of_network(arrays: Arrays, depth: int, key: str, name: str) -> Numbers:
    layers = network(arrays, key)
    if len(layers) != depth:
        raise ValueError(f"the network {key} is of another depth")
    fit, norm = float(((applied(layers, arrays["X"]) - arrays["Y"]) ** 2).sum(axis=1).mean()), square(layers)
    middle = largest(layers[(depth + 1) // 2 - 1][:, :-1])
    return {
        "depth": depth,
        "name": name,
        "cost": fit + LAM * norm,
        "fit": fit,
        "norm": norm,
        "rank": int((middle > COUNTED).sum()),
    }


def _cheapest(numbers: Numbers) -> list[Numbers]:
    """Return the network of lowest cost at each depth."""
    networks = numbers["networks"]
    return [min((n for n in networks if n["depth"] == L), key=lambda n: n["cost"]) for L in DEPTHS]


def _claims(numbers: Numbers) -> list[Claim]:
    networks, best = numbers["networks"], _cheapest(numbers)
    ranks = [n["rank"] for n in best]
    last = [n for n in networks if n["depth"] == DEPTHS[-1]]
    families = [n for n in last if n["slope"] is not None]
    draws = [n for n in networks if n["name"].startswith("draw")]
    deep = [n for n in draws if n["depth"] > ZERO_FROM]
    falls = all(b <= a for a, b in pairwise(ranks)) and ranks[0] > ranks[-1] == TEACHER.rank
    return [
        Claim(f"the rank of the best network falls with the depth, to {TEACHER.rank}, the teacher's", falls),
        Claim(
            f"at the largest depth each layer more adds the rank to the norm of each family, up to {CLOSE:.0%}",
            all(abs(n["slope"] - n["rank"]) <= CLOSE * n["rank"] for n in families),
        ),
        Claim(
            "no network from a random start costs less than the families, at any depth",
            all(n["name"].startswith("family") for n in best),
        ),
        Claim(
            f"networks from random draws of more than {ZERO_FROM} layers are zero",
            all(n["norm"] < COUNTED for n in deep),
        ),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    names = ("depth", "name", "cost", "fit", "norm", "rank")
    return [[*(n[name] for name in names), "" if n["slope"] is None else n["slope"]] for n in numbers["networks"]]


def _panels(arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    networks, best = numbers["networks"], _cheapest(numbers)[-1]
    kinds = {f"family {k}": f"built with {k} neurons between" for k in FAMILIES}
    lines = [
        drawing.Line(text, *_points(n for n in networks if n["name"] == name), "o-", color)
        for color, (name, text) in enumerate(kinds.items())
    ]
    for fits, text, style in ((True, "random start, fits", "."), (False, "random start, does not fit", "x")):
        drawn = [n for n in networks if n["name"].startswith("draw") and (n["fit"] < FITS) is fits]
        lines += [drawing.Line(text, *_points(drawn), style, 4)] if drawn else []
    steps = [[n["depth"], n["rank"]] for n in _cheapest(numbers)]
    cheapest = through("", np.array(steps, float), "o-", 3)
    spectra = [layer["weights"] for layer in seen_in(network(arrays, _key(best)), arrays["X"])]
    return [
        drawing.Panel("Norm", "depth L", "|W|²", lines, logarithmic="y"),
        drawing.Panel("The best networks", "depth L", "rank of $W_{L/2}$", [cheapest], counted="xy"),
        spectrum_panel(f"The best at L = {best['depth']}", "singular values of $W_l$", spectra, TEACHER.rank),
    ]


def _key(point: Numbers) -> str:
    """The name of its arrays."""
    kind, number = point["name"].split()
    return _family(int(number), point["depth"]) if kind == "family" else _draw(int(number) - 1, point["depth"])


def _points(networks: Iterator[Numbers] | Sequence[Numbers]) -> tuple[np.ndarray, np.ndarray]:
    """Depths and norms."""
    pairs = np.array([[n["depth"], n["norm"]] for n in networks], dtype=np.float64)
    return pairs[:, 0], pairs[:, 1]


DESIGN = Design(
    title="the rank of the best networks falls with the depth",
    source="[J23b, Fig. 1]",
    question="How do the norm and the rank of networks change with the depth?",
    differs=(
        "The paper trains all its networks from random starts, and prints neither their widths nor the number of"
        " samples. Here the families are built outer layers first and passed from depth to depth, which finds lower"
        " losses; random starts are shown for comparison. A descent ends when it gains nothing, or by its steps."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    panels=_panels,
)

if __name__ == "__main__":
    DESIGN.run()
