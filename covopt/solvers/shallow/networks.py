"""Networks from mixtures, and fewer neurons at no higher cost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.weights import evaluate
from covopt.oracles.neurons import balance, caratheodory, merge
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Stop
from covopt.solvers.shallow.datafits import Datafit
from covopt.solvers.shallow.master import Mixture
from covopt.solvers.shallow.starts import Starts
from covopt.solvers.training.exact_fit import PRODUCTS, nearest_fit
from covopt.solvers.training.tangent import exact_fit


@dataclass
class Network:
    """A two-layer network, with its cost; S (n_0, m) is its free linear part, None without a skip."""

    U: Float[Tensor, "n d"]  # hidden weights, (n, n_0 + 1)
    V: Float[Tensor, "n m"]  # outputs
    b: Float[Tensor, " m"]  # output bias
    cost: float
    S: Float[Tensor, "n0 m"] | None = None

    def weights(self) -> list[Tensor]:
        """Return [W_1, W_2]."""
        into_outputs = [self.V, self.b[None]] if self.S is None else [self.V, self.S, self.b[None]]
        return [self.U, torch.cat(into_outputs).T.contiguous()]


class NetworkBuilder:
    """Networks of one problem: its inputs X in the row-space basis Q, and its loss `fit` as the master sees it."""

    # Neurons are merged whose angles have cosines above 1 - these, one after the other.
    merging = (1e-9, 1e-7, 1e-5, 1e-3)
    weakest = 1e-3  # neurons with less than this part of all weights' norm are dropped, if the others can fit exactly
    # Dependent neurons are dropped, and a step to an exact fit is taken, if that takes at most about this number of
    # multiplications.
    affordable = 2.0**31
    # Directions for each sample from which mixtures are completed, and their weights, relative to the mean for each
    # sample. With 2 drawn where no mixture has fitted, the years 1990 to 2000 do not fit.
    drawn, slight, completable = 8, 1e-4, 2.0**34
    higher = 1e-10  # what a smaller network may cost more, relative (rounding)
    tolerance = 1e-12  # of the masters on merged neurons

    def __init__(self, problem: Problem, X: Float[Tensor, "N r"], Q: Float[Tensor, "r d"], fit: Datafit) -> None:
        self.problem, self._X, self._Q, self._fit = problem, X, Q, fit

    def of_mixture(self, directions: Float[Tensor, "n r"], Phi: Float[Tensor, "N n"], mixture: Mixture) -> Network:
        """Return a mixture's balanced network, of infinite cost if it should fit but does not."""
        parts = self._fit.network(Phi, mixture)
        if parts is None:
            empty = self.of_rows(directions[:0], mixture.outputs[:0], torch.zeros_like(mixture.bias))
            return replace(empty, cost=torch.inf)
        return self.of_rows(directions, *parts)

    def of_rows(self, rows: Float[Tensor, "n r"], outputs: Float[Tensor, "n m"], b: Float[Tensor, " m"]) -> Network:
        """Return the balanced network of hidden weights in the row-space basis and outputs."""
        return self._built(rows @ self._Q, outputs, b)

    def nearest(self, directions: Float[Tensor, "n r"], mixture: Mixture, late: Stop) -> Network | None:
        """Return the exact fit nearest to a mixture's network; None if there is none near it."""
        alive = mixture.eta > 0
        network = self.of_rows(directions[alive], mixture.outputs[alive], mixture.bias)
        fit = self._nearest(network, late) if self.problem.spread is ALONE else None
        fits = fit is not None and self.problem.allows(evaluate(self.problem, fit.weights()).residual)
        return fit if fits else None

    def _nearest(self, network: Network, late: Stop) -> Network | None:
        """Return the network changed as little as possible for a fit; None if that takes too long."""
        step = 4.0 * PRODUCTS * self.problem.samples * (network.U.numel() + network.V.numel())
        if step > self.affordable or late() or interrupted():
            return None
        first, last = nearest_fit(self.problem, network.weights(), late)
        return self._built(first, last[:, :-1].T, last[:, -1])

    def completed(
        self, directions: Float[Tensor, "n r"], eta: Float[Tensor, " n"], starts: Starts, late: Stop
    ) -> Network | None:
        """Return an exact fit by atoms of a mixture, by neurons beside them, and anywhere; None if none fits.

        At the minimum there are often fewer atoms than samples, and no outputs make these few fit: only their kinks do.
        """
        N, atoms = self.problem.samples, len(directions)
        if self.drawn * N**3 > self.completable or self.problem.spread is not ALONE:
            return None
        beside = starts.near(directions, (self.drawn - 1) * N) if atoms else directions
        anywhere = torch.nn.functional.normalize(starts.at_kinks(N if atoms else self.drawn * N), dim=1)
        directions = torch.cat([directions, beside, anywhere])
        weights = directions.new_full((len(directions),), self.slight * float(eta.sum()) / N or 1.0)
        weights[:atoms] += eta
        parts = self._fit.completed(self.problem.activation(self._X @ directions.T), weights, late)
        return None if parts is None else self.of_rows(directions[parts[0]], parts[1], parts[2])

    def in_descent(self, rows: Tensor, outputs: Tensor, b: Tensor) -> Network | None:
        """Return the network that a descent has come to."""
        return self.of_rows(rows, outputs, b)

    def reduced(self, network: Network, late: Stop) -> Network:
        """Merge aligned neurons, drop tiny and dependent ones, at no higher cost; else `network`."""
        for cosine in self.merging:
            if len(network.U) and not late():
                merged = merge(network.U, network.V, cosine)
                network = self._better(network, self._polished(network, merged.directions, merged.outputs, late))
                network = self._better(
                    network, self._refitted(network, *balance(merged.directions, merged.outputs), late)
                )
        sizes = network.V.norm(dim=1)
        strong = sizes > self.weakest * sizes.norm()
        network = self._better(network, self._refitted(network, network.U[strong], network.V[strong], late))
        network = self._without_weak(network, late)
        rows = self.problem.samples * self.problem.Y.shape[1]
        few = len(network.U) * min(rows, len(network.U)) * rows <= self.affordable
        if len(network.U) and few and self.problem.spread is ALONE:  # the features of all rows are needed at once
            lengths = network.U.norm(dim=1, keepdim=True)
            directions = network.U / lengths
            selected = caratheodory(self.problem.activation(self.problem.Xt @ directions.T), network.V * lengths)
            network = self._better(network, self._built(directions[selected.places], selected.outputs, network.b))
        return network

    def _polished(self, network: Network, directions: Tensor, outputs: Tensor, late: Stop) -> Network:
        """Solve the master on these few directions, which may have moved; return its network."""
        if len(directions) == len(network.U):
            return network
        reduced = directions @ self._Q.T
        Phi = self.problem.activation(self._X @ reduced.T)
        return self.of_mixture(reduced, Phi, self._fit.solve(Phi, outputs.norm(dim=1), self.tolerance, late))

    def _refitted(self, network: Network, U: Tensor, V: Tensor, late: Stop) -> Network:
        """Return a network with these neurons that is as good a fit, or `network`."""
        return network

    def _without_weak(self, network: Network, late: Stop) -> Network:
        """Return the network without neurons if only rounding passes through them, as where lam is large."""
        return self._better(network, self._built(network.U[:0], network.V[:0], network.b))

    def _built(self, directions: Tensor, outputs: Tensor, b: Tensor) -> Network:
        U, V = balance(directions, outputs)
        network = Network(U, V, b, torch.inf)
        network.cost = evaluate(self.problem, network.weights()).total
        return network

    def _better(self, network: Network, smaller: Network) -> Network:
        """Return `smaller` if it has fewer nonzero neurons and costs no more."""
        alive = (smaller.U != 0).any(dim=1)
        if not len(smaller.U) < len(network.U) or smaller.cost > network.cost * (1.0 + self.higher):
            return network
        return Network(smaller.U[alive], smaller.V[alive], smaller.b, smaller.cost)


class ExactNetworks(NetworkBuilder):
    """Networks that stay exact fits with fewer neurons."""

    # Neurons with at most the share `weak` of the weights' norm are removed on trial, one by one. The fit without them
    # is made lighter, in `turns` steps, if it costs at most `nearly` times as much and a step takes at most `lightened`
    # multiplications.
    weak, nearly, turns, lightened = 1e-1, 1.0 + 1e-5, 50, 2.0**24

    def in_descent(self, rows: Tensor, outputs: Tensor, b: Tensor) -> None:
        """Return None: the networks of a descent do not fit."""

    def _better(self, network: Network, smaller: Network) -> Network:
        """Return `smaller` if it fits as exactly, too."""
        better = super()._better(network, smaller)
        if better is network:
            return network
        before, after = (evaluate(self.problem, n.weights()).residual for n in (network, better))
        return better if self.problem.fits_as_well(after, before) else network

    def _refitted(self, network: Network, U: Tensor, V: Tensor, late: Stop) -> Network:
        """Return the nearest exact fit with these neurons, or `network`.

        Merging and dropping change the fit in the first order, but the nearest fit's cost in the second.
        """
        fewer = len(U) < len(network.U)
        return (self._nearest(replace(network, U=U, V=V), late) if fewer else None) or network

    def _without_weak(self, network: Network, late: Stop) -> Network:
        """Remove the weakest neurons one by one, at no higher cost.

        The nearest fit costs more in second order, and this is more than a nearly needless neuron costs; so the network
        is moved along the exact fits towards less weight.
        """
        if self.problem.Y.numel() ** 2 * (network.U.numel() + network.V.numel()) > self.lightened:  # a dense Jacobian
            return network
        while len(network.U) > 1 and not (late() or interrupted()):
            sizes = network.V.norm(dim=1)
            weakest = int(sizes.argmin())
            if sizes[weakest] > self.weak * sizes.norm():
                break
            stronger = torch.arange(len(sizes), device=sizes.device) != weakest
            smaller = self._refitted(network, network.U[stronger], network.V[stronger], late)
            lighter = None
            if len(smaller.U) < len(network.U) and smaller.cost <= self.nearly * network.cost:
                lighter = self._lightened(smaller, late)
            if lighter is None:
                break
            first, last = nearest_fit(self.problem, lighter, late)  # `exact_fit` may stop 1e-11 away from it
            smaller = self._better(network, self._built(first, last[:, :-1].T, last[:, -1]))
            if smaller is network:
                break
            network = smaller
        return network

    def _lightened(self, network: Network, late: Stop) -> list[Tensor] | None:
        """Return an exact fit of less weight near the network, or None."""
        taken = itertools.count()
        return exact_fit(self.problem, network.weights(), lambda: next(taken) > self.turns or late())
