"""Classification without tripoints: where decision boundaries of shallow and of deep networks meet.

Four classes of points on curves like an inverted S, x = s k - a sin(pi t), y = t, each beside the last one. A
network of nonlinear rank 1 passes through a line, on which every class has at most two neighbours: no point of the
plane touches three classes. A shallow network has such points. Beside both, the same networks without a penalty.

They are looked for on a grid: cells whose corners hold three classes or more, those that touch counted once. Two
classes are adjacent where neighbouring points of the grid hold them.

Source: [J23a, section 5.1 and Fig. 2].
"""

from __future__ import annotations

from itertools import pairwise

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
    network,
    square,
    stored,
    through,
    worst,
)
from jaxtyping import Float, Int
from plain_training import trained
from scipy import ndimage

from covopt.answer import drawing
from covopt.model.problem import make_problem
from covopt.runtime.loop import Budget
from covopt.solvers.training.descent import AdamOptions
from covopt.solvers.training.trainer import TrainerOptions, train

CLASSES, EACH = 4, 25
AMPLITUDE, SPACING = 0.9, 0.55
LAM = 1e-4
DEPTHS = {2: (40, 2), 9: (20, 3)}
"""Of each depth the width, and the random starts with a penalty; without one there is a single start."""
STEPS = 2000
"""Steps of Adam without a penalty, where the loss has no minimum."""
GRID, MARGIN = 400, 2.0
"""Points along each side of the grid, and how far it reaches beyond the samples."""
COLUMNS = ("L", "lam", "loss", "cross-entropy", "|W|^2", "misclassified", "tripoints", "adjacent classes")


def curves(seed: int) -> tuple[Float[np.ndarray, "N 2"], Float[np.ndarray, " N"]]:
    """The points and the number of the class of each."""
    rng = np.random.default_rng(seed)
    t = [np.sort(rng.uniform(-1.0, 1.0, EACH)) for _ in range(CLASSES)]
    middle = (CLASSES - 1) / 2.0
    rows = [np.column_stack([SPACING * (k - middle) - AMPLITUDE * np.sin(np.pi * u), u]) for k, u in enumerate(t)]
    return np.concatenate(rows), np.repeat(np.arange(CLASSES, dtype=np.float64), EACH)


def tripoints(classes: Int[np.ndarray, "r c"]) -> int:
    """Clusters of cells of the grid whose four corners hold three classes or more."""
    corners = np.stack([classes[:-1, :-1], classes[1:, :-1], classes[:-1, 1:], classes[1:, 1:]])
    met = 1 + (np.diff(np.sort(corners, axis=0), axis=0) != 0).sum(axis=0)
    return int(ndimage.label(met >= 3, structure=np.ones((3, 3)))[1])  # type: ignore[index]


def adjacent(classes: Int[np.ndarray, "r c"]) -> list[list[int]]:
    """The pairs of classes that neighbouring points of the grid hold."""
    found = set()
    for a, b in ((classes[:-1], classes[1:]), (classes[:, :-1], classes[:, 1:])):
        found |= set(zip(np.minimum(a, b)[a != b].tolist(), np.maximum(a, b)[a != b].tolist(), strict=True))
    return [list(pair) for pair in sorted(found)]


def _grid(X: Float[np.ndarray, "N 2"]) -> tuple[Float[np.ndarray, "M 2"], tuple[float, float, float, float]]:
    """Its points, row by row from below, and its extent."""
    (left, low), (right, high) = X.min(axis=0) - MARGIN, X.max(axis=0) + MARGIN
    x, y = np.meshgrid(np.linspace(left, right, GRID), np.linspace(low, high, GRID))
    return np.column_stack([x.ravel(), y.ravel()]), (float(left), float(right), float(low), float(high))


def _regions(arrays: Arrays, name: str) -> Int[np.ndarray, "r c"]:
    """The class at each point of the grid."""
    outputs = applied(network(arrays, name), _grid(arrays["X"])[0])
    return outputs.argmax(axis=1).reshape(GRID, GRID)


def _make(asked: Asked) -> Made:
    X, labels = curves(asked.seed)
    Y = np.eye(CLASSES)[labels.astype(int)]
    options = asked.size(quick=TrainerOptions(AdamOptions(steps=500), iterations=1000), usual=TrainerOptions())
    found, ended = {"X": X, "labels": labels}, []
    for number, (depth, (width, starts)) in enumerate(DEPTHS.items()):
        problem = make_problem(X, Y, lam=LAM, loss="cross_entropy", depth=depth, device=asked.device)
        free = trained(problem, [width] * (depth - 1), asked.seed, STEPS, asked.budget.spent, penalty=_none)
        found |= stored(f"free_L{depth}", free)
        share = Budget(max(asked.budget.remaining() / (len(DEPTHS) - number), 1e-3))
        training = train(problem, [width], seeds=range(asked.seed, asked.seed + starts), budget=share, options=options)
        found |= stored(f"L{depth}", training.best.weights)
        ended.append(training.status)
    sizes = "; ".join(f"width {width} at L = {depth}, best of {starts}" for depth, (width, starts) in DEPTHS.items())
    settings = [
        Setting("data", f"{CLASSES} classes on an inverted S, moved along x; cross-entropy", True),
        Setting("depths", "L = 2 and L = 9, with and without a penalty", True),
        Setting("curve", f"({SPACING} k - {AMPLITUDE} sin(pi t), t), t uniform in [-1, 1]", False),
        Setting("samples", f"{EACH} of each class", False),
        Setting("penalty", f"lam {LAM:g}", False),
        Setting("training", f"Adam, then L-BFGS; {sizes}", False),
        Setting("training without a penalty", f"{STEPS} steps of Adam", False),
        Setting("grid", f"{GRID} x {GRID}, up to {MARGIN:g} beyond the samples", False),
    ]
    return Made(settings, found, worst(ended))


def _none(_: float) -> float:
    """No penalty."""
    return 0.0


def _numbers(arrays: Arrays) -> Numbers:
    return {
        "penalised": [_of_network(arrays, f"L{depth}", depth, LAM) for depth in DEPTHS],
        "free": [_of_network(arrays, f"free_L{depth}", depth, 0.0) for depth in DEPTHS],
    }


def _of_network(arrays: Arrays, name: str, depth: int, lam: float) -> Numbers:
    """The line of the table of one network."""
    layers, labels = network(arrays, name), arrays["labels"].astype(int)
    F = applied(layers, arrays["X"])
    F = F - F.max(axis=1, keepdims=True)
    entropy = float(np.mean(np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(F)), labels]))
    norm, regions = square(layers), _regions(arrays, name)
    return {
        "name": name,
        "depth": depth,
        "lam": lam,
        "cost": entropy + lam * norm,
        "cross_entropy": entropy,
        "norm": norm,
        "misclassified": int((F.argmax(axis=1) != labels).sum()),
        "tripoints": tripoints(regions),
        "adjacent": adjacent(regions),
    }


def _claims(numbers: Numbers) -> list[Claim]:
    shallow, deep = numbers["penalised"]
    path = [list(pair) for pair in pairwise(range(CLASSES))]
    return [
        Claim("both networks classify all samples", shallow["misclassified"] == deep["misclassified"] == 0),
        Claim("the boundaries of the network of 2 layers meet in tripoints", shallow["tripoints"] > 0),
        Claim("those of the network of 9 layers do not", deep["tripoints"] == 0),
        Claim("at L = 9 the classes are adjacent along a path, 0-1-2-3", deep["adjacent"] == path),
        Claim("without a penalty, the boundaries of 9 layers meet too", numbers["free"][1]["tripoints"] > 0),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    lines = numbers["penalised"] + numbers["free"]
    names = ("depth", "lam", "cost", "cross_entropy", "norm", "misclassified", "tripoints")
    pairs = [" ".join(f"{a}-{b}" for a, b in line["adjacent"]) for line in lines]
    return [[*(line[name] for name in names), text] for line, text in zip(lines, pairs, strict=True)]


def _panels(arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    X, labels, extent = arrays["X"], arrays["labels"], _grid(arrays["X"])[1]
    drawn = []
    for line in numbers["penalised"] + numbers["free"]:
        dots = [through(f"class {k}", X[labels == k], "o", k) for k in range(CLASSES)]
        regions = _regions(arrays, line["name"]).astype(np.float64)
        penalty = f"lam {line['lam']:g}" if line["lam"] else "no penalty"
        title = f"L = {line['depth']}, {penalty}: {line['tripoints']} tripoints"
        drawn.append(drawing.Panel(title, "x", "y", dots, regions, extent))
    return drawn


DESIGN = Design(
    title="decision boundaries without tripoints",
    source="[J23a, Fig. 2]",
    question="Do the decision boundaries of a deep network meet in points that touch three classes?",
    differs=(
        "The paper prints neither sizes nor the strength of the penalty. How many tripoints there are depends on the"
        " spacing of the curves, and without a penalty on the start and the number of steps."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    panels=_panels,
    across=2,
    limit=30.0,
)

if __name__ == "__main__":
    DESIGN.run()
