"""The relaxation at one dual point, by the package's own method and, as a reference, by the conic solvers of cvxpy."""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.relaxation.bound import check_maximum
from covopt.certify.relaxation.ground import make_ground
from covopt.certify.relaxation.lift import EQUAL, SIGNED, Piece, make_piece
from covopt.certify.relaxation.multipliers import Multipliers
from covopt.certify.relaxation.nodes import BranchOptions
from covopt.certify.relaxation.repair import prove
from covopt.certify.relaxation.signs import SignBranch
from covopt.model.activation import Activation
from covopt.runtime.loop import Budget


@dataclass(frozen=True)
class RelaxedMaximum:
    """A proved M >= max_w |Lambda^T sigma(Xt w)|, a value that some w attains, and the multipliers that prove M."""

    maximum: float
    attained: float
    multipliers: Multipliers


def relaxed_maximum(
    Xt: Float[Tensor, "N d"],
    activation: Activation,
    Lambda: Float[Tensor, "N m"],
    *,
    solver: str = "own",
    target: float = 0.0,
    time_limit: float = 300.0,
    max_nodes: int | None = 1,
    options: BranchOptions | None = None,
) -> RelaxedMaximum:
    """M over unit w.

    Args:
        solver: own (alternating directions), clarabel or scs (through cvxpy; the relaxation itself, no tree).
        target: stop once M is at most this.
        max_nodes: pieces that may be solved; 1 is the relaxation itself, None leaves it to the time limit.
    """
    budget, ground = Budget(time_limit), make_ground(Xt, activation)
    attained = 0.0
    if not bool(Lambda.any()):
        multipliers = Multipliers.root(ground)
    elif solver == "own":
        tree = SignBranch(ground, Lambda, options or BranchOptions())
        tree.grow(target / ground.size, budget, max_nodes)
        multipliers, attained = tree.multipliers(), ground.size * tree.attained
    else:
        multipliers = Multipliers.root(ground, _through_cvxpy(make_piece(ground), Lambda, solver.upper(), budget))
    return RelaxedMaximum(check_maximum(Xt, activation, Lambda, multipliers), attained, multipliers)


def _through_cvxpy(piece: Piece, Lambda: Tensor, solver: str, budget: Budget) -> Float[Tensor, "K K"]:
    """Pi by an interior-point (CLARABEL) or splitting (SCS) solver; zeros where it fails, which prove little."""
    r, q, K = piece.rank, piece.B.shape[1], len(piece.B)
    B, H = piece.B.cpu().numpy(), piece.outputs(Lambda).cpu().numpy()
    scale = max(1e-300, float(np.linalg.norm(H, 2)))
    U = cp.Variable((q, q), PSD=True)
    V = B @ U @ B.T
    upper = np.triu(np.ones((K, K), dtype=bool))
    signed, tied = (np.nonzero(upper & (piece.rule == what).cpu().numpy()) for what in (SIGNED, EQUAL))
    constraints = [cp.trace(U[:r, :r]) <= 1.0, V[signed] >= 0.0, V[tied] == 0.0]
    gain = (H / scale) @ (H / scale).T
    question = cp.Problem(cp.Maximize(cp.sum(cp.multiply(gain, U))), constraints)
    limit = {"time_limit" if solver == "CLARABEL" else "time_limit_secs": max(1e-3, budget.remaining())}
    try:
        question.solve(solver=solver, **limit)
    except cp.SolverError:
        return torch.zeros(K, K, dtype=torch.float64)
    candidates = []
    for sign in (1.0, -1.0):  # whatever the solver's convention for equations: the better one is kept
        Pi = np.zeros((K, K))
        for entries, values in ((signed, constraints[1].dual_value), (tied, constraints[2].dual_value)):
            if values is not None:
                Pi[entries] += (1.0 if entries is signed else sign) * np.asarray(values)
        Pi = torch.as_tensor(scale**2 * 0.5 * (Pi + Pi.T)).to(Lambda)
        candidates.append((prove(piece, Lambda, Pi), Pi))
    return min(candidates, key=lambda candidate: candidate[0])[1]
