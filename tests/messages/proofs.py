"""Messages of the certifiers, and of the oracles that they ask."""

from pathlib import Path

import numpy as np
import torch
from editing import holds
from hostile import run_with

import covopt
from covopt.certify.cones import branch
from covopt.certify.dual import dual_bound
from covopt.certify.proof import Target
from covopt.certify.proofs import agreed, read_proof
from covopt.certify.relaxation import bound as relaxation
from covopt.certify.relaxation.grouping import Grouped
from covopt.certify.relaxation.multipliers import LEAF, WALL, Multipliers
from covopt.model.activation import Activation
from covopt.model.problem import Problem, make_problem
from covopt.oracles.arrangement import ArrangementOracle
from covopt.oracles.sphere import SphereOracle
from covopt.runtime.loop import Certificate
from messages import Row, rows

rng = np.random.default_rng(0)
WIDE = torch.from_numpy(rng.standard_normal((12, 9)))
FLAT = WIDE[:, :2].contiguous()
LAMBDA = torch.from_numpy(rng.standard_normal((12, 1)))
BROAD = torch.from_numpy(rng.standard_normal((40, 33)))
RELU = Activation(0.0)
SHALLOW = make_problem(WIDE, LAMBDA, lam=0.1)
DEEP = make_problem(WIDE, LAMBDA, lam=0.1, depth=3)
NONE = torch.zeros(0, dtype=torch.float64)
PATHS = {"step": np.array(0.1), "directions": np.array(12.0), "multipliers": np.ones((1, 3, 1))}
PATHS |= {"bias_prices": np.ones(1), "cuts": np.array([0]), "prices": np.ones((1, 3))}
TREE = {
    "step": np.array(0.1),
    "cuts": np.array([[0, 1]]),
    "places": np.ones(1),
    "multipliers": LAMBDA.T.numpy(),
    "prices": np.ones((1, 2, 12)),
}
EDGE = {"pairs": np.array([[0, 1]]), "sizes": np.ones((1, 2))}


def multipliers(
    splits: list[int], entries: int = 0, stages: list[int] | None = None, heights: tuple[float, ...] = (0.0,)
) -> Multipliers:
    made = [int(split == LEAF) for split in splits] if stages is None else stages
    return Multipliers(
        torch.tensor(splits, dtype=torch.int64),
        torch.tensor(made, dtype=torch.int64),
        torch.tensor(heights, dtype=torch.float64),
        NONE.reshape(0, 9),
        torch.zeros(entries, dtype=torch.float64),
    )


def checked(found: Multipliers, Lambda: torch.Tensor = LAMBDA) -> object:
    return relaxation.check_maximum(WIDE, RELU, Lambda, found)


def branched(Xt: torch.Tensor = FLAT, Lambda: torch.Tensor = LAMBDA, target: float = 1.0) -> object:
    return branch.branch_and_bound(Xt, RELU, Lambda, target=target, time_limit=1.0)


def replayed(codes: list[int]) -> object:
    return branch.replay(FLAT, RELU, LAMBDA, np.array(codes, dtype=np.uint8), claimed=1.0)


def rechecked(kind: Certificate, Lambda: torch.Tensor | None = LAMBDA) -> object:
    arrays = {} if Lambda is None else {"Lambda": Lambda.numpy(), "maximum": np.ones(1)}
    return read_proof(kind, SHALLOW, 1.0, arrays).bound(SHALLOW)


def grouped(labels: np.ndarray) -> object:
    evidence = {"diagonal": np.ones(12), "labels": labels, "shared": np.ones((3, 2, 2))}
    arrays = {"Lambda": LAMBDA.numpy(), "maximum": np.ones(1), **evidence}
    return read_proof(Certificate.GROUPS, SHALLOW, 1.0, arrays).bound(SHALLOW)


def deep(Y: torch.Tensor, lam: float | None) -> Problem:
    return make_problem(WIDE, Y, lam=lam, depth=3, bias=0.0)


def pair(K: object = np.eye(2), Ks: object = np.eye(2), **options: object) -> object:
    return covopt.sigma_rank(K, Ks, **options)  # type: ignore[arg-type]


def matrix(A: np.ndarray) -> dict:
    return {"a.npy": lambda path: np.save(path, A)}


def cp(A: object = np.eye(2), **options: object) -> object:
    return covopt.cp_rank(A, **options)  # type: ignore[arg-type]


def verified(here: Path) -> str:
    return covopt.verify(here / "run").message


ROWS = rows(globals())
ROWS += [
    Row(
        f"The stored {what} missing or do{es} not fit the data; solve again.",
        lambda _, kind=kind, Y=Y, lam=lam, some=some: read_proof(kind, SHALLOW, 1.0, some).bound(deep(Y, lam)),
    )
    for what, es, kind, Y, lam, wrong in (
        ("edges are", "", Certificate.LAPLACIAN, LAMBDA, None, EDGE | {"pairs": np.array([[0, 99]])}),
        ("flows are", "", Certificate.LAPLACIAN, LAMBDA, 0.1, EDGE | {"flows": np.ones((1, 2, 3))}),
        ("tree is", "es", Certificate.SHARES, LAMBDA, None, TREE),
        ("paths are", "", Certificate.PATHS, LAMBDA, None, PATHS),
        ("multipliers are", "", Certificate.CONVEXITY, LAMBDA, None, {"multipliers": np.ones((3, 1))}),
        ("pair is", "es", Certificate.ANGLE, LAMBDA, None, {"pair": np.array([0, 99])}),
        ("loop is", "es", Certificate.LOOP, WIDE, None, {"loop": np.arange(2), "plane": np.ones((2, 9))}),
    )
    for some in ([{}, wrong] if lam is None else [wrong])
]
