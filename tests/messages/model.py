"""Messages about the question: data in memory, options, weights, representations, solvers."""

from __future__ import annotations

import math

import numpy as np
import torch

import covopt
from covopt.certify.free import FreeExact
from covopt.certify.proofs import read_proof
from covopt.linalg.psd import RankRule
from covopt.model import forces, hidden, loss, stationarity, weights
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.runtime.loop import Budget, Certificate
from covopt.solvers.deep import representations as projected_gradient
from covopt.solvers.training import trainer
from messages import Row

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
    return read_proof(Certificate(kind), True, 0.0, arrays).bound(p)  # type: ignore[arg-type]


ROWS = [
    Row(
        "Free biases are not for this question so far; give the amount of bias as a number.",
        lambda _: make_problem(X, Y, lam=0.1, bias="free"),
    ),
    Row(
        "The method hidden penalises biases; with free biases use the method cone or train.",
        lambda _: solve(bias="free", method="hidden"),
    ),
    Row(
        "The stored dual point is missing or does not have the shape of Y; certify the run again.",
        lambda _: FreeExact(0.0, FREE.Y[:2], 1.0).bound(FREE),
    ),
    Row(
        "A free linear skip comes with free biases; set the bias to 'free', or leave the skip out.",
        lambda _: solve(skip=True),
    ),
    Row(
        "A free linear skip is for mse and exact fits, not for the loss huber; leave it out.",
        lambda _: solve(bias="free", skip=True, loss="huber"),
    ),
    Row("No bound 'laplacian' is known for free biases; solve again.", lambda _: proved("laplacian", 2)),
    Row(
        "The certificate says exact, but no oracle is exact for data of this rank; solve again.",
        lambda _: proved("exact", 4),
    ),
    Row(
        "The certificate 'branch-and-bound' comes without its evidence; solve again.",
        lambda _: proved("branch-and-bound", 4),
    ),
    Row(
        "The certificate 'branch-and-bound' comes without its evidence; solve again.",
        lambda _: proved("branch-and-bound", 4, tree=np.zeros(1, np.uint8), counts=np.ones(2, np.int64)),
    ),
    Row("X has 6 rows and Y has 5; give one row of targets for each row of inputs.", lambda _: solve(X, Y[:5])),
    Row("X holds texts or times, not an array of numbers; give a numeric matrix.", lambda _: solve([["a"]], Y)),
    Row("X is a list, not an array of numbers; give a numeric matrix.", lambda _: solve([[1.0], [1.0, 2.0]], Y)),
    Row("X holds complex numbers; give real ones.", lambda _: solve(np.ones((6, 2), dtype=complex), Y)),
    Row("X holds texts or times, not an array of numbers; give a numeric matrix.", lambda _: solve([["1"]] * 6, Y)),
    Row(
        "Y holds texts and none; give texts alone, without missing ones.",
        lambda _: solve(X, np.array([*"aabba", None], dtype=object)),
    ),
    Row(
        "X has masked entries; fill them, or remove their rows.",
        lambda _: solve(np.ma.masked_greater(np.arange(12.0).reshape(6, 2), 5.0), Y),
    ),
    Row("X holds complex numbers; give real ones.", lambda _: solve(torch.ones(6, 2, dtype=torch.complex128), Y)),
    Row("X has 3 dimensions; give a matrix with one row for each sample.", lambda _: solve(X[:, :, None], Y)),
    Row("X is empty (shape (0, 2)); give at least one row and one column.", lambda _: solve(X[:0], Y[:0])),
    Row(
        "X has NaN or infinite entries (first at row 2, column 0); remove or impute them.",
        lambda _: solve(np.where(X > 3, np.nan, X), Y),
    ),
    Row("X has entries beyond 1e+75; divide it by its largest entry.", lambda _: solve(X * 1e80, Y)),
    Row("X has no entries above 1e-75; divide it by its largest entry.", lambda _: solve(X * 1e-150, Y)),
    Row(
        "lam is 1e-300, which float64 cannot compute with; give a number from 1e-75 to 1e+75.",
        lambda _: solve(lam=1e-300),
    ),
    Row(
        "lam is 0.001, so small beside these data that float64 cannot tell the minimum from an exact fit; give at least 3e+41, or leave lam out for the representation cost.",
        lambda _: exact([[1.0], [2.0]], [[1e70], [3e69]], lam=1e-3),
    ),
    Row(
        "The bias is 1e+300, which float64 cannot compute with; give a number from 1e-75 to 1e+75.",
        lambda _: solve(bias=1e300),
    ),
    Row(
        "The loss cross_entropy needs classes or rows of probabilities, but row 0 of Y is neither; give labels (N,) or one-hot rows, or use the loss mse.",
        lambda _: solve(X, Y, loss="cross_entropy"),
    ),
    Row(
        "The loss 'hinge' is unknown; use one of mse, cross_entropy, interpolate, huber, logistic, or huber:D with D > 0.",
        lambda _: solve(X, Y, loss="hinge"),
    ),
    Row(
        "The loss 7 is unknown; use one of mse, cross_entropy, interpolate, huber, logistic, or huber:D with D > 0.",
        lambda _: solve(X, Y, loss=7),
    ),
    Row(
        "The loss 'huber:-1' has no threshold that float64 computes with; give huber:D with D from 1e-75 to 1e+75.",
        lambda _: solve(X, Y, loss="huber:-1"),
    ),
    Row(
        "A loss of one's own is called 'mse', like one of covopt's; rename it.", lambda _: solve(X, Y, loss=Own("mse"))
    ),
    Row(
        "The loss logistic needs two classes: labels, one column of 0 and 1 or of -1 and 1, or one-hot rows of two; give such targets, or use the loss cross_entropy.",
        lambda _: solve(X, 3.0 * Y, loss="logistic"),
    ),
    Row("The loss 'interpolate' has no curvature; use the loss mse.", lambda _: LOSS.curvatures(Z[1], SHALLOW.Y)),
    Row(
        "sample_weight holds 5 numbers; give one number for each of the 6 rows of X.",
        lambda _: solve(sample_weight=np.ones(5)),
    ),
    Row(
        "sample_weight is -2 at row 3; give weights of at least 0.",
        lambda _: solve(sample_weight=[1.0, 1.0, 1.0, -2.0, 1.0, 1.0]),
    ),
    Row(
        "sample_weight is 0 for all rows; give at least one row a positive weight.",
        lambda _: solve(sample_weight=np.zeros(6)),
    ),
    Row(
        "sample_weight has 1e-13 beside 1; give positive weights of at least 1e-12 of the largest, or 0 to leave a row out.",
        lambda _: solve(sample_weight=[1.0, 1.0, 1.0, 1e-13, 1.0, 1.0]),
    ),
    Row(
        "The loss interpolate takes no lam; leave lam out, or use the loss mse.",
        lambda _: solve(X, Y, loss="interpolate"),
    ),
    Row("The loss mse needs the strength of the penalty; give lam > 0.", lambda _: solve(X, Y, loss="mse", lam=None)),
    Row("lam is -1; give lam > 0, or leave it out for the representation cost.", lambda _: solve(X, Y, lam=-1)),
    Row("lam is 'much'; give a number.", lambda _: solve(X, Y, lam="much")),
    Row("lam is nan; give a finite number.", lambda _: solve(X, Y, lam=float("nan"))),
    Row("The depth is 2.5; give a whole number, at least 2.", lambda _: solve(X, Y, depth=2.5)),
    Row("The depth is 1; give at least 2 (one hidden layer) and at most 1000.", lambda _: solve(X, Y, depth=1)),
    Row(
        "The depth is 1000000000; give at least 2 (one hidden layer) and at most 1000.",
        lambda _: solve(X, Y, depth=10**9),
    ),
    Row("The bias is -1; give 0 (none) or more (1 is the usual one).", lambda _: solve(X, Y, bias=-1)),
    Row("bias is a list; give a number.", lambda _: solve(X, Y, bias=[1.0])),
    Row(
        "The activation 'tanh' is unknown; use relu, linear, or leaky:A with -1 < A < 1.",
        lambda _: solve(X, Y, activation="tanh"),
    ),
    Row(
        "The activation 'leaky:2' is unknown; use relu, linear, or leaky:A with -1 < A < 1.",
        lambda _: solve(X, Y, activation="leaky:2"),
    ),
    Row("The activation's slope is 2; give leaky:A with -1 < A < 1, relu or linear.", lambda _: Activation(2.0)),
    Row("The device 'phone' is unknown; use cpu or cuda.", lambda _: solve(X, Y, device="phone")),
    Row("covopt does not compute on meta; use cpu or cuda.", lambda _: solve(X, Y, device="meta")),
    Row("There is no CUDA device (cuda:99) here that torch can use; use cpu.", lambda _: solve(X, Y, device="cuda:99")),
    Row("The method 'magic' is unknown; use cone or hidden or train.", lambda _: solve(X, Y, method="magic")),
    Row(
        "'maybe' is no level of certification; use none or fast or full or auto.",
        lambda _: solve(X, Y, certify="maybe"),
    ),
    Row("The gap is 1; give a number from 0 to below 1.", lambda _: solve(X, Y, gap=1)),
    Row("The gap is an array; give a number from 0 to below 1.", lambda _: solve(X, Y, gap=X)),
    Row(
        "The tolerance is 0; give a number between 0 and 1, or leave it out.",
        lambda _: covopt.CovoptRegressor(tol=0).fit(X, Y),
    ),
    Row("The tolerance is 'low'; give a number between 0 and 1, or leave it out.", lambda _: solve(X, Y, tol="low")),
    Row("The time limit is 0; give seconds above 0.", lambda _: solve(X, Y, time_limit=0)),
    Row("The time limit is 0; give seconds above 0.", lambda _: covopt.copositivity(np.eye(2), time_limit=0)),
    Row("The memory limit is '1'; give GB above 0, or leave it out.", lambda _: solve(X, Y, memory_limit="1")),
    Row("The memory limit is a list; give GB above 0, or leave it out.", lambda _: solve(X, Y, memory_limit=[1.0])),
    Row("The memory limit is nan; give GB above 0, or leave it out.", lambda _: solve(X, Y, memory_limit=math.nan)),
    Row("The memory limit is true; give GB above 0, or leave it out.", lambda _: solve(X, Y, memory_limit=True)),
    Row("The memory limit is -2.0; give GB above 0, or leave it out.", lambda _: solve(X, Y, memory_limit=-2.0)),
    Row(
        "The solve needs at least about ... of memory, and the limit is 0.01 GB, less than the ... of the process without data; raise the limit.",
        lambda _: solve(X, Y, memory_limit=0.01),
    ),
    Row(
        "The solve needs at least about ... of memory, and the limit is 2 GB; take fewer rows, spread them over more processes, or raise the limit.",
        lambda _: solve(LARGE, LARGE[:, :1], memory_limit=2),
    ),
    Row("The seed is -1; give a whole number from 0 to 2^63 - 1.", lambda _: solve(X, Y, seed=-1)),
    Row("width is 0; give a whole number, at least 1, or leave it out.", lambda _: solve(X, Y, width=0)),
    Row("max_width is 1.5; give a whole number, at least 1, or leave it out.", lambda _: solve(X, Y, max_width=1.5)),
    Row("starts is true; give a whole number, at least 1, or leave it out.", lambda _: solve(X, Y, starts=True)),
    Row(
        "max_iterations is 'many'; give a whole number, at least 1, or leave it out.",
        lambda _: solve(X, Y, max_iterations="many"),
    ),
    Row("init is 'weights'; give a Result, or arrays of numbers W_1 ... W_L.", lambda _: solve(X, Y, init="weights")),
    Row(
        "The network has 1 layer of weights and the problem's depth is 2; give one matrix for each layer.",
        lambda _: solve(X, Y, init=W[:1]),
    ),
    Row(
        "W1 has shape (4, 2), but it must have 3 columns: 2 inputs and the bias.",
        lambda _: solve(X, Y, init=[W[0][:, :2], W[1]]),
    ),
    Row("W2 has 3 rows, but Y has 1 column; they must agree.", lambda _: solve(X, Y, init=[W[0], torch.ones(3, 5)])),
    Row(
        "W1 has NaN or infinite entries; train the network again.", lambda _: solve(X, Y, init=[W[0] * torch.nan, W[1]])
    ),
    # Fitting exactly.
    Row(
        "Rows 0 and 1 of X are equal but their targets differ, so no network fits them; drop or average such rows, or give lam and a loss.",
        lambda _: exact([[1, 2], [1, 2]], [0, 1]),
    ),
    Row(
        "Y is outside the range of [X, beta 1], so no linear network fits it; use relu, or give lam and a loss.",
        lambda _: exact([[1], [2], [3]], [0, 1, 0], activation="linear"),
    ),
    Row(
        "Row 0 of X is zero but its target is not, and without bias every network is zero there; give a bias, or lam and a loss.",
        lambda _: exact([[0, 0], [1, 2]], [1, 1], bias=0.0),
    ),
    Row(
        "Rows 0 and 1 of X lie on one ray (x_1 = 2 x_0) but their targets do not scale alike, as they must without bias; give a bias, or lam and a loss.",
        lambda _: exact([[1, 2], [2, 4]], [1, 1], bias=0.0),
    ),
    Row(
        "Y is outside the span of the atoms: on opposite rows of X (x_j = -c x_i, c > 0) the odd part of the targets is not linear in X, so no network of depth 2 without bias fits; give a bias, depth 3, or lam and a loss.",
        lambda _: exact([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]], [1, 0, 1, 0, 0, 0], bias=0.0),
    ),
    # Answers, and the forms of the model.
    Row(
        "X has shape (6, 1), but the network takes 2 columns.",
        lambda _: covopt.solve(X, Y, lam=0.1, max_iterations=1).predict(X[:, :1]),
    ),
    Row(
        "There is no layer 3; give one from 1 to 2.",
        lambda _: covopt.solve(X, Y, lam=0.1, max_iterations=1).representations(3),
    ),
    Row(
        "Layer 2 is no hidden layer; give one from 1 to 1.",
        lambda _: covopt.solve(X, Y, lam=0.1, max_iterations=1).forces(2),
    ),
    Row("Weights alone do not say on which inputs; give X.", lambda _: covopt.forces([*W], X=None)),
    Row("The network has 1 layer of weights; give W_1 ... W_L, at least two.", lambda _: covopt.forces(W[:1], X=X)),
    Row(
        "This result holds no network yet; solve before drawing it.",
        lambda _: covopt.Result(SHALLOW, "cone", "fast", 0).plot(),
    ),
    Row(
        "This result holds no network yet; solve before saving.",
        lambda here: covopt.Result(SHALLOW, "cone", "fast", 0).save(here / "run"),
    ),
    Row(
        "This result holds no network yet; solve before asking for the set of optima.",
        lambda _: covopt.Result(SHALLOW, "cone", "fast", 0).unique,
    ),
    Row(
        "Mixtures are of networks of two layers, and these have 3; ask this of depth 2.",
        lambda _: solve(depth=3, max_iterations=1).optima(),
    ),
    Row(
        "The number of steps is 1; give a whole number of at least 2.",
        lambda _: solve(max_iterations=1).optima(steps=1),
    ),
    Row(
        "Whether there are other optima is not decided (Uniqueness is decided for the mean squared error only); give"
        " the other network.",
        lambda _: solve(loss="huber", max_iterations=1).optima(),
    ),
    Row(
        "The network has 2 layers of weights and the problem's depth is 3; give one matrix for each layer.",
        lambda _: weights.check_weights(DEEP, W),
    ),
    Row("Layer 2 is no hidden layer; give one from 1 to 1.", lambda _: forces.layer_forces(SHALLOW, Z, 2)),
    Row(
        "There are 2 representations and the problem's depth is 3; give one for each layer.",
        lambda _: hidden.check_representations(DEEP, Z),
    ),
    Row(
        "Z1 has shape (5, 4), but it must have one row for each of the 6 samples.",
        lambda _: hidden.check_representations(SHALLOW, [Z[0][:5], Z[1]]),
    ),
    Row(
        "Z2 has 4 columns, but Y has 1; they must agree.", lambda _: hidden.check_representations(SHALLOW, [Z[0], Z[0]])
    ),
    Row(
        "The loss 'interpolate' has no gradient; use its multiplier Lambda, or the loss mse.",
        lambda _: LOSS.gradients(Z[1], SHALLOW.Y),
    ),
    Row(
        "The loss interpolate has no gradient; give its multiplier Lambda, or use mse.",
        lambda _: stationarity.duals(COST, W),
    ),
    Row(
        "There is no hidden layer 2; give one from 1 to 1.",
        lambda _: stationarity.add_neuron(SHALLOW, W, 2, W[0][0], W[1][0], 1.0),
    ),
    Row("The rank tolerances are relative; give numbers from 0 to below 1.", lambda _: RankRule(single=2.0)),
    Row("The rank rule's tikhonov must be finite and not negative.", lambda _: RankRule(tikhonov=-1.0)),
    # Other methods than the cone.
    Row(
        "Training needs a penalty, and interpolate has none; give lam, or use the method cone.",
        lambda _: covopt.solve(np.eye(6), Y, method="train"),
    ),
    Row("There is no network to train; give at least one width and one seed.", lambda _: trainer.train(SHALLOW, [])),
    Row("The widths 3 do not fit depth 3; give 2 of at least 1.", lambda _: trainer.train(DEEP, [(3,)])),
    Row(
        "There are 0 starts; give at least 1 of each.",
        lambda _: projected_gradient.descend_best(SHALLOW, Budget(1.0), starts=0),
    ),
    Row(
        "The start's last hidden layer, of width 1, does not span the targets; give a larger width, at least the number of samples, or a network that fits to start from.",
        lambda _: covopt.solve(np.eye(6), np.eye(6), method="hidden", width=1),
    ),
]
