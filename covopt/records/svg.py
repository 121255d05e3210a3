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
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from covopt.records.colors import DARK, INK

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

Drawing = Callable[[Figure], None]


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
