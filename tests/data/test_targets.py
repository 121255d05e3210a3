"""One rule says which targets are classes; the command line, `solve` and the estimators follow it alike."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from messages import command

import covopt
from covopt.app.cli import main
from covopt.data.coding import labels_of
from covopt.runtime.errors import CovoptWarning

N = 30
X = np.random.default_rng(0).normal(size=(N, 2))
THREE, MANY = np.arange(N) % 3, np.arange(N) % 7
WHOLE = {"lam": 1.0, "certify": "none", "max_iterations": 1}

# Targets, the classes that they are (None: numbers), and whether a warning says what integers are read as.
CASES = {
    "texts": (np.array(["b", "a", "c"])[THREE], ("a", "b", "c"), False),
    "texts, one for each row": (np.arange(N).astype(str), tuple(sorted(map(str, range(N)))), False),
    "texts in a column": (np.array(["b", "a", "c"])[THREE][:, None], ("a", "b", "c"), False),
    "objects": (np.array(["b", "a", "c"], dtype=object)[THREE], ("a", "b", "c"), False),
    "categories": (pd.Series(["b", "a", "c"] * 10, dtype="category"), ("a", "b", "c"), False),
    "booleans": (THREE > 0, ("False", "True"), False),
    "few integers": (THREE, ("0", "1", "2"), True),
    "few integers of torch": (torch.as_tensor(THREE), ("0", "1", "2"), True),
    "few integers in a list": ([int(y) for y in THREE - 1], ("-1", "0", "1"), True),
    "integers above a fifth of the rows": (MANY, None, True),
    "as many integers as rows": (np.arange(N), None, True),
    "whole floats": (THREE.astype(float), None, False),
    "floats": (X[:, 0], None, False),
    "one-hot integers": (np.eye(3, dtype=int)[THREE], None, False),
    "a matrix of one column of integers": (THREE[:, None], None, False),
}


def solved_from_a_file(file: Path, y: object, *words: str) -> tuple[dict, str]:
    """Answer and complaints of the command line."""
    values = np.asarray(y)
    np.savez(file, X=X, Y=values.astype(str) if values.dtype.kind == "O" else values)
    asked = f"solve {file} --lam 1 --certify none --tol 0.5 --json".split()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = command(main, [*asked, *words])
    assert code == 0
    return json.loads(out), err


@pytest.mark.parametrize("case", CASES)
def test_the_faces_read_targets_alike(case: str, tmp_path: Path) -> None:
    y, classes, warned = CASES[case]
    from_file, complaints = solved_from_a_file(tmp_path / "a.npz", y)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = covopt.solve(X, y, **WHOLE)
    assert result.problem.classes == classes
    assert (None if result.coding is None else result.coding.classes) == classes
    said = [str(each.message) for each in told if each.category is CovoptWarning]
    assert len(said) == warned == ("holds integers" in complaints)
    if said:
        assert f"read as {'numbers' if classes is None else f'{len(classes)} classes'}; " in said[0]
    read = covopt.read_data(tmp_path / "a.npz")
    np.testing.assert_array_equal(read.Y, result.problem.Y)
    assert (read.classes, from_file["loss"]) == (classes, result.problem.loss.name)
    assert from_file["targets"] == (read.targets if result.targets is None else result.targets)
    face = covopt.CovoptRegressor if classes is None else covopt.CovoptClassifier
    labels = np.ravel(y) if case == "texts in a column" else np.asarray(y)
    fitted = face(1.0, loss="mse", scale="none", max_iter=1, certify="none").fit(X, labels)
    rows = [sorted(np.hstack([p.X.numpy(), p.Y.numpy()]).tolist()) for p in (fitted.result_.problem, result.problem)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(("loss", "y"), [("cross_entropy", MANY), ("logistic", 3 + THREE % 2)])
def test_losses_of_classes_take_labels(loss: str, y: np.ndarray, tmp_path: Path) -> None:
    problem = covopt.solve(X, np.eye(10)[y][:, np.unique(y)], loss=loss, **WHOLE).problem
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labelled = covopt.solve(X, y, loss=loss, **WHOLE)
    assert torch.equal(labelled.problem.Y, problem.Y)
    assert labelled.targets == f"{len(np.unique(y))} classes, one-hot"
    from_file, complaints = solved_from_a_file(tmp_path / "a.npz", y, "--loss", loss, "--out", str(tmp_path / "run"))
    assert (from_file["targets"], complaints) == (labelled.targets, "")
    labelled.save(tmp_path / "own")
    for run in ("run", "own"):
        stored = covopt.load(tmp_path / run)
        assert torch.equal(stored.problem.Y, problem.Y)
        assert stored.coding.classes == labelled.problem.classes


def test_a_task_decides_against_the_rule() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert labels_of(THREE, "Y", "regression") is None
        assert labels_of(THREE, "Y", "regression", "cross_entropy") is None
        for y in (np.arange(N), MANY, MANY[:, None], MANY.astype(float)):
            np.testing.assert_array_equal(labels_of(y, "Y", "classification").codes, np.ravel(y))
        for study in (covopt.plateau, covopt.depth):
            with pytest.raises(covopt.DataError, match="the task is"):
                study(X, THREE, task="the task is")  # type: ignore[operator]


@pytest.mark.parametrize(("values", "rows", "few"), [(20, 100, True), (21, 200, False), (4, 20, True), (4, 19, False)])
def test_where_integers_stop_being_classes(values: int, rows: int, few: bool) -> None:
    with pytest.warns(CovoptWarning, match=f"read as {f'{values} classes' if few else 'numbers'}; "):
        assert (labels_of(np.arange(rows) % values, "Y") is not None) == few


def test_held_out_labels_have_the_columns_of_the_data() -> None:
    y = np.array(["b", "a", "c"])[THREE]
    told = covopt.path(X, y, lams=[1.0], test=(X[:2], y[:2]), certify="none", max_iterations=1)
    np.testing.assert_array_equal(told.held_out.Y, [[0, 1, 0], [1, 0, 0]])
