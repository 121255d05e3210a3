"""Losses against the width for the outputs of a random network of widths (50, 10, 10, 10), mean squared error, depth 3.

Source: [JGHG22, Figure 2, right].
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from figure_design import Asked, Design
from trained_widths import COLUMNS, SAMPLES, Panel, Samples

TEACHER = (50, 10, 10, 10)


def taught(asked: Asked) -> Samples:
    """Gaussian inputs and the outputs of a Gaussian network without biases, He-scaled."""
    rng = np.random.default_rng(asked.seed)
    X = rng.standard_normal((2 * SAMPLES, TEACHER[0]))
    Y = X
    for layer, (below, above) in enumerate(pairwise(TEACHER)):
        Y = (np.maximum(Y, 0.0) if layer else Y) @ rng.standard_normal((below, above)) * math.sqrt(2.0 / below)
    return Samples(X[:SAMPLES], Y[:SAMPLES], X[SAMPLES:], Y[SAMPLES:], f"a teacher of widths {TEACHER}")


PANEL = Panel(
    samples=taught,
    loss="mse",
    strengths=(1e-5, 1e-6),
    widths=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 24, 28, 34, 40),
    small=(1, 2, 4, 6, 8, 10, 12, 16, 20),
    stated=False,
)

DESIGN = Design(
    title="losses of trained networks against their width, a teacher",
    source="[JGHG22, Figure 2, right]",
    question="Where do the losses of trained networks stop falling, as the networks are made wider?",
    differs=(
        "The teacher, the samples and lam = 1e-6 are the paper's; lam = 1e-5, the widths and the trainer are chosen"
        " here."
    ),
    make=PANEL.make,
    numbers=PANEL.numbers,
    claims=PANEL.claims,
    columns=COLUMNS,
    rows=PANEL.rows,
    panels=PANEL.panels,
    limit=200.0,
)

if __name__ == "__main__":
    DESIGN.run()
