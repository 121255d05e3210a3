"""Messages about stored runs, and about files with a matrix."""

import dataclasses

import numpy as np
from editing import holds, states
from hostile import archive, array_bytes, pickled_matrix, run_with
from runs import toy_result

import covopt
from covopt.studies.runs import write_report
from messages import Given, rows

X = np.arange(8.0).reshape(4, 2)
VERIFY = "verify HERE/run"


def npz(**arrays: object) -> dict[str, Given]:
    return {"a.npz": archive(**arrays)}


def table(text: str) -> dict[str, Given]:
    return {"a.csv": text.encode()}


TREE = [states("result.json", certificate="branch-and-bound"), holds("certificate.npz", tree=np.array([-1.0, np.nan]))]


def run(change: object) -> dict[str, Given]:
    return {"run": run_with(change)}  # type: ignore[arg-type]


ROWS = rows(
    globals(),
    r"""
    # Stored runs.
    $ show HERE/none
    HERE/none holds no run (comparison.json, cprank.json, depth.json, path.json, plateau.json, ranks.json, result.json, audit.json: none is there); give one that --out wrote.
    $ show HERE/run  with {"run/width.json": b'{"kind": "width"}'}
    HERE/run/width.json is of a kind that this version of covopt does not know; use the one that stored it.
    $ verify HERE/run  with {"run/cprank.json": b'{"kind": "cprank"}', "run/proof.json": b"{}"}
    HERE/run is not a complete run (There is no file HERE/run/proof.npz); solve again with --out.
    > dataclasses.replace(covopt.cp_rank(np.eye(2)), A=None).check()
    This answer does not hold its matrix; give the one that was asked about.
    > dataclasses.replace(covopt.cp_rank(np.eye(2)), A=None).save(here / "run")
    This answer does not hold its matrix; ask for it again before saving.
    $ forces HERE/none  ->  HERE/none holds no run (result.json is missing); give a directory that --out wrote.
    $ show HERE/run  with {"run/result.json": b"[1]"}
    HERE/run/result.json is not a summary of covopt; solve again with --out.
    $ show HERE/run  with {"run/plateau.json": b"{}"}
    plateau.json is damaged: it lacks what a run of its kind has (...); run it again.
    $ show HERE/run --report HERE/r.html  with {"run/comparison.json": b"{}"}
    HERE/run is not a complete run (...); run the command again with --out.
    $ verify HERE/run  with {"run/comparison.json": b"{}"}
    HERE/run is not a complete run (...); run the command again with --out.
    $ show HERE/run --report HERE/r.html  with run(lambda path: (path / "origin.json").write_text("text"))
    HERE/run/origin.json is damaged and cannot be read; solve again with --out.
    > write_report(toy_result())
    A report of an answer that is not stored needs a file; name one, such as report.html.
    $ show HERE/run  with {"run/result.json": b"text"}
    HERE/run/result.json is damaged and cannot be read; solve again with --out.
    $ show HERE/run  with run(states("result.json", cost="cheap"))
    HERE/run/result.json is not a summary of covopt (its cost is wrong); solve again with --out.
    $ verify HERE/run  with run(lambda path: (path / "network.npz").unlink())
    HERE/run is not a complete run (There is no file HERE/run/network.npz); solve again with --out.
    $ verify HERE/run  with run(lambda path: (path / "history.csv").write_text("a,b\n"))
    HERE/run is not a complete run (HERE/run/history.csv is damaged); solve again with --out.
    $ verify HERE/run  with run(holds("network.npz", W2=None))
    HERE/run is not a complete run (network.npz holds no real matrix W2); solve again with --out.
    $ verify HERE/run  with run(holds("certificate.npz", Lambda=np.ones(20)))
    HERE/run is not a complete run (certificate.npz holds no real matrix Lambda); solve again with --out.
    $ verify HERE/run  with run(holds("problem.npz", weights=np.arange(20.0)))
    HERE/run is not a complete run (problem.npz holds rows of weight 0); solve again with --out.
    $ verify HERE/run  with run(holds("problem.npz", lam=None))
    HERE/run is not a complete run (problem.npz holds no lam); solve again with --out.
    $ verify HERE/run  with run(holds("problem.npz", loss=np.array("interpolate")))
    HERE/run is not a complete run (problem.npz holds a lam, which the loss interpolate does not have); solve again with --out.
    $ verify HERE/run  with run(holds("problem.npz", skip=np.array(2)))
    HERE/run is not a complete run (problem.npz holds a skip of another kind); solve again with --out.
    $ verify HERE/run  with run(holds("certificate.npz", maximum=np.ones(3)))
    HERE/run is not a complete run (certificate.npz holds no maximum); solve again with --out.
    $ verify HERE/run  with run(lambda path: [change(path) for change in TREE])
    HERE/run is not a complete run (certificate.npz holds a tree of another kind); solve again with --out.
    # A matrix.
    $ cprank HERE/a.npz  with npz(B=X, C=X)  ->  HERE/a.npz holds B, C; name the matrix A.
    $ validate iris --at HERE/a.npz  with npz(B=X, C=X)  ->  HERE/a.npz holds B, C; name the matrix X.
    $ cprank HERE/a.txt  with {"a.txt": b""}  ->  HERE/a.txt is of no known format; give a .npy, .npz or .csv file.
    $ cprank HERE/a.npy  with {"a.npy": b"text"}
    HERE/a.npy is not an .npy file or is damaged; write it again with numpy.save.
    $ cprank HERE/a.npy  with {"a.npy": pickled_matrix}
    HERE/a.npy holds Python objects, which are never read; save numbers.
    $ cprank HERE/a.npy  with {"a.npy": array_bytes(X)[:-1]}
    HERE/a.npy declares more than it holds; write it again.
    $ cprank HERE/a.csv  with {"a.csv": b"\xff\xfe"}  ->  HERE/a.csv is not a .csv file in UTF-8; save it as one.
    $ cprank HERE/a.csv  with table("1,2\n3\n")
    The rows of HERE/a.csv have different lengths; give one number for each entry of the matrix.
    $ cprank HERE/a.csv  with table("1,a\na,1\n")
    HERE/a.csv holds more than numbers; give rows of numbers, without names.
    """,
)
