"""The rank of each layer after SGD with weight decay against its index, with batch normalisation.

An MLP with batch normalisation and a residual network learn images of digits in batches of several sizes.

Source: [GP22, Figures 6 and 7].
"""

from __future__ import annotations

import numpy as np
import sgd_networks
from figure_design import Arrays, Asked, Claim, Design, Made, Numbers, ended
from sgd_networks import NAMES

from covopt.answer import drawing

DEPTH, BATCHES, RATE, LAM = 10, (8, 16, 64), 0.1, 1e-2
ARCHITECTURES = ("batch_norm", "residual")


def _make(asked: Asked) -> Made:
    epochs, arrays = asked.size(quick=1, usual=80), {}
    for name in ARCHITECTURES:
        networks = sgd_networks.train(asked, name, DEPTH, [(batch, RATE, LAM) for batch in BATCHES], epochs)
        arrays[f"{name}_ranks"] = np.array([network.ranks for network in networks], dtype=np.float64)
        arrays[f"{name}_others"] = np.array([[n.kept, n.train, n.test] for n in networks])
    return Made(sgd_networks.settings(asked, DEPTH, epochs), arrays, ended(asked.budget))


def _numbers(arrays: Arrays) -> Numbers:
    return {
        name: [
            {"batch": batch, "ranks": ranks.tolist(), "kept": kept, "train": train, "test": test}
            for batch, ranks, (kept, train, test) in zip(
                BATCHES, arrays[f"{name}_ranks"], arrays[f"{name}_others"], strict=True
            )
        ]
        for name in ARCHITECTURES
    }


def _claims(numbers: Numbers) -> list[Claim]:
    claims = []
    for name, networks in numbers.items():
        least, most = (np.array(network["ranks"][1:-1]) for network in (networks[0], networks[-1]))
        claims += [
            Claim(f"{NAMES[name]}: every inner layer has a smaller rank for small batches", bool((least < most).all())),
            Claim(
                f"{NAMES[name]}: with small batches the rank falls along the inner layers",
                bool(least[: len(least) // 2].mean() > least[len(least) // 2 :].mean()),
            ),
        ]
    return claims


def _rows(numbers: Numbers) -> list[list[object]]:
    return [
        [NAMES[name], n["batch"], n["kept"], n["train"], n["test"], *map(int, n["ranks"])]
        for name, networks in numbers.items()
        for n in networks
    ]


def _panels(arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    layers = np.arange(1.0, DEPTH + 1.0)
    return [
        drawing.Panel(
            f"{NAMES[name]}, {DEPTH} matrices",
            "layer",
            f"values above {sgd_networks.TOLERANCE:g} $|W|$",
            [
                drawing.Line(f"batches of {n['batch']}", layers, np.array(n["ranks"]), "-", color)
                for color, n in enumerate(networks)
            ],
        )
        for name, networks in numbers.items()
    ]


DESIGN = Design(
    title="SGD with weight decay: the rank of each layer",
    source="[GP22, Figures 6 and 7]",
    question="Which layers have low rank after SGD with weight decay?",
    differs=(
        "The paper trains on larger images for hundreds of epochs; these are scikit-learn's digits without --data-dir,"
        " narrower networks and a stronger penalty."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=("network", "batch", "kept", "train", "test", *(f"W{layer}" for layer in range(1, DEPTH + 1))),
    rows=_rows,
    panels=_panels,
    limit=None,
    images=True,
)

if __name__ == "__main__":
    DESIGN.run()
