"""The colours of figures, and their substitutes on a dark background."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

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


def on(axes: Axes, color: str) -> str:
    """Return the colour, or its substitute if the background of these axes is dark."""
    red, green, blue = to_rgb(axes.get_facecolor())  # type: ignore[arg-type]
    is_bright = 0.299 * red + 0.587 * green + 0.114 * blue >= 0.5
    return color if is_bright else DARK.get(color, color)
