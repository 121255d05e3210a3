"""The problem: data, loss, penalty, depth, bias and activation; checked once, immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from covopt.data.coding import Coding, labels_of
from covopt.model.activation import Activation
from covopt.model.biases import PENALISED, Biases, Free, FreeWithSkip, read_amount, read_biases, with_bias
from covopt.model.loss import (
    Likelihood,
    Loss,
    ManyOutputs,
    Outputs,
    Weight,
    hessians,
    mean_gradient,
    mean_loss,
    parse_loss,
)
from covopt.model.reading import as_matrix, as_weights, of_mean_one, parse_device
from covopt.model.scalars import read_depth, read_strength
from covopt.model.spread import ALONE, Alone
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Whole

FITS, FITS_DEEP = 1e-10, 1e-7
"""An exact fit misses the targets by no more than this, relative to the largest: for two layers, and for more, where
descents compare values, which do not resolve a misfit below about 1e-8. It is one number for what is feasible, for the
networks that count and for the bounds on them: data that float64 cannot tell apart have no other sound meaning."""
LARGEST_SINGLE_BIAS = 1e12
"""Up to this bias float32 holds the sum of the squares of the biases of a million samples."""


@dataclass(frozen=True, eq=False)
class Problem:
    """min C(Z_L) + lam sum_l |W_l|_F^2 over networks of the given depth (MATH.md section 1).

    With the loss `interpolate`, lam is 1 and the value is the representation cost R(X, Y; L, beta).
    """

    X: Float[Tensor, "N n0"]  # inputs (N, n_0)
    Y: Float[Tensor, "N nL"]  # targets (N, n_L)
    loss: Loss  # C
    lam: float  # the strength lam > 0
    depth: int  # L >= 2
    beta: float  # the amount of bias, >= 0
    activation: Activation  # sigma_a
    fits: float = FITS  # the misfit of a network that counts as an exact fit, relative to the largest target
    # layer l appends beta taper^l 1 to its outputs, l = 0 ... L - 1. It is 1 in every problem that a user asks, and
    # another number in other units (units.py)
    taper: float = 1.0
    # of the samples, positive and of mean 1 (N,); None where all are equal, and for `interpolate`
    weight: Weight = None
    # True if the penalty is on them: without them it is sum_l |A_l|_F^2, W_l = [A_l, b_l], and beta is 1; with a
    # skip, W_L = [A_L, S, b_L] acts on Zs_{L-1} = [sigma(Z_{L-1}), X, 1], and S is free too
    biases: Biases = PENALISED
    # of processes that each hold rows of X and Y of their own: N and C are of all rows, arrays over samples of these
    spread: Alone = ALONE
    # what the outputs stand for, in the order of the labels that Y was made of; None where Y was numbers
    classes: tuple[str, ...] | None = None

    @property
    def samples(self) -> int:
        """Return N."""
        return self.spread.samples(self.X.shape[0])

    @cached_property
    def shares(self) -> Float[Tensor, " N"]:
        """Return q_i = w_i / N, so that C(F) = sum_i q_i c(F_i, Y_i); in float64, for proofs."""
        return 1.0 / self.inverse_shares

    @cached_property
    def inverse_shares(self) -> Float[Tensor, " N"]:
        """Return 1 / q_i, N without weights; in float64."""
        weight = self.Y.new_ones(len(self.Y)) if self.weight is None else self.weight
        return self.samples / weight.double()

    def loss_at(self, F: ManyOutputs) -> Float[Tensor, "*networks"]:
        """Return C(F), one number for each network."""
        if self.spread is not ALONE and F.ndim == 2:
            return self.spread.sum(lambda F, Y: self.loss.values(F, Y).sum(), F, self.Y) / self.samples
        if self.spread is not ALONE:  # the rows are not what its first numbers count
            return self.spread.added(mean_loss(self.loss, F, self.Y, None) * (len(self.Y) / self.samples))
        return mean_loss(self.loss, F, self.Y, self.weight)

    def gradient_at(self, F: ManyOutputs) -> ManyOutputs:
        """Return grad C(F), in the shape of F."""
        slopes = mean_gradient(self.loss, F, self.Y, self.weight)
        return slopes if self.spread is ALONE else slopes * (len(self.Y) / self.samples)

    def hessians_at(self, F: Outputs) -> Float[Tensor, "N nL nL"]:
        """Return the second derivatives of C in the outputs of each sample."""
        return self.shares.to(F)[:, None, None] * hessians(self.loss, F, self.Y)

    def multiplier_at(self, F: Outputs) -> Outputs | None:
        """Return -grad C(F) / (2 lam), the dual point of outputs F; None for exact fits, whose outputs tell none."""
        return None if self.interpolates else self.gradient_at(F) / (-2.0 * self.lam)

    def conjugate_at(self, G: Float[Tensor, "N nL"]) -> Float[Tensor, ""]:
        """Return C*(G) = sum_i q_i c*(G_i / q_i); infinite outside its domain."""
        return (self.shares * self.loss.conjugates(G * self.inverse_shares[:, None], self.Y)).sum()

    def on(self, rows: Int[Tensor, " n"] | slice) -> Problem:
        """Return the same problem on some of the samples, with their weights as they are; views for a slice."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], weight=weight)

    def evenly(self, count: int) -> Problem:
        """Return the same problem on at most `count` samples of all processes, evenly spaced in each."""

        def spaced(rows: int, count: int) -> Int[Tensor, " k"]:
            return torch.arange(0, rows, -(-rows // count), device=self.X.device)

        rows, spread = self.spread.some(spaced, len(self.X), count)
        return replace(self.on(rows), spread=spread)

    def to(self, where: torch.dtype | torch.device) -> Problem:
        """Return the same problem with data of another dtype or on another device."""
        weight = None if self.weight is None else self.weight.to(where)
        return replace(self, X=self.X.to(where), Y=self.Y.to(where), weight=weight)

    def weighted(self, A: Float[Tensor, "k n"], rows: Int[Tensor, " k"] | None = None) -> Float[Tensor, "k n"]:
        """Return rows of A, of all samples or `rows`, times w_i^(1/2): then mse is |F - Y|^2 / N."""
        if self.weight is None:
            return A
        weight = self.weight if rows is None else self.weight[rows]
        return weight.to(A).sqrt()[:, None] * A

    def mean(self, A: Float[Tensor, "N n"]) -> Float[Tensor, " n"]:
        """Return sum_i w_i A_i / sum_i w_i."""
        if self.weight is None:
            return A.mean(dim=0) if self.spread is ALONE else self.spread.sum(lambda A: A.sum(dim=0), A) / self.samples
        return (self.weight.to(A) @ A) / self.weight.to(A).sum()

    def shapes(self, widths: Sequence[int]) -> list[tuple[int, int]]:
        """Return the shapes of W_1 ... W_L, without a skip, for hidden layers of these widths."""
        return [(n, below + 1) for below, n in pairwise([self.X.shape[1], *widths, self.Y.shape[1]])]

    @property
    def interpolates(self) -> bool:
        """Return True if the problem is the representation cost (F = Y exactly)."""
        return self.loss.name == "interpolate"

    @property
    def smooth_loss(self) -> Loss:
        """Return the loss, or for exact fits mse, whose limit lam = 0 they are."""
        return parse_loss("mse") if self.interpolates else self.loss

    @property
    def ridge(self) -> float | None:
        """Return mu of the least squares |F - Y|^2 + mu |V|^2 that give the best outputs; None for other losses."""
        return 0.0 if self.interpolates else self.samples * self.lam if self.loss.name == "mse" else None

    @property
    def can_be_split(self) -> bool:
        """Return True if batches or processes can take some samples each, with penalised biases."""
        return not (self.interpolates or self.free or self.activation.is_linear)

    @property
    def fits_single(self) -> bool:
        """Return True if float32 holds sums of squares of the biases."""
        return max(self.bias(layer) for layer in range(self.depth)) < LARGEST_SINGLE_BIAS

    def double(self) -> Problem:
        """Return the same problem with data in float64."""
        return self.to(torch.float64)

    @property
    def stated_bias(self) -> float | str:
        """Return the amount of bias as a user states it."""
        return self.biases.stated(self.beta)

    @property
    def stated_lam(self) -> float | None:
        """Return lam as a user states it; None for exact fits."""
        return None if self.interpolates else self.lam

    def stated(self) -> dict[str, object]:
        """Return all options as a user states them, the data apart."""
        return {
            "depth": self.depth,
            "bias": self.stated_bias,
            "skip": self.skip,
            "loss": self.loss.name,
            "lam": self.stated_lam,
            "activation": self.activation.name,
        }

    def arrays(self) -> dict[str, NDArray]:
        """Return the data and all options as arrays for a file; the lam of exact fits is 1."""
        tensors = {"X": self.X, "Y": self.Y} | ({} if self.weight is None else {"weights": self.weight})
        options = self.stated() | {"lam": self.lam}
        return {name: A.cpu().numpy() for name, A in tensors.items()} | {k: np.array(v) for k, v in options.items()}

    def decayed(self, weights: Sequence[Float[Tensor, "_ _"]]) -> list[Float[Tensor, "_ _"]]:
        """Return the penalised part of each layer's weights, as views."""
        return self.biases.decayed(weights, self.X.shape[1])

    @property
    def has_blocks(self) -> bool:
        """Return True if two layers around a hidden one are a problem of their own (MATH.md section 3)."""
        return not self.free

    @property
    def least_decay(self) -> float:
        """Return lam if a loss has all weights beside it penalised, else 0."""
        return 0.0 if self.free or self.interpolates else self.lam

    def penalised(self, W: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
        """Return weights (the last layer's without a skip), with 0 where they are unpenalised."""
        return self.biases.penalised(W)

    def without_skip(self, weights: Sequence[Float[Tensor, "_ _"]]) -> list[Float[Tensor, "_ _"]]:
        """Return W_1 ... W_L without the columns of an unpenalised linear skip."""
        if not self.skip:
            return list(weights)
        return [*weights[:-1], torch.cat([self.decayed(weights)[-1], weights[-1][:, -1:]], dim=1)]

    def bias(self, layer: int) -> float:
        """Return the entries of the bias column of Zs_l, l = `layer` = 0 ... L - 1."""
        return self.beta * self.taper**layer

    def appended(self, Z: Float[Tensor, "N n"], layer: int, X: Tensor | None = None) -> Float[Tensor, "N d"]:
        """Return Zs_l = [sigma(Z_l), bias column] of hidden layer l = `layer` = 1 ... L - 1.

        With a skip, X too in the last hidden layer: the inputs (N, n_0) that Z_l is of, by default those of the
        problem.
        """
        inputs = self.biases.skipped(self.X if X is None else X) if layer == self.depth - 1 else Z[:, :0]
        return torch.cat([self.activation(Z), inputs, Z.new_full((len(Z), 1), self.bias(layer))], dim=1)

    @property
    def free(self) -> bool:
        """Return True if the penalty is not on biases."""
        return isinstance(self.biases, Free)

    @property
    def skip(self) -> bool:
        """Return True if a linear function of the inputs is free of the penalty, too."""
        return isinstance(self.biases, FreeWithSkip)

    @cached_property
    def Xt(self) -> Float[Tensor, "N d"]:
        """Return Zs_0 = [X, beta 1]: the inputs with their bias column, d = n_0 + 1."""
        return with_bias(self.X, self.beta)

    @cached_property
    def condensed_Xt(self) -> Float[Tensor, "k d"]:
        """Return Zs_0 of all processes' samples, or fewer rows with the same column products."""
        return self.spread.condensed(self.Xt)[0]

    @cached_property
    def allowed_misfit(self) -> float:
        """Return the largest |F - Y| of an entry that counts as an exact fit; 0 for other losses."""
        return self.fits * float(self.Y.abs().max()) if self.interpolates else 0.0

    def misfit(self, residual: float) -> float | None:
        """Return max |F - Y| where it is part of an answer: for exact fits."""
        return residual if self.interpolates else None

    def allows(self, residual: float) -> bool:
        """Return True if a network that misses the targets by at most `residual` is admissible."""
        return not self.interpolates or residual <= self.allowed_misfit

    def fits_as_well(self, residual: float, before: float) -> bool:
        """Return True if the misfit rises from `before` to `residual` by no more than rounding."""
        if not self.interpolates:
            return True
        rounding = max(2.0 * before, 1e-12 * float(self.Y.abs().max()))
        return residual <= before or (residual <= rounding and self.allows(residual))

    def contrasts(self, A: Float[Tensor, "N nL"]) -> Float[Tensor, "N nL"]:
        """Return targets or outputs less what the loss ignores: for cross-entropy the mean of each row."""
        return A - A.mean(dim=1, keepdim=True) if self.loss.name == "cross_entropy" else A

    def dual_squares(self, Lambda: Float[Tensor, "N nL"]) -> float:
        """Return sum_i |Lambda_i|^2 / q_i, what D of mse bends by along Lambda; 0 for exact fits, whose D is linear."""
        return 0.0 if self.interpolates else float(self.inverse_shares @ Lambda.square().sum(dim=1))

    @property
    def dual_curvature(self) -> Float[Tensor, " N"]:
        """Return 1 / q_i, what D of mse bends by at a sample; 0 for exact fits, whose D is linear."""
        return torch.zeros_like(self.inverse_shares) if self.interpolates else self.inverse_shares

    @property
    def dual_beta(self) -> float:
        """Return the amount of bias that D(Lambda) pays for."""
        return self.biases.price(self.bias(1))

    def dual_value(self, Lambda: Float[Tensor, "N nL"]) -> Float[Tensor, ""]:
        """Return D(Lambda) = -C*(-2 lam Lambda) - lam beta^2 |Lambda^T 1|^2 for L = 2.

        See MATH.md section 4. A lower bound on the minimum when |Lambda^T sigma(Xt w)| <= 1 for every unit w. With free
        biases beta counts as 0, for a Lambda that is orthogonal to what is free (certify/dual_space.py). For
        `interpolate` the minimum is over all networks whose misfit is allowed, eps for an entry: C* is then <G, Y> +
        eps |G|_1.
        """
        bias = self.lam * self.dual_beta**2 * Lambda.sum(dim=0).square().sum()
        value = -self.conjugate_at(-2.0 * self.lam * Lambda) - bias
        return value - 2.0 * self.lam * self.allowed_misfit * Lambda.abs().sum() if self.interpolates else value


def make_problem(
    X: object,
    Y: object,
    *,
    lam: float | None = None,
    loss: str | Loss | None = None,
    depth: Whole = 2,
    bias: float | str = 1.0,
    activation: str | Activation = "relu",
    device: str | torch.device | None = None,
    sample_weight: object = None,
    free: bool = False,
    skip: bool = False,
    task: str | None = None,
    classes: tuple[str, ...] | None = None,
) -> Problem:
    """Check the data and the options, and make a `Problem` of them; the other arguments are those of `covopt.solve`.

    Rows of weight 0 are left out, here and now. A ProblemError says what is wrong in one sentence; a DataError refuses
    targets that are not what `task` says, and texts with missing ones among them.

    Args:
        free: True if the caller can solve problems with free biases, for which `bias` may be "free".
        classes: of other data, whose labels these are too; None: those of Y.
    """
    inputs = as_matrix(X, "X", None if device is None else parse_device(device))
    chosen = parse_loss(loss if loss is not None else ("interpolate" if lam is None else "mse"))
    labelled, classes = _coded(Y, chosen.name, task, classes)
    targets = as_matrix(labelled, "Y", inputs.device).to(inputs.dtype)
    if len(inputs) != len(targets):
        raise ProblemError(
            f"X has {len(inputs)} rows and Y has {len(targets)}; give one row of targets for each row of inputs."
        )
    weight = as_weights(sample_weight, inputs)
    if weight is not None and not bool((weight > 0).all()):
        positive = weight > 0
        inputs, targets, weight = inputs[positive], targets[positive], weight[positive]
    if isinstance(chosen, Likelihood):
        targets = chosen.coded(targets)
    biases = read_biases(bias, skip, chosen)
    return Problem(
        X=inputs,
        Y=targets,
        loss=chosen,
        lam=_strength(lam, chosen),
        depth=read_depth(depth),
        beta=1.0 if free and isinstance(biases, Free) else read_amount(bias),
        activation=Activation.parse(activation),
        fits=FITS if depth == 2 else FITS_DEEP,
        weight=None if weight is None or chosen.name == "interpolate" else of_mean_one(weight),
        biases=biases,
        classes=classes,
    )


def _coded(
    Y: object, loss: str, task: str | None, classes: tuple[str, ...] | None
) -> tuple[object, tuple[str, ...] | None]:
    """Return one-hot rows and their classes if Y holds labels; else Y itself, unchecked."""
    if isinstance(Y, Tensor):
        special = Y.is_nested or Y.is_quantized or Y.is_meta or Y.is_complex() or Y.layout != torch.strided
        if special or (Y.is_floating_point() and task is None and classes is None and loss != "cross_entropy"):
            return Y, None
        array = (Y.detach().double() if Y.is_floating_point() else Y).cpu().numpy()
    else:
        try:
            array = np.asarray(Y)
        except (TypeError, ValueError, OverflowError):  # a ragged list, say
            return Y, None
        if np.ma.is_masked(Y):
            return Y, None
    if classes is not None and array.ndim == 1:
        return Coding.unscaled(0, None, classes).one_hot(array, "Y"), classes
    labels = labels_of(array, "Y", task, loss)
    return (Y, None) if labels is None else (labels.one_hot, labels.classes)


def _strength(lam: object, loss: Loss) -> float:
    if loss.name == "interpolate":
        if lam is not None:
            raise ProblemError("The loss interpolate takes no lam; leave lam out, or use the loss mse.")
        return 1.0
    if lam is None:
        raise ProblemError(f"The loss {loss.name} needs the strength of the penalty; give lam > 0.")
    return read_strength(lam)
