"""Rank recovery by training: a deep network from a random start learns a function of few dimensions.

The data, the numbers and the pictures are those of `rank_recovery.py`, whose network is built from the outer layers
inwards; here the network is trained from random starts, as in the paper, and the best of them is shown.

Source: [J23a, Fig. 1 and App. D, F].
"""

from __future__ import annotations

from dataclasses import replace

import known_teachers as teachers
import numpy as np
import rank_recovery
from figure_design import Asked, Claim, Made, Numbers, Setting
from random_starts import Schedule, best, trained
from rank_recovery import DEPTH, FRESH, LAM

from covopt.runtime.loop import Status

SIZES, QUICK_SIZES = (300, 40), (60, 12)
"""Samples, and the width of all layers."""
STARTS = 2
SCHEDULE, QUICK_SCHEDULE = Schedule(steps=6000), Schedule(steps=150)
GAP = 1.5
"""An outlier is a singular value this many times larger than the next one."""
MIDDLE = range(4, DEPTH - 3)
"""Layers, counted from 1, that are not at the ends."""


def _make(asked: Asked) -> Made:
    t, schedule = rank_recovery.TEACHER, asked.size(QUICK_SCHEDULE, SCHEDULE)
    samples, width = asked.size(QUICK_SIZES, SIZES)
    (X, Y), (fresh, truth) = teachers.drawn(t, [samples, FRESH], asked.seed, t.outputs**0.5)
    layers = best(trained(X, Y, [width] * (DEPTH - 1), LAM, STARTS, asked.seed, schedule), X, Y, LAM)
    arrays = {"X": X, "Y": Y, "fresh": fresh, "truth": truth}
    arrays |= {f"network_W{place}": W for place, W in enumerate(layers, start=1)}
    settings = [
        Setting("data", f"x = g(z) in R^{t.inputs}, y = h(z_1, ..., z_{t.rank}) in R^{t.outputs}", True),
        Setting("z, g, h", f"{t.latent} Gaussian numbers; random ReLU networks, {t.neurons} neurons", True),
        Setting("depth", f"L = {DEPTH}", True),
        Setting("penalty", f"lam 0.05 / L = {LAM:.6f}", True),
        Setting("samples", f"{samples} (the paper: 500)", False),
        Setting("widths", f"{width} (the paper: 100)", False),
        Setting("training", f"{schedule}; best of {STARTS}", False),
    ]
    return Made(settings, arrays, Status.ITERATION_LIMIT)


def _claims(numbers: Numbers) -> list[Claim]:
    k, learned, kernel = rank_recovery.TEACHER.rank, numbers["network"], numbers["kernel"]
    middle = [numbers["layers"][number - 1] for number in MIDDLE]
    gaps = [[_ratio(layer["weights"], number) for number in (k, k + 1)] for layer in middle]
    s, nonlinear = learned["singular_values"], [layer["nonlinearity"] for layer in middle]
    between = f"layers {MIDDLE[0]} to {MIDDLE[-1]}"
    return [
        Claim(
            f"{k} outliers in {between}: the next singular value is smaller by {GAP}",
            all(gap > GAP for gap, _ in gaps),
        ),
        Claim("there are so many, or one more", all(max(both) > GAP for both in gaps)),
        Claim(f"{between} are nearly linear on the data: |Z - relu(Z)| / |Z| is below 0.1", max(nonlinear) < 0.1),
        Claim(
            f"the median Jacobian has {k} large singular values; the next is below half of them", s[k] < 0.5 * s[k - 1]
        ),
        Claim("that of kernel ridge regression has full rank", len(set(kernel["ranks"])) == 1),
        Claim("the network's test error is lower than the kernel's", learned["test"] < kernel["test"]),
    ]


def _ratio(values: list[float], k: int) -> float:
    """The k-th over the next singular value."""
    return values[k - 1] / values[k] if len(values) > k and values[k] > 0.0 else np.inf


DESIGN = replace(
    rank_recovery.DESIGN,
    title="a deep network that is trained from random starts recovers the rank of its targets",
    differs=(
        "The paper's network has width 100 and 500 samples; the penalty starts stronger here and falls to lam. The"
        " kernel is not the paper's, which prints none."
    ),
    make=_make,
    claims=_claims,
    across=2,
    limit=None,
)

if __name__ == "__main__":
    DESIGN.run()
