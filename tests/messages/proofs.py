"""Messages of the certifiers, and of the oracles that they ask."""

from pathlib import Path

import numpy as np
import torch
from editing import holds
from hostile import run_with

import covopt
from covopt.certify.cones import branch
from covopt.certify.dual import dual_bound
from covopt.certify.proofs import agreed, read_proof
from covopt.certify.relaxation import bound as relaxation
from covopt.certify.relaxation.grouping import grouped_bound
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


ROWS = rows(
    globals(),
    """
    > agreed(make_problem(FLAT, LAMBDA), [torch.zeros(1, 3).double(), torch.zeros(1, 2).double()], 0.0, 3.0)
    The lower bound 3 contradicts a network that costs 0, so nothing can be said; this is a defect of covopt: report it with the data.
    # Stored runs whose files do not prove what they state; `covopt verify` ends with 1.
    $ verify HERE/run  with {"run": run_with(lambda path: None)}  exit 1
    The bound is not proved: The certificate says exact, but no oracle is exact for data of this rank; certify the run again.
    $ verify HERE/run  with {"run": run_with(holds("certificate.npz", Lambda=np.ones((3, 2))))}  exit 1
    The bound is not proved: The stored dual point is missing or does not have the shape of Y; certify the run again.
    $ verify HERE/run  with {"run": run_with(holds("certificate.npz", Lambda=np.full((20, 2), np.nan)))}  exit 1
    The bound is not proved: The stored dual point has NaN or infinite entries; certify the run again.
    $ verify HERE/run  with {"run": run_with(holds("network.npz", W1=np.ones((4, 4))))}  exit 1
    The stored network costs 19.9805078799, but result.json states 9.8757985742164.
    > rechecked(Certificate.EXACT, None)
    The stored dual point is missing or does not have the shape of Y; certify the run again.
    > rechecked(Certificate.EXACT, LAMBDA * torch.nan)
    The stored dual point has NaN or infinite entries; certify the run again.
    > rechecked(Certificate.RELAXATION)
    The certificate 'relaxation' comes without its evidence; certify the run again.
    > rechecked(Certificate.GROUPS)  ->  The certificate 'groups' comes without its evidence; certify the run again.
    > grouped(np.zeros(11, dtype=np.int64))
    The stored multipliers of groups do not fit the samples; certify the run again.
    > grouped(np.full(12, 2))  ->  The stored multipliers name a group that is not there; certify the run again.
    > replayed([0])  ->  The stored tree does not fit this problem; certify the run again.
    > replayed([0] * 100)  ->  The stored tree does not fit this problem; certify the run again.
    > checked(multipliers([-9]))  ->  The stored multipliers do not form a tree of splits; certify the run again.
    > checked(multipliers([WALL]))  ->  The stored multipliers lack a wall; certify the run again.
    > checked(multipliers([LEAF], 12 * 25, heights=(np.nan,)))
    The stored multipliers have heights that are no bounds; certify the run again.
    > checked(multipliers([LEAF], 12 * 25, stages=[2]))
    The stages of the stored multipliers are out of order; certify the run again.
    > checked(multipliers([0, LEAF], 10**5))  ->  The stored multipliers do not fit their tree; certify the run again.
    > checked(multipliers([0, 0, 0, LEAF, LEAF, LEAF, LEAF], 10**5))
    The stored multipliers split a sample twice; certify the run again.
    > checked(multipliers([0, LEAF, LEAF], 10**5, stages=[1, 2, 2], heights=(1e-9, 1e-9)))
    A stage of the stored multipliers does not prove its height; certify the run again.
    > checked(multipliers([LEAF]))  ->  The stored multipliers are incomplete; certify the run again.
    > checked(multipliers([LEAF], 12 * 25 + 1))
    The stored multipliers do not fit their tree of splits; certify the run again.
    # The certifiers themselves.
    > dual_bound(DEEP, LAMBDA, 1.0)
    The dual bounds networks of depth 2 and this problem has depth 3; use the spectral bound.
    > dual_bound(SHALLOW, LAMBDA, -1.0)  ->  The proved maximum of h is -1.0; give a number >= 0, or infinity for none.
    > branched(target=-1.0)  ->  The target of branch and bound is -1.0; give a number >= 0.
    > branched(Lambda=LAMBDA * torch.nan)
    The dual point has NaN or infinite entries; branch and bound needs finite ones.
    > branched(BROAD)
    The inputs and their bias column have rank 33, and branch and bound over cones of directions covers rank 12 at most; use the relaxation.
    > checked(multipliers([LEAF]), LAMBDA[:5])  ->  Lambda has shape (5, 1); give one row for each of the 12 samples.
    > checked(multipliers([LEAF]), LAMBDA * torch.nan)
    Lambda has NaN or infinite entries, and nothing can be proved with it.
    > relaxation.relaxed_bound(DEEP)  ->  The relaxation bounds depth 2 and this problem has depth 3.
    > grouped_bound(DEEP)  ->  The relaxation bounds depth 2 and this problem has depth 3.
    > ArrangementOracle(WIDE, RELU)
    The inputs and their bias column have rank 9, and the arrangement covers rank 2 at most; use branch-and-bound or the relaxation.
    > SphereOracle(WIDE, RELU)
    The inputs and their bias column have rank 9, and the arrangement on the sphere covers rank 3 only; use branch-and-bound or the relaxation.
    > SphereOracle(FLAT, RELU)
    The inputs and their bias column have rank 2, and the arrangement on the sphere covers rank 3 only; use ArrangementOracle.
    # Completely positive matrices, and pairs of covariances.
    $ cprank HERE/a.npy  with matrix(np.eye(2) * 1j)
    The matrix does not hold real numbers (its type is complex128); give numbers.
    $ cprank HERE/a.npy  with matrix(np.ones((2, 3)))  ->  The matrix has shape (2, 3); give a square one.
    $ cprank HERE/a.npy  with matrix(np.ones((0, 0)))  ->  The matrix is empty; give at least one row and one column.
    $ cprank HERE/a.npy  with matrix(np.full((2, 2), np.nan))
    The matrix has NaN or infinite entries (first at row 0, column 0); remove them.
    $ cprank HERE/a.npy  with matrix(np.full((2, 2), 1e80))
    The matrix has entries beyond 1e+75; divide it by its largest entry.
    $ cprank HERE/a.npy  with matrix(np.triu(np.ones((2, 2))))
    The matrix is not symmetric (rows and columns 0 and 1 differ); give (A + A^T) / 2 if that is what you mean.
    $ cprank HERE/a.npy --tolerance 1  with matrix(np.eye(2))
    The tolerance is relative; give a number from 0 to below 0.1.
    $ cprank HERE/a.npy --time-limit 0  with matrix(np.eye(2))  ->  The time limit is 0.0; give seconds above 0.
    $ cprank HERE/a.npy --rank 0  with matrix(np.eye(2))
    The number of atoms to look for must be a whole number of at least 1.
    > pair(np.eye(3))  ->  K has shape (3, 3) and Ks has (2, 2); give both for the same samples.
    > pair(bias=-1.0)  ->  The bias must be at least 0, and the tolerance from 0 to below 0.1.
    > pair(Z=np.ones((3, 1)))  ->  Z has shape (3, 1); give finite pre-activations with 2 rows.
    > pair(Z=np.ones((2, 1)))
    Z does not realise the pair (relative residual 1.0e+00); leave it out, or raise tolerance.
    """,
)
ROWS += [
    Row(
        f"The stored {what} missing or do{es} not fit the data; certify the run again.",
        lambda _, kind=kind, Y=Y, lam=lam, some=some: read_proof(kind, SHALLOW, 1.0, some).bound(deep(Y, lam)),
    )
    for what, es, kind, Y, lam, wrong in (
        ("edges are", "", Certificate.LAPLACIAN, LAMBDA, None, EDGE | {"pairs": np.array([[0, 99]])}),
        ("flows are", "", Certificate.LAPLACIAN, LAMBDA, 0.1, EDGE | {"flows": np.ones((1, 2, 3))}),
        ("multipliers are", "", Certificate.CONVEXITY, LAMBDA, None, {"multipliers": np.ones((3, 1))}),
        ("pair is", "es", Certificate.ANGLE, LAMBDA, None, {"pair": np.array([0, 99])}),
        ("loop is", "es", Certificate.LOOP, WIDE, None, {"loop": np.arange(2), "plane": np.ones((2, 9))}),
    )
    for some in ({} if lam is None else EDGE, wrong)
]
