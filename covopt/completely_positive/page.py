"""The page of `covopt cprank`: complete positivity of a matrix, and its cp-rank."""

from __future__ import annotations

from pathlib import Path

from covopt.answer import parts, pictures
from covopt.completely_positive import answer as matrices, check
from covopt.completely_positive.words import NOT, POSITIVE, UNDECIDED, answer, proof
from covopt.records import provenance
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary, number
from covopt.runtime.errors import counted

CHECKED = {
    POSITIVE: "repeats the stored proofs of the verdict and of both ends: the factor is multiplied out; ranks,"
    " covers, weights and identities are evaluated again",
    NOT: "proves again that C is copositive and that ⟨A, C⟩ < 0",
    UNDECIDED: "repeats the stored proof of the lower end",
}
ROUNDING = "These are computations in float64 with their rounding estimated and charged, not interval arithmetic."
BOUNDED = (
    "⟨A, C⟩ is computed in float64 with a bound on its rounding; that C is copositive is proved in whole numbers, or"
    " with a larger margin than rounding can use up."
)


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    cp_rank, origin = check.load(directory), provenance.read_origin(directory)
    A = cp_rank.A
    assert A is not None
    drawn = [pictures.matrix(A, "A", "The matrix A.", "column", "row")]
    if (B := cp_rank.B) is not None and len(B):
        drawn.append(pictures.matrix(B, "B", "The factor B, A ≈ BᵀB: an atom in each row.", "column of A", "atom"))
    if cp_rank.witness is not None:
        drawn.append(pictures.matrix(cp_rank.witness.C, "C", "The witness C: copositive, ⟨A, C⟩ < 0.", "column", "row"))
    holds = "A itself" if s["exact"] else "BᵀB"
    rounding = BOUNDED if s["verdict"] == NOT else ROUNDING
    ends = [["lower bound", s["lower"], s["lower_reason"], "A itself"]] if s["lower"] is not None else []
    ends += [["upper bound", s["upper"], s["upper_reason"], holds]] if s["upper"] is not None else []
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
        question="Is A completely positive, A = BᵀB with B ≥ 0, and how few rows does B take (its cp-rank)?",
        answer=answer(s),
        notes=[],
        facts=[
            ("verdict", str(s["verdict"])),
            ("proved for A itself", "yes" if s["exact"] else "no"),
            *([("lower bound", counted(s["lower"], "atom"))] if s["lower"] is not None else []),
            *([("upper bound", counted(s["upper"], "atom"))] if s["upper"] is not None else []),
            *([("residual of the factor", number(s["residual"], 2))] if s["residual"] is not None else []),
        ],
        asked=[
            ("order", str(s["order"])),
            ("atoms looked for", "as few as can be found" if s["rank"] is None else str(s["rank"])),
            ("tolerance", f"{s['tolerance']:g}"),
            ("seed", str(s["seed"])),
        ],
        proof=[proof(s), f"With nothing but the stored matrix the check {CHECKED[s['verdict']]}. {rounding}"],
        sections=sections,
        python=(
            f"import numpy as np\nA = np.load({f'{name}/{matrices.MATRIX}'!r})['A']\n"
            f"covopt.cp_rank(A, rank={s['rank']!r}, tolerance={s['tolerance']!r}, seed={s['seed']!r})"
        ),
        **parts.made(name, s, origin, f"A matrix of order {s['order']}"),
    )
