"""Ranks and accuracies after SGD with weight decay against batch size, rate and lam, for three architectures.

A plain MLP, one with batch normalisation and a residual one learn images of digits. One of batch size, rate and lam is
varied at a time. The figure shows the mean rank of the matrices, and the rank of what remains of the initialisation
alone.

Source: [GP22, Figures 2 to 5 and section 4.3].
"""

from __future__ import annotations

import numpy as np
import sgd_networks
from figure_design import Arrays, Asked, Claim, Design, Made, Numbers, ended
from sgd_networks import NAMES, Choice

from covopt.answer import drawing

DEPTH = 6
BASE: Choice = (16, 0.1, 1e-2)
VARIED: dict[str, tuple[float, ...]] = {
    "batch size": (8, 16, 32, 64),
    "rate": (0.025, 0.05, 0.1, 0.2),
    "lam": (2.5e-3, 5e-3, 1e-2, 2e-2),
}
MEASURES = ("kept", "mean rank", "of the initialisation", "train accuracy", "test accuracy")


def choices() -> list[Choice]:
    """Return the settings, each once: the base with one value changed."""
    changed = [
        (*BASE[:place], value, *BASE[place + 1 :]) for place, axis in enumerate(VARIED.values()) for value in axis
    ]
    return list(dict.fromkeys((int(batch), rate, lam) for batch, rate, lam in changed))


def _make(asked: Asked) -> Made:
    epochs, arrays = asked.size(quick=1, usual=80), {}
    for name in NAMES:
        networks = sgd_networks.train(asked, name, DEPTH, choices(), epochs)
        arrays[name] = np.array(
            [
                [*choice, n.kept, np.mean(n.ranks), np.mean(n.start), n.train, n.test]
                for choice, n in zip(choices(), networks, strict=True)
            ]
        )
    return Made(sgd_networks.settings(asked, DEPTH, epochs), arrays, ended(asked.budget))


def _numbers(arrays: Arrays) -> Numbers:
    """Return, for each architecture and varied option, rows of its value and MEASURES."""
    return {name: {option: _along(arrays[name], place) for place, option in enumerate(VARIED)} for name in NAMES}


def _along(rows: np.ndarray, place: int) -> list[list[float]]:
    others = [column for column in range(3) if column != place]
    same = [row for row in rows if all(row[column] == BASE[column] for column in others)]
    return sorted([row[place], *row[3:]] for row in np.array(same).tolist())


def _claims(numbers: Numbers) -> list[Claim]:
    claims = []
    for name, axes in numbers.items():
        ranks = {option: [row[2] for row in rows] for option, rows in axes.items()}
        right = [row[5] for along in axes.values() for row in along]
        claims += [
            Claim(f"{NAMES[name]}: smaller batches end with a smaller mean rank", _rises(ranks["batch size"])),
            Claim(f"{NAMES[name]}: larger rates end with a smaller mean rank", _rises(ranks["rate"][::-1])),
            Claim(f"{NAMES[name]}: larger lam end with a smaller mean rank", _rises(ranks["lam"][::-1])),
            Claim(f"{NAMES[name]}: test accuracies differ by less than 3 %", max(right) - min(right) < 0.03),
        ]
    rows = [row for axes in numbers.values() for along in axes.values() for row in along]
    faded = [row for row in rows if row[1] > 0.1]
    return [
        *claims,
        Claim(
            "where more than a tenth of the initial weights remains, they alone give the mean rank, up to a tenth",
            all(abs(row[3] - row[2]) <= 0.1 * row[2] for row in faded),
        ),
    ]


def _rises(ranks: list[float]) -> bool:
    return ranks == sorted(ranks) and ranks[0] < ranks[-1]


def _rows(numbers: Numbers) -> list[list[object]]:
    return [
        [NAMES[name], option, *row] for name, axes in numbers.items() for option, rows in axes.items() for row in rows
    ]


def _panels(arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    def panel(option: str, measure: str, column: int, dashed: int, note: str) -> drawing.Panel:
        lines, named = [], option == [*VARIED][-1]  # the other legends would lie on their lines
        for color, name in enumerate(NAMES):
            columns = np.array(numbers[name][option]).T
            lines.append(drawing.Line(NAMES[name] if named else "", columns[0], columns[column], "-", color))
            lines.append(drawing.Line("" if color or not named else note, columns[0], columns[dashed], "--", color))
        return drawing.Panel(f"{measure} against {option}", option, measure.lower(), lines, logarithmic="x")

    kinds = (("Mean rank", 2, 3, "initialisation alone"), ("Accuracy", 4, 5, "on the test images"))
    return [panel(option, *kind) for option in VARIED for kind in kinds]


DESIGN = Design(
    title="SGD with weight decay: mean rank and accuracy against batch size, rate and lam",
    source="[GP22, Figures 2 to 5]",
    question="How do batch size, rate and penalty change the ranks of the matrices that SGD ends with, and why?",
    differs=(
        "The paper trains on larger images for hundreds of epochs; these are scikit-learn's digits without --data-dir,"
        " narrower networks and stronger penalties, so that as much of the initial weights fades in 80 epochs."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=("network", "varied", "value", *MEASURES),
    rows=_rows,
    panels=_panels,
    across=2,
    limit=None,
    images=True,
)

if __name__ == "__main__":
    DESIGN.run()
