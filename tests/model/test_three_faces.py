"""The public faces of the loss: equal values, gradients, the way between them, and the cone."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from instances import DEVICES
from torch import Tensor

import covopt

LOSSES = ("mse", "cross_entropy", "huber:0.7", "logistic", None)
BIASES = (0.0, 1.0, "free")
ACTIVATIONS = ("relu", "leaky:0.2")


def network(seed: int, depth: int, loss: str | None = "mse", samples: int = 6, widths: Sequence[int] | None = None):
    """X, Y, W and the weights of the samples, at random."""
    rng = np.random.default_rng(seed)
    outputs = {"logistic": 1, "cross_entropy": 3}.get(str(loss), 2)
    dims = [3, *(rng.integers(1, 2 * samples, size=depth - 1) if widths is None else widths), outputs]
    X, Y = rng.normal(size=(samples, 3)), rng.normal(size=(samples, outputs))
    Y = np.sign(Y) if loss == "logistic" else np.eye(3)[rng.integers(3, size=samples)] if outputs == 3 else Y
    return X, Y, [rng.normal(size=(n, m + 1)) for m, n in pairwise(dims)], rng.uniform(0.2, 2.0, size=samples)


def condition(Z: Sequence[np.ndarray], bias: float | str, slope: float = 0.0) -> float:
    """What a dense covariance loses: the largest over the smallest singular value of a layer, but for rounding.

    The largest is that of [sigma(Z_l), beta 1], the smallest that of what the penalised weights act on: with free
    biases, the part of sigma(Z_l) that is not constant.
    """
    worst = 1.0
    for z in Z[:-1]:
        S = np.where(z > 0, z, slope * z)
        whole = np.hstack([S, np.full((len(z), 1), 1.0 if bias == "free" else float(bias))])
        s = np.linalg.svd(S - S.mean(axis=0) if bias == "free" else whole, compute_uv=False)
        largest = np.linalg.norm(whole, 2)
        s = s[s > 1e-12 * largest]
        worst = max(worst, largest / s[-1] if len(s) else 1.0)
    return float(worst)


def on_segment(X: Any, Y: Any, pairs: list, ZL: Any, layer: int, ends: Sequence[Any], t: float) -> float:
    """L_k with the pair of one hidden layer, or Z_L after the last, at t on a segment."""
    if layer == len(pairs):
        return covopt.loss_of_covariances(X, Y, pairs, (1 - t) * ends[0] + t * ends[1], lam=0.1).total
    mixed = tuple((1 - t) * A + t * B for A, B in zip(*ends, strict=True))
    return covopt.loss_of_covariances(X, Y, [*pairs[:layer], mixed, *pairs[layer + 1 :]], ZL, lam=0.1).total


# ------------------------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_three_losses_agree(loss: str | None, bias: float | str) -> None:
    for seed in range(16):
        activation, depth = ACTIVATIONS[seed % 2], 2 + seed % 5
        X, Y, W, s = network(seed, depth, loss)
        how: dict[str, Any] = {"bias": bias, "activation": activation}
        ask = how | {"loss": loss, "lam": None if loss is None else 0.1, "sample_weight": s if seed % 3 else None}
        Z = covopt.preactivations(X, W, **how)
        by_weights = covopt.loss_of_weights(X, Y, covopt.weights_of(X, Z, **how), **ask)
        by_Z = covopt.loss_of_representations(X, Y, Z, **ask)
        assert by_Z.total == pytest.approx(by_weights.total, rel=1e-10)
        assert by_Z.fit == pytest.approx(by_weights.fit, rel=1e-10)
        # No other weights with the same representations are lighter: W itself is one example.
        assert by_Z.norm <= covopt.loss_of_weights(X, Y, W, **ask).norm * (1 + 1e-12)
        if (digits := condition(Z, bias, 0.2 if activation != "relu" else 0.0)) < 1e3:
            by_K = covopt.loss_of_covariances(X, Y, [covopt.covariances_of(z, **how) for z in Z[:-1]], Z[-1], **ask)
            assert by_K.total == pytest.approx(by_Z.total, rel=max(1e-10, 1e-15 * digits**2))


def test_other_weights_with_the_same_representations_are_heavier() -> None:
    X, Y, W, _ = network(3, 3, samples=4, widths=[7, 6])
    Z = covopt.preactivations(X, W)
    lightest = covopt.weights_of(X, Z)
    S = np.hstack([np.maximum(Z[0], 0.0), np.ones((4, 1))])
    null = np.linalg.svd(S)[2][np.linalg.matrix_rank(S) :]  # what no sample sees
    for direction in np.random.default_rng(0).normal(size=(5, len(lightest[1]), len(null))):
        other = [lightest[0], lightest[1] + 0.1 * direction @ null, lightest[2]]
        np.testing.assert_allclose(covopt.preactivations(X, other)[2], Z[2], atol=1e-9)
        assert covopt.loss_of_weights(X, Y, other).norm > covopt.loss_of_weights(X, Y, lightest).norm


def test_rows_of_weight_zero_are_left_out() -> None:
    X, Y, W, s = network(1, 3)
    s[2] = 0.0
    there = s > 0.0
    Z = covopt.preactivations(X, W)
    pairs = [covopt.covariances_of(z) for z in Z[:-1]]
    small = [covopt.covariances_of(z[there]) for z in Z[:-1]]
    for whole, part in (
        (covopt.loss_of_weights(X, Y, W, lam=0.1, sample_weight=s),
         covopt.loss_of_weights(X[there], Y[there], W, lam=0.1, sample_weight=s[there])),
        (covopt.loss_of_representations(X, Y, Z, lam=0.1, sample_weight=s),
         covopt.loss_of_representations(X[there], Y[there], [z[there] for z in Z], lam=0.1, sample_weight=s[there])),
        (covopt.loss_of_covariances(X, Y, pairs, Z[-1], lam=0.1, sample_weight=s),
         covopt.loss_of_covariances(X[there], Y[there], small, Z[-1][there], lam=0.1, sample_weight=s[there])),
    ):  # fmt: skip
        assert whole.total == pytest.approx(part.total, rel=1e-10)


def test_neurons_that_no_sample_activates_cost_nothing_with_free_biases() -> None:
    X, Y = np.array([[1.0], [2.0], [3.0]]), np.full((3, 1), 0.7)
    Z = [-np.ones((3, 2)), Y]
    assert covopt.loss_of_representations(X, Y, Z, bias="free").norm == pytest.approx(0.0, abs=1e-20)
    by_K = covopt.loss_of_covariances(X, Y, [covopt.covariances_of(Z[0], bias="free")], Y, bias="free")
    assert by_K.norm == pytest.approx(0.0, abs=1e-12)


def test_a_constant_layer_is_in_the_range_of_a_layer_without_active_neurons() -> None:
    """What a free bias leaves of the covariance of a constant layer is rounding."""
    for seed in range(20):
        X, Y, W, _ = network(seed, 3, samples=7, widths=[1, 5])
        W[0] = np.array([[0.0, 0.0, 0.0, -1.0]])  # active for no sample
        Z = covopt.preactivations(X, W, bias="free")
        pairs = [covopt.covariances_of(z, bias="free") for z in Z[:-1]]
        loss = covopt.loss_of_covariances(X, Y, pairs, Z[-1], lam=0.1, bias="free")
        assert loss.norm == pytest.approx(0.0, abs=1e-12)


def test_tikhonov_is_the_price_of_missing_the_representations() -> None:
    X, Y, W, _ = network(5, 3)
    Z = [z + 0.1 for z in covopt.preactivations(X, W, bias=0.0)]  # outside the range
    t, inputs = 0.3, [X, np.maximum(Z[0], 0.0), np.maximum(Z[1], 0.0)]
    dense = sum(np.trace(z @ z.T @ np.linalg.inv(S @ S.T + t * np.eye(6))) for z, S in zip(Z, inputs, strict=True))
    ask: dict[str, Any] = {"bias": 0.0, "tikhonov": t}
    assert covopt.loss_of_representations(X, Y, Z, **ask).norm == pytest.approx(dense, rel=1e-10)
    pairs = [covopt.covariances_of(z, bias=0.0) for z in Z[:-1]]
    assert covopt.loss_of_covariances(X, Y, pairs, Z[-1], **ask).norm == pytest.approx(dense, rel=1e-10)


def test_a_batch_is_a_loop() -> None:
    X, Y, _, _ = network(0, 3)
    networks = [network(seed, 3, widths=[4, 9])[2] for seed in range(5)]
    W = [np.stack(layer) for layer in zip(*networks, strict=True)]
    Z = covopt.preactivations(X, W)
    alone = [covopt.preactivations(X, w) for w in networks]
    totals = covopt.loss_of_representations(X, Y, Z, lam=0.1).total
    by_weights = covopt.loss_of_weights(X, Y, W, lam=0.1).total
    by_K = covopt.loss_of_covariances(X, Y, [covopt.covariances_of(z) for z in Z[:-1]], Z[-1], lam=0.1).total
    for k, (z, w) in enumerate(zip(alone, networks, strict=True)):
        one = covopt.loss_of_representations(X, Y, z, lam=0.1).total
        assert totals[k] == pytest.approx(one, rel=1e-9)
        assert by_K[k] == pytest.approx(one, rel=1e-6)
        assert by_weights[k] == pytest.approx(covopt.loss_of_weights(X, Y, w, lam=0.1).total, rel=1e-12)
        for batch, single in zip(covopt.project_to_range([A + 0.1 for A in Z], X), z, strict=True):
            assert batch[k].shape == single.shape


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_keep_their_type_and_device(dtype: torch.dtype, device: str) -> None:
    X, Y, W, _ = network(2, 3, widths=[4, 4])
    tensors = [torch.tensor(w, dtype=dtype, device=device) for w in W]
    Z = covopt.preactivations(X, tensors)
    pairs = [covopt.covariances_of(z) for z in Z[:-1]]
    results = [*Z, *covopt.weights_of(X, Z), *covopt.project_to_range(Z, X), *pairs[0]]
    results += [covopt.loss_of_representations(X, Y, Z, lam=0.1).total]
    results += [covopt.loss_of_covariances(X, Y, pairs, Z[-1], lam=0.1, tikhonov=1e-3).total]
    results += [covopt.loss_of_weights(X, Y, tensors, lam=0.1).total]
    assert {(A.dtype, A.device.type) for A in results} == {(dtype, device)}


# ---------------------------------------------------------------------------------------------------------- gradients
def smooth_network(widths: list[int], loss: str | None, bias: float | str):
    """A random network at which the loss is smooth: no pre-activation near zero, no layer badly conditioned."""
    for seed in range(1000):
        X, Y, W, s = network(seed, 3, loss, widths=widths)
        Z = covopt.preactivations(X, W, bias=bias)
        alive = all((z > 0).any(axis=0).all() for z in Z[:-1])
        if alive and min(np.abs(z).min() for z in Z[:-1]) > 3e-3 and condition(Z, bias) < 300.0:
            return X, Y, W, s
    raise AssertionError("no such network")


def check_gradient(f: Callable[[list[Tensor]], Tensor], at: list[Tensor], along: list[Tensor], h: float) -> None:
    """Compare a directional derivative with the central difference of fourth order, to 1e-6 of its largest value."""
    leaves = [A.clone().requires_grad_() for A in at]
    gradient = torch.autograd.grad(f(leaves), leaves)
    by_gradient = sum(float((g * d).sum()) for g, d in zip(gradient, along, strict=True))
    largest = sum(float(g.norm() * d.norm()) for g, d in zip(gradient, along, strict=True))

    def value(t: float) -> float:
        return float(f([A + t * D for A, D in zip(at, along, strict=True)]))

    by_difference = (8 * (value(h) - value(-h)) - value(2 * h) + value(-2 * h)) / (12 * h)
    assert largest > 0.0
    assert by_gradient == pytest.approx(by_difference, rel=1e-6, abs=1e-6 * largest)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("widths", [[9, 8], [3, 2]], ids=["full rank", "deficient rank"])
def test_gradients_against_differences(widths: list[int], loss: str | None, bias: float | str) -> None:
    X, Y, W, s = smooth_network(widths, loss, bias)
    ask: dict[str, Any] = {"loss": loss, "lam": None if loss is None else 0.1, "bias": bias, "sample_weight": s}
    rng = torch.Generator().manual_seed(0)

    def direction(A: Tensor) -> Tensor:
        D = torch.randn(A.shape, generator=rng, dtype=A.dtype)
        return D * (A.norm() / D.norm())

    weights = [torch.tensor(w) for w in W]
    moves = [direction(w) for w in weights]
    check_gradient(lambda A: covopt.loss_of_weights(X, Y, A, **ask).total, weights, moves, 1e-6)
    Z = [torch.as_tensor(z) for z in covopt.preactivations(X, weights, bias=bias)]
    # Inside the range tolerance of 1e-6; the projection then takes larger steps.
    check_gradient(
        lambda A: covopt.loss_of_representations(X, Y, A, **ask).total, Z, [1e-3 * direction(z) for z in Z], 1e-4
    )
    check_gradient(
        lambda A: covopt.loss_of_representations(X, Y, covopt.project_to_range(A, X, bias=bias), **ask).total,
        Z, [direction(z) for z in Z], 1e-5,
    )  # fmt: skip
    check_gradient(
        lambda A: covopt.loss_of_representations(X, Y, A, tikhonov=0.1, **ask).total,
        Z, [direction(z) for z in Z], 1e-5,
    )  # fmt: skip
    check_gradient(lambda A: sum((w**2).sum() for w in covopt.weights_of(X, A, bias=bias)),
                   Z, [1e-3 * direction(z) for z in Z], 1e-4)  # fmt: skip


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("tikhonov", [0.0, 0.1])
@pytest.mark.parametrize("widths", [[9, 8], [3, 2]], ids=["full rank", "deficient rank"])
def test_gradients_in_covariances_against_differences(widths: list[int], tikhonov: float, bias: float | str) -> None:
    """Along representations that move, which keeps every rank; the chain rule through `covariances_of` is exact."""
    X, Y, W, s = smooth_network(widths, "mse", bias)
    rng = torch.Generator().manual_seed(0)
    moves = [torch.randn(w.shape, generator=rng, dtype=torch.float64) for w in W]

    def value(weights: list[Tensor]) -> Tensor:
        layers = covopt.preactivations(X, weights, bias=bias)
        pairs = [covopt.covariances_of(z, bias=bias) for z in layers[:-1]]
        ask: dict[str, Any] = {"lam": 0.1, "bias": bias, "sample_weight": s, "tikhonov": tikhonov}
        return covopt.loss_of_covariances(X, Y, pairs, layers[-1], **ask).total

    check_gradient(value, [torch.tensor(w) for w in W], moves, 1e-5)


@pytest.mark.parametrize("bias", BIASES)
def test_gradients_in_each_covariance_against_differences(bias: float | str) -> None:
    """The matrices themselves as leaves, at full rank, where every symmetric change is allowed."""
    X, Y, W, s = smooth_network([9, 8], "mse", bias)
    Z = covopt.preactivations(X, [torch.tensor(w) for w in W], bias=bias)
    leaves = [A for z in Z[:-1] for A in covopt.covariances_of(z, bias=bias)] + [Z[-1]]
    rng = torch.Generator().manual_seed(0)

    def symmetric(A: Tensor) -> Tensor:
        D = torch.randn(A.shape, generator=rng, dtype=A.dtype)
        return torch.linalg.eigvalsh(A)[0].abs() * (D + D.T) / (D + D.T).norm()

    for t in (0.0, 0.1):
        # Without Tikhonov the range of K^sigma is checked: the first pre-activations stay in the range of [X, beta 1].
        moves = [torch.zeros_like(leaves[0]) if t == 0.0 else symmetric(leaves[0]), *map(symmetric, leaves[1:-1])]
        moves += [torch.zeros_like(Z[-1])]
        check_gradient(
            lambda A, t=t: covopt.loss_of_covariances(
                X, Y, [(A[0], A[1]), (A[2], A[3])], A[4], lam=0.1, bias=bias, sample_weight=s, tikhonov=t
            ).total,
            leaves, moves, 1e-3,
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------- what the paper says
def test_the_loss_of_covariances_is_convex_in_each_pair() -> None:
    """[JGHG22, Prop. 5] on segments between pairs in S, the neighbours fixed; S is convex."""
    rng = np.random.default_rng(0)
    for case in range(100):
        N, depth = 5, 2 + case % 3
        X, Y, W, _ = network(case, depth, samples=N, widths=[12] * (depth - 1))
        Z = covopt.preactivations(X, W)
        pairs = [covopt.covariances_of(z) for z in Z[:-1]]
        layer = int(rng.integers(depth))
        if layer == depth - 1:
            ends = [Z[-1], Z[-1] + rng.normal(size=Z[-1].shape)]
        else:
            S = [X, *(np.maximum(z, 0.0) for z in Z)][layer]
            other = np.hstack([S, np.ones((N, 1))]) @ rng.normal(size=(S.shape[1] + 1, 12))
            ends = [pairs[layer], covopt.covariances_of(other)]

        moved = partial(on_segment, X, Y, pairs, Z[-1], layer, ends)
        first, middle, last = moved(0.0), moved(0.4), moved(1.0)
        assert middle <= 0.6 * first + 0.4 * last + 1e-7 * max(first, last)


def test_a_local_minimum_of_the_weights_is_one_of_the_representations() -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(6, 2)), rng.normal(size=(6, 1))
    result = covopt.solve(X, Y, lam=0.05, time_limit=20, max_iterations=30, gap=1e-9)
    Z = [result.representations(1), result.representations(2)]
    at_minimum = covopt.loss_of_representations(X, Y, Z, lam=0.05).total
    assert at_minimum == pytest.approx(result.cost, rel=1e-7)
    for size in np.repeat([1e-1, 1e-2, 1e-3], 20):
        moved = covopt.project_to_range([z + size * rng.normal(size=z.shape) for z in Z], X)
        assert covopt.loss_of_representations(X, Y, moved, lam=0.05).total >= at_minimum * (1 - 1e-7)


def test_a_local_minimum_of_the_weights_that_is_none_of_the_covariances() -> None:
    """[JGHG22, Prop. 19]: for X = (1, -1), Y = (1, 1) two equal neurons at x = 1 are a local minimum of the weights.

    In covariances the neuron at x = -1 can be mixed in, which lowers the loss at once. C is the mean here and the sum
    in the paper, so the paper's lam is 2 lam.
    """
    X, Y, lam = np.array([[1.0], [-1.0]]), np.ones((2, 1)), 0.1
    paper_lam = 2 * lam
    a = np.sqrt((1 - paper_lam) / 2) * np.ones((2, 1))
    W = [np.hstack([a, np.zeros((2, 1))]), np.hstack([a.T, [[0.0]]])]
    ask: dict[str, Any] = {"lam": lam, "bias": 0.0}
    stuck = covopt.loss_of_weights(X, Y, W, **ask).total
    assert stuck == pytest.approx((1 + 2 * paper_lam - paper_lam**2) / 2)
    for step in 1e-3 * np.random.default_rng(0).normal(size=(200, 2, 2)):
        moved = [W[0] + [[s, 0.0] for s in step[0]], W[1] + [*step[1], 0.0]]
        assert covopt.loss_of_weights(X, Y, moved, **ask).total >= stuck - 1e-12
        Z = covopt.preactivations(X, moved, bias=0.0)
        assert covopt.loss_of_representations(X, Y, Z, **ask).total >= stuck - 1e-12
    Z = covopt.preactivations(X, W, bias=0.0)
    here = covopt.covariances_of(Z[0], bias=0.0)
    there = covopt.covariances_of(-Z[0], bias=0.0)

    def mixed(t: float) -> float:
        """t of the pair of the neuron at x = -1, with the outputs that are best for it."""
        pair = tuple((1 - t) * A + t * B for A, B in zip(here, there, strict=True))
        outputs = (np.array([[1.0 - t], [s]]) * (1 - paper_lam) for s in np.linspace(0.0, t, 11))
        return min(covopt.loss_of_covariances(X, Y, [pair], F, **ask).total for F in outputs)

    for t in (1e-3, 1e-2, 1e-1):
        assert mixed(t) < stuck - 0.1 * t


# ---------------------------------------------------------------------------------------------------------- the cone
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "linear"])
def test_pairs_of_neurons_are_in_the_cone(activation: str, bias: float | str) -> None:
    how: dict[str, Any] = {"bias": bias, "activation": activation}
    for N, n in ((1, 1), (2, 3), (3, 2), (4, 6)):
        K, Ks = covopt.covariances_of(np.random.default_rng(n).normal(size=(N, n)), **how)
        answer = covopt.in_cone(K, Ks, **how)
        assert answer
        again = covopt.covariances_of(answer.Z, **how)
        np.testing.assert_allclose(again[0], K, atol=1e-7 * np.abs(K).max())
        np.testing.assert_allclose(again[1], Ks, atol=1e-7 * np.abs(Ks).max())


@pytest.mark.parametrize("bias", BIASES)
def test_pairs_of_no_neurons_are_outside_the_cone(bias: float | str) -> None:
    K, Ks = covopt.covariances_of(np.random.default_rng(0).normal(size=(4, 3)), bias=bias)
    column = 0.0 if bias == 0.0 else 1.0
    negative = np.diag([1.0, 1.0, 1.0, -0.1])
    outside = [
        (K, K * 1.5 + column),  # sigma(z)^2 <= z^2
        (K + 3.0 * negative, Ks),
        (K, Ks - 3.0 * np.outer([1.0, 0, 0, 0], [0, 0, 0, 1.0]) - 3.0 * np.outer([0, 0, 0, 1.0], [1.0, 0, 0, 0])),
        (np.zeros((4, 4)), Ks),
    ]
    for first, second in outside:
        answer = covopt.in_cone(first, second, bias=bias)
        assert answer.verdict.value == "not realisable"
        assert not answer
        witness = answer.witness
        if hasattr(witness, "C1"):  # <C1, K> + <C2, S> > 0, and <= 0 for the pair of every neuron
            assert (witness.C1 * first).sum() + (witness.C2 * (second - column)).sum() > 0.0
            for z in np.random.default_rng(1).normal(size=(200, 4)):
                s = np.maximum(z, 0.0)
                assert z @ witness.C1 @ z + s @ witness.C2 @ s <= 1e-12 * (z @ z)
    with pytest.raises(covopt.ProblemError, match="No neurons have these covariances"):
        covopt.representations_of(*outside[0], bias=bias)
