"""`verify`: a stored run proves what it states, and a tampered one does not."""

import json
import pathlib

import numpy as np
import pytest
from editing import holds, states

import covopt
from covopt.runtime.loop import Certificate


def stored(tmp_path: pathlib.Path, kind: str) -> pathlib.Path:
    rng = np.random.default_rng(3)
    columns = {"exact": 1, "sphere": 2, "branch-and-bound": 4, "spectral": 12}[kind]
    X = rng.standard_normal((20, columns))
    Y = np.maximum(X @ rng.standard_normal((columns, 2)), 0) @ rng.standard_normal((2, 1))
    bias = 0.0 if kind == "branch-and-bound" else 1.0
    certify = "full" if kind == "branch-and-bound" else "fast"
    result = covopt.solve(X, Y, lam=1e-2, bias=bias, certify=certify, gap=1e-3, time_limit=60)
    assert result.certificate == Certificate("exact" if kind == "sphere" else kind)
    result.save(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("kind", ["exact", "sphere", "branch-and-bound", "spectral"])
def test_an_honest_run_passes(tmp_path: pathlib.Path, kind: str) -> None:
    run = stored(tmp_path, kind)
    checked = covopt.verify(run)
    assert checked.passed, checked.message
    stated = json.loads((run / "result.json").read_text())
    assert checked.cost == pytest.approx(stated["cost"], rel=1e-12)
    assert checked.lower == pytest.approx(stated["lower"], rel=2e-7 if kind == "branch-and-bound" else 1e-9)
    assert checked.lower >= stated["lower"] * (1.0 - 1e-9)


def test_tampering_is_found(tmp_path: pathlib.Path) -> None:
    run = stored(tmp_path, "branch-and-bound")
    stated = json.loads((run / "result.json").read_text())
    with np.load(run / "certificate.npz") as arrays:
        Lambda = arrays["Lambda"]
    states("result.json", lower=0.5 * (stated["lower"] + stated["cost"]) + 1e-6)(run)
    assert "proves a bound" in covopt.verify(run).message
    states("result.json", lower=stated["lower"], cost=0.9 * stated["cost"])(run)
    assert "network costs" in covopt.verify(run).message
    states("result.json", cost=stated["cost"])(run)
    assert covopt.verify(run).passed
    # A larger dual point promises more, but is not feasible.
    holds("certificate.npz", Lambda=1.01 * Lambda)(run)
    states("result.json", lower=stated["lower"] * 1.005)(run)
    assert not covopt.verify(run).passed
    holds("certificate.npz", Lambda=Lambda[:-1])(run)
    states("result.json", lower=stated["lower"])(run)
    assert "shape of Y" in covopt.verify(run).message
    holds("certificate.npz", Lambda=np.full_like(Lambda, np.nan))(run)
    assert "NaN" in covopt.verify(run).message


def test_a_forged_tree_is_refused(tmp_path: pathlib.Path) -> None:
    run = stored(tmp_path, "branch-and-bound")
    holds("certificate.npz", tree=np.zeros_like)(run)
    assert "does not fit" in covopt.verify(run).message
    # Leaves at once: a tree, but one that proves little.
    holds("certificate.npz", tree=np.zeros(16, dtype=np.uint8))(run)
    assert not covopt.verify(run).passed


def test_the_relaxation_proves_where_inputs_are_many(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(9)
    X, Y = rng.standard_normal((8, 10)), np.eye(2)[np.arange(8) % 2]
    result = covopt.solve(X, Y, lam=5e-2, bias=0.0, certify="full", gap=1e-2, time_limit=20)
    assert result.certificate in (Certificate.RELAXATION, Certificate.SIGN_BRANCHING)
    assert 0 <= result.gap <= 5e-2
    result.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    holds("certificate.npz", values=np.zeros_like)(tmp_path / "run")
    assert not covopt.verify(tmp_path / "run").passed
