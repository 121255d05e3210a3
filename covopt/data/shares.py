"""The rows of the data that each of several processes holds."""

from __future__ import annotations

UNITS, FEWEST = (48, 24), 10
"""A part begins at a multiple of these rows, if there are FEWEST times as many."""


def share_of(rows: int, parts: int) -> tuple[int, ...]:
    """Return where about equal parts of so many rows begin, and where the last ends.

    Libraries multiply matrices in blocks of 8, 12 or 24 rows from aligned addresses on, and round what is left over
    otherwise. Where parts begin at multiples of all of these, the products of a part are the same to the last bit in
    a process that holds more of them.
    """
    unit = next((unit for unit in UNITS if rows >= unit * FEWEST), 1)
    return (*(rows * j // (parts * unit) * unit for j in range(parts)), rows)
