"""Trained autoencoders that take out noise: of a curve in the plane, and of images of digits.

The samples x = g(z) lie on a curve, z one Gaussian number and g a random ReLU network, and F(x) = x is learned on them
alone. A network of nonlinear rank 1 maps the whole plane onto a curve: its Jacobian has one singular value, and noise
across the curve is taken out, though no noise was ever shown to it. A shallow network keeps a part of it.

Both networks are trained from random starts by Adam. The penalty of the deep one begins higher and falls to lam: at
first a second dimension costs more than it is worth, and later it does not come back.

Source: [J23a, section 5.2 and Fig. 3].
"""

from __future__ import annotations

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
    canvas,
    ended,
    network,
    square,
    stored,
)
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from plain_training import trained

import covopt
from covopt.answer.drawing import CURVE_COLORS
from covopt.model.problem import make_problem
from covopt.studies.audit.jacobians import jacobians

SAMPLES, NEURONS = 60, 6
NOISE = 0.2
"""Deviation of the noise in each coordinate; the curve has deviation 1."""
LAM, FIRST, RATE = 1e-4, 0.02, 1e-2
"""The penalty, the one that the deep network begins with, and the first learning rate."""
FALLING = 0.9
"""The part of the training in which the penalty falls to lam, geometrically."""
NETWORKS = {"shallow": (2, 40), "deep": (8, 20)}
"""Depth and width of each network."""
STEPS = 3000
IMAGES, IMAGE_NOISE, IMAGE_LAM, IMAGE_STEPS = 200, 0.3, 1e-2, 1500
IMAGE_NETWORKS = {"shallow": (2, 40), "deep": (6, 40)}
SHOWN = 8
"""Images in a row of the picture."""
FINE, FARTHEST = 4001, 3.0
"""Points along the curve to which distances are measured, and the largest z of them; z farther out is drawn again."""
FLAT, HALF = 0.05, 0.5
"""What counts as one singular value, and as denoised."""
COLUMNS = ("network", "loss", "fit", "|W|^2", "median s1", "largest s2", "distance before", "after", "ratio")


def curve(seed: int) -> tuple[Float[np.ndarray, "N 2"], Float[np.ndarray, "N 2"], Float[np.ndarray, "M 2"]]:
    """Samples on the curve, the same with noise, and points all along it; centred, of deviation 1."""
    rng = np.random.default_rng(seed)
    slopes, shifts, V = rng.standard_normal(NEURONS), rng.standard_normal(NEURONS), rng.standard_normal((NEURONS, 2))
    z = rng.standard_normal(SAMPLES)
    while (far := np.abs(z) > FARTHEST).any():
        z[far] = rng.standard_normal(int(far.sum()))

    def g(at: Float[np.ndarray, " M"]) -> Float[np.ndarray, "M 2"]:
        return np.maximum(at[:, None] * slopes + shifts, 0.0) @ V

    middle = g(z).mean(axis=0)
    size = (g(z) - middle).std()
    clean = (g(z) - middle) / size
    return (
        clean,
        clean + NOISE * rng.standard_normal(clean.shape),
        (g(np.linspace(-FARTHEST, FARTHEST, FINE)) - middle) / size,
    )


def images(data_dir: str | None, seed: int) -> tuple[Float[np.ndarray, "N n0"], ...]:
    """Return images to learn from, others, and these with noise; pixels are between 0 and 1."""
    data = covopt.read_data("digits" if data_dir is None else "mnist", scale="max", data_dir=data_dir)
    fresh = data.X[IMAGES : 2 * IMAGES]
    return data.X[:IMAGES], fresh, fresh + IMAGE_NOISE * np.random.default_rng(seed).standard_normal(fresh.shape)


def _make(asked: Asked) -> Made:
    X, noisy, fine = curve(asked.seed)
    digits, fresh, blurred = images(asked.images, asked.seed)
    arrays = {"X": X, "noisy": noisy, "curve": fine, "fresh": fresh, "blurred": blurred}
    steps, image_steps = asked.size(quick=(1500, 60), usual=(STEPS, IMAGE_STEPS))
    stop = asked.budget.spent
    for name, (depth, width) in NETWORKS.items():
        problem = make_problem(X, X, lam=LAM, loss="mse", depth=depth, device=asked.device)
        penalty = falling if name == "deep" else None
        arrays |= stored(name, trained(problem, [width] * (depth - 1), asked.seed, steps, stop, RATE, penalty))
    for name, (depth, width) in IMAGE_NETWORKS.items():
        problem = make_problem(digits, digits, lam=IMAGE_LAM, loss="mse", depth=depth, device=asked.device)
        arrays |= stored(f"images_{name}", trained(problem, [width] * (depth - 1), asked.seed, image_steps, stop))
    return Made(_settings(len(digits)), arrays, ended(asked.budget))


def falling(part: float) -> float:
    """Return the penalty of the deep network at a part of its training."""
    return LAM * (FIRST / LAM) ** max(0.0, 1.0 - part / FALLING)


def _settings(count: int) -> list[Setting]:
    sizes, image_sizes = (
        "; ".join(f"{name}: L = {depth}, width {width}" for name, (depth, width) in networks.items())
        for networks in (NETWORKS, IMAGE_NETWORKS)
    )
    return [
        Setting("data", "a curve in the plane, x = g(z), z one Gaussian number, g a random ReLU network", True),
        Setting("penalty", f"lam {LAM:g}", True),
        Setting("schedule", f"the penalty of the deep network falls from {FIRST:g} to lam", False),
        Setting(
            "samples", f"{SAMPLES} on the curve, centred and scaled to deviation 1; |z| at most {FARTHEST:g}", False
        ),
        Setting("g", f"{NEURONS} neurons, all weights Gaussian", False),
        Setting("noise", f"Gaussian, deviation {NOISE} in each coordinate, on the inputs that are tested only", False),
        Setting("networks", sizes, False),
        Setting("training", f"{STEPS} steps of Adam from one random start", False),
        Setting("images", f"{count} digits, tested on others with noise of deviation {IMAGE_NOISE}", False),
        Setting("networks of images", f"{image_sizes}; lam {IMAGE_LAM:g}, {IMAGE_STEPS} steps of Adam", False),
    ]


def _numbers(arrays: Arrays) -> Numbers:
    return {
        "networks": [_of_network(arrays, name) for name in NETWORKS],
        "images": [_of_images(arrays, name) for name in IMAGE_NETWORKS],
    }


def _of_network(arrays: Arrays, name: str) -> Numbers:
    """The line of the table of one network; singular values and distances at the inputs with noise."""
    layers, X, noisy = network(arrays, name), arrays["X"], arrays["noisy"]
    fit, norm = float(((applied(layers, X) - X) ** 2).sum(axis=1).mean()), square(layers)
    s = np.linalg.svd(jacobians(layers, noisy, activation="relu"), compute_uv=False)
    before, after = (float(distances(points, arrays["curve"]).mean()) for points in (noisy, applied(layers, noisy)))
    return {
        "name": f"curve, {name}",
        "cost": fit + LAM * norm,
        "fit": fit,
        "norm": norm,
        "s1": float(np.median(s[:, 0])),
        "s2": float(s[:, 1].max()),
        "before": before,
        "after": after,
        "ratio": after / before,
    }


def _of_images(arrays: Arrays, name: str) -> Numbers:
    """The root mean square of what is between an image and itself with noise, before and after the network."""
    layers, clean, blurred = network(arrays, f"images_{name}"), arrays["fresh"], arrays["blurred"]
    before, after = (float(np.sqrt(((P - clean) ** 2).mean())) for P in (blurred, applied(layers, blurred)))
    return {
        "name": f"images, {name}",
        "norm": square(layers),
        "before": before,
        "after": after,
        "ratio": after / before,
    }


def distances(P: Float[np.ndarray, "N 2"], curve: Float[np.ndarray, "M 2"]) -> Float[np.ndarray, " N"]:
    """The distance of each point to the nearest one of the curve."""
    return np.sqrt(((P[:, None] - curve) ** 2).sum(axis=2).min(axis=1))


def _claims(numbers: Numbers) -> list[Claim]:
    (shallow, deep), images = numbers["networks"], numbers["images"]
    return [
        Claim(f"the deep network has one singular value everywhere: the second is below {FLAT}", deep["s2"] < FLAT),
        Claim("it takes out at least half of the noise across the curve", deep["ratio"] <= HALF),
        Claim("it takes out more than the network of 2 layers", deep["ratio"] < shallow["ratio"]),
        Claim("the network of 2 layers keeps a second singular value", shallow["s2"] > FLAT),
        Claim("the deep network takes out a third of the noise of new images", images[1]["ratio"] <= 2.0 / 3.0),
        Claim("it takes out more of it than the network of 2 layers", images[1]["ratio"] < images[0]["ratio"]),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    columns = ("cost", "fit", "norm", "s1", "s2", "before", "after", "ratio")
    lines = numbers["networks"] + numbers["images"]
    return [[line["name"], *(line.get(column, "") for column in columns)] for line in lines]


def _draw(arrays: Arrays, numbers: Numbers) -> Figure:
    figure, places = canvas(1, len(NETWORKS) + 1)
    for axes, name, line in zip(places, NETWORKS, numbers["networks"], strict=False):
        axes.set_title(f"{NETWORKS[name][0]} layers: {1.0 - line['ratio']:.0%} of the noise taken out", fontsize=10)
        _draw_arrows(axes, arrays["curve"], arrays["noisy"], applied(network(arrays, name), arrays["noisy"]))
    rows = [arrays["fresh"], arrays["blurred"]]
    rows += [applied(network(arrays, f"images_{name}"), arrays["blurred"]) for name in IMAGE_NETWORKS]
    side = int(np.sqrt(arrays["fresh"].shape[1]))
    tiles = [np.pad(image.reshape(side, side), 1, constant_values=1.0) for row in rows for image in row[:SHOWN]]
    places[-1].imshow(
        np.block([tiles[k : k + SHOWN] for k in range(0, len(tiles), SHOWN)]), cmap="gray", vmin=0, vmax=1
    )
    names = ["image", "with noise", *(f"{depth} layers" for depth, _ in IMAGE_NETWORKS.values())]
    places[-1].set_yticks([(side + 2) * (k + 0.5) - 0.5 for k in range(len(names))], names)
    places[-1].set_xticks([])
    places[-1].set_title("new images", fontsize=10)
    return figure


def _draw_arrows(
    axes: Axes, curve: Float[np.ndarray, "M 2"], noisy: Float[np.ndarray, "N 2"], after: Float[np.ndarray, "N 2"]
) -> None:
    axes.plot(*curve.T, color=CURVE_COLORS[4], label="the curve")
    axes.plot(*noisy.T, ".", color=CURVE_COLORS[1], label="with noise")
    axes.quiver(*noisy.T, *(after - noisy).T, angles="xy", scale_units="xy", scale=1.0, width=0.003)
    axes.plot(*after.T, "o", color=CURVE_COLORS[0], markersize=3.0, label="where the network maps them")
    low, high = np.concatenate([noisy, after]).min(axis=0), np.concatenate([noisy, after]).max(axis=0)
    axes.set(xlim=(low[0] - 0.3, high[0] + 0.3), ylim=(low[1] - 0.3, high[1] + 0.3), xlabel="x", ylabel="y")
    axes.legend(frameon=False, fontsize=8)


DESIGN = Design(
    title="autoencoders that take out noise",
    source="[J23a, Fig. 3]",
    question="What does an autoencoder do to points beside those that it was trained on?",
    differs=(
        "The paper prints no depths, widths, numbers of samples or schedules; it trains on MNIST, and without"
        " --data-dir these are scikit-learn's digits, 8 x 8. Whether the deep network ends at rank 1 depends on the"
        " curve: the picture of the page has --seed 1."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    draw=_draw,
    limit=45.0,
    images=True,
)

if __name__ == "__main__":
    DESIGN.run()
