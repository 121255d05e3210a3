"""The forces on hidden layers: against autograd, dense pseudo-inverses and what holds at minima; and their picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from instances import Instance, condition, gaussian, instances
from matplotlib.image import imread
from references.hidden_loss import trace_quotient
from runs import Run, toy_result

import covopt
from covopt.answer.forces import ForcesPicture, draw_forces
from covopt.data.arrays import read_npz
from covopt.model.forces import layer_forces
from covopt.model.problem import make_problem, with_bias
from covopt.model.weights import inputs_from


@given(instances(deficient=False))
def test_against_autograd_and_dense_matrices(instance: Instance) -> None:
    problem, Z = instance.problem, instance.Z
    assume(condition(problem, Z) < 100.0)
    inputs = inputs_from(problem, Z)
    for layer in range(1, problem.depth):
        found = layer_forces(problem, Z, layer)
        z = Z[layer - 1].clone().requires_grad_()
        (attraction,) = torch.autograd.grad(trace_quotient(z, inputs[layer - 1]), z)
        above = trace_quotient(Z[layer], with_bias(problem.activation(z), problem.beta))
        (repulsion,) = torch.autograd.grad(above, z)
        close = {"rtol": 1e-8, "atol": 1e-8 * (1.0 + float(attraction.abs().max() + repulsion.abs().max()))}
        torch.testing.assert_close(torch.as_tensor(found.attraction), attraction, **close)
        torch.testing.assert_close(torch.as_tensor(found.repulsion), repulsion, **close)
        inverse = torch.linalg.pinv(inputs[layer] @ inputs[layer].T, rtol=1e-9, hermitian=True)
        bracket = inverse @ Z[layer] @ Z[layer].T @ inverse @ inputs[layer]
        dense = -2.0 * problem.activation.derivative(Z[layer - 1]) * bracket[:, :-1]
        atol = 1e-5 * (1.0 + float(dense.abs().max()))
        torch.testing.assert_close(torch.as_tensor(found.repulsion), dense, rtol=1e-5, atol=atol)


def test_they_cancel_at_a_minimum_of_full_row_rank() -> None:
    # Linear networks, MATH.md section 7: the minimum is Z_l = U S^(l/L); Y has full row rank.
    U, V = torch.linalg.qr(gaussian(3, 3, seed=0)).Q, torch.linalg.qr(gaussian(4, 3, seed=1)).Q
    s = torch.tensor([3.0, 1.0, 0.2], dtype=torch.float64)
    problem = make_problem(torch.eye(3, dtype=torch.float64), (U * s) @ V.T, depth=4, bias=0.0, activation="linear")
    Z = [U * s ** (k / 4) for k in (1, 2, 3)] + [problem.Y]
    for layer in (1, 2, 3):
        found = layer_forces(problem, Z, layer)
        assert found.full_rank
        assert found.imbalance < 1e-12
        assert np.linalg.norm(found.attraction) > 0.1
    assert layer_forces(problem, [1.2 * Z[0], *Z[1:]], 1).imbalance > 0.1


def test_forces_of_a_trained_network_are_shown_with_tikhonov() -> None:
    X = covopt.read_data("digits", rows=120, scale="max").X
    W = list(read_npz(Path(__file__).parents[1] / "cases" / "net_B64.npz").values())
    for layer in (1, 2):
        plain, shown = covopt.forces(W, layer, X=X, tikhonov=0.0), covopt.forces(W, layer, X=X)
        cosines = [
            -float((f.attraction * f.repulsion).sum() / np.linalg.norm(f.attraction) / np.linalg.norm(f.repulsion))
            for f in (plain, shown)
        ]
        assert plain.tikhonov == 0.0 < shown.tikhonov
        assert cosines[0] < 0.1 < 0.45 < cosines[1]
        assert shown.imbalance < plain.imbalance


@pytest.mark.parametrize("t", [1e-3, 0.1])
def test_with_tikhonov_they_are_the_derivatives_of_the_loss_with_it(t: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 3))
    W = [rng.normal(size=(4, 4)), rng.normal(size=(5, 5)), rng.normal(size=(2, 6))]
    Z = [torch.as_tensor(z).requires_grad_() for z in network_representations(X, W)]
    covopt.loss_of_representations(torch.as_tensor(X), Z[-1].detach(), Z, lam=1.0, tikhonov=t).norm.backward()
    for layer in (1, 2):
        found = covopt.forces(W, layer, X=X, tikhonov=t)
        assert found.tikhonov == t
        np.testing.assert_allclose(found.attraction + found.repulsion, Z[layer - 1].grad.numpy(), rtol=1e-8, atol=1e-8)


def network_representations(X: np.ndarray, W: list[np.ndarray]) -> list[np.ndarray]:
    """Z_1, ..., Z_L of a network with biases, in NumPy."""
    inputs, Z = X, []
    for layer in W:
        Z.append(np.c_[inputs, np.ones(len(X))] @ layer.T)
        inputs = np.maximum(Z[-1], 0.0)
    return Z


def test_public_name_takes_results_and_weights() -> None:
    result = toy_result()
    mine = covopt.forces(result, 1)
    assert mine.attraction.shape == mine.repulsion.shape == (9, 4)
    assert (mine.tikhonov, result.forces(1, tikhonov=0.5).tikhonov) == (0.0, 0.5)
    weights = covopt.forces([W.numpy() for W in result.weights], X=result.problem.X.numpy())
    np.testing.assert_allclose(weights.repulsion, mine.repulsion, rtol=1e-9)
    np.testing.assert_allclose(result.forces(1).attraction, mine.attraction)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("samples", "neurons", "classes"), [(30, 12, True), (1, 1, False), (5, 0, False), (40, 3, False)]
)
def test_every_layer_has_a_picture(tmp_path: Path, samples: int, neurons: int, classes: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal((samples, neurons)) for _ in range(3))
    labels = np.arange(samples) % 3 if classes else rng.standard_normal(samples)
    draw_forces(ForcesPicture("toy", *arrays, labels, classes), tmp_path / "forces.png")
    image = imread(tmp_path / "forces.png")
    assert image.shape[0] > 400
    assert image.std() > 0.01


def test_the_command_draws_a_stored_run(tmp_path: Path, run: Run) -> None:
    toy_result().save(tmp_path / "run")
    assert run("forces", tmp_path / "run", "--out", tmp_path / "forces.png")[0] == 0
    assert imread(tmp_path / "forces.png").std() > 0.01
