"""covopt cprank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covopt.commands import options
from covopt.commands.common import check_force, deliver, interruptible, print_pairs
from covopt.errors import printable

Matrix = Annotated[
    Path,
    typer.Argument(metavar="MATRIX", help="A symmetric matrix: .npy, .csv of numbers, or .npz with A (or one array)."),
]
Atoms = Annotated[int | None, typer.Option(help="Look for a factor with R atoms, not for the fewest.", metavar="R")]
Tolerance = Annotated[float, typer.Option(help="Up to what the matrix is known, relative.", metavar="TOL")]
File = Annotated[Path | None, typer.Option(help="Write the factor B, A = B^T B, or the witness C.", metavar="FILE.npz")]
Replace = Annotated[bool, typer.Option("--force", help="Replace FILE.npz.")]
HELD = "B|C"
"""The arrays of a file that --out wrote, and that --force replaces."""


def cprank_command(
    matrix: Matrix,
    rank: Atoms = None,
    tolerance: Tolerance = 1e-9,
    time_limit: options.TimeLimit = 60.0,
    seed: options.Seed = 0,
    out: File = None,
    force: Replace = False,
    as_json: options.Json = False,
) -> None:
    """Is a matrix completely positive, A = B^T B with B >= 0, and how few rows does B take (its cp-rank)?

    Both ends of the interval come with the reason for them. A matrix that is not completely positive gets a witness:
    a copositive C with <A, C> < 0.
    """
    with interruptible("Interrupted before there was an answer; nothing is written."):
        from covopt.io import arrays, files, record
        from covopt.matrices import completely_positive

        check_force(force, out)
        if out is not None:
            arrays.check_free(out, force, HELD)
            files.check_apart(out, matrix)
        answer = completely_positive.cp_rank(
            arrays.read_matrix(matrix), rank=rank, tolerance=tolerance, time_limit=time_limit, seed=seed
        )
    parts = {"B": answer.B, "C": None if answer.witness is None else answer.witness.C}
    found = {name: array for name, array in parts.items() if array is not None}

    def show_answer() -> None:
        if as_json:
            print(record.as_json(answer.summary()))
        else:
            print_pairs(completely_positive.describe(answer))

    def store() -> None:
        if out is not None:
            arrays.write_npz(out, found, force, HELD)
            if not as_json:
                print(printable(f"{out} holds {' and '.join(found) or 'no arrays: nothing was found'}."))

    deliver(show_answer, store)
