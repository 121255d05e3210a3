"""Norm and rank of trained networks against their depth.

All networks of this figure are trained from random starts, as in the paper: Adam on all samples, with a penalty that
starts strong and falls to lam, so that few dimensions are left where the fit begins. The starts of a depth are trained
as one batch. `depth_rank.py` builds networks of low rank for the same data, and these cost less.

Source: [J23b, section 2 and Figure 1].
"""

from __future__ import annotations

import known_teachers as teachers
import numpy as np
from depth_rank import COUNTED, FITS, LAM, SIZE, TEACHER
from figure_design import Arrays, Asked, Claim, Design, Made, Numbers, Setting, applied, network, square, through
from layer_spectra import largest, seen_in, spectrum_panel
from random_starts import Schedule, trained

from covopt.answer import drawing
from covopt.runtime.loop import Status

DEPTHS, QUICK_DEPTHS = (3, 5, 9, 13, 17, 21, 25), (3, 6)
SAMPLES, WIDTH, STARTS = 100, 20, 4
SCHEDULE, QUICK_SCHEDULE = Schedule(steps=4000), Schedule(steps=150)
ZERO = 1.0
"""A network of a smaller norm is zero."""
COLUMNS = ("L", "start", "loss", "train cost", "|W|^2", "rank of W_{L/2}")


def _make(asked: Asked) -> Made:
    depths, schedule = asked.size(QUICK_DEPTHS, DEPTHS), asked.size(QUICK_SCHEDULE, SCHEDULE)
    [(X, Y)] = teachers.drawn(TEACHER, [SAMPLES], asked.seed, SIZE)
    arrays = {"X": X, "Y": Y}
    for depth in depths:
        for number, layers in enumerate(trained(X, Y, [WIDTH] * (depth - 1), LAM, STARTS, asked.seed, schedule)):
            arrays |= {f"start{number}_L{depth}_W{place}": W for place, W in enumerate(layers, start=1)}
    t = TEACHER
    settings = [
        Setting("data", f"x = g(z) in R^{t.inputs}, y = h(z_1, z_2) in R^{t.outputs}, z in R^{t.latent}", True),
        Setting("penalty", f"lam {LAM:g}", True),
        Setting("starts", f"{STARTS} random ones at each depth", True),
        Setting(
            "rank", f"singular values of W_L/2 above {COUNTED}; a network fits with a train cost below {FITS}", True
        ),
        Setting("depths", ", ".join(map(str, depths)), False),
        Setting("sizes", f"{SAMPLES} samples, width {WIDTH}", False),
        Setting("training", str(schedule), False),
    ]
    return Made(settings, arrays, Status.ITERATION_LIMIT)


def _numbers(arrays: Arrays) -> Numbers:
    keys = [key.removesuffix("_W1") for key in arrays if key.endswith("_W1")]
    return {"networks": [_of_network(arrays, key) for key in keys]}


def _of_network(arrays: Arrays, key: str) -> Numbers:
    """The line of the table of one network."""
    layers = network(arrays, key)
    fit, norm = float(((applied(layers, arrays["X"]) - arrays["Y"]) ** 2).sum(axis=1).mean()), square(layers)
    middle = largest(layers[(len(layers) + 1) // 2 - 1][:, :-1])
    return {
        "key": key,
        "depth": len(layers),
        "cost": fit + LAM * norm,
        "fit": fit,
        "norm": norm,
        "rank": int((middle > COUNTED).sum()),
    }


def best_of_each_depth(numbers: Numbers) -> list[Numbers]:
    """Return the network of lowest cost at each depth at which one fits."""
    fitting = [line for line in numbers["networks"] if line["fit"] < FITS]
    depths = sorted({line["depth"] for line in fitting})
    return [min((line for line in fitting if line["depth"] == L), key=lambda line: line["cost"]) for L in depths]


def _claims(numbers: Numbers) -> list[Claim]:
    networks, best = numbers["networks"], best_of_each_depth(numbers)
    norms, ranks = [line["norm"] for line in best], [line["rank"] for line in best]
    rising = norms[norms.index(min(norms)) :] if norms else []
    return [
        Claim("at every depth some network fits", {line["depth"] for line in best} == {n["depth"] for n in networks}),
        Claim(
            "the norm of the best rises with the depth, from its lowest on", bool(rising) and rising == sorted(rising)
        ),
        Claim("the rank of the best falls to half or less", bool(ranks) and 2 * ranks[-1] <= ranks[0]),
        Claim(f"it falls to {TEACHER.rank}, the teacher's", bool(ranks) and ranks[-1] == TEACHER.rank),
        Claim("some networks are zero", any(line["norm"] < ZERO for line in networks)),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    names = ("depth", "cost", "fit", "norm", "rank")
    rows = [[line[name] for name in names] for line in numbers["networks"]]
    return [[depth, place % STARTS + 1, *others] for place, (depth, *others) in enumerate(rows)]


def _panels(arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    networks, best = numbers["networks"], best_of_each_depth(numbers)
    lines = [_points("the best that fits", best, "norm", "-", 4)] if best else []
    fit = [line for line in networks if line["fit"] < FITS]
    bounds = sorted({line["rank"] for line in fit})
    for color, ranks in enumerate(np.array_split(np.array(bounds), min(4, len(bounds))) if bounds else []):
        name = f"rank {ranks[0]}" + (f" to {ranks[-1]}" if len(ranks) > 1 else "")
        lines.append(_points(name, [line for line in fit if line["rank"] in ranks], "norm", "o", color))
    failed = [line for line in networks if line["fit"] >= FITS]
    lines += [_points("does not fit", failed, "norm", "x", 4)] if failed else []
    shown = best[-1] if best else networks[-1]
    spectra = [layer["weights"] for layer in seen_in(network(arrays, shown["key"]), arrays["X"])]
    ranks = [_points("", best, "rank", "o-", 3)] if best else []
    return [
        drawing.Panel("Norm", "depth L", "|W|²", lines),
        drawing.Panel("The best that fits", "depth L", "rank of $W_{L/2}$", ranks, counted="xy"),
        spectrum_panel(f"The best at L = {shown['depth']}", "singular values of $W_l$", spectra, TEACHER.rank),
    ]


def _points(name: str, lines: list[Numbers], value: str, style: str, color: int) -> drawing.Line:
    return through(name, np.array([[line["depth"], line[value]] for line in lines], float), style, color)


DESIGN = Design(
    title="norm and rank of trained networks against their depth",
    source="[J23b, Figure 1]",
    question="How do the norm and the rank of trained networks change with the depth?",
    differs=(
        "The paper prints neither widths, nor samples, nor its training; here the penalty starts stronger and falls to"
        " lam."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    panels=_panels,
    limit=None,
)

if __name__ == "__main__":
    DESIGN.run()
