"""SGD with weight decay at a constant rate: its steps do not vanish, and the ranks of its matrices fall.

A network of five layers learns images of digits by SGD in mini-batches, once with cross-entropy and once with the mean
squared error. After each epoch it is seen how far a step moves the matrices, the accuracy, the loss, and the rank of
the matrices. Distances are means over the layers and over the steps of the epoch, ranks over the layers.

Source: [GP22, Figure 1 and section 4.1].
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from figure_design import Arrays, Asked, Claim, Design, Made, Numbers, Setting, ended
from jaxtyping import Float
from torch import Tensor, nn

import covopt
from covopt.answer import drawing
from covopt.model.ranks import threshold_rank

SAMPLES, DEPTH, WIDTH, BATCH, RATE = 1000, 5, 100, 32, 0.1
LAM = 5e-3
"""The gradient of lam |W|^2 is 2 lam W: PyTorch's weight_decay is 2 lam."""
TOLERANCE = 1e-3
"""The rank of W is the number of its singular values above this part of |W|_F."""
MEASURES = ("distance", "train accuracy", "test accuracy", "loss", "mean rank")
COLUMNS = ("loss function", "epoch", *MEASURES)


def squared_error(F: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of |f(x) - y|^2 over samples, y one-hot."""
    return (F - nn.functional.one_hot(labels, F.shape[1])).square().sum(dim=1).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": nn.functional.cross_entropy,
    "mean squared error": squared_error,
}


def train(
    name: str, X: Tensor, labels: Tensor, count: int, seed: int, stop: Callable[[], bool] = lambda: False
) -> Float[np.ndarray, "epochs 5"]:
    """Train on the first SAMPLES rows; return MEASURES after each epoch, of fewer if `stop` says so."""
    generator = torch.manual_seed(seed)
    sizes = [X.shape[1], *[WIDTH] * (DEPTH - 1)]
    hidden = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(WIDTH, int(labels.max()) + 1)).to(X)
    matrices = [part.weight for part in network if isinstance(part, nn.Linear)]
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, weight_decay=2.0 * LAM)
    course = []
    for _ in range(count):
        if course and stop():
            break
        steps = []
        for rows in torch.randperm(SAMPLES, generator=generator).to(X.device).split(BATCH):
            before = [W.detach().clone() for W in matrices]
            optimizer.zero_grad()
            LOSSES[name](network(X[rows]), labels[rows]).backward()
            optimizer.step()
            lengths = [float((W.detach() - old).norm()) for W, old in zip(matrices, before, strict=True)]
            steps.append(np.mean(lengths))
        course.append([np.mean(steps), *_measured(name, network, matrices, X, labels)])
    return np.array(course)


@torch.no_grad()
def _measured(name: str, network: nn.Module, matrices: list[Tensor], X: Tensor, labels: Tensor) -> list[float]:
    """Return accuracies on both sets, the loss that is trained, and the mean rank."""
    F = network(X)
    right = (F.argmax(dim=1) == labels).double()
    penalty = LAM * sum(float(p.square().sum()) for p in network.parameters())
    loss = float(LOSSES[name](F[:SAMPLES], labels[:SAMPLES])) + penalty
    ranks = [threshold_rank(torch.linalg.svdvals(W.double()), TOLERANCE) for W in matrices]
    return [float(right[:SAMPLES].mean()), float(right[SAMPLES:].mean()), loss, float(np.mean(ranks))]


def _make(asked: Asked) -> Made:
    data = covopt.read_data("digits" if asked.images is None else "mnist", scale="max", data_dir=asked.images)
    X = torch.from_numpy(data.X).float().to(asked.device)
    labels = torch.from_numpy(data.Y.argmax(axis=1)).to(asked.device)
    count = asked.size(quick=15, usual=200)
    arrays = {name: train(name, X, labels, count, asked.seed, asked.budget.spent) for name in LOSSES}
    settings = [
        Setting("data", f"the first {SAMPLES} images of {data.name}, tested on the other {len(X) - SAMPLES}", False),
        Setting("network", f"{DEPTH} layers of width {WIDTH}, ReLU, PyTorch's start", False),
        Setting("training", f"SGD, batches of {BATCH}, rate {RATE}, {count} epochs", False),
        Setting("penalty", f"lam {LAM:g}, PyTorch's weight_decay {2.0 * LAM:g}", False),
        Setting("rank", f"singular values above {TOLERANCE:g} |W|_F, mean over the layers", False),
    ]
    return Made(settings, arrays, ended(asked.budget))


def _numbers(arrays: Arrays) -> Numbers:
    return {"courses": {name: _of_course(arrays[name]) for name in LOSSES}}


def _of_course(course: Float[np.ndarray, "epochs 5"]) -> Numbers:
    """Return eleven epochs, the steps at the end over the mean of all, the accuracy then, and how far ranks fall."""
    distance, ranks = course[:, 0], course[:, -1]
    tenth = -(-len(course) // 10)
    return {
        "rows": [
            [int(epoch) + 1, *course[epoch].tolist()] for epoch in np.linspace(0, len(course) - 1, 11).astype(int)
        ],
        "steps": float(distance[-tenth:].mean() / distance.mean()),
        "right": float(course[-tenth:, 1].mean()),
        "ranks": float(ranks[-1] / ranks[0]),
    }


def _claims(numbers: Numbers) -> list[Claim]:
    claims = []
    for name, course in numbers["courses"].items():
        claims += [
            Claim(f"{name}: the network learns: 95 % of the train images are right at the end", course["right"] > 0.95),
            Claim(
                f"{name}: the steps do not vanish: at the end they are above 1/4 of the mean", course["steps"] > 0.25
            ),
            Claim(f"{name}: the mean rank falls to less than half of what it was", course["ranks"] < 0.5),
        ]
    return claims


def _rows(numbers: Numbers) -> list[list[object]]:
    return [[name, *row] for name, course in numbers["courses"].items() for row in course["rows"]]


def _panels(arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    def lines(column: int, note: str = "", style: str = "-") -> list[drawing.Line]:
        return [
            drawing.Line(name + note, np.arange(1.0, len(arrays[name]) + 1.0), arrays[name][:, column], style, color)
            for color, name in enumerate(LOSSES)
        ]

    accuracies = lines(1, ", train") + lines(2, ", test", "--")
    return [
        drawing.Panel(
            "Mean distance of a step", "epoch", r"$|W_{t+1} - W_t|$, mean over layers", lines(0), logarithmic="y"
        ),
        drawing.Panel("Accuracy", "epoch", "share of images classified right", accuracies),
        drawing.Panel("Loss with the penalty", "epoch", "train loss", lines(3), logarithmic="y"),
        drawing.Panel("Mean rank", "epoch", f"values above {TOLERANCE:g} $|W|$, mean over layers", lines(4)),
    ]


DESIGN = Design(
    title="SGD with weight decay: steps, accuracy, loss and ranks along the training",
    source="[GP22, Figure 1]",
    question="Does SGD at a constant rate come to rest, and what happens to the ranks of its matrices?",
    differs=(
        "The paper trains on larger images and does not state all of its settings; these are scikit-learn's digits"
        " without --data-dir, a network of five layers, and a penalty strong enough to show in minutes."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    panels=_panels,
    across=2,
    images=True,
)

if __name__ == "__main__":
    DESIGN.run()
