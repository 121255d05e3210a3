"""The architectures that `ranks` trains: plain, with batch normalisation, residual.

All have matrices W_l = [A_l, b_l] of shape (n_l, n_{l-1} + 1), l = 1 ... L. In a plain network b_l is the bias. The
others normalise Z = H A_l^T in every hidden layer, and b_l is the shift behind it,

    N(Z) = (Z - mean) / (var + 1e-5)^(1/2) + beta b_l,

with mean and variance of each neuron over the samples of the batch, differentiated. They have no gains: a positive gain
is one of the next matrix. A whole network has the statistics of all its training samples, where PyTorch's running
averages come near them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.psd import RANK_RULE
from covopt.model import batch_bound, ranks
from covopt.model.batch_bound import BatchBound, rank_chain
from covopt.model.loss import mean_gradient
from covopt.model.noise import Noise, batch_noise
from covopt.model.problem import Problem
from covopt.model.weights import Cost, Weights, evaluate, outputs
from covopt.runtime.errors import ProblemError, shown
from covopt.solvers.training.batch import Batch, Widths
from covopt.studies.audit import examination

Stacks = Sequence[Float[Tensor, "*b _ _"]]
"""The weights of one network, or of b networks with one shape, (b, n_l, n_{l-1} + 1)."""
State = tuple[Tensor, Tensor]
"""The inputs of the next layer, and what a residual block adds to."""


class Architecture:
    """A kind of networks: how it computes, how it is trained, what batches say about its ranks.

    This is the plain kind, the networks of the other commands; another kind is a subclass, and its line in
    ARCHITECTURES.
    """

    name = "plain"

    def check(self, depth: int, batch_sizes: Sequence[int]) -> None:
        """Raise a ProblemError if no network of this depth can be trained in batches of these sizes."""

    def batch(self, problem: Problem, widths: Sequence[Widths], samples: int) -> Batch:
        """Return the networks of these widths for training in batches of `samples`."""
        return Batch(problem, widths, samples)

    def outputs(self, problem: Problem, weights: Weights, X: Float[Tensor, "M n0"]) -> Float[Tensor, "M nL"]:
        """Return the outputs at inputs X of the network that was trained on the problem's samples."""
        return outputs(problem, weights, X)

    def cost(self, problem: Problem, weights: Weights) -> Cost:
        """Return the cost and its parts, over all samples."""
        return evaluate(problem, weights)

    def functional_ranks(self, problem: Problem, weights: Weights) -> list[int]:
        """Return, for each layer, the smallest r whose rank-r replacement raises C by at most 1 %."""
        return ranks.functional_ranks(problem, weights)

    def total_ranks(self, problem: Problem, weights: Weights) -> list[int]:
        """Return an upper bound, for each layer, on the rank of any sum of gradients."""
        return batch_bound.total_ranks(problem, weights)

    def bounds(self, problem: Problem, weights: Weights, rows: Int[Tensor, " B"]) -> list[BatchBound]:
        """Return the chain of bounds from one batch, for each layer."""
        return batch_bound.batch_bound(problem, weights, rows)

    def noises(self, problem: Problem, weights: Weights, batch_size: int) -> list[tuple[Noise | None, float | None]]:
        """Return, for each layer, the noise of batches, if it is known, and |grad L^lam| / (2 lam |W|)."""
        return [(layer, layer.residual) for layer in batch_noise(problem, weights, batch_size)]

    def dead(self, problem: Problem, weights: Weights, layer: int) -> int | None:
        """Return the number of neurons of a hidden layer without effect; None if it is unknown."""
        return examination.dead(problem, weights, layer)


class Normalised(Architecture):
    """Batch normalisation behind each hidden layer, before its activation: the MLP-BN of [GP22]'s authors."""

    name = "batch_norm"

    def check(self, depth: int, batch_sizes: Sequence[int]) -> None:
        """Refuse batches of one sample, which normalisation makes equal."""
        if min(batch_sizes) < 2:
            raise ProblemError("Batch normalisation makes a single sample 0; give batches of 2 or more.")

    def batch(self, problem: Problem, widths: Sequence[Widths], samples: int) -> Batch:
        """Return the networks of these widths, with gradients by automatic differentiation."""
        return _DifferentiatedBatch(self, problem, widths, samples)

    def forward(
        self, problem: Problem, weights: Stacks, X: Float[Tensor, "N n0"], samples: int
    ) -> Float[Tensor, "*b N nL"]:
        """Return the outputs at inputs X, with the statistics of the first `samples` of them."""
        return self._continue(problem, weights, 1, (X, X), samples)[-1][0]

    def outputs(self, problem: Problem, weights: Weights, X: Float[Tensor, "M n0"]) -> Float[Tensor, "M nL"]:
        """Return the outputs at X, with the statistics of the problem's samples."""
        N = problem.samples
        return self.forward(problem, weights, torch.cat([problem.X, X]), N)[N:]

    @torch.no_grad()
    def cost(self, problem: Problem, weights: Weights) -> Cost:
        """Return the cost and its parts, over all samples."""
        F = self.forward(problem, weights, problem.X, problem.samples)
        fit, norm = float(problem.loss_at(F)), float(sum(W.square().sum() for W in weights))
        return Cost(fit, norm, fit + problem.lam * norm, float((F - problem.Y).abs().max()))

    @torch.no_grad()
    def functional_ranks(self, problem: Problem, weights: Weights, rise: float = 0.01) -> list[int]:
        """Return for each layer the smallest r whose rank-r replacement, renormalised, raises C by at most `rise`."""
        states = self._continue(problem, weights, 1, (problem.X, problem.X), problem.samples)
        allowed = (1.0 + rise) * float(problem.loss_at(states[-1][0]))
        if not math.isfinite(allowed):
            raise ProblemError("The network's loss on these data is not finite; check its weights and the scale of X.")
        least = []
        for layer, (W, state) in enumerate(zip(weights, states, strict=False), start=1):
            U, s, Vt = torch.linalg.svd(W, full_matrices=False)
            most, above = int(RANK_RULE.keeps(s).sum()), weights[layer:]
            fits = (
                self._continue(problem, [(U[:, :r] * s[:r]) @ Vt[:r], *above], layer, state, problem.samples)[-1][0]
                for r in range(most)
            )
            least.append(next((r for r, F in enumerate(fits) if float(problem.loss_at(F)) <= allowed), most))
        return least

    def total_ranks(self, problem: Problem, weights: Weights) -> list[int]:
        """Return an upper bound, for each layer, on the rank of any sum of gradients.

        Behind a normalisation the gradient by the shift is no combination of those by A_1: one more than plain ones.
        """
        most = batch_bound.total_ranks(problem, weights)
        inputs = int(RANK_RULE.keeps(torch.linalg.svdvals(problem.X)).sum())
        return [min(*weights[0].shape, inputs + 1), *most[1:]]

    def bounds(self, problem: Problem, weights: Weights, rows: Int[Tensor, " B"]) -> list[BatchBound]:
        """Return the chain of bounds from one batch, for each layer; B bounds the rank as without normalisation."""
        gradients, totals = self._gradients(problem.on(rows), weights), self.total_ranks(problem, weights)
        layers = zip(weights, gradients, totals, strict=True)
        return [rank_chain(W, G, 1.0, problem.lam, len(rows), min(len(rows), most)) for W, G, most in layers]

    def noises(self, problem: Problem, weights: Weights, batch_size: int) -> list[tuple[Noise | None, float | None]]:
        """Return the residuals alone: a sample's gradient depends on its batch, so that the noise is not known."""
        decays = [2.0 * problem.lam * ranks.frobenius(W) for W in weights]
        layers = zip(weights, self._gradients(problem, weights), decays, strict=True)
        moves = ((ranks.frobenius(G + 2.0 * problem.lam * W), decay) for W, G, decay in layers)
        return [(None, move / decay if decay > 0.0 else None) for move, decay in moves]

    def dead(self, problem: Problem, weights: Weights, layer: int) -> int | None:
        """Return None: it is not known."""
        return None

    def _gradients(self, problem: Problem, weights: Weights) -> list[Tensor]:
        """Return dC/dW_l over the problem's samples as one batch, without the penalty."""
        leaves = [W.detach().requires_grad_() for W in weights]
        F = self.forward(problem, leaves, problem.X, problem.samples)
        return list(torch.autograd.grad(F, leaves, problem.gradient_at(F.detach())))

    def _continue(self, problem: Problem, weights: Stacks, layer: int, state: State, samples: int) -> list[State]:
        """Return the states before and behind these weights, those of layer `layer` and the ones above it."""
        states = [state]
        for number, W in enumerate(weights, start=layer):
            inputs, stream = states[-1]
            Z, shift = inputs @ W[..., :-1].mT, problem.bias(number - 1) * W[..., None, :, -1]
            if number < problem.depth:
                variance, mean = torch.var_mean(Z[..., :samples, :], dim=-2, correction=0, keepdim=True)
                Z = (Z - mean) * (variance + 1e-5).rsqrt()
            states.append(self._combined(problem, number, Z + shift, stream))
        return states

    def _combined(self, problem: Problem, layer: int, Z: Float[Tensor, "*b N n"], stream: Tensor) -> State:
        """Return the state behind a layer from its normalised preactivations, or its outputs in the last one."""
        return (Z if layer == problem.depth else problem.activation(Z)), stream


class Residual(Normalised):
    """Blocks H + N(sigma(N(H A^T)) A'^T) between a first normalised layer and a last layer, neither with an activation.

    It is the residual network with batch normalisation of [GP22]'s authors; a block has two matrices.
    """

    name = "residual"

    def check(self, depth: int, batch_sizes: Sequence[int]) -> None:
        """Refuse depths that are not two layers and blocks of two."""
        super().check(depth, batch_sizes)
        if depth < 4 or depth % 2:
            raise ProblemError(f"A residual network has blocks of 2 layers and 2 more, not {depth}; give 4, 6, 8, ...")

    def _combined(self, problem: Problem, layer: int, Z: Float[Tensor, "*b N n"], stream: Tensor) -> State:
        if layer == problem.depth or layer == 1:
            return Z, Z
        return (problem.activation(Z), stream) if layer % 2 == 0 else (stream + Z, stream + Z)


class _DifferentiatedBatch(Batch):
    """Networks of an architecture as one batch, with gradients by automatic differentiation."""

    def __init__(self, network: Normalised, problem: Problem, widths: Sequence[Widths], samples: int) -> None:
        super().__init__(problem, widths, samples)
        self._network = network

    def slopes(
        self, theta: Float[Tensor, "b P"], rows: Int[Tensor, " n"], lam: Float[Tensor, "b 1"]
    ) -> Float[Tensor, "b P"]:
        """Return d/dtheta of C + lam |theta|^2 of each network on these samples, with its own lam."""
        problem, leaves = self.problem, [W.detach().requires_grad_() for W in self.matrices(theta)]
        F = self._network.forward(problem, leaves, problem.X[rows], len(rows))
        weight = None if problem.weight is None else problem.weight[rows]
        slopes = torch.autograd.grad(F, leaves, mean_gradient(problem.loss, F.detach(), problem.Y[rows], weight))
        gradient = (2.0 * lam) * theta
        for part, slope in zip(self.matrices(gradient), slopes, strict=True):
            part += slope
        return gradient

    def fits(self, theta: Float[Tensor, "b P"]) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """Return C over all samples, and the share of samples whose argmax is the target's."""
        problem, costs, shares = self.problem, [], []
        for row in theta.split(1):
            F = self._network.forward(problem, [W[0] for W in self.matrices(row)], problem.X, problem.samples)
            costs.append(problem.loss_at(F))
            shares.append((F.argmax(dim=1) == problem.Y.argmax(dim=1)).to(F).mean())
        return torch.stack(costs), torch.stack(shares)


PLAIN = Architecture()
ARCHITECTURES: dict[str, Architecture] = {kind.name: kind for kind in (PLAIN, Normalised(), Residual())}
"""Every architecture by its name."""


def architecture_of(name: object) -> Architecture:
    """Return the architecture of this name; raise a ProblemError if there is none."""
    if not (isinstance(name, str) and name in ARCHITECTURES):
        raise ProblemError(f"The architecture is {shown(name)}; give plain, batch_norm or residual.")
    return ARCHITECTURES[name]
