"""covopt cprank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covopt.app import options
from covopt.app.common import check_force, interruptible
from covopt.app.help import advanced, common
from covopt.runtime.errors import ProblemError, printable

Matrix = Annotated[
    Path | None,
    typer.Argument(metavar="MATRIX", help="A symmetric matrix: .npy, .csv of numbers, or .npz with A (or one array)."),
]
Graph = Annotated[
    str | None,
    common(
        "Instead of MATRIX, E^T E of a graph: an edge list (two labels a line), a .g6 file, or a name of"
        " networkx, such as petersen or complete_bipartite_3_3.",
        "FILE|NAME",
    ),
]
Atoms = Annotated[int | None, common("Look for a factor with N atoms, instead of the fewest.")]
Tolerance = Annotated[float, advanced("Relative accuracy of the matrix.")]
Target = Annotated[
    Path | None,
    common(
        "FILE.npz: write the factor B, A = B^T B, or the witness C. Any other name: a new directory with the"
        " matrix, all proofs and a report.",
        "FILE.npz|DIR",
    ),
]
Replace = Annotated[bool, common("Replace FILE.npz, or an earlier run in DIR.")]
SINGLE = (".npz", ".npy", ".csv", ".txt")
"""Suffixes that mean a file, not a directory; only .npz can be written."""
HELD = "B|C"
"""The names of the arrays in a file that --out writes and --force may replace."""


def cprank_command(
    matrix: Matrix = None,
    graph: Graph = None,
    rank: Atoms = None,
    tolerance: Tolerance = 1e-9,
    time_limit: options.TimeLimit = 60.0,
    seed: options.Seed = 0,
    out: Target = None,
    force: Replace = False,
    as_json: options.Json = False,
) -> None:
    """Is a matrix completely positive, A = B^T B with B >= 0, and how few rows can B have (its cp-rank)?

    The answer is an interval, with a reason for each end. A matrix that is not completely positive gets a witness: a
    copositive C with <A, C> < 0.
    """
    with interruptible():
        from covopt.completely_positive import completely_positive, edge_gram
        from covopt.data import arrays
        from covopt.records import storing
        from covopt.runtime import files

        source = matrix if graph is None else Path(graph)
        if source is None or None not in (matrix, graph):
            raise ProblemError("Give either MATRIX or --graph; see covopt cprank --help.")
        check_force(force, out)
        file = out if out is not None and out.suffix.lower() in SINGLE else None
        if file is not None:
            arrays.check_free(file, force, HELD)
            files.check_apart(file, source)
        elif out is not None:
            storing.check_free(out, force)
        A = arrays.read_matrix(source) if graph is None else edge_gram.gram_of_graph(graph)
        answer = completely_positive.cp_rank(A, rank=rank, tolerance=tolerance, time_limit=time_limit, seed=seed)
    parts = {"B": answer.B, "C": None if answer.witness is None else answer.witness.C}
    arrays_to_write = {name: array for name, array in parts.items() if array is not None}

    def store_arrays() -> None:
        if file is not None:
            arrays.write_npz(file, arrays_to_write, force, HELD)
            if not as_json:
                print(printable(f"{file} holds {' and '.join(arrays_to_write) or 'no arrays: nothing was found'}."))

    output = options.Output(out if file is None else None, force, as_json=as_json)
    output.deliver(answer, "The answer", None, store_arrays)
