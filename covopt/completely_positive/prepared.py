"""A matrix prepared for its decision: checked, scaled and split into components."""

from __future__ import annotations

from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from covopt.completely_positive.graphs import support_graph
from covopt.data.data import numeric_matrix
from covopt.runtime.errors import DataError

Matrix = Float[np.ndarray, "n n"]


def check_matrix(A: ArrayLike | torch.Tensor) -> Matrix:
    """Return A as a float64 matrix, its rounding asymmetry averaged; raise the DataErrors of `cp_rank`."""
    try:
        values = np.asarray(A.detach().cpu() if isinstance(A, torch.Tensor) else A)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError("The matrix is no dense array of numbers; give one.") from error
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise DataError(f"The matrix has shape {values.shape}; give a square one.")
    matrix = numeric_matrix(values, "The matrix").astype(np.float64)
    size = np.sqrt(np.abs(np.diag(matrix)))
    # A_ij and A_ji may differ by rounding, relative to themselves or to sqrt(A_ii A_jj); their mean is used.
    entries = np.maximum(np.abs(matrix), np.abs(matrix.T))
    off = np.abs(matrix - matrix.T) - 1e-12 * np.maximum(entries, np.outer(size, size))
    if off.max() > 0.0:
        row, column = (int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
        raise DataError(
            f"The matrix is not symmetric (rows and columns {row} and {column} differ); give (A + A^T) / 2 if that is"
            " what you mean."
        )
    return (matrix + matrix.T) / 2.0


def powers_of_two(A: Matrix) -> Float[np.ndarray, " n"]:
    """Return powers of two near the square roots of the diagonal; 1 where it is not positive."""
    diagonal = np.diag(A)
    roots = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    return np.exp2(np.round(np.log2(roots)))


def to_unit_diagonal(A: Matrix) -> tuple[Matrix, Float[np.ndarray, " n"]]:
    """Return A_ij / (s_i s_j), and s, the square roots of the diagonal, which is positive."""
    scale = np.sqrt(np.diag(A))
    return A / np.outer(scale, scale), scale


def lengths(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return 1 on the diagonal and sqrt(2) off it, for the Frobenius norm of upper triangles."""
    return np.where(i == j, 1.0, np.sqrt(2.0))


def root_of_unit(*matrices: Matrix) -> float:
    """Return a power of two u with u^2 near the largest entry; squares of A / u^2 do not underflow."""
    largest = max(float(np.abs(A).max(initial=0.0)) for A in matrices)
    return float(np.exp2(np.round(np.log2(largest) / 2.0))) if 0.0 < largest < 1.0 else 1.0


@dataclass(frozen=True)
class Prepared:
    """A matrix, scaled so that its components can be decided."""

    A: Matrix  # non-negative, its diagonal between 1/2 and 2; rows and columns whose diagonal is not positive are zero
    powers: Float[np.ndarray, " n"]  # A_ij powers_i powers_j is the entry of the given matrix
    faithful: bool  # True if this holds for every entry, to the last digit
    lost: float  # the Frobenius norm of A less the scaled matrix, over the entries of that matrix

    @property
    def components(self) -> list[tuple[int, ...]]:
        """Return the components of the support graph, without zero rows."""
        candidates = (tuple(sorted(c)) for c in nx.connected_components(support_graph(self.A)))
        return [c for c in candidates if self.A[c[0], c[0]] > 0.0]

    def without_small(self, tolerance: float) -> Prepared:
        """Return the matrix with zeros for entries below the tolerance; itself if there are none."""
        size = np.sqrt(np.diag(self.A))
        clean = np.where(tolerance * np.outer(size, size) < self.A, self.A, 0.0)
        return self if (clean == self.A).all() else replace(self, A=clean, faithful=False)


def prepare(matrix: Matrix) -> Prepared:
    """Scale the matrix and preserve its support graph.

    Entries that are negative (within the tolerance), or underflow, become a tiny positive number.
    """
    powers = powers_of_two(matrix)
    scaled = matrix / np.outer(powers, powers)
    present = (matrix != 0.0) & (np.diag(matrix) > 0.0) & (np.diag(matrix) > 0.0)[:, None]
    A = np.where(present, np.maximum(scaled, np.finfo(np.float64).tiny), 0.0)
    faithful = bool((A * np.outer(powers, powers) == matrix).all())
    return Prepared(A, powers, faithful, float(np.linalg.norm(np.where(present, A - scaled, 0.0))))


def whole(original: Prepared, clean: Prepared, tolerance: float) -> tuple[Matrix, Matrix, float]:
    """Return both matrices without zero rows, and a bound on the distance to the clean one."""
    nonzero = np.flatnonzero(np.diag(original.A) > 0.0)
    A, cleaned = (matrix[np.ix_(nonzero, nonzero)] for matrix in (original.A, clean.A))
    return A, cleaned, tolerance * float(np.linalg.norm(A)) + float(np.linalg.norm(A - cleaned)) + original.lost


def unscaled(C: Matrix, powers: Float[np.ndarray, " n"]) -> Matrix:
    """Return the witness against the given matrix from one against the scaled matrix, largest entry 1."""
    with np.errstate(all="ignore"):  # an overflow gives no valid witness, and is refused later
        C = C / np.outer(powers, powers)
        return C / np.abs(C).max()
