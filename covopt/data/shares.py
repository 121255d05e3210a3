"""The division of rows among several processes."""

from __future__ import annotations


def share_of(rows: int, parts: int) -> tuple[int, ...]:
    """Return the first row of each of `parts` about equal parts, and the number of rows.

    Libraries multiply matrices in blocks of 8, 12 or 24 rows that begin at aligned addresses, and round the remaining
    rows differently. If parts begin at multiples of all these numbers, the products of a part are the same to the last
    bit in a process that holds several parts.
    """
    unit = next((unit for unit in (48, 24) if rows >= 10 * unit), 1)
    return (*(rows * j // (parts * unit) * unit for j in range(parts)), rows)
