"""`covopt-check` on stored cp-ranks: what `verify` passes is proved or said to be unknown, tampering is refused."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import editing
import numpy as np
import pytest
from copositive_matrices import HORN, copositive, planted_matrices
from editing import Change, accepted, holds, sealed
from references.grams import bipartite_gram

import covopt
from covopt import check as checker

PROVED, REFUSED, UNREAD, UNCHECKED = range(4)
DEADLINE = 60.0
RNG = np.random.default_rng(5)
B = RNG.random((5, 5)) + 0.1
C4 = np.array([[2.0, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]])
PATH = 2.0 * np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1)
MATRICES = {
    "cycle": C4,
    "path": PATH,
    "bipartite": bipartite_gram(2, 3),
    "diagonal": np.diag([1.0, 0.0, 2.0]),
    "zero": np.zeros((2, 2)),
    "three": np.eye(3) + 1.0,
    "scaled": C4 * np.outer([2.0**100, 2.0**-200, 1.0, 2.0**-90], [2.0**100, 2.0**-200, 1.0, 2.0**-90]),
    "boundary": sum(np.outer(x, x) for x in (np.roll([1.0, 1.7, 0.7, 0, 0], k) for k in range(5))),
    "thin": B[:, :3] @ B[:, :3].T,
    "dense": B.T @ B,
    "negative": 2.0 - np.eye(3),
    "indefinite": 3.0 - 2.0 * np.eye(4),
    "horn": np.eye(5) + 0.6 * (np.eye(5)[[1, 2, 3, 4, 0]] + np.eye(5)[[4, 0, 1, 2, 3]]),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("cpranks")
    for name, A in MATRICES.items():
        covopt.cp_rank(A).save(where / name)
    return where


@pytest.mark.parametrize("name", MATRICES)
def test_the_verdict_is_that_of_verify(stored: Path, name: str) -> None:
    run = stored / name
    assert covopt.verify(run).passed
    code, told = checker.check(run, DEADLINE)
    stated = json.loads((run / "cprank.json").read_text())
    assert code == PROVED, told
    assert (told["lower"], told["upper"]) == (stated["lower"], stated["upper"])
    assert told["verdict"] == "proved: the verdict and both ends, nothing besides"


states = partial(editing.states, "cprank.json")


def witness(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return holds("proof.npz", **{"witness.C": change})


def nearly(entry: float = 1e-12, **values: object) -> Callable[[Path], None]:
    """A matrix of rank 2 within the tolerance of one of rank 1, with one atom, if its second entry is that small."""

    def change(run: Path) -> None:
        np.savez(run / "matrix.npz", A=np.diag([1.0, entry]))
        np.savez(run / "proof.npz", B=np.array([[1.0, 0.0]]))
        told = json.loads((run / "cprank.json").read_text())
        told |= {"order": 2, "exact": False, "atoms": 1, "residual": entry / np.hypot(1.0, entry)} | values
        (run / "cprank.json").write_text(json.dumps(told))

    return change


def one_sided(C: np.ndarray) -> np.ndarray:
    return np.tril(np.eye(len(C))) - np.triu(np.full(C.shape, 9.0), 1)


def truncated(name: str) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:40])


def linked(name: str, to: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).unlink()
        (run / name).symlink_to(to)

    return change


TAMPERED: list[tuple[str, Change]] = [
    ("cycle", states(lower=5)),
    ("cycle", states(lower=5, upper=5)),
    ("cycle", states(upper=3)),
    ("cycle", states(lower=3, upper=3)),
    ("cycle", states(lower=-1)),
    ("cycle", states(lower=10**400)),
    ("cycle", states(upper=None)),
    ("cycle", states(verdict="undecided")),
    ("cycle", states(verdict="undecided", upper=None)),
    ("cycle", states(verdict="not completely positive")),
    ("cycle", states(verdict="completely positive, of course")),
    ("cycle", states(lower=True)),
    ("cycle", states(lower=4.0)),
    ("cycle", states(upper="4")),
    ("cycle", states(exact=1)),
    ("three", states(lower=3, upper=2)),
    ("diagonal", nearly(lower=2, upper=1)),
    ("cycle", states(residual=0.5)),
    ("cycle", states(residual=float("nan"))),
    ("cycle", states(atoms=3)),
    ("cycle", states(order=3)),
    ("cycle", states(order=10**400)),
    ("cycle", states(tolerance=0.5)),
    ("cycle", states(tolerance=float("nan"))),
    ("cycle", holds("matrix.npz", A=lambda A: A - 1e-9 * np.eye(4))),
    ("cycle", holds("matrix.npz", A=lambda A: A + np.triu(np.ones((4, 4)), 1))),
    ("cycle", holds("matrix.npz", A=lambda A: A[:3])),
    ("cycle", holds("matrix.npz", A=lambda A: A[:3, :3])),
    ("cycle", holds("matrix.npz", A=lambda A: A * np.nan)),
    ("cycle", holds("matrix.npz", A=lambda A: A.astype(str))),
    ("cycle", holds("proof.npz", B=lambda B: -B)),
    ("cycle", holds("proof.npz", B=lambda B: 1.01 * B)),
    ("cycle", holds("proof.npz", B=lambda B: B[1:])),
    ("cycle", holds("proof.npz", B=lambda B: B[:, 1:])),
    ("cycle", holds("proof.npz", B=lambda B: np.where(B.max() == B, np.inf, B))),
    ("bipartite", states(lower=5, upper=5)),
    ("bipartite", holds("matrix.npz", A=lambda A: A - 1e-7 * np.eye(5))),
    ("diagonal", holds("matrix.npz", A=lambda A: A - np.diag([0, 1e-6, 0]))),
    ("path", states(upper=3, lower=3)),
    ("boundary", states(lower=6, upper=6)),
    ("boundary", states(upper=4, lower=4)),
    ("boundary", holds("proof.npz", B=lambda B: B + 1e-6)),
    ("horn", witness(lambda C: C - 0.1 * np.eye(5))),
    ("horn", witness(lambda C: -C)),
    ("horn", witness(one_sided)),
    ("horn", witness(lambda C: C[:1, :1])),
    ("horn", witness(lambda C: C * np.nan)),
    ("horn", witness(lambda C: C > 0)),
    ("horn", holds("matrix.npz", A=lambda A: A + 10.0)),
    ("horn", states(exact=False)),
    ("horn", states(lower=3)),
    ("horn", states(separation=-0.9)),
    ("horn", states(verdict="completely positive")),
    ("negative", states(verdict="undecided", exact=False, lower=2)),
    ("cycle", truncated("matrix.npz")),
    ("cycle", truncated("proof.npz")),
    ("cycle", truncated("cprank.json")),
    ("cycle", lambda run: (run / "proof.npz").unlink()),
    ("cycle", lambda run: (run / "cprank.json").write_text("[" * 100000)),
    ("cycle", lambda run: (run / "cprank.json").write_text("[]")),
    ("cycle", lambda run: (run / "cprank.json").write_text('{"order": ' + "9" * 10000 + "}")),
    ("cycle", linked("matrix.npz", "matrix.npz")),
    ("cycle", linked("proof.npz", "/dev/null")),
]


def resealed(change: Change) -> Change:
    """The same, and the list of files is made true again where that is possible."""

    def both(run: Path) -> None:
        change(run)
        with suppress(ValueError, TypeError, OSError, RecursionError, covopt.CovoptError):
            sealed(run)

    return both


def test_what_was_tampered_with_is_refused(stored: Path, tmp_path: Path) -> None:
    tampered = [(name, resealed(change)) for name, change in TAMPERED]
    assert accepted(lambda run: checker.check(run, DEADLINE), stored, tampered, tmp_path / "run") == []


@pytest.mark.parametrize(("entry", "verdict"), [(1e-12, PROVED), (1e-3, REFUSED)])
def test_a_factor_counts_within_the_tolerance_only(stored: Path, tmp_path: Path, entry: float, verdict: int) -> None:
    """The residual is stated as it is, so that nothing else is wrong."""
    shutil.copytree(stored / "diagonal", tmp_path / "run")
    nearly(entry, lower=1, upper=1)(tmp_path / "run")
    sealed(tmp_path / "run")
    code, facts = checker.check(tmp_path / "run", DEADLINE)
    assert code == verdict, facts
    assert verdict == PROVED or "misses the matrix" in facts["why"]


def test_files_of_another_run_and_no_list_of_files_are_refused(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored / "cycle", tmp_path / "run")
    shutil.copy(stored / "path" / "matrix.npz", tmp_path / "run")
    assert checker.check(tmp_path / "run", DEADLINE)[0] == REFUSED
    states(files=None)(tmp_path / "run")
    assert checker.check(tmp_path / "run", DEADLINE)[0] == REFUSED


def test_copositivity_is_decided_as_planted() -> None:
    """Matrices on the boundary of the cone or 1e-9 beside it, of orders 11 to 25."""
    planted = [made for made in planted_matrices(80) if len(made.C) <= 17]
    assert {made.copositive for made in planted} == {True, False}
    for made in planted:
        assert checker.copositive(checker.scaled(made.C.tolist())[0]) == made.copositive, made.kind


def test_copositivity_of_small_integers_is_that_of_all_supports() -> None:
    rng, found = np.random.default_rng(1), []
    for _ in range(300):
        C = rng.integers(-2, 4, (4, 4))
        C = np.triu(C) + np.triu(C, 1).T
        found.append(copositive(C))
        assert checker.copositive(C.tolist()) == found[-1], C
    assert 0 < sum(found) < 300
    assert checker.copositive(HORN.astype(int).tolist())
    assert not checker.copositive((1000 * HORN - np.eye(5)).astype(int).tolist())
