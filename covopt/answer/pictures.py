"""The figures of a report: convergence, neurons, spectra, forces, methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from covopt.answer import drawing
from covopt.answer.forces import RAY_COLOR
from covopt.answer.look import NEURONS, Look, draw_look, draw_map, draw_shares, legend, look_at, short
from covopt.answer.result import Result
from covopt.records.provenance import Origin
from covopt.records.svg import Picture, picture
from covopt.runtime.errors import counted
from covopt.runtime.loop import Progress

# Inputs without names whose number is the square of at least this are pixels.
SMALLEST_IMAGE = 8
# The largest neurons that are drawn, as images or as columns of weights; the most inputs of such columns.
IMAGES, COLUMNS, ROWS = 40, 60, 40
# Curves of a function of one input that are drawn, and points along each.
OUTPUTS, POINTS = 5, 400
# Outputs of two inputs that are drawn, each in a map of its own.
MAPS = 3


def convergence(history: Sequence[Progress], audited: float | None = None) -> Picture:
    """Cost and proved bound against time, and the cost of an audited network."""
    proved = any(line.lower is not None for line in history)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        drawing.draw_convergence(axes, history)
        axes.set_title("", loc="left")
        if audited is not None:
            axes.axhline(audited, color=drawing.CURVE_COLORS[2], linewidth=1.2, linestyle=":")
            drawing.name_line(axes, f"audited network {audited:.7g}", drawing.CURVE_COLORS[2], row=2 if proved else 1)

    bound = ", and the best lower bound." if proved else "; no lower bound is proved."
    alt = "Cost and lower bound against time."
    return picture(draw, alt=alt, caption=f"The cost of the best network so far{bound}")


def gap(history: Sequence[Progress]) -> Picture | None:
    """Draw the proved gap against time; None without a gap to draw."""
    points = drawing.gaps(history)
    if not points:
        return None
    return picture(
        lambda figure: drawing.draw_gap(figure.subplots(), points),
        alt="The gap between cost and lower bound against time.",
        caption="The gap: how far below the cost the minimum could be, relative to the cost.",
    )


def curves(methods: Sequence[drawing.Curve], lower: float | None) -> list[Picture]:
    """Draw the cost of each method against time, and its excess over the lowest cost."""
    drawn = drawing.colored(methods)
    if not drawn:
        return []
    return [
        picture(
            lambda figure: drawing.draw_costs(figure.subplots(), drawn, lower),
            alt="Cost of each method against time.",
            caption="The cost of each method against time; the number is the lowest that it reached.",
        ),
        picture(
            lambda figure: drawing.draw_excess(figure.subplots(), drawn),
            alt="Relative excess of each method over the lowest cost of all, against time.",
            caption="How far each method is above the lowest cost of all. Dots: where its other starts ended.",
        ),
    ]


def matrix(A: Float[np.ndarray, "r n"], name: str, caption: str, across: str, down: str) -> Picture:
    """Draw a matrix entry by entry; zeros are blank, so that its support shows."""
    limit, beyond = drawing.robust_limit(A)
    signed = bool((A < 0.0).any())
    style = {"cmap": drawing.SIGNED if signed else "viridis_r", "vmin": -limit if signed else 0.0, "vmax": limit}
    shown = np.ma.masked_equal(A, 0.0)
    clipped = "" if beyond == "neither" else " Entries beyond the scale have its last colour."
    full_caption = f"{caption} {'Red: positive; blue: negative; z' if signed else 'Z'}eros are blank.{clipped}"
    return picture(
        lambda figure: drawing.draw_entries(figure.subplots(), shown, across, down, beyond, **style),
        alt=f"The matrix {name} as an image.",
        caption=full_caption,
        size=(4.6, 3.6),
    )


def panel(shown: drawing.Panel) -> Picture:
    """Draw lines, dots and coloured regions."""
    return picture(
        lambda figure: drawing.draw_panel(figure.subplots(), shown),
        alt=f"{shown.title}: {shown.up} against {shown.across}.",
        caption=f"{shown.title}.",
    )


def activations(run: drawing.RunPicture) -> Picture | None:
    """Draw the activation of each hidden neuron on each sample; None without neurons."""
    if not len(run.norms):
        return None

    def draw(figure: Figure) -> None:
        norms, image = figure.subplots(2, 1, height_ratios=(1.0, 2.4), sharex=True)
        drawing.draw_neurons(norms, image, run)
        norms.set_title("")
        norms.set_ylabel("norm²")

    return picture(
        draw,
        alt="Norm of each neuron of the last hidden layer, and its activation on each sample.",
        caption=(
            "The neurons of the last hidden layer, largest first. Above: incoming plus outgoing squared norm. Below:"
            f" the activation of each on each sample, the samples sorted by {run.order_name}."
        ),
        size=(4.6, 4.2),
    )


def neurons(result: Result, origin: Origin) -> Picture | None:
    """Draw the first layer's incoming weights, as images or by input; None if unreadable."""
    W, above = (W.double().cpu().numpy() for W in result.weights[:2])
    inputs = W.shape[1] - 1
    if not len(W):
        return None
    norms = np.square(W).sum(axis=1) + np.square(above[:, : len(W)]).sum(axis=0)
    order = np.argsort(-norms, kind="stable")
    side = math.isqrt(inputs)
    if side**2 == inputs and side >= SMALLEST_IMAGE and origin.columns is None:
        return _images(W[order, :-1].reshape(-1, side, side))
    names = origin.columns if origin.columns is not None and len(origin.columns) == inputs else None
    return _columns(W[order], names, biased=result.problem.beta > 0.0) if inputs <= ROWS else None


def function(result: Result, origin: Origin) -> list[Picture]:
    """Draw the network as a function, if it has one or two inputs."""
    columns, classes = (None if names is None else tuple(names) for names in (origin.columns, origin.classes))
    look = look_at(result.problem, result.weights, columns, classes)
    if look is None:
        return []
    if look.labels is None and look.inputs == 2:
        return [_map(look, k) for k in range(min(MAPS, len(look.names)))]
    if look.inputs == 2:
        shown = (
            "Regions: the class with the largest output, at each point; dots: the samples by class. Lines: where"
            f" neurons of the first hidden layer switch{_bent(look)}."
        )
        alt = "The class that the network gives to each point of the plane, with the samples."
    elif look.labels is not None:
        shown = (
            f"The {look.quantity} of each class (lines); behind it, the class with the largest one. Dots below: the"
            " samples by class. Ticks above: the kinks of the outputs, found exactly."
        )
        alt = "The network's outputs against its input, with the samples by class."
    else:
        share = "; thin: what each neuron of the last hidden layer adds to it" if len(look.names) == 1 else ""
        shown = f"The network as a function (lines), its kinks, found exactly (circles), and the targets (dots){share}."
        alt = "The network's output against its input, with the samples."
    drawn = [picture(lambda figure: draw_look(figure.subplots(), look), alt=alt, caption=shown)]
    if look.labels is None and look.inputs == 1 and len(look.names) == 1 and look.neurons:
        drawn.append(_shares(look))
    return drawn


def _map(look: Look, output: int) -> Picture:
    """One output over the plane."""
    return picture(
        lambda figure: draw_map(figure.subplots(), look, output),
        alt="The network's output over the plane of its two inputs, with the samples.",
        caption=f"The network as a function of two inputs ({look.names[output]}), and the targets in the same colours"
        f" (dots). Lines: where neurons of the first hidden layer switch{_bent(look)}.",
    )


def _bent(look: Look) -> str:
    return "; dotted: those of the layers above" if look.problem.depth > 2 else ""


def _shares(look: Look) -> Picture:
    """Draw what each neuron adds."""
    which = counted(look.neurons, "neuron") if look.neurons <= NEURONS else f"{NEURONS} largest of {look.neurons}"
    return picture(
        lambda figure: draw_shares(figure.subplots(), look),
        alt="What each neuron of the last hidden layer adds to the output.",
        caption=f"What each neuron of the last hidden layer adds to the output ({which}); dashed: the output, which is"
        " their sum and a constant.",
    )


def side_by_side(network: Result, reference: Result, origin: Origin, losses: tuple[float, float]) -> list[Picture]:
    """Draw the audited network's function beside the solver's, a picture for each output, if there is one input."""
    p = network.problem
    if p.X.shape[1] != 1 or not math.isfinite(losses[1]):
        return []
    x, Y = p.X[:, 0].double().cpu().numpy(), p.Y.double().cpu().numpy()
    margin = 0.08 * (x.max() - x.min()) or 1.0
    grid = np.linspace(x.min() - margin, x.max() + margin, POINTS)
    trained, solved = (result.predict(grid[:, None]) for result in (network, reference))
    names = origin.classes if origin.classes is not None and len(origin.classes) == Y.shape[1] else None
    axis_name = "input" if origin.columns is None else short(origin.columns[0])

    def of_output(k: int) -> Callable[[Figure], None]:
        def draw(figure: Figure) -> None:
            axes = figure.subplots()
            axes.plot(x, Y[:, k], "o", color=drawing.CURVE_COLORS[2], markersize=3.5, alpha=0.7, label="targets")
            for F, loss, name, color, style in (
                (trained, losses[0], "the network", drawing.COST_COLOR, "-"),
                (solved, losses[1], "the solver's", drawing.BOUND_COLOR, "--"),
            ):
                axes.plot(grid, F[:, k], style, color=color, linewidth=1.6, label=f"{name}, loss {loss:.5g}")
            drawing.dress(axes, axis_name, "output" if names is None else short(names[k]))
            legend(axes)

        return draw

    return [
        picture(
            of_output(k),
            alt="The audited network's output and the solver's against the input, with the samples.",
            caption="The network (solid) beside the one that the solver found (dashed), over the data (dots).",
        )
        for k in range(min(OUTPUTS, Y.shape[1]))
    ]


def _images(tiles: Float[np.ndarray, "n side side2"]) -> Picture:
    """Draw each neuron's weights as an image, scaled by its own largest."""
    shown = tiles[:IMAGES]
    peaks = np.abs(shown).max(axis=(1, 2), keepdims=True)
    shown = shown / np.where(peaks > 0.0, peaks, 1.0)
    across = min(len(shown), 10)
    down, side = math.ceil(len(shown) / across), shown.shape[1]
    board = np.full((down * (side + 1) - 1, across * (side + 1) - 1), np.nan)
    for k, tile in enumerate(shown):
        row, column = (k // across) * (side + 1), (k % across) * (side + 1)
        board[row : row + side, column : column + side] = tile

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.imshow(board, cmap=drawing.SIGNED, vmin=-1.0, vmax=1.0, interpolation="nearest")
        for k in range(len(shown)):
            corner = ((k % across) * (side + 1) - 0.5, (k // across) * (side + 1) - 0.5)
            axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=RAY_COLOR, linewidth=0.6))
        axes.axis("off")

    which = counted(len(tiles), "neuron") if len(tiles) <= IMAGES else f"the {IMAGES} largest of {len(tiles)}"
    return picture(
        draw,
        alt="Incoming weights of the first hidden layer's neurons as images.",
        caption=f"What the neurons of the first hidden layer look at ({which}, largest first): weights of the pixels,"
        " red positive and blue negative, each neuron on its own scale.",
        size=(7.4, 7.4 * board.shape[0] / board.shape[1]),
    )


def _columns(W: Float[np.ndarray, "n d"], names: Sequence[str] | None, *, biased: bool) -> Picture:
    """Incoming weights, one column for each neuron and one row for each input."""
    table = W[:COLUMNS].T if biased else W[:COLUMNS, :-1].T
    labels = [short(name) for name in names] if names else [f"input {i + 1}" for i in range(W.shape[1] - 1)]
    labels = [*labels, "bias"][: len(table)]
    limit, beyond = drawing.robust_limit(table)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        style = {"cmap": drawing.SIGNED, "vmin": -limit, "vmax": limit, "aspect": "auto"}
        drawing.draw_entries(axes, table, "neuron", "", beyond, **style).set_label("weight")
        axes.set_yticks(range(1, len(table) + 1), labels, parse_math=False)

    which = counted(len(W), "neuron") if len(W) <= COLUMNS else f"the {COLUMNS} largest of {len(W)} neurons"
    return picture(
        draw,
        alt="Incoming weights of the first hidden layer's neurons, input by input.",
        caption=f"Incoming weights of the first hidden layer ({which}, largest first): red positive, blue negative.",
        size=(4.6, min(8.0, max(2.6, 1.0 + 0.2 * len(table)))),
    )
