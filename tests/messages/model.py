"""Messages about the question: data in memory, options, weights, representations, solvers."""

import math

import numpy as np
import torch

import covopt
from covopt.certify.dual import Exact
from covopt.certify.proofs import read_proof
from covopt.linalg.psd import RankRule
from covopt.model import forces, hidden, loss, stationarity, weights
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.runtime.loop import Budget, Certificate
from covopt.solvers.deep import representations as projected_gradient
from covopt.solvers.training import trainer
from messages import rows

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2
SHALLOW, DEEP = make_problem(X, Y, lam=0.1), make_problem(X, Y, lam=0.1, depth=3)
COST = make_problem(X, Y)
W = [torch.ones(4, 3, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)]
Z = [torch.ones(6, 4, dtype=torch.float64), torch.ones(6, 1, dtype=torch.float64)]
RELU = Activation(0.0)

LOSS = loss.parse_loss("interpolate")


class Own:
    """A loss of one's own, no descendant of covopt's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = self.gradients = self.curvatures = self.conjugates = torch.add


def solve(X: object = X, Y: object = Y, **options: object) -> object:
    return covopt.solve(X, Y, **({"lam": 0.1, "time_limit": 1.0} | options))  # type: ignore[arg-type]


def exact(X: object, Y: object, **options: object) -> object:
    return covopt.solve(np.array(X, dtype=float), np.array(Y, dtype=float), **options)  # type: ignore[arg-type]


FREE = make_problem(X, Y, lam=0.1, bias="free", free=True)
LARGE = np.broadcast_to(np.ones(1000), (250_000, 1000))  # 2 GB, were it copied
FOUR = np.random.default_rng(0).standard_normal((6, 4))


def proved(kind: str, rank: int, **evidence: object) -> object:
    """What a stored dual point of free biases proves."""
    p = make_problem(FOUR[:, :rank], Y, lam=0.1, bias="free", free=True)
    arrays = {"Lambda": p.Y.numpy(), "maximum": np.ones(1), **evidence}
    return read_proof(Certificate(kind), p, 0.0, arrays).bound(p)  # type: ignore[arg-type]


ROWS = rows(
    globals(),
    """
    > make_problem(X, Y, lam=0.1, bias="free")
    Free biases are not for this question so far; give the amount of bias as a number.
    > solve(bias="free", method="hidden")
    The method hidden penalises biases; with free biases use the method cone or train.
    > Exact(0.0, FREE.Y[:2], 1.0).bound(FREE)
    The stored dual point is missing or does not have the shape of Y; certify the run again.
    > solve(skip=True)  ->  A free linear skip comes with free biases; set the bias to 'free', or leave the skip out.
    > solve(bias="free", skip=True, loss="huber")
    A free linear skip is for mse and exact fits, not for the loss huber; leave it out.
    > proved("laplacian", 2)  ->  No bound 'laplacian' is known for free biases; solve again.
    > proved("exact", 4)  ->  The certificate says exact, but no oracle is exact for data of this rank; certify the run again.
    > proved("branch-and-bound", 4)  ->  The certificate 'branch-and-bound' comes without its evidence; certify the run again.
    > proved("branch-and-bound", 4, tree=np.zeros(1, np.uint8), counts=np.ones(2, np.int64))
    The certificate 'branch-and-bound' comes without its evidence; certify the run again.
    > solve(X, Y[:5])  ->  X has 6 rows and Y has 5; give one row of targets for each row of inputs.
    > solve([["a"]], Y)  ->  X holds texts or times, not an array of numbers; give a numeric matrix.
    > solve([[1.0], [1.0, 2.0]], Y)  ->  X is a list, not an array of numbers; give a numeric matrix.
    > solve(np.ones((6, 2), dtype=complex), Y)  ->  X holds complex numbers; give real ones.
    > solve([["1"]] * 6, Y)  ->  X holds texts or times, not an array of numbers; give a numeric matrix.
    > solve(X, np.array([*"aabba", None], dtype=object))
    Y holds texts and none; give texts alone, without missing ones.
    > solve(np.ma.masked_greater(np.arange(12.0).reshape(6, 2), 5.0), Y)
    X has masked entries; fill them, or remove their rows.
    > solve(torch.ones(6, 2, dtype=torch.complex128), Y)  ->  X holds complex numbers; give real ones.
    > solve(X[:, :, None], Y)  ->  X has 3 dimensions; give a matrix with one row for each sample.
    > solve(X[:0], Y[:0])  ->  X is empty (shape (0, 2)); give at least one row and one column.
    > solve(np.where(X > 3, np.nan, X), Y)
    X has NaN or infinite entries (first at row 2, column 0); remove or impute them.
    > solve(X * 1e80, Y)  ->  X has entries beyond 1e+75; divide it by its largest entry.
    > solve(X * 1e-150, Y)  ->  X has no entries above 1e-75; divide it by its largest entry.
    > solve(lam=1e-300)  ->  lam is 1e-300, which float64 cannot compute with; give a number from 1e-75 to 1e+75.
    > exact([[1.0], [2.0]], [[1e70], [3e69]], lam=1e-3)
    lam is 0.001, so small beside these data that float64 cannot tell the minimum from an exact fit; give at least 3e+41, or leave lam out for the representation cost.
    > solve(bias=1e300)  ->  The bias is 1e+300, which float64 cannot compute with; give a number from 1e-75 to 1e+75.
    > solve(X, Y, loss="cross_entropy")
    The loss cross_entropy needs classes or rows of probabilities, but row 0 of Y is neither; give labels (N,) or one-hot rows, or use the loss mse.
    > solve(X, Y, loss="hinge")
    The loss 'hinge' is unknown; use one of mse, cross_entropy, interpolate, huber, logistic, or huber:D with D > 0.
    > solve(X, Y, loss=7)
    The loss 7 is unknown; use one of mse, cross_entropy, interpolate, huber, logistic, or huber:D with D > 0.
    > solve(X, Y, loss="huber:-1")
    The loss 'huber:-1' has no threshold that float64 computes with; give huber:D with D from 1e-75 to 1e+75.
    > solve(X, Y, loss=Own("mse"))  ->  A loss of one's own is called 'mse', like one of covopt's; rename it.
    > solve(X, 3.0 * Y, loss="logistic")
    The loss logistic needs two classes: labels, one column of 0 and 1 or of -1 and 1, or one-hot rows of two; give such targets, or use the loss cross_entropy.
    > LOSS.curvatures(Z[1], SHALLOW.Y)  ->  The loss 'interpolate' has no curvature; use the loss mse.
    > solve(sample_weight=np.ones(5))  ->  sample_weight holds 5 numbers; give one number for each of the 6 rows of X.
    > solve(sample_weight=[1.0, 1.0, 1.0, -2.0, 1.0, 1.0])
    sample_weight is -2 at row 3; give weights of at least 0.
    > solve(sample_weight=np.zeros(6))  ->  sample_weight is 0 for all rows; give at least one row a positive weight.
    > solve(sample_weight=[1.0, 1.0, 1.0, 1e-13, 1.0, 1.0])
    sample_weight has 1e-13 beside 1; give positive weights of at least 1e-12 of the largest, or 0 to leave a row out.
    > solve(X, Y, loss="interpolate")  ->  The loss interpolate takes no lam; leave lam out, or use the loss mse.
    > solve(X, Y, loss="mse", lam=None)  ->  The loss mse needs the strength of the penalty; give lam > 0.
    > solve(X, Y, lam=-1)  ->  lam is -1; give lam > 0, or leave it out for the representation cost.
    > solve(X, Y, lam="much")  ->  lam is 'much'; give a number.
    > solve(X, Y, lam=float("nan"))  ->  lam is nan; give a finite number.
    > solve(X, Y, depth=2.5)  ->  The depth is 2.5; give a whole number, at least 2.
    > solve(X, Y, depth=1)  ->  The depth is 1; give at least 2 (one hidden layer) and at most 1000.
    > solve(X, Y, depth=10**9)  ->  The depth is 1000000000; give at least 2 (one hidden layer) and at most 1000.
    > solve(X, Y, bias=-1)  ->  The bias is -1; give 0 (none) or more (1 is the usual one).
    > solve(X, Y, bias=[1.0])  ->  bias is a list; give a number.
    > solve(X, Y, activation="tanh")
    The activation 'tanh' is unknown; use relu, linear, or leaky:A with -1 < A < 1.
    > solve(X, Y, activation="leaky:2")
    The activation 'leaky:2' is unknown; use relu, linear, or leaky:A with -1 < A < 1.
    > Activation(2.0)  ->  The activation's slope is 2; give leaky:A with -1 < A < 1, relu or linear.
    > solve(X, Y, device="phone")  ->  The device 'phone' is unknown; use cpu or cuda.
    > solve(X, Y, device="meta")  ->  covopt does not compute on meta; use cpu or cuda.
    > solve(X, Y, device="cuda:99")  ->  There is no CUDA device (cuda:99) here that torch can use; use cpu.
    > solve(X, Y, method="magic")  ->  The method 'magic' is unknown; use cone or hidden or train.
    > solve(X, Y, certify="maybe")  ->  'maybe' is no level of certification; use none or fast or full or auto.
    > solve(X, Y, gap=1)  ->  The gap is 1; give a number from 0 to below 1.
    > solve(X, Y, gap=X)  ->  The gap is an array; give a number from 0 to below 1.
    > covopt.CovoptRegressor(tol=0).fit(X, Y)  ->  The tolerance is 0; give a number between 0 and 1, or leave it out.
    > solve(X, Y, tol="low")  ->  The tolerance is 'low'; give a number between 0 and 1, or leave it out.
    > solve(X, Y, time_limit=0)  ->  The time limit is 0; give seconds above 0.
    > covopt.copositivity(np.eye(2), time_limit=0)  ->  The time limit is 0; give seconds above 0.
    > solve(X, Y, memory_limit="1")  ->  The memory limit is '1'; give GB above 0, or leave it out.
    > solve(X, Y, memory_limit=[1.0])  ->  The memory limit is a list; give GB above 0, or leave it out.
    > solve(X, Y, memory_limit=math.nan)  ->  The memory limit is nan; give GB above 0, or leave it out.
    > solve(X, Y, memory_limit=True)  ->  The memory limit is true; give GB above 0, or leave it out.
    > solve(X, Y, memory_limit=-2.0)  ->  The memory limit is -2.0; give GB above 0, or leave it out.
    > solve(X, Y, memory_limit=0.01)
    The solve needs at least about ... of memory, and the limit is 0.01 GB, less than the ... of the process without data; raise the limit.
    > solve(LARGE, LARGE[:, :1], memory_limit=2)
    The solve needs at least about ... of memory, and the limit is 2 GB; take fewer rows, spread them over more processes, or raise the limit.
    > solve(X, Y, seed=-1)  ->  The seed is -1; give a whole number from 0 to 2^63 - 1.
    > solve(X, Y, width=0)  ->  width is 0; give a whole number, at least 1, or leave it out.
    > solve(X, Y, max_width=1.5)  ->  max_width is 1.5; give a whole number, at least 1, or leave it out.
    > solve(X, Y, starts=True)  ->  starts is true; give a whole number, at least 1, or leave it out.
    > solve(X, Y, max_iterations="many")
    max_iterations is 'many'; give a whole number, at least 1, or leave it out.
    > solve(X, Y, init="weights")  ->  init is 'weights'; give a Result, or arrays of numbers W_1 ... W_L.
    > solve(X, Y, init=W[:1])
    The network has 1 layer of weights and the problem's depth is 2; give one matrix for each layer.
    > solve(X, Y, init=[W[0][:, :2], W[1]])  ->  W1 has shape (4, 2), but it must have 3 columns: 2 inputs and the bias.
    > solve(X, Y, init=[W[0], torch.ones(3, 5)])  ->  W2 has 3 rows, but Y has 1 column; they must agree.
    > solve(X, Y, init=[W[0] * torch.nan, W[1]])  ->  W1 has NaN or infinite entries; train the network again.
    # Fitting exactly.
    > exact([[1, 2], [3, 4], [1, 2]], [0, 1, 2])
    Rows 0 and 2 of X are equal but their targets differ, so no network fits them; drop or average such rows, or give lam and a loss.
    > exact([[1], [2], [3]], [0, 1, 0], activation="linear")
    Y is outside the range of [X, beta 1], so no linear network fits it; use relu, or give lam and a loss.
    > exact([[0, 0], [1, 2]], [1, 1], bias=0.0)
    Row 0 of X is zero but its target is not, and without bias every network is zero there; give a bias, or lam and a loss.
    > exact([[1, 2], [2, 4]], [1, 1], bias=0.0)
    Rows 0 and 1 of X lie on one ray (x_1 = 2 x_0) but their targets do not scale alike, as they must without bias; give a bias, or lam and a loss.
    > exact([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]], [1, 0, 1, 0, 0, 0], bias=0.0)
    Y is outside the span of the atoms: on opposite rows of X (x_j = -c x_i, c > 0) the odd part of the targets is not linear in X, so no network of depth 2 without bias fits; give a bias, depth 3, or lam and a loss.
    # Answers, and the forms of the model.
    > covopt.solve(X, Y, lam=0.1, max_iterations=1).predict(X[:, :1])
    X has shape (6, 1), but the network takes 2 columns.
    > covopt.solve(X, Y, lam=0.1, max_iterations=1).representations(3)  ->  There is no layer 3; give one from 1 to 2.
    > covopt.solve(X, Y, lam=0.1, max_iterations=1).forces(2)  ->  Layer 2 is no hidden layer; give one from 1 to 1.
    > covopt.forces([*W], X=None)  ->  Weights alone do not say on which inputs; give X.
    > covopt.forces(W[:1], X=X)  ->  The network has 1 layer of weights; give W_1 ... W_L, at least two.
    > covopt.Result(SHALLOW, "cone", "fast", 0).plot()  ->  This result holds no network yet; solve before drawing it.
    > covopt.Result(SHALLOW, "cone", "fast", 0).save(here / "run")
    This result holds no network yet; solve before saving.
    > covopt.Result(SHALLOW, "cone", "fast", 0).unique
    This result holds no network yet; solve before asking for the set of optima.
    > solve(depth=3, max_iterations=1).optima()
    Mixtures are of networks of two layers, and these have 3; ask this of depth 2.
    > solve(max_iterations=1).optima(steps=1)  ->  The number of steps is 1; give a whole number of at least 2.
    > solve(loss="huber", max_iterations=1).optima()
    Whether there are other optima is not decided (Uniqueness is decided for the mean squared error only); give the other network.
    > weights.check_weights(DEEP, W)
    The network has 2 layers of weights and the problem's depth is 3; give one matrix for each layer.
    > forces.layer_forces(SHALLOW, Z, 2)  ->  Layer 2 is no hidden layer; give one from 1 to 1.
    > hidden.check_representations(DEEP, Z)
    There are 2 representations and the problem's depth is 3; give one for each layer.
    > hidden.check_representations(SHALLOW, [Z[0][:5], Z[1]])
    Z1 has shape (5, 4), but it must have one row for each of the 6 samples.
    > hidden.check_representations(SHALLOW, [Z[0], Z[0]])  ->  Z2 has 4 columns, but Y has 1; they must agree.
    > LOSS.gradients(Z[1], SHALLOW.Y)
    The loss 'interpolate' has no gradient; use its multiplier Lambda, or the loss mse.
    > stationarity.duals(COST, W)  ->  The loss interpolate has no gradient; give its multiplier Lambda, or use mse.
    > stationarity.add_neuron(SHALLOW, W, 2, W[0][0], W[1][0], 1.0)
    There is no hidden layer 2; give one from 1 to 1.
    > RankRule(single=2.0)  ->  The rank tolerances are relative; give numbers from 0 to below 1.
    > RankRule(tikhonov=-1.0)  ->  The rank rule's tikhonov must be finite and not negative.
    # Other methods than the cone.
    > covopt.solve(np.eye(6), Y, method="train")
    Training needs a penalty, and interpolate has none; give lam, or use the method cone.
    > trainer.train(SHALLOW, [])  ->  There is no network to train; give at least one width and one seed.
    > trainer.train(DEEP, [(3,)])  ->  The widths 3 do not fit depth 3; give 2 of at least 1.
    > projected_gradient.descend_best(SHALLOW, Budget(1.0), starts=0)  ->  There are 0 starts; give at least 1 of each.
    > covopt.solve(np.eye(6), np.eye(6), method="hidden", width=1)
    The start's last hidden layer, of width 1, does not span the targets; give a larger width, at least the number of samples, or a network that fits to start from.
    """,
)
