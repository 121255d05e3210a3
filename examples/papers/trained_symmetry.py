"""Symmetry by training: a network of 25 layers from a random start forgets what its targets do not depend on.

The data, the numbers and the pictures are those of `symmetry.py`, whose network is built from the outer layers inwards;
here the network is trained from random starts, as in the paper, and the best of them is shown.

Source: [J23b, section 4 and Fig. 2].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import symmetry
from figure_design import Asked, Claim, Made, Numbers, Setting
from random_starts import Schedule, best, trained
from symmetry import DEPTH, FRESH, LAM, LEARNED, RANK, D

from covopt.runtime.loop import Status

SIZES, QUICK_SIZES = (400, 30), (60, 12)
"""Samples, and the width of all layers."""
STARTS = 2
SCHEDULE, QUICK_SCHEDULE = Schedule(steps=5000, stronger=10.0), Schedule(steps=100)
OUTLIER, COLLAPSED = 0.95, 0.3
"""Singular values above this are outliers; copies are collapsed at this part of strangers' distance."""
MIDDLE = range(8, DEPTH - 6)
"""Layers, counted from 1, that are not at the ends."""


def _make(asked: Asked) -> Made:
    (samples, width), schedule = asked.size(QUICK_SIZES, SIZES), asked.size(QUICK_SCHEDULE, SCHEDULE)
    M, rng = symmetry.target(asked.seed), np.random.default_rng([asked.seed, 0])
    X, fresh = (rng.standard_normal((count, D)) / D**0.5 for count in (samples, FRESH))
    Y = symmetry.losses(symmetry.descent(X, M, symmetry.STEPS)[1:], M)
    layers = best(trained(X, Y, [width] * (DEPTH - 1), LAM, STARTS, asked.seed, schedule), X, Y, LAM)
    arrays = {"X": X, "Y": Y, "M": M, "fresh": fresh, "turned": symmetry.turned(fresh, asked.seed)}
    arrays |= {f"network_W{place}": W for place, W in enumerate(layers, start=1)}
    settings = [
        Setting("task", "v(0) -> (C(v(1)), ..., C(v(T))), C(v) = |v v^T - (w w^T + E)|^2, by gradient descent", True),
        Setting("depth", f"L = {DEPTH}", True),
        Setting("penalty", f"lam {LAM:g}", True),
        Setting("gradient descent", f"v with {D} entries, {symmetry.STEPS} steps of {symmetry.ETA}", False),
        Setting("samples", str(samples), False),
        Setting("widths", f"{width} (the paper: 200)", False),
        Setting("training", f"{schedule}; best of {STARTS}", False),
    ]
    return Made(settings, arrays, Status.ITERATION_LIMIT)


def _claims(numbers: Numbers) -> list[Claim]:
    middle = [numbers["layers"][number - 1] for number in MIDDLE]
    between = f"layers {MIDDLE[0]} to {MIDDLE[-1]}"
    outliers = {sum(value > OUTLIER for value in layer["weights"]) for layer in middle}
    together = all(layer["collapse"] is not None and layer["collapse"] < COLLAPSED for layer in middle)
    return [
        Claim(
            f"at new inputs less than {LEARNED} of the targets' variance is left",
            numbers["test"] < LEARNED * numbers["variance"],
        ),
        Claim(f"{RANK} singular values are above {OUTLIER} in each of {between}", outliers == {RANK}),
        Claim(f"there samples and their turned copies are nearer than {COLLAPSED} of what strangers are", together),
        Claim(
            f"paths of gradient descent do not cross in two components of Z_{symmetry.LAYER}", numbers["crossings"] == 0
        ),
    ]


DESIGN = replace(
    symmetry.DESIGN,
    title="a deep network that is trained from random starts learns the symmetries of its targets",
    differs=(
        "The paper prints neither the size of v, nor the steps of gradient descent, nor E, nor its training, and its"
        " layers have 200 neurons; the penalty starts stronger here and falls to lam."
    ),
    make=_make,
    claims=_claims,
    across=2,
    limit=None,
)

if __name__ == "__main__":
    DESIGN.run()
