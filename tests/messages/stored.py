"""Messages about stored runs, and about files with a matrix."""

import dataclasses
from pathlib import Path

import numpy as np
from editing import holds, states
from hostile import array_bytes, pickled_matrix, run_with
from runs import toy_result

import covopt
from covopt.studies.runs import write_report
from messages import Given, npz, rows, table

X = np.arange(8.0).reshape(4, 2)
VERIFY = "verify HERE/run"


TREE = [states("result.json", certificate="branch-and-bound"), holds("certificate.npz", tree=np.array([-1.0, np.nan]))]


def run(change: object) -> dict[str, Given]:
    return {"run": run_with(change)}  # type: ignore[arg-type]


ROWS = rows(globals())
