"""Many small problems in one process: `python -m tests.benchmarks.sets DIRECTORY`, as `contender` runs one.

X is (S, N, d), Y (S, N, m). Every solve is timed by itself, after one that is not: a process for each would measure the
start of the interpreter.
Beside the solves, the doubly non-negative relaxation of the same problems, by an interior-point method.
"""

import time

import cvxpy as cp
import numpy as np
import torch

from covopt.answer.solve import solve
from covopt.certify.dual import dual_bound
from covopt.model.problem import make_problem
from tests.benchmarks.job import Stopwatch, run_job
from tests.benchmarks.objective import Array
from tests.references.relaxed import relaxed_maximum


def run(X: Array, Y: Array, job: dict) -> list[tuple[list[Array], dict]]:
    """Solve all sets, then relax the first ones until the time for that is spent."""
    torch.set_num_threads(job["threads"])
    solve(X[0], Y[0], lam=job["lam"], bias=0.0, **job["options"])  # first use loads code
    runs = []
    for x, y in zip(X, Y, strict=True):
        watch = Stopwatch()
        result = solve(x, y, lam=job["lam"], bias=0.0, **job["options"])
        told = watch.told() | {"lower": result.lower, "certificate": str(result.certificate)}
        told |= {"status": str(result.status), "width": result.widths[0]}
        watch = Stopwatch()
        found = result.unique
        told |= {"unique": found.verdict, "fewest": found.fewest, "deciding": watch.told()["seconds"]}
        runs.append(([W.cpu().numpy() for W in result.weights], told | {"relaxed": None, "relaxing": None}))
    started = time.perf_counter()
    for x, y, (_, told) in zip(X, Y, runs, strict=True):
        if time.perf_counter() - started < job["relaxing"]:
            watch = Stopwatch()
            told |= {"relaxed": relaxation(x, y, job["lam"])}
            told |= {"relaxing": watch.told()["seconds"]}
    return runs


def relaxation(X: Array, Y: Array, lam: float) -> float | None:
    """What the doubly non-negative relaxation proves, mse without bias; None where the solver fails.

    Its dual point comes from the relaxed primal (letters as in `certify/relaxation/lift.py`, E[.] the blocks of U >= 0)

        min (1/N) |F - Y|^2 + lam (tr E[w w^T] + tr E[v v^T]),  F = E[p v^T],  E[y y^T] >= 0,  E[p_i n_i] = 0,

    and the bound from the relaxed maximum there, with its rounding.
    """
    (N, d), m = X.shape, Y.shape[1]
    B = np.block([[np.zeros((N, d)), np.eye(N)], [-X, np.eye(N)]])
    U = cp.Variable((d + N + m, d + N + m), PSD=True)
    products = B @ U[: d + N, : d + N] @ B.T
    rows, columns = np.triu_indices(2 * N)
    apart = columns != rows + N
    F = U[d : d + N, d + N :]
    cost = cp.sum_squares(F - Y) / (N * lam) + cp.trace(U[:d, :d]) + cp.trace(U[d + N :, d + N :])
    signs = [products[rows[apart], columns[apart]] >= 0.0, products[np.arange(N), N + np.arange(N)] == 0.0]
    try:
        cp.Problem(cp.Minimize(cost), signs).solve(solver="CLARABEL")
    except cp.SolverError:
        return None
    if F.value is None:
        return None
    problem = make_problem(torch.from_numpy(X), torch.from_numpy(Y), lam=lam, bias=0.0)
    Lambda = torch.from_numpy((Y - F.value) / (N * lam))
    maximum = relaxed_maximum(problem.Xt, problem.activation, Lambda, solver="clarabel").maximum
    return dual_bound(problem, Lambda, maximum).lower


if __name__ == "__main__":
    run_job(run)
