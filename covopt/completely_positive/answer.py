"""The interval of a cp-rank: stored, loaded, and checked again from its proofs alone."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from covopt import __version__
from covopt.completely_positive import copositive, factorization, words
from covopt.completely_positive.connected import Part, Verdict
from covopt.completely_positive.copositive import Witness
from covopt.completely_positive.ends import ByEdgeWeights, ByRank, ByTheorem, End, certain_rank
from covopt.completely_positive.graphs import support_graph
from covopt.completely_positive.prepared import Matrix, Prepared, check_matrix, prepare, whole
from covopt.linalg.rounding import EPS
from covopt.records import record
from covopt.records.answer import Answer, Words
from covopt.records.directories import Writer
from covopt.records.packed import pack
from covopt.runtime.errors import ProblemError, RecordError

MATRIX, PROOF = "matrix.npz", "proof"
LEAST, MOST = 4 * EPS, 0.1  # the range of tolerances that `cp_rank` accepts


@dataclass(frozen=True, repr=False)
class CPRank(Answer):
    """An interval for the cp-rank of a matrix, with the proofs of its ends.

    Attributes:
        verdict: says if the matrix is completely positive.
        exact: the verdict and the upper end are proved for the matrix itself; false: within the residual.
        lower: no factor of the given matrix has fewer atoms; None if the matrix is not completely positive.
        upper: a factor with at most this number of atoms exists; None unless the verdict is completely positive.
        lower_reason, upper_reason: the reasons for both ends.
        B: the factor found (r, n), one atom in each row, or None.
        residual: |A - B^T B| / |A| of that factor, or None.
        witness: separates a matrix that is not completely positive from those that are, or None.
        tolerance: the tolerance of the call, at least a few units of rounding.
        parts: the answers for the components of the support graph, with the proofs of their ends.
        least: the lower end of the whole matrix, if the parts leave out entries below the tolerance.
        A, rank, seed: the matrix (n, n), its rounding asymmetry averaged, and the options of `cp_rank`.
    """

    file: ClassVar[str] = "cprank.json"
    words: ClassVar[Words] = words

    verdict: Verdict
    exact: bool
    lower: int | None
    upper: int | None
    lower_reason: str | None
    upper_reason: str | None
    B: Float[np.ndarray, "r n"] | None
    residual: float | None
    witness: Witness | None
    tolerance: float
    parts: tuple[Part, ...] = ()
    least: End | None = None
    A: Matrix | None = None
    rank: int | None = None
    seed: int = 0

    def check(self, A: ArrayLike | torch.Tensor | None = None) -> bool:
        """Return True if this object and the matrix A (n, n) prove all claims again; None: the matrix of the call.

        The witness is checked, or the factor's residual and both ends of the interval, component by component.

        Raises:
            DataError: as `cp_rank`.
        """
        if A is None and self.A is None:
            raise ProblemError("This answer does not hold its matrix; give the one that was asked about.")
        matrix = check_matrix(self.A if A is None else A)  # type: ignore[arg-type]
        if not self._is_coherent(len(matrix)):
            return False
        if self.verdict is Verdict.NOT:
            again = None if self.witness is None else copositive.witness(matrix, self.witness.C)
            return again is not None and self.witness is not None and again.proof == self.witness.proof
        prepared = original = prepare(matrix)
        if self.least is not None:
            prepared = original.without_small(self.tolerance)
        if [part.vertices for part in self.parts] != prepared.components or (self.exact and not prepared.faithful):
            return False
        blocks = [prepared.A[np.ix_(part.vertices, part.vertices)] for part in self.parts]
        if not all(part.check(block, self.tolerance) for part, block in zip(self.parts, blocks, strict=True)):
            return False
        if not self._lower_holds(original, prepared):
            return False
        if self.verdict is Verdict.UNDECIDED:
            return True
        if self.upper != sum(math.inf if part.upper is None else part.upper.value for part in self.parts):
            return False
        if self.exact and not all(part.exact for part in self.parts):
            return False
        if self.B is None:
            return self.exact
        good = bool((self.B >= 0.0).all()) and factorization.residual(matrix, self.B) <= self.tolerance
        return good or self.exact

    def _is_coherent(self, order: int) -> bool:
        """Return True if numbers and arrays fit the verdict and the order, as the proofs assume."""
        numbers = (self.lower, self.upper, self.B, self.residual, self.least, *self.parts)
        if self.verdict is Verdict.NOT:
            C = None if self.witness is None else self.witness.C
            alone = self.exact and all(number is None for number in numbers)
            return alone and C is not None and C.shape == (order, order) and bool((C == C.T).all())
        if self.witness is not None or (self.B is None) != (self.residual is None):
            return False
        if self.verdict is Verdict.UNDECIDED and (self.exact or self.upper is not None):
            return False
        ends = [(end, len(part.vertices)) for part in self.parts for end in (part.lower, part.upper) if end is not None]
        ends += [] if self.least is None else [(self.least, order)]
        factors = [(self.B, order), *((part.B, len(part.vertices)) for part in self.parts)]
        factors += [(getattr(end.proof, "B", None), size) for end, size in ends]
        weights = [end.proof.weights for end, _ in ends if isinstance(end.proof, ByEdgeWeights)]
        if not all(B is None or (B.ndim == 2 and B.shape[1] == size and (B >= 0.0).all()) for B, size in factors):
            return False
        bare = [part.upper for part in self.parts if part.upper is not None and not part.exact]
        if any(isinstance(end.proof, ByTheorem) and end.proof.B is None for end in bare):
            return False  # a theorem on A, which is not proved to be completely positive
        return all(
            y.weights.shape == (len(y.edges),) and all(len(set(edge)) == len(edge) in (1, 2) for edge in y.edges)
            for y in weights
        )

    def _lower_holds(self, original: Prepared, prepared: Prepared) -> bool:
        if self.least is None:
            return self.lower == sum(part.lower.value for part in self.parts)
        A, clean, distance = whole(original, prepared, self.tolerance)
        if isinstance(self.least.proof, ByRank):
            holds = self.least.value <= certain_rank(clean, distance)
        else:
            holds = self.least.check(A, self.tolerance)
        return self.lower == self.least.value and holds

    def summary(self) -> dict[str, object]:
        """Return what `covopt cprank --json` prints."""
        return {
            "verdict": self.verdict.value,
            "exact": self.exact,
            "lower": self.lower,
            "upper": self.upper,
            "lower_reason": self.lower_reason,
            "upper_reason": self.upper_reason,
            "atoms": None if self.B is None else len(self.B),
            "residual": self.residual,
            "witness": None if self.witness is None else self.witness.proof,
            "separation": None if self.witness is None else self.witness.value,
        }

    def files(self) -> dict[str, Writer]:
        """Return the writers of matrix.npz (A), and of proof.json and proof.npz with all else that `check` needs.

        Raises:
            RecordError: the answer does not hold its matrix.
        """
        if self.A is None:
            raise RecordError("This answer does not hold its matrix; ask for it again before saving.")
        matrix, arrays = self.A, {}
        tree = pack(replace(self, A=None), arrays)
        return {
            MATRIX: record.archive(lambda: {"A": matrix}),
            f"{PROOF}.json": lambda path: path.write_text(json.dumps(tree) + "\n", encoding="utf-8"),
            f"{PROOF}.npz": record.archive(lambda: arrays),
        }

    def stated(self) -> dict[str, object]:
        """Return the content of cprank.json: the summary, and the options of the call."""
        options = {"order": None if self.A is None else len(self.A), "tolerance": self.tolerance, "rank": self.rank}
        return {**self.summary(), **options, "seed": self.seed, "version": __version__}


def measured(answer: CPRank) -> dict[str, float]:
    """Return the factor's residual and the witness's separation, computed from the arrays."""
    values, A = {}, answer.A
    if A is not None and answer.B is not None:
        values["residual"] = factorization.residual(A, answer.B)
    again = None if A is None or answer.witness is None else copositive.witness(A, answer.witness.C)
    return values if again is None else values | {"separation": again.value}


def facts(A: Matrix) -> list[tuple[str, object]]:
    """Return numbers of a matrix and of its support graph for the report."""
    graph, values = support_graph(A), np.linalg.eigvalsh(A)
    return [
        ("least eigenvalue, up to rounding", float(values[0])),
        ("largest eigenvalue, up to rounding", float(values[-1])),
        ("negative entries", int((A < 0.0).sum())),
        ("vertices", len(A)),
        ("edges (entries off the diagonal that are not zero, in pairs)", graph.number_of_edges()),
        ("connected components", nx.number_connected_components(graph)),
        ("triangles", sum(nx.triangles(graph).values()) // 3),  # type: ignore[union-attr]
    ]
