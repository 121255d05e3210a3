"""The rows of the data that each of several processes holds."""

from __future__ import annotations


def share_of(rows: int, parts: int) -> tuple[int, ...]:
    """Return where about equal parts of so many rows begin, and where the last ends.

    Libraries multiply matrices in blocks of 8, 12 or 24 rows from aligned addresses on, and round what is left over
    otherwise. Where parts begin at multiples of all of these, the products of a part are the same to the last bit in
    a process that holds more of them.
    """
    unit = next((unit for unit in (48, 24) if rows >= 10 * unit), 1)
    return (*(rows * j // (parts * unit) * unit for j in range(parts)), rows)
