"""The three faces of the loss: equality along random networks, the speed of a batch, convexity, and the cone."""

import time
from collections import Counter
from typing import Any

import numpy as np

import covopt
from tests.benchmarks.harness import Outcome, Settings, benchmark, show
from tests.random_networks import ACTIVATIONS, BIASES, LOSSES, condition, network, on_segment

NETWORKS, SEGMENTS, PAIRS, BATCH = 1000, 1000, 500, 1000
CONDITIONED = 600.0
"""Condition number of the layers up to which dense covariances keep ten digits: eps times its square is below 1e-10."""


@benchmark("faces", "the three faces of the loss: equality, a batch, convexity, the cone (minutes)")
def run_faces(settings: Settings) -> Outcome:
    """Every row of the table in one run."""
    share = 20 if settings.quick else 1
    by_Z, by_K, conditioned = _equality(NETWORKS // share)
    ratio = _speed(BATCH // share)
    violation = _convexity(SEGMENTS // share)
    verdicts, wrong, seconds = _cone(PAIRS // share)
    undecided = sum(number for (_, verdict), number in verdicts.items() if verdict == "undecided")
    rows = [
        ("weights and representations, relative difference", NETWORKS // share, by_Z),
        ("representations and covariances, relative difference", conditioned, by_K),
        ("a batch against a loop, times faster", BATCH // share, ratio),
        ("segments: largest relative violation of convexity", SEGMENTS // share, violation),
        ("pairs: wrong verdicts", PAIRS // share, wrong),
        ("pairs: undecided", PAIRS // share, undecided),
        ("pairs: median seconds", PAIRS // share, seconds),
    ]
    good = by_Z <= 1e-10 and by_K <= 1e-10 and ratio >= 20.0 and violation <= 1e-9 and wrong == 0
    return Outcome(
        target="losses equal to 1e-10, a batch 20 times faster than a loop, convex on segments, no wrong verdict",
        reached=f"W and Z {by_Z:.1e}; Z and K {by_K:.1e} on the {conditioned} networks with condition below"
        f" {CONDITIONED:g}; a batch {show(ratio)} times faster; convex to {violation:.1e};"
        f" {wrong} wrong and {undecided} undecided of {PAIRS // share} pairs",
        met=good,
        columns=("what", "number", "value"),
        rows=rows,
    )


def _equality(number: int) -> tuple[float, float, int]:
    """The largest differences, and the number of networks of moderate condition."""
    by_Z, by_K, conditioned = 0.0, 0.0, 0
    for seed in range(number):
        loss, bias = LOSSES[seed % 5], BIASES[(seed // 5) % 3]
        how: dict[str, Any] = {"bias": bias, "activation": ACTIVATIONS[(seed // 15) % 2]}
        X, Y, W, s = network(seed, 2 + (seed // 30) % 5, loss)
        ask = how | {"loss": loss, "lam": None if loss is None else 0.1, "sample_weight": s if seed % 4 else None}
        Z = covopt.preactivations(X, W, **how)
        first = covopt.loss_of_weights(X, Y, covopt.weights_of(X, Z, **how), **ask).total
        second = covopt.loss_of_representations(X, Y, Z, **ask).total
        by_Z = max(by_Z, abs(first - second) / second)
        if condition(Z, bias, 0.0 if how["activation"] == "relu" else 0.2) < CONDITIONED:
            pairs = [covopt.covariances_of(z, **how) for z in Z[:-1]]
            third = covopt.loss_of_covariances(X, Y, pairs, Z[-1], **ask).total
            by_K, conditioned = max(by_K, abs(third - second) / second), conditioned + 1
    return by_Z, by_K, conditioned


def _speed(number: int) -> float:
    """Times that a batch is faster than a loop, the median of five, one after the other in turn."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(10, 3)), rng.normal(size=(10, 2))
    Z = covopt.preactivations(X, [rng.normal(size=(number, n, m + 1)) for m, n in ((3, 20), (20, 20), (20, 2))])
    ratios = []
    for _ in range(5):
        begun = time.perf_counter()
        covopt.loss_of_representations(X, Y, Z, lam=0.1)
        batch = time.perf_counter() - begun
        begun = time.perf_counter()
        for k in range(number):
            covopt.loss_of_representations(X, Y, [z[k] for z in Z], lam=0.1)
        ratios.append((time.perf_counter() - begun) / batch)
    return float(np.median(ratios))


def _convexity(number: int) -> float:
    """The largest (value inside - chord) / chord on segments of pairs or outputs, the neighbours fixed."""
    rng, worst = np.random.default_rng(0), 0.0
    for case in range(number):
        depth = 2 + case % 3
        X, Y, W, _ = network(case, depth, samples=5, widths=[12] * (depth - 1))
        Z = covopt.preactivations(X, W)
        pairs, layer = [covopt.covariances_of(z) for z in Z[:-1]], int(rng.integers(depth))
        S = [X, *(np.maximum(z, 0.0) for z in Z)][layer]
        moved = np.hstack([S, np.ones((5, 1))]) @ rng.normal(size=(S.shape[1] + 1, 12))
        # Both ends keep the range that the neighbours lie in, so that the loss is finite at both.
        ends = (
            [Z[-1], moved[:, : Z[-1].shape[1]]]
            if layer == depth - 1
            else [pairs[layer], covopt.covariances_of(np.hstack([Z[layer], moved]))]
        )
        t = rng.uniform()
        low, inside, high = (on_segment(X, Y, pairs, Z[-1], layer, ends, at) for at in (0.0, t, 1.0))
        chord = (1 - t) * low + t * high
        worst = max(worst, (inside - chord) / chord)
    return worst


def _cone(number: int) -> tuple[Counter, int, float]:
    """Verdicts by side, wrong ones, and the median of seconds; half of the pairs lie inside by construction."""
    rng, verdicts, wrong, seconds = np.random.default_rng(1), Counter(), 0, []
    for k in range(number):
        N, activation, bias = int(rng.integers(2, 7)), ACTIVATIONS[k % 2], BIASES[k % 3]
        Z = rng.normal(size=(N, int(rng.integers(1, 2 * N + 3))))
        how: dict[str, Any] = {"bias": bias, "activation": activation}
        K, Ks = covopt.covariances_of(Z, **how)
        inside = k % 4 < 2
        if not inside:
            K, Ks = _outside(K, Ks, k // 4 % 3, 0.0 if bias == 0.0 else 1.0)
        begun = time.perf_counter()
        answer = covopt.in_cone(K, Ks, time_limit=4.0, **how)
        seconds.append(time.perf_counter() - begun)
        verdicts["inside" if inside else "outside", answer.verdict.value] += 1
        wrong += answer.verdict.value == ("not realisable" if inside else "realisable")
    return verdicts, wrong, float(np.median(seconds))


def _outside(K: np.ndarray, Ks: np.ndarray, kind: int, column: float) -> tuple[np.ndarray, np.ndarray]:
    """A pair that no neurons have: sigma(z)^2 above z^2; K with a negative eigenvalue; S below the least product."""
    corner = np.zeros_like(K)
    corner[0, -1] = corner[-1, 0] = 1.0
    if kind == 0:
        return K, 1.5 * K + column
    if kind == 1:
        return K - 0.6 * np.linalg.eigvalsh(K)[-1] * np.eye(len(K)), Ks
    return K, Ks - 3.0 * np.abs(Ks).max() * corner
