"""A figure as an SVG image that follows the page's light or dark scheme and fonts."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

INK = "#24292f"
DARK = {
    INK: "#d7dce2",
    "#1f3b73": "#8fb0f0",
    "#d9822b": "#f0a35a",
    "#4a6fa5": "#86a9dc",
    "#2a8f6d": "#59c79f",
    "#a03a6b": "#e583b0",
    "#7a6a2f": "#c9b56b",
    "#5b5b5b": "#a5a9af",
    "#2a7f62": "#5fc3a0",
    "#c23b22": "#ef7a62",
    "#cfcfcf": "#4a4f57",
    "#e4e4e4": "#33373e",
    "#ffffff": "#15181c",
    "#2f6fbf": "#7fb2f2",
    "#d06a1c": "#f5a45f",
    "#2b8a3e": "#6ccf7f",
    "#b02a37": "#f28b94",
    "#6f42c1": "#b697f0",
    "#8a5a2b": "#cfa274",
    "#c2378f": "#f08fcd",
    "#66707a": "#aeb6be",
    "#8c8a1a": "#d3d060",
    "#128a9b": "#5fd0df",
}
"""The colours of the figures, with their substitutes on a dark page."""
CLASSES = (
    "#2f6fbf", "#d06a1c", "#2b8a3e", "#b02a37", "#6f42c1", "#8a5a2b", "#c2378f", "#66707a", "#8c8a1a", "#128a9b",
)  # fmt: skip
"""Ten distinguishable colours for classes."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "covopt",
    "font.size": 10.0,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
RASTER_DPI = 160
"""Resolution of the parts that are images."""
# Up to this number of points, a collection is drawn as shapes; a larger one becomes an image.
MOST_SHAPES = 400

Drawing = Callable[[Figure], object]


def on(axes: Axes, color: str) -> str:
    """Return the colour, or its substitute if the background of these axes is dark."""
    red, green, blue = to_rgb(axes.get_facecolor())  # type: ignore[arg-type]
    is_bright = 0.299 * red + 0.587 * green + 0.114 * blue >= 0.5
    return color if is_bright else DARK.get(color, color)


@dataclass(frozen=True)
class Picture:
    """A figure on the page."""

    uri: str  # the image itself, `data:image/svg+xml;base64,...`
    alt: str  # a description for readers who cannot see it
    caption: str  # the text below it
    wide: bool = False  # True if it takes the whole width of the page


def picture(draw: Drawing, *, alt: str, caption: str, size: tuple[float, float] = (4.6, 3.3)) -> Picture:
    """Draw a figure of this size in inches; one wider than 6 takes the whole width of the page."""
    stream = io.StringIO()
    with rc_context(STYLE), warnings.catch_warnings():
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        for axes in figure.axes:
            for collection in axes.collections:
                offsets = collection.get_offsets()
                if len(offsets) > MOST_SHAPES:  # type: ignore[arg-type]
                    collection.set_rasterized(True)
        blank = dict.fromkeys(("Date", "Creator"))
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's fonts draw the text
        figure.savefig(stream, format="svg", dpi=RASTER_DPI, transparent=True, metadata=blank)
    code = base64.b64encode(_themed(stream.getvalue()).encode()).decode()
    return Picture(f"data:image/svg+xml;base64,{code}", alt, caption, size[0] > 6.0)


def _themed(svg: str) -> str:
    """Return the SVG with the page's fonts, and its colours as variables that follow the reader's scheme."""
    svg = re.sub(r"(?<=: )#[0-9a-f]{6}(?=[;\"])", lambda m: f"var(--c{m[0][1:]})" if m[0] in DARK else m[0], svg)
    svg = svg.replace("'DejaVu Sans'", "system-ui, sans-serif")
    light, dark = (
        "".join(f"--c{color[1:]}:{value};" for color, value in pairs)
        for pairs in (zip(DARK, DARK, strict=True), DARK.items())
    )
    style = f"<style>:root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    start = svg.index(">", svg.index("<svg")) + 1
    return svg[:start] + style + svg[start:]
