"""Many networks of one problem as one batch: weights padded with zeros.

The passes are over all samples (`evaluate`), or over some of them, the same for every network (`slopes`): the first
layer is one product in either case, and networks that differ in nothing but a rate see the same samples.

A neuron of the padding has no incoming and no outgoing weight. Its gradient is then exactly zero, for every activation
with sigma(0) = 0, so gradient methods leave it at zero and no mask is needed.

Activations are stored features first, (B, n_l, N), because the first layer of all networks is then one product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.model.loss import mean_gradient
from covopt.model.problem import Problem
from covopt.model.weights import Weights, flattened

Widths = Sequence[int]

KERNELS = 5e6
"""What a turn of a batch costs beside its arithmetic, in multiplications (1 ms: L-BFGS makes 200 small calls)."""


class Batch:
    """L(W) and its gradient for B networks at once, as rows of one matrix (B, P).

    A row holds W_1 ... W_L one after another, each padded to (n_l, n_{l-1} + 1) with n_l the largest width of layer l;
    the bias column stays last. `slopes` takes `samples` rows of the data at a time; None means all, as `evaluate`
    needs.
    """

    def __init__(self, problem: Problem, widths: Sequence[Widths], samples: int | None = None) -> None:
        self.problem, self.widths = problem, [list(w) for w in widths]  # n_1 ... n_{L-1} of each network
        self.padded = [max(layer) for layer in zip(*self.widths, strict=True)]  # the largest of each
        self._shapes = problem.shapes(self.padded)
        self._stacked = [(len(list(run)), *shape) for shape, run in groupby(self._shapes)]  # (g, n, k) as `stacks` has
        self._sizes = [math.prod(shape) for shape in self._stacked]
        self.parameters: int = sum(self._sizes)  # P
        # 1 for each weight, and 0 for free biases.
        self._penalised = flattened([problem.penalised(problem.X.new_ones(shape)) for shape in self._shapes])
        self._forward = [problem.X.new_empty(len(self.widths), n, samples or len(problem.X)) for n in self.padded]
        self._backward = [torch.empty_like(buffer) for buffer in self._forward]

    @cached_property
    def _inputs(self) -> Float[Tensor, "d N"]:
        """The inputs of all samples, for passes over them."""
        return self.problem.Xt.T.contiguous()

    def pack(self, networks: Sequence[Weights]) -> Float[Tensor, "B P"]:
        """Return the padded rows of these networks."""
        rows = self.problem.X.new_zeros(len(networks), self.parameters)
        for row, weights in zip(rows, networks, strict=True):
            for target, W in zip(self.matrices(row[None]), weights, strict=True):
                target[0, : W.shape[0], : W.shape[1] - 1] = W[:, :-1]
                target[0, : W.shape[0], -1] = W[:, -1]
        return rows

    def unpack(self, row: Float[Tensor, " P"], widths: Widths) -> list[Tensor]:
        """Return the weights W_1 ... W_L of one row, without the padding."""
        layers = zip(self.problem.shapes(widths), self.matrices(row[None]), strict=True)
        return [torch.cat([W[0, :n, : k - 1], W[0, :n, -1:]], dim=1) for (n, k), W in layers]

    def evaluate(self, theta: Float[Tensor, "b P"]) -> tuple[Float[Tensor, " b"], Float[Tensor, "b P"]]:
        """Return L and dL/dtheta of each row, by back-propagation; sigma' at a kink is a.

        The number of rows may be smaller than that of the batch, not larger. Samples that are spread over processes
        are all summed over.
        """
        problem, W = self.problem, self.matrices(theta)
        hidden, sigmas = self._hidden(W, self._inputs)
        outputs = self._outputs(W, sigmas[-1])
        penalised = self._penalised * theta
        cost = problem.loss_at(outputs) + problem.lam * (penalised * theta).sum(dim=1)
        gradient = (2.0 * problem.lam / problem.spread.processes) * penalised
        self._back(W, hidden, sigmas, problem.gradient_at(outputs), problem.Xt, gradient)
        return cost, problem.spread.added(gradient)

    def slopes(
        self, theta: Float[Tensor, "b P"], rows: Int[Tensor, " n"], lam: Float[Tensor, "b 1"]
    ) -> Float[Tensor, "b P"]:
        """Return d/dtheta of C + lam |theta|^2 of each network on these samples, with its own lam.

        There are as many rows as the batch was made for.
        """
        problem, W = self.problem, self.matrices(theta)
        Xt, Y = problem.Xt[rows], problem.Y[rows]
        hidden, sigmas = self._hidden(W, Xt.T)
        gradient = (2.0 * lam) * self._penalised * theta
        weight = None if problem.weight is None else problem.weight[rows]
        M = mean_gradient(problem.loss, self._outputs(W, sigmas[-1]), Y, weight)
        self._back(W, hidden, sigmas, M, Xt, gradient)
        return gradient

    def fits(self, theta: Float[Tensor, "b P"]) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """Return C over all samples, and the share of samples whose argmax is the target's."""
        problem, W = self.problem, self.matrices(theta)
        size, outputs = max(1, 4_000_000 // (len(theta) * max(self.padded))), []  # activations of a layer at a time
        for inputs in self._inputs.split(size, dim=1):
            S = (W[0].flatten(0, 1) @ inputs).unflatten(0, W[0].shape[:2])
            for layer in range(1, problem.depth):
                S = problem.activation(S)
                S = torch.baddbmm(problem.bias(layer) * W[layer][:, :, -1:], W[layer][:, :, :-1], S)
            outputs.append(S.mT)
        F = torch.cat(outputs, dim=1)
        return problem.loss_at(F), (F.argmax(dim=2) == problem.Y.argmax(dim=1)).to(F).mean(dim=1)

    def spectra(self, theta: Float[Tensor, "b P"], widths: Sequence[Widths]) -> list[list[Tensor]]:
        """Return the singular values of each row's W_1 ... W_L, falling, in float64."""
        layers = [torch.linalg.svdvals(W.double()).cpu() for W in self.matrices(theta)]
        return [
            [values[row, : min(shape)] for values, shape in zip(layers, self.problem.shapes(own), strict=True)]
            for row, own in enumerate(widths)  # without the values of the padding
        ]

    def mean_norms(self, theta: Float[Tensor, "b P"]) -> Float[Tensor, " b"]:
        """Return the mean over the layers of |W_l|_F, of each row."""
        return torch.stack([W.flatten(1).norm(dim=1) for W in self.matrices(theta)]).mean(dim=0)

    def _outputs(self, W: list[Tensor], last: Float[Tensor, "b n k"]) -> Float[Tensor, "b k m"]:
        bias = self.problem.bias(self.problem.depth - 1) * W[-1][:, :, -1:]
        return torch.baddbmm(bias, W[-1][:, :, :-1], last).mT

    def _back(
        self,
        W: list[Tensor],
        hidden: list[Tensor],
        sigmas: list[Tensor],
        M: Float[Tensor, "b k m"],
        Xt: Float[Tensor, "k d"],
        gradient: Float[Tensor, "b P"],
    ) -> None:
        """Add dC/dtheta to `gradient`; M is dC/dF."""
        problem, parts = self.problem, self.matrices(gradient)
        M = M.mT.contiguous()
        for layer in range(problem.depth - 1, 0, -1):
            parts[layer][:, :, :-1] += torch.bmm(M, sigmas[layer - 1].mT)
            parts[layer][:, :, -1] += problem.bias(layer) * M.sum(dim=2)
            M = torch.bmm(W[layer][:, :, :-1].mT, M, out=self._backward[layer - 1][: len(gradient)])
            M = problem.activation.pull_back(M, hidden[layer - 1])
        parts[0] += (M.reshape(-1, len(Xt)) @ Xt).view(parts[0].shape)

    def _hidden(self, W: list[Tensor], inputs: Float[Tensor, "d k"]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the inputs of sigma' and sigma(Z_l) of the hidden layers; both (b, n_l, k)."""
        problem, rows = self.problem, len(W[0])
        hidden, sigmas = [], []
        for layer, buffer in enumerate(self._forward):
            Z = buffer[:rows]
            if layer == 0:
                torch.mm(W[0].reshape(-1, W[0].shape[2]), inputs, out=Z.view(-1, inputs.shape[1]))
            else:
                torch.baddbmm(problem.bias(layer) * W[layer][:, :, -1:], W[layer][:, :, :-1], sigmas[-1], out=Z)
            # ReLU works in place: sigma(z) > 0 where z > 0.
            sigmas.append(Z.relu_() if problem.activation.overwrites else problem.activation(Z))
            hidden.append(Z)
        return hidden, sigmas

    def matrices(self, theta: Float[Tensor, "b P"]) -> list[Tensor]:
        """Return views W_1 ... W_L (b, n_l, n_{l-1} + 1) of the rows."""
        return [W for stack in self.stacks(theta) for W in stack.unbind(1)]

    def stacks(self, theta: Float[Tensor, "b P"]) -> list[Tensor]:
        """Return views (b, g, n, k) of the rows: g neighbouring layers of one shape (n, k) together."""
        parts = theta.split(self._sizes, dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self._stacked, strict=True)]


def work(problem: Problem, widths: Widths) -> float:
    """Return the multiplications for L and its gradient of one network of these widths."""
    passes = 12  # over one activation beside the products, in multiplications
    products = sum(n * k for n, k in problem.shapes(widths))
    return problem.samples * (3.0 * products + passes * sum(widths))


def buckets(problem: Problem, widths: Sequence[Widths], largest: int) -> list[list[int]]:
    """Split networks into batches whose padding costs less than it saves; return numbers.

    Networks are sorted by their work. Of all ways to cut that list, take the one with the smallest sum over its batches
    of KERNELS + B work(padded widths), by dynamic programming. No batch of several networks holds more than `largest`
    activations N sum n_l.
    """
    order = sorted(range(len(widths)), key=lambda i: (work(problem, widths[i]), list(widths[i])))
    best, cut = [0.0], [0]
    for end in range(1, len(order) + 1):
        padded, options = [0] * (problem.depth - 1), []
        for begin in range(end - 1, -1, -1):
            padded = [max(pair) for pair in zip(padded, widths[order[begin]], strict=True)]
            count = end - begin
            if count > 1 and count * problem.samples * sum(padded) > largest:
                break
            options.append((best[begin] + KERNELS + count * work(problem, padded), begin))
        value, begin = min(options)
        best.append(value)
        cut.append(begin)
    batches, end = [], len(order)
    while end:
        batches.append(order[cut[end] : end])
        end = cut[end]
    return batches[::-1]
