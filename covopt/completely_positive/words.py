"""The answer of `covopt cprank` in sentences, from its summary alone; they claim no more than is proved."""

from __future__ import annotations

from covopt.records.numerals import up
from covopt.records.record import Pairs, Summary
from covopt.runtime.errors import counted

POSITIVE, NOT, UNDECIDED = "completely positive", "not completely positive", "undecided"
COPOSITIVE = {
    "non-negative": "none of its entries is negative",
    "positive definite": "it is positive definite",
    "signs": "C ≥ D (J − 2T) D entry by entry, with D ≥ 0 diagonal, J all ones, and T a graph without triangles",
    "enumeration": "exact arithmetic on every support that a violation could have",
}
"""The proofs that a witness is copositive, in words."""


def pairs(s: Summary) -> Pairs:
    """Return the answer for people: labels with texts."""
    rows = [("verdict", str(s["verdict"]))]
    if s["verdict"] == POSITIVE:
        rows[0] = ("verdict", f"{POSITIVE}, {'proved' if s['exact'] else 'within the residual'}")
    if s["lower"] is not None:
        rows.append(("lower bound", f"{counted(s['lower'], 'atom')}: {s['lower_reason']}"))
    if s["upper"] is not None:
        near = "" if s["exact"] else " for a matrix within the residual"
        rows.append(("upper bound", f"{counted(s['upper'], 'atom')}{near}: {s['upper_reason']}"))
    if s["atoms"] is not None:
        rows.append(("factor", f"{counted(s['atoms'], 'atom')}, residual {s['residual']:.1e}"))
    if s["witness"] is not None:
        rows.append(("witness", f"<A, C> = {s['separation']:.3g} sum |A_ij C_ij|, C copositive ({s['witness']})"))
    return rows


def answer(s: Summary) -> str:
    """Return a sentence with the verdict and the interval."""
    lower, upper = s["lower"], s["upper"]
    if s["verdict"] == NOT:
        return "A is not completely positive (proved): a copositive matrix C has ⟨A, C⟩ < 0."
    if s["verdict"] != POSITIVE:
        return f"Whether A is completely positive is not decided; if it is, its cp-rank is at least {lower}."
    if not s["exact"]:
        return (
            f"A is completely positive up to {up(s['residual'], 2)} of its norm: BᵀB, B ≥ 0, is that close to it, and"
            f" its cp-rank is at most {upper}. That A itself is completely positive is not proved; if it is, its"
            f" cp-rank is at least {lower}."
        )
    rank = f"is {lower}" if lower == upper else f"is between {lower} and {upper}"
    return f"A is completely positive, and its cp-rank {rank} (proved)."


def proof(s: Summary) -> str:
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
