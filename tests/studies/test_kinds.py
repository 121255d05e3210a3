"""Kinds of stored answers: the table, cp-ranks and figure 2 as runs, and files that are not what they should be."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copositive_matrices import HORN
from editing import holds, is_refused, rewritten, sealed, states
from instances import cases
from runs import Run
from typer.main import get_command

import covopt
from covopt.app.cli import app
from covopt.completely_positive import check as cprank, factorization, words as cprank_words
from covopt.completely_positive.answer import CPRank
from covopt.completely_positive.completely_positive import cp_rank
from covopt.completely_positive.connected import Part, Verdict
from covopt.completely_positive.ends import ByRank, ByTheorem, End
from covopt.runtime.errors import CovoptError, RecordError
from covopt.studies.runs import KINDS

CASES = {name: np.array(case["A"], dtype=float) for name, case in cases("cp_rank").items()}
PACKAGE = Path(covopt.__file__).parent


def test_each_page_is_a_kind_with_a_command() -> None:
    pages = {".".join(path.parent.relative_to(PACKAGE).parts) for path in PACKAGE.rglob("page.py")} - {"records"}
    assert pages == {kind.folder for kind in KINDS}
    assert {kind.name for kind in KINDS} <= set(get_command(app).commands)  # type: ignore[attr-defined]
    assert len({kind.file for kind in KINDS}) == len(KINDS)


# ---- cp-ranks
@pytest.mark.parametrize("name", CASES)
def test_a_cp_rank_comes_back_and_is_proved_again(name: str, tmp_path: Path) -> None:
    answer = cp_rank(CASES[name], time_limit=10.0)
    answer.save(tmp_path / "run")
    again = covopt.load(tmp_path / "run")
    assert isinstance(again, CPRank)
    assert again.summary() == answer.summary()
    assert again.check()
    assert np.array_equal(again.A, CASES[name])  # type: ignore[arg-type]
    checked = covopt.verify(tmp_path / "run")
    assert checked.passed, checked.message
    assert checked.lower == answer.lower
    assert set(cprank.UNCHECKED) <= set(checked.unchecked)
    page = covopt.write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert cprank_words.answer(answer.stated()).replace("'", "&#39;") in page.replace("&lt;", "<")
    assert covopt.verify(tmp_path / "run").passed


def test_a_command_stores_shows_and_reports_cp_rank(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", np.eye(3) + 1.0)
    code, out, _ = run("cprank", "A.npy", "--out", "stored", "--seed", "2")
    assert (code, out.endswith("The answer is stored in stored; its report is stored/report.html.\n")) == (0, True)
    files = {"cprank.json", "matrix.npz", "proof.json", "proof.npz", "origin.json", "report.html"}
    assert {path.name for path in Path("stored").iterdir()} == files
    assert run("show", "stored")[1] == out[: out.index("The answer")]
    assert json.loads(run("show", "stored", "--json")[1])["seed"] == 2
    assert run("verify", "stored")[0] == 0
    assert run("show", "stored", "--report", "again.html")[0] == 0
    assert Path("again.html").read_bytes() == Path("stored/report.html").read_bytes()
    assert run("cprank", "stored/matrix.npz", "--out", "stored")[0] == 2
    assert run("cprank", "stored/matrix.npz", "--out", "stored", "--force")[0] == 0
    Path("stored/thesis.tex").write_text("dear")
    code, _, err = run("cprank", "A.npy", "--out", "stored", "--force")
    assert (code, "holds thesis.tex" in err) == (2, True)
    page = Path("stored/report.html").read_text(encoding="utf-8")
    for said in ("its cp-rank is 3 (proved)", "covopt verify stored", "covopt cprank stored/matrix.npz"):
        assert said in page
    assert page.count("<img") == 2  # A and B


def forge(path: Path, tree: Callable[[dict[str, Any]], object], **arrays: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change the proofs of a stored answer, and make all else in it fit: numbers, and the list of files."""
    rewritten("proof.json", tree)(path)
    holds("proof.npz", **{name.replace("_", "."): change for name, change in arrays.items()})(path)
    refit(path)


def refit(path: Path) -> None:
    with suppress(CovoptError):
        states("cprank.json", **covopt.load(path).stated())(path)
    sealed(path)


def test_forged_ends_and_verdicts_are_refused(tmp_path: Path) -> None:
    horn = CASES["five-cycle-not-cp-b"]
    for number, (A, change) in enumerate(
        [
            (np.eye(3) + 1.0, lambda t: (t.update(lower=4), t["parts"][0]["lower"].update(value=4))),
            (np.eye(3) + 1.0, lambda t: (t.update(upper=2), t["parts"][0]["upper"].update(value=2))),
            (np.eye(3) + 1.0, lambda t: t.update(verdict="undecided")),
            (np.eye(3) + 1.0, lambda t: t.update(verdict="not completely positive")),
            (np.eye(3) + 1.0, lambda t: t.update(tolerance=0.5)),
            (np.eye(3) + 1.0, lambda t: t.update(parts=[])),
            (np.eye(3) + 1.0, lambda t: t.update(lower=3.0)),
            (np.eye(3) + 1.0, lambda t: t.update(exact=1)),
            (np.eye(3) + 1.0, lambda t: t["parts"][0].update({"is": "Verdict"})),
            (np.eye(3) + 1.0, lambda t: t["parts"][0]["lower"].update(proof={"is": "ByEdges"}, value=9)),
            (CASES["circulant-boundary"], lambda t: (t.update(exact=True), t["parts"][0].update(exact=True))),
            (horn, lambda t: t.update(verdict="completely positive")),
            (horn, lambda t: t.update(exact=False)),
            (horn, lambda t: t.update(lower=3)),
            (horn, lambda t: t["witness"].update(proof="non-negative")),
        ]
    ):
        path = tmp_path / str(number)
        cp_rank(A, time_limit=5.0).save(path)
        assert covopt.verify(path).passed
        forge(path, change)  # type: ignore[arg-type]
        assert is_refused(path), number


def test_a_forged_matrix_factor_or_witness_is_refused(tmp_path: Path) -> None:
    B = np.random.default_rng(0).random((7, 5))
    cp_rank(B.T @ B, time_limit=5.0).save(tmp_path / "factor")
    for name in ("B", "parts_0_B"):
        run = tmp_path / name
        covopt.load(tmp_path / "factor").save(run)
        forge(run, lambda _: None, **{name: lambda B: 1.01 * B})
        assert is_refused(run), name
    negative = tmp_path / "negative"
    covopt.load(tmp_path / "factor").save(negative)
    forge(negative, lambda _: None, **dict.fromkeys(("B", "parts_0_B"), lambda B: -B))
    assert is_refused(negative)
    np.savez(tmp_path / "factor" / "matrix.npz", A=B.T @ B + np.eye(5))
    refit(tmp_path / "factor")
    assert is_refused(tmp_path / "factor")


def one_sided(C: np.ndarray) -> np.ndarray:
    """Its lower half positive definite, which is all that LAPACK looks at, its upper half anything."""
    return np.tril(np.eye(len(C))) - np.triu(np.full(C.shape, 9.0), 1)


def test_arrays_that_only_look_like_proofs_are_refused(tmp_path: Path) -> None:
    cp_rank(-np.eye(3) + 2.0, time_limit=5.0).save(tmp_path / "witness")
    cp_rank(np.eye(3) + 1.0, time_limit=5.0).save(tmp_path / "factor")
    for number, change in enumerate([one_sided, lambda C: C[:1, :1], lambda C: C > 0, lambda C: C * np.nan]):
        run = tmp_path / f"witness {number}"
        covopt.load(tmp_path / "witness").save(run)
        # For a matrix that is completely positive: nothing may prove that it is not.
        np.savez(run / "matrix.npz", A=np.eye(3) + 1.0)
        forge(run, lambda _: None, witness_C=change)
        assert is_refused(run), number
    weights = {"is": "EdgeWeights", "edges": [[0, 1, 2, 3]], "weights": {"array": "w"}}
    lower = {"is": "End", "value": 9, "reason": "", "proof": {"is": "ByEdgeWeights", "weights": weights}}
    forge(
        tmp_path / "factor",
        lambda t: (
            t.update(lower=9, upper=9),
            t["parts"][0].update(lower=lower),
            t["parts"][0]["upper"].update(value=9),
        ),
    )
    with np.load(tmp_path / "factor" / "proof.npz") as held:
        np.savez(tmp_path / "factor" / "proof.npz", w=np.array([9.0]), **held)
    refit(tmp_path / "factor")
    assert is_refused(tmp_path / "factor")


def test_a_factor_with_negative_entries_proves_nothing() -> None:
    """A matrix outside the cone by little: a root of it, of any sign, is near an exact root, which is no factor."""
    matrix = CASES["circulant-boundary"] - 0.01 * HORN
    scaled = matrix / np.exp2(2.0 * np.round(np.log2(matrix[0, 0]) / 2.0))
    values, vectors = np.linalg.eigh(scaled)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 5)))[0]
    root = turn @ (np.sqrt(values)[:, None] * vectors.T)
    assert cp_rank(matrix).verdict == "not completely positive"
    lower, upper = End(5, "rank", ByRank()), End(6, "6 at order 5", ByTheorem(5))
    part = Part(Verdict.POSITIVE, True, lower, upper, root, vertices=(0, 1, 2, 3, 4))
    forged = CPRank(Verdict.POSITIVE, True, 5, 6, "", "", None, None, None, 1e-9, (part,), A=matrix)
    assert not factorization.proves(scaled, root)
    assert not forged.check()
    inexact = replace(forged, exact=False, parts=(replace(part, exact=False, B=None),), B=np.abs(root), residual=1.0)
    assert not inexact.check()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"is": "CPRank"}', '{"is": []}', '{"array": "B"}'])
def test_damaged_proofs_are_told_in_one_sentence(tmp_path: Path, text: str, run: Run) -> None:
    cp_rank(np.eye(2)).save(tmp_path / "run")
    (tmp_path / "run" / "proof.json").write_text(text)
    for command in ("verify", "show"):
        report = ["--report", tmp_path / "a.html"] if command == "show" else []
        code, _, err = run(command, tmp_path / "run", *report)
        assert (code, err.count("\n")) == (2, 1)
    with pytest.raises(RecordError):
        covopt.load(tmp_path / "run")
