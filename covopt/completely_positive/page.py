"""The page of `covopt cprank`: complete positivity of a matrix, and its cp-rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covopt.answer.kind import Kind, Pairs, Summary
from covopt.records.numerals import up
from covopt.records.page import Page, Section, Table
from covopt.runtime.errors import counted
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from covopt.answer import parts, pictures
    from covopt.answer import verify as checks
    from covopt.completely_positive import answer as matrices
    from covopt.records import provenance
else:
    checks = lazy("covopt.answer.verify")
    matrices = lazy("covopt.completely_positive.answer")
    parts = lazy("covopt.answer.parts")
    pictures = lazy("covopt.answer.pictures")
    provenance = lazy("covopt.records.provenance")


POSITIVE, NOT, UNDECIDED = "completely positive", "not completely positive", "undecided"
UNCHECKED = ("tolerance", "rank", "seed", "version", "the words of lower_reason and upper_reason")
"""Entries that no file proves."""
SAME = 1e-12
"""Residuals are rounded differently on another machine, by no more than this."""
COPOSITIVE = {
    "non-negative": "none of its entries is negative",
    "positive definite": "it is positive definite",
    "signs": "C ≥ D (J − 2T) D entry by entry, with D ≥ 0 diagonal, J all ones, and T a graph without triangles",
    "enumeration": "exact arithmetic on every support that a violation could have",
}
"""The proofs that a witness is copositive, in words."""
CHECKED = {
    POSITIVE: "repeats the stored proofs of the verdict and of both ends: the factor is multiplied out; ranks,"
    " covers, weights and identities are evaluated again",
    NOT: "proves again that C is copositive and that ⟨A, C⟩ < 0",
    UNDECIDED: "repeats the stored proof of the lower end",
}
ROUNDING = "These are computations in float64 with their rounding estimated and charged, not interval arithmetic."
BOUNDED = (
    "⟨A, C⟩ is computed in float64 with a bound on its rounding; that C is copositive is proved in whole numbers, or"
    " with more to spare than rounding can take."
)


def pairs(s: Summary) -> Pairs:
    """Return the answer as a person reads it: labels with texts."""
    rows = [("verdict", str(s["verdict"]))]
    if s["verdict"] == POSITIVE:
        rows[0] = ("verdict", f"{POSITIVE}, {'proved' if s['exact'] else 'within the residual'}")
    if s["lower"] is not None:
        rows.append(("at least", f"{counted(s['lower'], 'atom')}: {s['lower_reason']}"))
    if s["upper"] is not None:
        near = "" if s["exact"] else " for a matrix within the residual"
        rows.append(("at most", f"{counted(s['upper'], 'atom')}{near}: {s['upper_reason']}"))
    if s["atoms"] is not None:
        rows.append(("factor", f"{counted(s['atoms'], 'atom')}, residual {s['residual']:.1e}"))
    if s["witness"] is not None:
        rows.append(("witness", f"<A, C> = {s['separation']:.3g} |A| |C|, C copositive ({s['witness']})"))
    return rows


def answer(s: Summary) -> str:
    """Return a sentence with the verdict and the interval, and no more than is proved."""
    lower, upper = s["lower"], s["upper"]
    if s["verdict"] == NOT:
        return "A is not completely positive, which is proved: a copositive matrix C has ⟨A, C⟩ < 0."
    if s["verdict"] != POSITIVE:
        return f"Whether A is completely positive is not decided; if it is, its cp-rank is at least {lower}."
    if not s["exact"]:
        return (
            f"A is completely positive up to {up(s['residual'], 2)} of its norm: BᵀB, B ≥ 0, is that close to it, and"
            f" its cp-rank is at most {upper}. That A itself is completely positive is not proved; if it is, its"
            f" cp-rank is at least {lower}."
        )
    rank = f"is {lower}" if lower == upper else f"is between {lower} and {upper}"
    return f"A is completely positive, and its cp-rank {rank}, which is proved."


def _proof(s: Summary) -> str:
    """Return the proof of the verdict in words."""
    if s["verdict"] == NOT:
        return (
            "C is copositive, xᵀCx ≥ 0 for all x ≥ 0, so that ⟨A, C⟩ ≥ 0 for every completely positive A; here it is"
            f" negative. What proves that C is copositive: {COPOSITIVE.get(s['witness'], s['witness'])}."
        )
    if s["verdict"] != POSITIVE:
        return "Neither a factor nor a witness was found; neither is excluded."
    if not s["exact"]:
        return (
            "The factor B is non-negative and was multiplied out. What it proves holds for BᵀB; the lower end holds for"
            " A itself."
        )
    return (
        "That a non-negative B with BᵀB = A exists, exactly and with no more atoms than the upper end, is proved by a"
        " theorem whose condition holds, or by the Newton–Kantorovich theorem beside the computed B. The lower end"
        " holds for every factor of A."
    )


def _page(directory: Path, name: str, s: Summary) -> Page:
    cp_rank, origin = _load(directory), provenance.read_origin(directory)
    A = cp_rank.A
    drawn = [pictures.matrix(A, "A", "The matrix A.", "column", "row")]
    if cp_rank.B is not None and len(cp_rank.B):
        drawn.append(
            pictures.matrix(cp_rank.B, "B", "The factor B, A ≈ BᵀB: an atom in each row.", "column of A", "atom")
        )
    if cp_rank.witness is not None:
        drawn.append(pictures.matrix(cp_rank.witness.C, "C", "The witness C: copositive, ⟨A, C⟩ < 0.", "column", "row"))
    holds = "A itself" if s["exact"] else "BᵀB"
    rounding = BOUNDED if s["verdict"] == NOT else ROUNDING
    ends = [["at least", s["lower"], s["lower_reason"], "A itself"]] if s["lower"] is not None else []
    ends += [["at most", s["upper"], s["upper_reason"], holds]] if s["upper"] is not None else []
    rows = [[label, value] for label, value in matrices.facts(A)]
    sections = [
        Section("The matrix", pictures=drawn, tables=[Table("The matrix and its support graph", ["", ""], rows)]),
        Section(
            "Both ends of the cp-rank",
            [] if ends else ["A matrix that is not completely positive has no cp-rank."],
            tables=[Table("Atoms", ["", "atoms", "why", "holds for"], ends)] if ends else [],
        ),
    ]
    return Page(
        kind="cprank",
        data=f"A matrix of order {s['order']}",
        question="Is A completely positive, A = BᵀB with B ≥ 0, and how few rows does B take (its cp-rank)?",
        answer=answer(s),
        notes=[],
        facts=[
            ("verdict", str(s["verdict"])),
            ("proved for A itself", "yes" if s["exact"] else "no"),
            *([("at least", counted(s["lower"], "atom"))] if s["lower"] is not None else []),
            *([("at most", counted(s["upper"], "atom"))] if s["upper"] is not None else []),
            *([("residual of the factor", parts.number(s["residual"], 2))] if s["residual"] is not None else []),
        ],
        asked=[
            ("order", str(s["order"])),
            ("atoms looked for", "as few as can be found" if s["rank"] is None else str(s["rank"])),
            ("tolerance", f"{s['tolerance']:g}"),
            ("seed", str(s["seed"])),
        ],
        proof=[_proof(s), f"With nothing but the stored matrix the check {CHECKED[s['verdict']]}. {rounding}"],
        check=parts.check(name),
        sections=sections,
        command=origin.quoted,
        python=(
            f"import numpy as np\nA = np.load({f'{name}/{matrices.MATRIX}'!r})['A']\n"
            f"covopt.cp_rank(A, rank={s['rank']!r}, tolerance={s['tolerance']!r}, seed={s['seed']!r})"
        ),
        origin=parts.origin_pairs(origin, s),
        finished=origin.finished,
    )


def _load(directory: Path) -> Any:
    return matrices.load_cp_rank(directory)


def _verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    cp_rank = _load(directory)
    proofs = {POSITIVE: "proofs prove the verdict and both ends", NOT: "witness proves the verdict"}
    again = f"The stored {proofs.get(s['verdict'], 'proof proves the lower end')} again"
    checked = checks.of_study(directory, KIND.file, s, {}, _complaints(s, cp_rank), UNCHECKED, again)
    return replace(checked, lower=None if cp_rank.lower is None or not checked.passed else float(cp_rank.lower))


def _complaints(s: Summary, cp_rank: Any) -> Iterator[str]:
    """Yield contradictions of cprank.json with the proofs, and of these with the matrix."""
    yield from checks.differences(KIND.file, s, cp_rank.stated())
    if not matrices.LEAST <= cp_rank.tolerance < matrices.MOST:
        yield f"{KIND.file} states a tolerance of {cp_rank.tolerance:g}, with which covopt does not answer."
    for name, value in matrices.measured(cp_rank).items():
        if not abs(s[name] - value) <= SAME or s[name] * value < 0.0:
            yield f"{KIND.file} states a {name} of {s[name]:g}, but the stored arrays have {value:g}."
    if not cp_rank.check():
        yield "The stored proofs do not prove the verdict and both ends for the stored matrix."


KIND = Kind("cprank", "cprank.json", pairs, _page, _verify, _load)
