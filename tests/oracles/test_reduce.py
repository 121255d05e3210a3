"""Merging and Caratheodory: the same outputs, no higher cost, no more neurons than promised."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from covopt.model.activation import Activation
from covopt.oracles.neurons import balance, caratheodory, merge


def layer(inputs: torch.Tensor, weights: torch.Tensor, outputs: torch.Tensor, slope: float = 0.0) -> torch.Tensor:
    return Activation(slope)(inputs @ weights.T) @ outputs


@st.composite
def networks(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(Xt, U, V) with neurons that are multiples of others, opposite to others, or zero on one side."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, m = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    U, V = rng.standard_normal((n, d)), rng.standard_normal((n, m))
    for k in range(1, n):
        kind = draw(st.sampled_from(["keep", "multiple", "opposite", "dead", "silent"]))
        if kind == "multiple":
            U[k] = rng.uniform(0.1, 5.0) * U[rng.integers(k)]
        elif kind == "opposite":
            U[k] = -U[rng.integers(k)]
        elif kind == "dead":
            U[k] = 0.0
        elif kind == "silent":
            V[k] = 0.0
    return torch.as_tensor(rng.standard_normal((7, d))), torch.as_tensor(U), torch.as_tensor(V)


@given(networks(), st.sampled_from([0.0, -0.5, 1.0]))
def test_merging_keeps_the_outputs_and_never_costs_more(network, slope: float) -> None:
    X, U, V = network
    merged = merge(U, V)
    F = layer(X, U, V, slope)
    torch.testing.assert_close(layer(X, merged.directions, merged.outputs, slope), F, rtol=0, atol=1e-10)
    before = (U.norm(dim=1) * V.norm(dim=1)).sum()
    assert float(merged.outputs.norm(dim=1).sum()) <= float(before) * (1 + 1e-12)
    cosines = merged.directions @ merged.directions.T - 2 * torch.eye(len(merged.directions)).double()
    assert len(merged.directions) < 2 or float(cosines.max()) < 1 - 1e-9
    u, v = balance(merged.directions, merged.outputs)
    torch.testing.assert_close(u.norm(dim=1), v.norm(dim=1))
    torch.testing.assert_close(layer(X, u, v, slope), F, rtol=0, atol=1e-10)
    assert float(u.square().sum() + v.square().sum()) <= float(U.square().sum() + V.square().sum()) * (1 + 1e-12)


def test_merging_counts_the_groups() -> None:
    U = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]).double()
    merged = merge(U, torch.tensor([[1.0], [1.0], [-1.0], [1.0], [9.0]]).double())
    assert merged.group.tolist() == [0, 1, 0, 2, -1]
    torch.testing.assert_close(merged.outputs.flatten(), torch.tensor([-2.0, 2.0, 1.0]).double())


def test_merging_with_a_tolerance_takes_the_weighted_mean() -> None:
    angle = 0.01
    U = torch.tensor([[1.0, 0.0], [np.cos(angle), np.sin(angle)]]).double()
    V = torch.tensor([[3.0], [1.0]]).double()
    assert len(merge(U, V, tolerance=1e-5).outputs) == 2
    merged = merge(U, V, tolerance=1e-4)
    assert merged.outputs.tolist() == [[4.0]]
    turned = float(torch.atan2(merged.directions[0, 1], merged.directions[0, 0]))
    assert turned == pytest.approx(angle / 4, rel=1e-3)


def test_nothing_to_merge() -> None:
    merged = merge(torch.zeros(3, 2).double(), torch.ones(3, 1).double())
    assert (merged.directions.shape, merged.outputs.shape) == ((0, 2), (0, 1))
    assert merged.group.tolist() == [-1, -1, -1]


def test_balancing_a_dead_neuron() -> None:
    u, v = balance(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [9.0]]))
    assert u.tolist() == v.tolist() == [[0.0], [6.0]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3), st.integers(1, 60), st.booleans())
def test_caratheodory(seed: int, N: int, m: int, n: int, lattice: bool) -> None:
    rng = np.random.default_rng(seed)
    Phi, V = np.maximum(rng.standard_normal((N, n)), 0.0), rng.standard_normal((n, m))
    if lattice:  # ties, equal columns and zero columns
        Phi, V = np.round(Phi), np.round(V)
    features, outputs = torch.as_tensor(Phi), torch.as_tensor(V)
    left = caratheodory(features, outputs)
    sizes = np.linalg.norm(V, axis=1)
    A = np.stack([np.outer(Phi[:, k], V[k] / sizes[k]).ravel() for k in range(n) if sizes[k] > 0] or [np.zeros(N * m)])
    assert len(left.places) <= np.linalg.matrix_rank(A)
    F, after = features @ outputs, features[:, left.places] @ left.outputs
    scale = float((features.norm(dim=0) * outputs.norm(dim=1)).sum())
    assert float((F - after).abs().max()) <= 1e-12 * scale
    assert float(left.outputs.norm(dim=1).sum()) <= sizes.sum() * (1 + 1e-13)
    # Each output is a positive multiple of what it was.
    cosines = torch.nn.functional.cosine_similarity(left.outputs, outputs[left.places], dim=1)
    torch.testing.assert_close(cosines, torch.ones_like(cosines))
    assert left.places.tolist() == sorted(set(left.places.tolist()))


def test_caratheodory_in_blocks_loses_nothing() -> None:
    rng = np.random.default_rng(0)
    features = torch.as_tensor(np.maximum(rng.standard_normal((12, 500)), 0.0))
    outputs = torch.as_tensor(rng.standard_normal((500, 3)))
    left = caratheodory(features, outputs)
    assert len(left.places) <= 36
    torch.testing.assert_close(features[:, left.places] @ left.outputs, features @ outputs, rtol=0, atol=1e-11)


def test_caratheodory_takes_the_cheaper_way() -> None:
    # phi_3 = phi_1 + phi_2 costs one instead of two.
    features = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]).double()
    left = caratheodory(features, torch.tensor([[1.0], [1.0], [0.5]]).double())
    assert left.places.tolist() == [2]
    torch.testing.assert_close(left.outputs, torch.tensor([[1.5]]).double())


@pytest.mark.parametrize("near", [0.0, 1e-15, 1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_atoms_that_are_plainly_independent_need_no_decomposition(near: float, scale: float, monkeypatch) -> None:
    draw = torch.Generator().manual_seed(3)
    features = torch.randn(12, 5, dtype=torch.float64, generator=draw)
    features[:, 4] = features[:, 3] + near * features[:, 4]
    outputs = torch.randn(5, 2, dtype=torch.float64, generator=draw)
    outputs[4] = outputs[3]
    fast = caratheodory(scale * features, outputs)
    monkeypatch.setattr("covopt.oracles.neurons._independent", lambda *_: False)
    slow = caratheodory(scale * features, outputs)
    assert fast.places.tolist() == slow.places.tolist()
    torch.testing.assert_close(fast.outputs, slow.outputs, rtol=1e-9, atol=1e-9)
    monkeypatch.undo()
    monkeypatch.setattr("covopt.oracles.neurons._fewest", None)
    independent = torch.randn(12, 5, dtype=torch.float64, generator=draw)
    assert caratheodory(independent, outputs).places.tolist() == [0, 1, 2, 3, 4]


def test_caratheodory_leaves_independent_atoms_alone() -> None:
    outputs = torch.tensor([[1.0, 2.0], [-3.0, 0.5]]).double()
    left = caratheodory(torch.eye(2).double(), outputs)
    assert left.places.tolist() == [0, 1]
    torch.testing.assert_close(left.outputs, outputs)
    assert len(caratheodory(torch.zeros(4, 3).double(), torch.ones(3, 2).double()).places) == 0
