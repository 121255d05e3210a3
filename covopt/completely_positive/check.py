"""Load a stored cp-rank, and check it from its matrix and its proofs alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from covopt.answer import verify as checks
from covopt.completely_positive import ends
from covopt.completely_positive.answer import LEAST, MATRIX, MOST, PROOF, CPRank, measured
from covopt.completely_positive.connected import Part
from covopt.completely_positive.copositive import Witness
from covopt.completely_positive.graphs import EdgeWeights
from covopt.completely_positive.moments import MomentBound
from covopt.completely_positive.prepared import check_matrix
from covopt.completely_positive.words import NOT, POSITIVE
from covopt.completely_positive.zeros import ByZeros
from covopt.data.arrays import read_matrix, read_npz
from covopt.records import record
from covopt.records.packed import unpack
from covopt.records.record import Summary

UNCHECKED = ("tolerance", "rank", "seed", "version", "the words of lower_reason and upper_reason")
"""Entries of the summary that no file proves."""
SAME = 1e-12  # the largest difference of a residual between machines, which round differently


PROOFS = (
    *(CPRank, Part, Witness, EdgeWeights, MomentBound, ByZeros, ends.End, ends.ByRank, ends.ByEdges),
    *(ends.ByEdgeWeights, ends.ByCover, ends.ByMoments, ends.ByFactor, ends.ByOrder, ends.ByTheorem),
)
"""The classes of a stored answer."""


def load(directory: Path) -> CPRank:
    """Load an answer of `CPRank.save` from its matrix and its proofs; no file is trusted."""
    classes = {kind.__name__: kind for kind in PROOFS}
    proofs = record.read_object(directory / f"{PROOF}.json")
    answer = unpack(proofs, read_npz(directory / f"{PROOF}.npz"), classes)
    if not isinstance(answer, CPRank):
        raise ValueError(f"no answer in {PROOF}.json")
    return replace(answer, A=check_matrix(read_matrix(directory / MATRIX)))


def verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    """Prove the verdict and both bounds again, exactly: `rounding` has no effect."""
    cp_rank = load(directory)
    proofs = {POSITIVE: "proofs prove the verdict and both ends", NOT: "witness proves the verdict"}
    message = f"The stored {proofs.get(s['verdict'], 'proof proves the lower end')} again"
    checked = checks.of_study(directory, CPRank.file, s, {}, _complaints(s, cp_rank), UNCHECKED, message)
    return replace(checked, lower=None if cp_rank.lower is None or not checked.passed else float(cp_rank.lower))


def _complaints(s: Summary, cp_rank: CPRank) -> Iterator[str]:
    """Yield each contradiction between cprank.json, the proofs and the matrix."""
    yield from checks.differences(CPRank.file, s, cp_rank.stated())
    if not LEAST <= cp_rank.tolerance < MOST:
        yield f"{CPRank.file} states a tolerance of {cp_rank.tolerance:g}, with which covopt does not answer."
    for name, value in measured(cp_rank).items():
        if not abs(s[name] - value) <= SAME or s[name] * value < 0.0:
            yield f"{CPRank.file} states a {name} of {s[name]:g}, but the stored arrays have {value:g}."
    if not cp_rank.check():
        yield "The stored proofs do not prove the verdict and both ends for the stored matrix."
