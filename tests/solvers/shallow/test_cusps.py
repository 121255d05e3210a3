"""[JGHG22, Prop. 15]: with one input and one output, 4N neurons give the same outputs at no larger norm."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from covopt.model.problem import make_problem
from covopt.model.weights import evaluate


def merged(x: np.ndarray, U: np.ndarray, v: np.ndarray) -> np.ndarray:
    """One ray |v| u for all neurons of one sign that are on at the same samples; the sign of v after it.

    The activation is linear on each sample for all of them at once, so that their sum computes what they compute.
    """
    kinds = np.vstack([np.sign(v), np.sign(x[:, None] * U[:, 0] + U[:, 1])])
    rays = np.column_stack([np.abs(v)[:, None] * U, np.sign(v)])
    joined = [rays[(kinds == kind[:, None]).all(axis=0)] for kind in np.unique(kinds, axis=1).T]
    return np.array([[*group[:, :2].sum(axis=0), group[0, 2]] for group in joined if group[0, 2]])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.sampled_from(["relu", "leaky:0.2", "leaky:-0.4"]))
def test_the_outputs_stay_and_the_norm_never_rises(seed: int, samples: int, activation: str) -> None:
    rng = np.random.default_rng(seed)
    x, U, v = rng.standard_normal(samples), rng.standard_normal((60, 2)), rng.standard_normal(60)
    v[0] = 0.0
    problem = make_problem(x[:, None], np.zeros((samples, 1)), lam=1.0, activation=activation)

    def found(U: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, float]:
        """Outputs and norm, each neuron balanced."""
        lengths, sizes = np.linalg.norm(U, axis=1), np.abs(v)
        root = np.sqrt(np.divide(sizes, lengths, where=lengths > 0.0, out=np.zeros_like(lengths)))
        W = [torch.from_numpy(A) for A in (U * root[:, None], np.append(np.sign(v) * root * lengths, 0.0)[None])]
        return problem.activation(problem.Xt @ torch.from_numpy(U).T).numpy() @ v, evaluate(problem, W).norm

    rays = merged(x, U, v)
    (F, norm), (again, less) = found(U, v), found(rays[:, :2], rays[:, 2])
    assert again == pytest.approx(F, rel=1e-12, abs=1e-11)
    assert less <= norm * (1.0 + 1e-12)
    assert len(rays) <= 4 * samples


def test_two_cusps_in_one_gap_become_one() -> None:
    """f(x) = relu(x - 0.2) + relu(2 x - 1) on samples 0 and 1: both cusps lie between them."""
    rays = merged(np.array([0.0, 1.0]), np.array([[1.0, -0.2], [2.0, -1.0]]), np.ones(2))
    assert rays.tolist() == [pytest.approx([3.0, -1.2, 1.0])]
