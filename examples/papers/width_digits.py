"""Losses against the width on images of digits: 1,000 images, cross-entropy, depth 3, two strengths of the penalty.

Source: [JGHG22, Figure 2, left].
"""

from __future__ import annotations

from figure_design import Asked, Design
from trained_widths import COLUMNS, SAMPLES, Panel, Samples

import covopt


def images(asked: Asked) -> Samples:
    """The first 1,000 images, and the 1,000 (797 of scikit-learn's digits) that follow."""
    name = "digits" if asked.images is None else "mnist"
    rows = None if asked.images is None else 2 * SAMPLES
    data = covopt.read_data(name, rows=rows, scale="max", data_dir=asked.images)
    return Samples(data.X[:SAMPLES], data.Y[:SAMPLES], data.X[SAMPLES:], data.Y[SAMPLES:], name)


PANEL = Panel(
    samples=images,
    loss="cross_entropy",
    strengths=(1e-3, 1e-4),
    widths=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 25, 30, 40, 50, 70, 100),
    small=(1, 2, 4, 6, 8, 12, 20, 30),
)

DESIGN = Design(
    title="losses of trained networks against their width, digits",
    source="[JGHG22, Figure 2, left]",
    question="Where do the losses of trained networks stop falling, as the networks are made wider?",
    differs=(
        "The paper's panel has images of MNIST, 28 x 28; without --data-dir these are scikit-learn's digits, 8 x 8,"
        " tested on the other 797. The widths and the trainer are chosen here."
    ),
    make=PANEL.make,
    numbers=PANEL.numbers,
    claims=PANEL.claims,
    columns=COLUMNS,
    rows=PANEL.rows,
    panels=PANEL.panels,
    limit=90.0,
    images=True,
)

if __name__ == "__main__":
    DESIGN.run()
