"""`verify`: a stored run proves what it states, and a tampered one does not."""

import json
import pathlib

import numpy as np
import pytest
from editing import holds, states

import covopt
from covopt.runtime.loop import Certificate


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """A stored solve whose bound is proved by a tree of cones."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20, 4))
    Y = np.maximum(X @ rng.standard_normal((4, 2)), 0) @ rng.standard_normal((2, 1))
    result = covopt.solve(X, Y, lam=1e-2, bias=0.0, certify="full", gap=1e-3, time_limit=60)
    assert result.certificate == Certificate.BRANCH_AND_BOUND
    result.save(tmp_path / "run")
    return tmp_path / "run"


def test_tampering_is_found(run: pathlib.Path) -> None:
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


def test_a_forged_tree_is_refused(run: pathlib.Path) -> None:
    holds("certificate.npz", tree=np.zeros_like)(run)
    assert "does not fit" in covopt.verify(run).message
    # Leaves at once: a tree, but one that proves little.
    holds("certificate.npz", tree=np.zeros(16, dtype=np.uint8))(run)
    assert not covopt.verify(run).passed


def test_the_relaxation_proves_where_inputs_are_many(tmp_path: pathlib.Path) -> None:
    X, Y = np.random.default_rng(9).standard_normal((8, 10)), np.eye(2)[np.arange(8) % 2]
    result = covopt.solve(X, Y, lam=5e-2, bias=0.0, certify="full", gap=1e-2, time_limit=20)
    assert result.certificate in (Certificate.RELAXATION, Certificate.SIGN_BRANCHING)
    assert 0 <= result.gap <= 5e-2
    result.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    holds("certificate.npz", values=np.zeros_like)(tmp_path / "run")
    assert not covopt.verify(tmp_path / "run").passed
