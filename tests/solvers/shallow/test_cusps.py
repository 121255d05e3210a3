"""The constructive merge of [JGHG22, Prop. 15]: same outputs, no larger norm, at most 4N neurons."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import gaussian
from references.cusps import merge_cusps

from covopt.model.problem import make_problem
from covopt.model.weights import evaluate


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from(["relu", "leaky:0.2", "leaky:-0.4"]), st.booleans(),
)  # fmt: skip
def test_the_outputs_stay_and_the_norm_never_rises(
    seed: int, samples: int, inputs: int, bias: float, activation: str, on_samples: bool
) -> None:
    X = gaussian(samples, inputs, seed=seed)
    problem = make_problem(X, torch.zeros(samples, 1), lam=1.0, bias=bias, activation=activation)
    n = 60
    U, V = gaussian(n, inputs + 1, seed=seed + 1), gaussian(n, 1, seed=seed + 2)
    U[:, -1] *= bias
    if on_samples and bias:  # cusps exactly at samples
        U[: n // 2, -1] = -(U[: n // 2, :-1] * X[torch.arange(n // 2) % samples]).sum(dim=1) / bias
    V[0] = 0.0
    before = (problem.activation(problem.Xt @ U.T) @ V).numpy()
    merged = merge_cusps(problem.Xt, U, V)
    new_U, new_V = merged.balanced()
    after = (problem.activation(problem.Xt @ new_U.T) @ new_V).numpy()
    scale = float((U.norm(dim=1) * V.norm(dim=1)).sum()) * float(problem.Xt.norm())
    assert after == pytest.approx(before, rel=1e-12, abs=1e-12 * scale)
    assert 2.0 * float(merged.outputs.norm(dim=1).sum()) <= 2.0 * float((U.norm(dim=1) * V.norm(dim=1)).sum()) + 1e-9
    weights = [new_U, torch.cat([new_V.T, new_V.new_zeros(1, 1)], dim=1)]
    assert evaluate(problem, weights).norm <= float(U.square().sum() + V.square().sum()) + 1e-9
    if inputs == 1:
        assert len(merged.directions) <= 4 * samples


def test_two_cusps_in_one_gap_become_one() -> None:
    # f(x) = relu(x - 0.2) + relu(2 x - 1) on samples 0 and 1: both cusps lie between them.
    problem = make_problem([[0.0], [1.0]], [[0.0], [0.0]], lam=1.0)
    U, V = torch.tensor([[1.0, -0.2], [2.0, -1.0]]).double(), torch.ones(2, 1).double()
    merged = merge_cusps(problem.Xt, U, V)
    assert merged.directions.shape == (1, 2)
    assert merged.group.tolist() == [0, 0]
    assert (merged.directions * merged.outputs).tolist() == [pytest.approx([3.0, -1.2])]


def test_neurons_of_other_signs_or_gaps_stay() -> None:
    problem = make_problem([[0.0], [1.0], [2.0]], [[0.0]] * 3, lam=1.0)
    U = torch.tensor([[1.0, -0.5], [1.0, -1.5], [-1.0, 0.5], [1.0, -0.4]]).double()
    V = torch.tensor([[1.0], [1.0], [1.0], [-1.0]]).double()
    assert len(merge_cusps(problem.Xt, U, V).directions) == 4
    nothing = merge_cusps(problem.Xt, U, torch.zeros(4, 1).double())
    assert nothing.directions.shape == (0, 2)
    assert nothing.group.tolist() == [-1] * 4
