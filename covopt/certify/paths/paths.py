"""A lower bound from the path norm of a network of three layers (MATH.md section 5).

With the paths m_kj = |v_k| u_kj |w_j| and the biases |v_k| b_k of the hidden neurons, a network of any width costs at
least 2 |m|_1 / s^(1/2) + q^2 / s + s + |b_3|^2, s = |W_3|^2 and q = sum_k |v_k| |b_k|. Its outputs are a sum of neurons
sigma(h) v^T of the second layer, and multipliers Lambda with

    |Lambda^T sigma(h)| <= M (|m|_1 + r |b|)    for every pre-activation h = sum_j m_j s(w_j) + beta b 1

price them. For paths of rank one, a hidden layer of one neuron for instance, the bound is exact. It is that of the
first case of `shares`, for more samples and two outputs: the maximum over all h is proved by a tree over the signs of h
(`branching`).

The evidence is Lambda, r, and the tree with the prices of its leaves; the check asks no solver. The search asks
Clarabel for the best multipliers for the neurons that it has met (`best_multipliers`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.paths.body import Body, Directions
from covopt.certify.paths.boxes import TINY
from covopt.certify.paths.branching import Branching, Neurons, Tree, best_with_signs
from covopt.certify.proof import DeepProof, Proved, Target
from covopt.certify.shares.dictionary import has_dictionary
from covopt.certify.shares.prices import Instance, Multipliers
from covopt.model.loss import Interpolation, MeanSquaredError
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Certificate, Stop

clarabel: Any = lazy("clarabel")

MOST_SAMPLES, MOST_OUTPUTS, MOST_NODES = 32, 2, 1_000_000
STEP = 0.05
"""The step between directions of the dictionary; it costs step^2 / 12 of the bound of an exact fit at rank 2."""
LEAST_PRICE = 1e-3  # the smallest price of a hidden bias, as a part of that of a path
CURVED = 1e-10  # a curvature that keeps multipliers finite which no neuron bounds yet


@dataclass(frozen=True)
class PathNorm(DeepProof):
    """A bound from the path norm."""

    step: float  # the largest angle between neighbours in the dictionary of the first layer
    directions: float  # the number of directions of two outputs
    # Lambda of each point; at each |W_3|^2 the best of the points counts (p, N, m)
    multipliers: Float[np.ndarray, "_ _ _"]
    bias_prices: Float[np.ndarray, " _"]  # r of each point (p,)
    cuts: Int[np.ndarray, " _"]  # a sample or LEAF for each node in preorder, a tree for each point and direction (n,)
    prices: Float[np.ndarray, "_ _"]  # c of each leaf (l, N)

    kind: ClassVar[Certificate] = Certificate.PATHS
    losses: ClassVar[tuple[type, ...]] = (Interpolation, MeanSquaredError)
    depths: ClassVar[range] = range(3, 4)
    missing: ClassVar[str] = "The stored paths are missing or do not fit the data; solve again."

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True for ReLU networks with one or two outputs on some samples of rank 3 at most."""
        some = problem.samples <= MOST_SAMPLES and problem.Y.shape[1] <= MOST_OUTPUTS
        return some and problem.activation.slope == 0.0 and has_dictionary(problem.Xt if problem.beta else problem.X)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Search for the best multipliers; without a network to start from, there is none."""
        if target.network is None:
            return None
        instance = Instance.of(problem, STEP)
        goal = target.cost * (1.0 - 0.99 * target.gap) / instance.unit
        search = Search(instance, goal, target.stop, target.worth)
        directions, points = search.run([W / instance.weights for W in target.network])
        if not points:
            return None
        proof = cls(
            0.0,
            STEP,
            float(directions),
            np.array([point.multipliers for point in points]),
            np.array([point.bias for point in points]),
            np.concatenate([point.tree.cuts for point in points]),
            np.concatenate([point.tree.prices for point in points]),
        )
        return proof.proved(problem)

    def bound(self, problem: Problem) -> float:
        """Return the bound that the multipliers prove, with the largest price of a neuron by the tree."""
        points = self._points(problem.samples, problem.Y.shape[1])
        if points is None or not 1e-3 <= self.step <= 1.0:
            raise ProblemError(self.missing)
        if not self.applies(problem):
            return 0.0
        instance, directions = Instance.of(problem, self.step), Directions.of(problem.Y.shape[1], int(self.directions))
        if not math.isfinite(instance.atoms.neglected):
            return 0.0
        lower, _ = instance.proved_at_any_scale([point.priced(instance, directions) for point in points])
        lower = float(instance.unit * lower)
        return lower if math.isfinite(lower) else 0.0

    def _points(self, samples: int, outputs: int) -> list[Point] | None:
        """Return the points; None if the arrays do not fit each other and the data."""
        count, trees = len(self.multipliers), 2 if outputs == 1 else self.directions
        fits = self.multipliers.shape == (count, samples, outputs) and self.bias_prices.shape == (count,)
        few = 0 < count <= 100 and 2 <= trees <= 1_000 and trees == int(trees) and len(self.cuts) <= MOST_NODES
        if not fits or not few or self.bias_prices.min() <= 0.0:
            return None
        parts = Tree(self.cuts, self.prices).parts(count, int(trees), samples)
        if parts is None:
            return None
        return [Point(*point) for point in zip(self.multipliers, self.bias_prices.tolist(), parts, strict=True)]


@dataclass(frozen=True)
class Point:
    """Multipliers and the tree that proves their prices."""

    multipliers: Float[np.ndarray, "N m"]  # Lambda
    bias: float  # r, the price of a hidden bias relative to that of a path
    tree: Tree  # over the signs, for each direction of the outputs

    def priced(self, instance: Instance, directions: Directions) -> Multipliers:
        """Return the multipliers with the prices that the tree proves."""
        body = Body(instance.atoms, instance.hidden_bias, self.bias)
        most = directions.secant * self.tree.most(body, self.multipliers, directions.vectors)[0]
        return Multipliers(self.multipliers, most, most * self.bias)


@dataclass
class Search:
    """The search for the best multipliers, by cutting planes.

    A programme finds the multipliers that are best at one scale |W_3|^2 for the neurons met so far, and branching meets
    neurons for which they are too large, or proves that there are none. Where the points so far prove the least, the
    next one is looked for.
    """

    instance: Instance
    goal: float  # the bound that is enough
    stop: Stop  # called between steps; the search ends once it returns True
    worth: float = 0.0  # end where less than this part of what the bound lacks could still be proved; 0: never
    # how far multipliers may be from feasible, and the bound from the programme's value, with the number of directions
    # of two outputs: at first, so that there is a bound soon, and then
    levels: tuple[tuple[float, int], ...] = ((0.02, 12), (0.004, 48), (5e-4, 96))
    points: int = 8  # at most
    # neurons whose signs are tried first: the best neurons with signs that are known are met many times sooner than by
    # the trees, which have to find new signs and to prove that there are none
    improved: int = 128
    most: int = 100_000  # nodes of the trees at most; with half of them they begin again
    rounds: int = 1_000  # programmes of a point at most
    held: int = 1_500  # neurons of a programme at most
    neurons: Neurons = field(init=False)
    chosen: Int[np.ndarray, " _"] = field(init=False)
    value: float = field(init=False)
    precision: float = field(init=False)
    directions: Directions = field(init=False)
    branching: Branching = field(init=False)

    def run(self, network: list[Tensor]) -> tuple[int, list[Point]]:
        """Return the number of directions, and the points that prove the best bound; none if there was no time for one.

        The neurons of the network, near the minimum and in the units of the instance, are the first of the programme.
        """
        self.chosen = self._coarse()
        scale, self.neurons = self._start(network)
        first = Directions.of(self.instance.targets.shape[1], self.levels[0][1])
        self.branching = Branching.roots(first.vectors, len(self.instance.targets))
        best: tuple[int, list[Point]] = 0, []
        lower = 0.0
        for precision, count in self.levels:
            self.precision = precision
            self.directions = Directions.of(self.instance.targets.shape[1], count)
            self.branching = self.branching.refined(self.directions.vectors)
            points, value, scale = self._points(scale)
            if value > lower:
                best, lower = (count, points), value
            if lower >= self.goal or not points or self.value - lower < self.worth * (self.goal - lower):
                break
        return best

    def _points(self, scale: float) -> tuple[list[Point], float, float]:
        """Return points that together prove a bound within the precision, the bound, and where it is the lowest."""
        points: list[Point] = []
        priced: list[Multipliers] = []
        lower, self.value = 0.0, math.inf
        while lower < self.goal and len(points) < self.points and (point := self._point(scale, not points)) is not None:
            points.append(point)
            priced.append(point.priced(self.instance, self.directions))
            before, (lower, scale) = lower, self.instance.proved_at_any_scale(priced)
            if lower > self.value * (1.0 - 3.0 * self.precision) or lower < before * (1.0 + self.precision):
                break
        needed = list(range(len(points)))
        for k in range(len(points)):
            fewer = [j for j in needed if j != k]
            if self.instance.proved_at_any_scale([priced[j] for j in fewer])[0] > lower * (1.0 - 0.1 * self.precision):
                needed = fewer
        return [points[k] for k in needed], lower, scale

    def _point(self, scale: float, moving: bool) -> Point | None:
        """Return the best multipliers at a scale |W_3|^2 with their tree; None if they were not found in time.

        A `moving` scale goes to where the multipliers prove the least.
        """
        instance, reach = self.instance, 0.5
        for _ in range(self.rounds):
            if self.stop() or (best := best_multipliers(instance, self.neurons, scale)) is None:
                break
            self.value = best.value
            goal = 1.0 if instance.is_homogeneous else 1.0 / math.sqrt(scale)
            body = Body(instance.atoms, instance.hidden_bias, best.price, self.chosen)
            largest = self.neurons[np.argsort(-self._excess(self.neurons, best, goal))[: self.improved]]
            if self._add(best_with_signs(body, best.multipliers, largest), best, goal):
                continue
            if 2 * len(self.branching.of) > self.most:
                self.branching = Branching.roots(self.directions.vectors, len(instance.targets))
            search = self.branching.search
            complete, violating = search(body, best.multipliers, goal, self.precision, self.stop, self.most)
            missing = self._add(violating, best, goal)
            if not complete and not missing:
                break
            if not missing:
                tree = self.branching.tree()
                most, at = tree.most(body, best.multipliers, self.directions.vectors)
                if most < goal * instance.atoms.secant * (1.0 + 2.0 * self.precision) or not self._choose(at):
                    return Point(best.multipliers, best.price, tree)
            if moving:
                _, at = instance.proved_at_any_scale([Multipliers(best.multipliers, goal, goal * best.price)])
                scale, reach = float(np.clip(at, scale / (1.0 + reach), scale * (1.0 + reach))), 0.85 * reach
        return None

    def _coarse(self) -> Int[np.ndarray, " _"]:
        """Return the neurons that the search looks at first: all on a circle, on a sphere some that are apart."""
        atoms = self.instance.atoms
        if atoms.on_circle:
            return np.arange(len(atoms.directions))
        zeros = (atoms.values <= atoms.missed).sum(axis=0)
        return np.unique(np.concatenate([atoms.peaks(zeros.astype(float), 400), atoms.values.argmax(axis=1)]))

    def _choose(self, neurons: Int[np.ndarray, " _"]) -> bool:
        """Look at more neurons of the dictionary; return False if none of them is new."""
        new = np.setdiff1d(neurons[:100], self.chosen)
        self.chosen = np.union1d(self.chosen, new)
        return len(new) > 0

    def _start(self, network: list[Tensor]) -> tuple[float, Neurons]:
        """Return |W_3|^2 of a network, and neurons: its own, each of the first layer, and random pairs of these."""
        W_1, W_2, W_3 = (W.double().cpu().numpy() for W in network)
        atoms, bias = self.instance.atoms, self.instance.hidden_bias
        (N, J), inputs = atoms.values.shape, atoms.directions.shape[1]
        corners = self.chosen if not bias else np.append(self.chosen, J)
        sizes, outputs = np.linalg.norm(W_1[:, :inputs], axis=1), np.linalg.norm(W_3[:, : len(W_2)], axis=0)
        nearest = (W_1[:, :inputs] @ atoms.directions.T).argmax(axis=1)
        paths = np.zeros((len(corners) + 8 * N + len(W_2), J + 1))
        single, pairs, own = np.split(paths, [len(corners), len(corners) + 8 * N])
        single[np.arange(len(corners)), corners] = 1.0
        rng = np.random.default_rng(0)
        for _ in range(2):
            pairs[np.arange(len(pairs)), rng.choice(corners, len(pairs))] += rng.standard_normal(len(pairs))
        np.add.at(own.T, nearest, (outputs[:, None] * W_2[:, : len(W_1)] * sizes).T)
        own[:, -1] = outputs * W_2[:, -1] * (bias > 0.0)
        size = np.abs(paths)
        total = size.sum(axis=1)
        paths, size = (A[total > 1e-9 * total.max()] / total[total > 1e-9 * total.max(), None] for A in (paths, size))
        h = paths @ np.vstack([atoms.values.T, np.full(N, bias)])
        neurons = Neurons(np.maximum(h, 0.0), size[:, :-1].sum(axis=1), size[:, -1])
        return float(np.square(outputs).sum()) or 1.0, neurons

    def _excess(self, neurons: Neurons, best: Best, goal: float) -> Float[np.ndarray, " C"]:
        """Return the values of neurons over what they may be."""
        price = goal * (neurons.weights + best.price * neurons.biases)
        return np.linalg.norm(neurons.values @ best.multipliers, axis=1) / np.maximum(price, TINY)

    def _add(self, neurons: Neurons, best: Best, goal: float) -> bool:
        """Add neurons for which the multipliers are too large by half of the precision; return False if none are.

        Where there are too many, those that bound the multipliers the most are kept.
        """
        if len(best.used) == len(self.neurons.weights) > self.held:
            self.neurons = self.neurons[np.argsort(-best.used)[: self.held // 2]]
        excess = self._excess(neurons, best, goal)
        new = np.argsort(-excess)[:150]
        new = new[excess[new] > 1.0 + 0.5 * self.precision]
        self.neurons = self.neurons.with_more(neurons[new])
        return len(new) > 0


class Best(NamedTuple):
    """The solution of a programme."""

    value: float  # the programme's value: no multipliers prove more at this scale, if the solver is exact
    multipliers: Float[np.ndarray, "N m"]  # L
    price: float  # the price of a hidden bias, relative to that of a path
    used: Float[np.ndarray, " C"]  # how much each neuron binds


def best_multipliers(instance: Instance, neurons: Neurons, scale: float) -> Best | None:
    """Return the best multipliers for these neurons at this scale s; None if the solver fails.

    They maximise s + 2 <L, Y> - |L|_Q^2 - s w^2 over L and w >= 0 with |L^T sigma(h)| <= s^(-1/2) |m|_1 + w |b|, Q the
    curvature of the loss and of the output's bias; where the problem is homogeneous, 3 (<L, Y>)^(2/3) with
    |L^T sigma(h)| <= |m|_1.
    """
    (N, m), count = instance.targets.shape, len(neurons.weights)
    path = 1.0 if instance.is_homogeneous else 1.0 / math.sqrt(scale)
    # Variables: L, output by output, then w. A cone for each neuron: |L^T sigma(h)| <= its price.
    first = (m + 1) * np.arange(count)[:, None]
    samples = np.arange(N)
    blocks = [(first + 1 + k, k * N + samples, -neurons.values) for k in range(m)]
    blocks.append((first, np.array([m * N]), -neurons.biases[:, None]))
    entries = [[array.ravel() for array in np.broadcast_arrays(*block)] for block in blocks]
    rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
    size = (m + 1) * count
    cone_rows = scipy.sparse.csc_array((values, (rows, columns)), shape=(size, m * N + 1))
    last = scipy.sparse.csc_array(([-1.0], ([0], [m * N])), shape=(1, m * N + 1))
    offsets = np.zeros(size + 1)
    offsets[: size : m + 1] = path * neurons.weights
    curved = instance.output_bias**2 + np.diag(instance.curvature + CURVED)
    quadratic = scipy.sparse.block_diag([*[np.triu(2.0 * curved)] * m, np.array([[2.0 * scale]])], format="csc")
    if instance.is_homogeneous:
        quadratic = 0.0 * quadratic
    linear = np.append(-2.0 * instance.targets.T.ravel(), 0.0)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    cones = [*[clarabel.SecondOrderConeT(m + 1)] * count, clarabel.NonnegativeConeT(1)]
    matrix = scipy.sparse.vstack([cone_rows, last]).tocsc()
    solution = clarabel.DefaultSolver(quadratic, linear, matrix, offsets, cones, settings).solve()
    x, z = np.array(solution.x), np.array(solution.z)
    if not np.isfinite(x).all():
        return None
    homogeneous = 3.0 * max(-0.5 * solution.obj_val, 0.0) ** (2.0 / 3.0)
    value = homogeneous if instance.is_homogeneous else scale - solution.obj_val
    used = np.linalg.norm(z[:size].reshape(count, m + 1), axis=1)
    return Best(value, x[: m * N].reshape(m, N).T, max(float(x[-1]) / path, LEAST_PRICE), used)
