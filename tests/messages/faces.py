"""Messages about the three faces of the loss, modules that are not what their weights tell, and arguments of wrong types."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

import covopt
from messages import rows

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2
W = [np.ones((4, 3)), np.ones((1, 5))]
Z = [np.asarray(z) for z in covopt.preactivations(X, W)]
RANDOM = [np.random.default_rng(0).normal(size=A.shape) for A in W]
FLAT = [np.asarray(z) for z in covopt.preactivations(1e-9 * X, RANDOM)]
PAIR = covopt.covariances_of(Z[0])
I6 = np.eye(6)
MANY = covopt.covariances_of(np.random.default_rng(0).standard_normal((8, 30)))


def by_Z(Z: object, **options: object) -> object:
    return covopt.loss_of_representations(X, Y, Z, **({"lam": 0.1} | options))  # type: ignore[arg-type]


def by_K(K: object, Z_L: object = Z[1], **options: object) -> object:
    return covopt.loss_of_covariances(X, Y, K, Z_L, **({"lam": 0.1} | options))  # type: ignore[arg-type]


def net(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 4), *(between or (nn.ReLU(),)), nn.Linear(4, 1)).double()


class Cube(nn.ReLU):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input**3


def hooked() -> nn.Module:
    module = net()
    module[0].register_forward_hook(lambda module, inputs, output: 2.0 * output)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    module[2].weight = module[0].weight
    return module


def audit(make: Callable[[], nn.Module]) -> Callable[[object], object]:
    return lambda here: covopt.validate(make(), X, Y, lam=0.1)


SOLVED = covopt.solve(X, Y, lam=0.1, certify="none", max_iterations=1)
NAMED = covopt.solve(pd.DataFrame(X, columns=["a", "b"]), Y, lam=0.1, certify="none", max_iterations=1)
TWINS = covopt.solve(
    pd.DataFrame(np.hstack([X, Y]), columns=["a", "a", "b"]), Y, lam=0.1, certify="none", max_iterations=1
)


def met_another(here: Path) -> object:
    others = {"later.txt": lambda file: (file.touch(), (here / "run" / "theirs").mkdir(parents=True))}
    return SOLVED.save(here / "run", others=others)


def of_audit(here: Path) -> object:
    network = [np.ones((2, X.shape[1] + 1)), np.ones((Y.shape[1], 3))]
    covopt.validate(network, X, Y, lam=0.1, time_limit=1.0).save(here / "audit")
    return covopt.load(here / "audit")


def emptied_study(here: Path) -> object:
    covopt.compare(X, Y, lam=0.1, methods=["train"], starts=1, max_iterations=1).save(here / "study")
    (here / "study" / "train" / "result.json").unlink()
    return covopt.load(here / "study")


ROWS = rows(
    globals(),
    """
    > covopt.preactivations(X, 5)  ->  W is 5; give a list of matrices, one for each layer.
    > covopt.preactivations(X, [])  ->  W is empty; give one matrix of weights for each layer.
    > covopt.preactivations(X, [W[0], W[1][:, 1:]])  ->  W2 has 4 columns, but it must have 5: 4 inputs and the bias.
    > covopt.preactivations(X, [np.stack([W[0]] * 2), np.stack([W[1]] * 3)])
    The layers of W are batches of different sizes; give one size for all.
    > covopt.preactivations(X, ["a", W[1]])  ->  W1 is 'a', not an array of numbers; give a numeric matrix.
    > covopt.preactivations(X, [torch.ones(4, 3) + 0j, W[1]])
    W1 is complex or sparse; give a dense matrix of real numbers.
    > covopt.preactivations(X, [np.ones(3), W[1]])
    W1 has 1 dimensions; give a matrix, or a batch of matrices with three dimensions.
    > covopt.preactivations(X, [np.nan * W[0], W[1]])  ->  W1 has NaN or infinite entries; remove them.
    > covopt.preactivations(X, W, bias=-1.0)  ->  The bias is -1; give 0 (none), 1 (the usual amount) or 'free'.
    > by_Z(Z, tikhonov=-1.0)  ->  tikhonov is -1; give 0 for the pseudo-inverse, or a number above 0.
    > covopt.loss_of_covariances(1e-9 * X, Y, [covopt.covariances_of(FLAT[0])], FLAT[1])
    K1 holds too few digits for the inverse of the covariance of the inputs, which is nearly singular; take loss_of_representations, which squares nothing, or give a larger tikhonov.
    > by_Z([])  ->  Z is empty; give one matrix of representations for each layer.
    > by_Z([Z[0][:1], Z[1]])  ->  Z1 has 1 row, but X has 6; give a row for each sample.
    > by_Z([I6, Z[1]])
    Z1 cannot be computed from the layer below: ... of its norm lies outside the range of [X, 1]; project it with covopt.project_to_range, or give a tikhonov above 0.
    > covopt.weights_of(X, [Z[0], I6])
    Z2 cannot be computed from the layer below: ... of its norm lies outside the range of [sigma(Z1), 1]; project it with covopt.project_to_range, or give a tikhonov above 0.
    > by_Z([Z[0], np.hstack([Z[1]] * 2)])  ->  The outputs have 2 columns, but Y has 1; they must agree.
    > by_K([I6])  ->  K is not a list of pairs; give a list with one pair (K_l, Ks_l) for each hidden layer.
    > by_K([(np.eye(5), I6)])  ->  K1 has shape (5, 5), but it must have a row and a column for each of the 6 samples.
    > by_K([(np.triu(np.ones((6, 6))), I6)])  ->  K1 is not symmetric; give (A + A^T) / 2 if that is what you mean.
    > by_K([(PAIR[0], np.diag([-1.0, 1, 1, 1, 1, 1]))])
    Ks1 is not positive semi-definite (smallest eigenvalue -1); a covariance has no negative eigenvalue.
    > by_K([(I6, I6)])
    K1 cannot be computed from the layer below: ... of its covariance lies outside the range of the inputs; give covariances of one network, or a tikhonov above 0.
    > by_K([PAIR], Z[1][1:])  ->  Z_L has 5 rows, but X has 6; give a row for each sample.
    > covopt.in_cone(I6, np.eye(5))  ->  K has shape (6, 6) and Ks has (5, 5); give both for the same samples.
    > covopt.in_cone(I6, I6, tolerance=0.5)
    The bias must be at least 0 or 'free', and the tolerance from 0 to below 0.1.
    > covopt.representations_of(np.eye(2), np.diag([2.0, 0.0]), bias=0.0)
    No neurons have these covariances, which is proved; see covopt.in_cone for the witness.
    > covopt.representations_of(*MANY, time_limit=1e-9)
    No neurons with these covariances were found in 1e-09 seconds; give a longer time limit.
    > audit(hooked)(here)  ->  The network has a forward hook (at '0'), which can change its outputs; remove it.
    > audit(lambda: net(Cube()))(here)
    The network has a Cube (at '1') with a forward of its own in place of that of ReLU; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.
    > audit(tied)(here)
    The network's '0.weight' and '2.weight' are the same numbers, which the penalty would count twice; give each layer its own.
    > covopt.solve(torch.tensor(X).to_sparse(), Y, lam=0.1)
    X is a sparse, nested, quantized or meta tensor; give a dense one.
    > covopt.solve(X, torch.ones(6, 1, device="meta"), lam=0.1)
    Y is a sparse, nested, quantized or meta tensor; give a dense one.
    > covopt.solve(X, Y, lam=0.1, skip="no")  ->  skip is 'no'; give true or false.
    > covopt.solve(X, Y, lam=True)  ->  lam is true; give a number.
    > covopt.solve(X, Y, lam="0.1")  ->  lam is '0.1'; give a number.
    > covopt.solve(X, Y, lam=0.1, bias="1")  ->  bias is '1'; give a number.
    > covopt.solve(X, Y, lam=0.1, activation="leaky:")
    The activation 'leaky:' is unknown; use relu, linear, or leaky:A with -1 < A < 1.
    > covopt.solve(X, Y, lam=0.1, method="train", width=10**9)  ->  width is 1000000000; give at most 1,000,000.
    > covopt.solve(X, Y, lam=0.1, callback=3)  ->  callback is 3; give a function.
    > covopt.solve(X, Y, lam=0.1, checkpoint=3)  ->  checkpoint is 3; give the name of a file or directory.
    > SOLVED.predict([[1.0, 2.0], [3.0]])  ->  X is a list, not an array of numbers; give a numeric matrix.
    > NAMED.predict(pd.DataFrame(X, columns=["a", "c"]))
    X has no column b; give the columns that the network was solved with: a, b.
    > NAMED.predict(pd.DataFrame(np.hstack([X, Y]), columns=["a", "b", "c"]))
    X has an unknown column, c; give the columns that the network was solved with: a, b.
    > TWINS.predict(pd.DataFrame(np.hstack([X, Y]), columns=["b", "a", "a"]))
    X has two columns of one name; give the columns in the order of the data.
    > covopt.CovoptRegressor(skip="no").fit(X, Y)  ->  skip is 'no'; give true or false.
    > covopt.sweep({"data": "iris"}, "a.sqlite", jobs=True)  ->  jobs is true; give a whole number.
    > covopt.sweep({"data": "iris"}, "a.sqlite", scheduler=3)  ->  scheduler is 3; give the address of a dask scheduler.
    > SOLVED.optima(3)  ->  other is 3; give a Result of the same question.
    > covopt.forces(3, X=X)  ->  The network is 3; give a Result, or W_1 ... W_L.
    > covopt.path(X, Y, lams=[1.0], test=3)  ->  test is 3; give a pair of held-out inputs and targets.
    > covopt.compare(X, Y, lam=1.0, methods=3)
    The methods to compare are 3; give a list of some of cone, hidden, train.
    > covopt.CovoptRegressorCV(n_lams=0).fit(X, Y)
    n_lams is 0 and eps 0.001; give at least 1, and eps between 0 and 1.
    > covopt.write_report(3)  ->  A report cannot be made of 3; give an answer, or the directory of a stored one.
    > covopt.CovoptRegressor(random_state="x").fit(X, Y)
    random_state is 'x'; give a whole number, a RandomState or none.
    > covopt.read_data("iris", drop=3)  ->  drop is 3; give the names of columns.
    > covopt.cp_rank([[1.0, 2.0], [3.0]])  ->  The matrix is no dense array of numbers; give one.
    > met_another(here)  ->  Another program has written HERE/run meanwhile; this run is in ....
    > of_audit(here)  ->  HERE/audit holds an audit, which does not come back; load HERE/audit/solution.
    > emptied_study(here)
    HERE/study/train holds no run (result.json is missing); give a directory that --out wrote.
    """,
)
