"""Predictions for further data, and what held-out data say of a network: values from NumPy and scikit-learn."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from runs import Run
from scipy.special import log_softmax, softmax
from sklearn.metrics import r2_score

import covopt
from covopt.answer import stored
from covopt.runtime.errors import CovoptWarning
from covopt.studies.sweep.grid import make_grid

RNG = np.random.default_rng(5)


def write(path: Path, X: np.ndarray, y: list[object], order: tuple[int, ...] = (0, 1, 2)) -> None:
    columns = [X[:, 0].tolist(), X[:, 1].tolist(), y]
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow([("left", "right", "kind")[i] for i in order])
        table.writerows(zip(*(columns[i] for i in order), strict=True))


def test_classes_of_a_table_in_another_order(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are scaled by the mean and deviation of the run's own data, found anew here."""
    monkeypatch.chdir(tmp_path)
    X, further = (
        RNG.standard_normal((30, 2)) * [3.0, 0.1] + [7.0, 1.0],
        RNG.standard_normal((9, 2)) + np.array([7.0, 1.0]),
    )
    named = lambda Z: np.where(Z[:, 0] > 7.0, "big", "small")  # noqa: E731
    write(tmp_path / "a.csv", X, list(named(X)))
    write(tmp_path / "t.csv", further, list(named(further)), (2, 1, 0))
    write(tmp_path / "p.csv", further, [0] * 9, (1, 0))  # no targets
    question = ["--target", "kind", "--scale", "standard", "--lam", "0.02", "--loss", "cross_entropy"]
    _, told, _ = run("solve", "a.csv", *question, "--test", "t.csv", "--out", "run", "--json")
    W1, W2 = np.load(tmp_path / "run/network.npz").values()
    Z = (further - X.mean(axis=0)) / X.std(axis=0)
    hidden = np.maximum(np.c_[Z, np.ones(9)] @ W1.T, 0.0)
    F = np.c_[hidden, np.ones(9)] @ W2.T
    codes = (named(further) == "small").astype(int)
    test = json.loads(told)["test"]
    assert (test["data"], test["rows"], test["r2"]) == ("t.csv", 9, None)
    assert test["accuracy"] == (F.argmax(axis=1) == codes).mean()
    assert test["loss"] == pytest.approx(-log_softmax(F, axis=1)[np.arange(9), codes].mean(), rel=1e-10)
    for source in ("p.csv", "t.csv"):
        run("predict", "run", source, "--out", "out.csv", *(["--force"] if source == "t.csv" else []))
        with (tmp_path / "out.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert [row["label"] for row in rows] == np.array(["big", "small"])[F.argmax(axis=1)].tolist()
        for values, kind in ((F, "output"), (softmax(F, axis=1), "probability")):
            written = [[float(row[f"{kind} {name}"]) for name in ("big", "small")] for row in rows]
            np.testing.assert_allclose(written, values, rtol=1e-9, atol=1e-12)
    result = stored.load(tmp_path / "run")
    np.testing.assert_allclose(result.predict_proba(Z), softmax(F, axis=1), rtol=1e-9)
    assert result.summary()["test"] == test
    assert "not a bound" in run("show", "run")[1]
    assert "not a bound" in (tmp_path / "run/report.html").read_text()


def test_numbers_in_archives(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """--scale max divides by the largest entry of the run's data; float32 and one column of targets are taken."""
    monkeypatch.chdir(tmp_path)
    X, further = RNG.standard_normal((20, 2)), RNG.standard_normal((6, 2)).astype(np.float32)
    y, held_out = X[:, 0] ** 2, further[:, :1] ** 2
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "t.npz", X=further, Y=held_out)
    question = ["a.npz", "--scale", "max", "--lam", "0.01", "--certify", "fast", "--gap", "0.1"]
    run("solve", *question, "--out", "run")
    run("predict", "run", "t.npz", "--out", "out.npz")
    F = stored.load(tmp_path / "run").predict(further.astype(float) / np.abs(X).max())
    with np.load(tmp_path / "out.npz") as written:
        assert written.files == ["outputs"]
        np.testing.assert_allclose(written["outputs"], F)
    _, told, _ = run("compare", *question, "--method", "cone", "--method", "train", "--width", "5", "--starts", "1",
               "--time-limit", "3", "--test", "t.npz", "--json")  # fmt: skip
    first, second = (each["test"] for each in json.loads(told)["methods"])
    assert first["r2"] == pytest.approx(r2_score(held_out, F), abs=1e-6)
    assert first["loss"] == pytest.approx(float(np.mean((F - held_out) ** 2)), rel=1e-5)
    assert second["rows"] == 6


@pytest.mark.parametrize("command", ["solve", "path", "compare"])
def test_rows_trained_on_are_counted(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Of six held-out rows two are training rows as they are; one has another target, one other inputs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(9, 2)), rng.normal(size=(9, 1))
    Y[0, 0] = 0.0
    np.savez("a.npz", X=X[:6], Y=Y[:6])
    options = ["--lam", "0.1", "--scale", "standard", "--time-limit", "0.3"]
    mixed, targets = np.vstack([X[:2], X[2:4], X[6:8]]), np.vstack([Y[:2], Y[2:3] + 1.0, Y[3:4], Y[6:8]])
    targets[0, 0], mixed[3, 1] = -0.0, 9.0
    np.savez("mixed.npz", X=mixed, Y=targets)
    np.savez("new.npz", X=X[6:], Y=Y[6:])
    words = "The network is trained on 2 of the 6 rows of mixed.npz; leave them out of --test."
    _, _, told = run(command, "a.npz", *options, "--test", "mixed.npz")
    assert words in told
    assert "trained on" not in run(command, "a.npz", *options, "--test", "new.npz")[2]


@pytest.mark.parametrize("drawn", [{"rows": 6}, {"rows": 6, "shuffle": 3}])
def test_the_rest_as_a_file(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, drawn: dict[str, int]) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("a.npz", X=rng.normal(size=(9, 2)), Y=rng.normal(size=9))
    rest = covopt.read_data("a.npz", **drawn, rest=True)  # type: ignore[arg-type]
    every = np.vstack([covopt.read_data("a.npz", **drawn).X, rest.X])  # type: ignore[arg-type]
    assert sorted(every.tolist()) == sorted(covopt.read_data("a.npz").X.tolist())
    np.savez("t.npz", X=rest.X, Y=rest.Y)
    options = [word for name, value in drawn.items() for word in (f"--{name}", str(value))]
    options += ["--lam", "0.1", "--scale", "max", "--certify", "none", "--tol", "0.01", "--json"]
    scores = [json.loads(run("solve", "a.npz", *options, "--test", test)[1])["test"] for test in ("rest", "t.npz")]
    assert [score.pop("data") for score in scores] == ["the rest of a.npz", "t.npz"]
    assert scores[0] == scores[1]


def test_compare_path_and_sweep_take_the_rest(run: Run) -> None:
    options = "iris --rows 140 --shuffle 0 --lam 1 --time-limit 0.3 --test rest --json".split()
    (method,) = json.loads(run("compare", *options, "--method", "cone")[1])["methods"]
    assert (method["test"]["data"], method["test"]["rows"]) == ("the rest of iris", 10)
    assert json.loads(run("path", *options)[1])["points"][0]["test"] > 0.0
    (test,) = make_grid({"data": "iris", "rows": 140, "shuffle": 0, "test": "rest"}).tests.values()
    assert len(test.X) == 10


def test_a_sweep_tests_each_cell(tmp_path: Path) -> None:
    """Labels of iris are numbers in the source and names in the answer; both are understood."""
    X, y = np.array(covopt.read_data("iris").X), covopt.read_data("iris").Y.argmax(axis=1)
    np.savez(tmp_path / "t.npz", X=X[::7], y=y[::7].astype(float))
    spec: dict[str, object] = {"data": "iris", "rows": 60, "shuffle": 0, "scale": "max", "lam": [0.1, 1e-3],
        "loss": "cross_entropy", "certify": "none", "tol": 0.01, "test": str(tmp_path / "t.npz")}  # fmt: skip
    seen = covopt.read_data("iris", rows=60, shuffle=0).X
    repeated = sum((seen == x).all(axis=1).any() for x in X[::7])
    with pytest.warns(CovoptWarning, match=f"The network is trained on {repeated} of the 22 rows"):
        swept = covopt.sweep(spec, tmp_path / "s.sqlite")
    data = covopt.read_data("iris", rows=60, shuffle=0, scale="max")
    alone = covopt.solve(data.X, data.Y, lam=1e-3, loss="cross_entropy", certify="none", tol=0.01)
    F = alone.predict(X[::7] / X.max())
    assert swept.columns[-3:] == ["test_loss", "test_accuracy", "test_r2"]
    assert swept.rows[1]["test_accuracy"] == (F.argmax(axis=1) == y[::7]).mean()
    assert swept.rows[1]["test_accuracy"] > 0.9
    assert swept.rows[0]["test_loss"] > swept.rows[1]["test_loss"]  # type: ignore[operator]
