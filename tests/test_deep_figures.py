"""The figures of the papers on depth that show which dimensions pass deep networks, made small."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import denoising
import depth_rank
import known_teachers as teachers
import numpy as np
import pytest
import rank_recovery
import symmetry
import torch
from figure_design import Arrays, Design, Numbers, network
from sklearn.kernel_ridge import KernelRidge
from test_paper_figures import made

from covopt.answer.drawing import draw_panels
from covopt.solvers.deep import starts
from covopt.solvers.training.descent import AdamOptions
from covopt.solvers.training.homotopy import HomotopyOptions
from covopt.solvers.training.trainer import TrainerOptions

SMALL_TEACHER = teachers.Teacher(latent=5, rank=2, inputs=10, outputs=8, neurons=30)

ROUGHLY = HomotopyOptions(factors=(0.05, 0.0), slow=5e-3)
"""Shorter descents."""


def layer_values(layers: list[np.ndarray]) -> list[np.ndarray]:
    """The singular values of each A_l, by torch."""
    return [torch.linalg.svdvals(torch.from_numpy(W[:, :-1].copy())).numpy() for W in layers]


def has_a_picture(design: Design, arrays: Arrays, numbers: Numbers, path: Path) -> None:
    draw_panels(design.panels(arrays, numbers), path)
    assert path.stat().st_size > 0
    assert all(len(row) == len(design.columns) for row in design.rows(numbers))


# ---- teachers
def test_a_teacher_passes_few_dimensions() -> None:
    """Its targets are a function of one number: sorted by it, neighbours of 4000 samples are neighbours in R^4."""
    one = teachers.Teacher(latent=1, rank=1, inputs=6, outputs=4, neurons=5)
    (X, Y), (_, other) = teachers.drawn(one, [4000, 10], 0, 3.0)
    assert (Y**2).sum(axis=1).mean() == pytest.approx(9.0)
    assert Y.mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-12)
    assert np.median(np.linalg.norm(other[:, None] - Y, axis=2).min(axis=1)) < 0.01
    (_, Y), (_, other) = teachers.drawn(one._replace(latent=2, rank=2), [4000, 10], 0, 3.0)
    assert np.median(np.linalg.norm(other[:, None] - Y, axis=2).min(axis=1)) > 0.01
    assert X.shape == (4000, 6)


# ---- rank-recovery
def test_kernel_ridge_regression_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X, Y, at = rng.standard_normal((30, 4)), rng.standard_normal((30, 3)), rng.standard_normal((5, 4))
    ridge = rank_recovery.KernelRidge(X, Y)
    apart = np.linalg.norm(X[:, None] - X, axis=2)[np.triu_indices(30, 1)] ** 2
    other = KernelRidge(alpha=30 * rank_recovery.RIDGE, kernel="rbf", gamma=0.5 / apart.mean()).fit(X, Y)
    assert ridge(at) == pytest.approx(other.predict(at), abs=1e-9)
    step = 1e-6 * np.eye(4)
    slopes = np.stack([(other.predict(at + e) - other.predict(at - e)) / 2e-6 for e in step], axis=2)
    assert ridge.jacobians(at) == pytest.approx(slopes, abs=1e-6)


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Arrays, Numbers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_recovery, "TEACHER", SMALL_TEACHER)
        patch.setattr(rank_recovery, "SMALL", (50, 8))
        patch.setattr(rank_recovery, "DEPTH", 9)
        patch.setattr(rank_recovery, "MIDDLE", range(3, 7))
        patch.setattr(rank_recovery, "START", 5)
        patch.setattr(rank_recovery, "REFINING", replace(ROUGHLY, slow=1e-4))
        found = made(rank_recovery.DESIGN)
        has_a_picture(rank_recovery.DESIGN, *found, tmp_path_factory.mktemp("recovered") / "figure.png")
        return found


def test_few_dimensions_pass_the_network_and_all_pass_the_kernel(recovered: tuple[Arrays, Numbers]) -> None:
    arrays, numbers = recovered
    layers, fresh = network(arrays, "network"), arrays["fresh"]
    assert len(layers) == 9
    dimensions = [int((s > 0.5).sum()) for s in layer_values(layers)[2:6]]
    assert set(dimensions) <= {2, 3}
    assert [layer["dimension"] for layer in numbers["layers"]][2:6] == dimensions
    values = np.linalg.svd(np.stack([_autograd(layers, x) for x in fresh[:20]]), compute_uv=False)
    assert (values > 0.15 * values[:, :1]).sum(axis=1).max() <= 3
    assert numbers["network"]["ranks"][1] < 5
    assert numbers["kernel"]["ranks"] == [8, 8]
    assert numbers["network"]["train"] < numbers["network"]["test"]


def _autograd(layers: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """The Jacobian at one input."""

    def outputs(point: torch.Tensor) -> torch.Tensor:
        for number, W in enumerate(map(torch.from_numpy, layers)):
            point = (torch.relu(point) if number else point) @ W[:, :-1].T + W[:, -1]
        return point

    return torch.autograd.functional.jacobian(outputs, torch.from_numpy(x)).numpy()  # type: ignore[union-attr]


# ---- symmetry
def test_targets_are_the_losses_of_gradient_descent() -> None:
    """By autograd, with E; and without E they follow two numbers, a and b."""
    V = np.random.default_rng(0).standard_normal((3, symmetry.D))
    M = symmetry.target(4)
    assert np.array_equal(M, M.T)
    path = symmetry.descent(V, M, 2)
    v = torch.from_numpy(V[1]).requires_grad_()
    loss = (torch.outer(v, v) - torch.from_numpy(M)).square().sum()
    loss.backward()
    assert symmetry.losses(path, M)[1, 0] == pytest.approx(loss.item(), rel=1e-12)
    assert path[1, 1] == pytest.approx((v - symmetry.ETA * v.grad).detach().numpy(), rel=1e-12)
    plain = np.zeros_like(M)
    plain[0, 0] = 1.0
    found = symmetry.losses(symmetry.descent(V, plain, 5), plain)
    a, b, eta = V[:, 0] ** 2, (V[:, 1:] ** 2).sum(axis=1), symmetry.ETA
    for step in range(6):
        assert found[:, step] == pytest.approx((a + b) ** 2 - 2.0 * a + 1.0, rel=1e-12)
        a, b = a * (1.0 - 4.0 * eta * (a + b - 1.0)) ** 2, b * (1.0 - 4.0 * eta * (a + b)) ** 2
    copies = symmetry.turned(V, 0)
    assert np.abs(copies - V).max() > 0.5
    assert symmetry.losses(symmetry.descent(copies, plain, 5), plain) == pytest.approx(found, rel=1e-10)


def test_crossings_of_paths_that_are_known() -> None:
    cross = np.array([[[-1.0, -1.0], [1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]])
    assert symmetry.crossings(cross) == 1
    assert symmetry.crossings(cross + np.array([[[0.0, 0.0]], [[3.0, 0.0]]])) == 0
    t = np.linspace(0.0, 2.0 * np.pi, 50)
    wave = np.stack([t, np.sin(t + 1.0)], axis=1)
    assert symmetry.crossings(np.stack([wave, np.stack([t, np.zeros(50)], axis=1)])) == 2


def test_a_network_learns_to_forget_how_samples_are_turned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distances of orbits are those of an own computation; layers behind the first ones pass two dimensions."""
    monkeypatch.setattr(symmetry, "SMALL", (150, 12))
    monkeypatch.setattr(symmetry, "DEPTH", 8)
    monkeypatch.setattr(symmetry, "START", 3)
    monkeypatch.setattr(symmetry, "MIDDLE", range(4, 7))
    monkeypatch.setattr(symmetry, "REFINING", ROUGHLY)
    arrays, numbers = made(symmetry.DESIGN)
    layers, told = network(arrays, "network"), numbers["layers"]
    S, T = arrays["fresh"], arrays["turned"]
    for number, (W, layer) in enumerate(zip(layers, told, strict=True), start=1):
        S, T = (points @ W[:, :-1].T + W[:, -1] for points in (S, T))
        if number < len(layers):
            S, T = np.maximum(S, 0.0), np.maximum(T, 0.0)
        strangers = np.linalg.norm(S[:, None] - S, axis=2).sum() / (len(S) * (len(S) - 1))
        assert layer["collapse"] == pytest.approx(np.linalg.norm(S - T, axis=1).mean() / strangers, rel=1e-8)
    assert told[0]["collapse"] > 0.5
    assert max(layer["collapse"] for layer in told[4:]) < 0.35
    assert {int((s > 0.5).sum()) for s in layer_values(layers)[3:6]} <= {2, 3}
    assert numbers["test"] < 0.2 * numbers["variance"]
    has_a_picture(symmetry.DESIGN, arrays, numbers, tmp_path / "figure.png")


# ---- depth-rank
def test_what_its_claims_say_of_networks_that_are_known() -> None:
    """As the paper has it, all are there; each number that is changed takes one of them away."""
    lines = [
        {"depth": L, "name": "family 2", "cost": 0.01 * L, "fit": 0.0, "norm": 2.0 * L, "rank": k, "slope": 2.0}
        for L, k in zip(depth_rank.DEPTHS, (4, 3, 2, 2, 2, 2), strict=True)
    ]
    zero = {"name": "draw 1", "cost": 4.0, "fit": 4.0, "norm": 0.0, "rank": 0, "slope": None}
    lines += [{"depth": L, **zero} for L in depth_rank.DEPTHS]
    assert [claim.seen for claim in depth_rank.DESIGN.claims({"networks": lines})] == [True] * 4
    changes = [(1, "rank", 5), (5, "slope", 2.3), (9, "cost", 1e-3), (11, "norm", 30.0)]
    for place, (line, name, value) in enumerate(changes):
        changed = deepcopy(lines)
        changed[line][name] = value
        seen = [claim.seen for claim in depth_rank.DESIGN.claims({"networks": changed})]
        assert not seen[place]


def test_depth_against_rank_is_that_of_the_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks, norms and slopes by torch, from the weights; no family rises above the network that it came from."""
    monkeypatch.setattr(depth_rank, "TEACHER", SMALL_TEACHER)
    monkeypatch.setattr(depth_rank, "DEPTHS", (4, 7))
    monkeypatch.setattr(depth_rank, "SMALL", (30, 6, 2))
    monkeypatch.setattr(depth_rank, "FAMILIES", (1, 3))
    monkeypatch.setattr(depth_rank, "REFINING", ROUGHLY)
    monkeypatch.setattr(starts, "EXPLORING", ROUGHLY)
    monkeypatch.setattr(starts, "REFINING", ROUGHLY)
    monkeypatch.setattr(depth_rank, "TRAINING", TrainerOptions(AdamOptions(steps=30), iterations=30))
    arrays, numbers = made(depth_rank.DESIGN)
    told = {(line["depth"], line["name"]): line for line in numbers["networks"]}
    names = {"family 1": "k1", "family 3": "k3", "draw 1": "draw0", "draw 2": "draw1"}
    assert set(told) == {(L, name) for L in (4, 7) for name in names}
    for (depth, name), line in told.items():
        layers = network(arrays, f"{names[name]}_L{depth}")
        assert len(layers) == depth
        middle = layer_values(layers)[1 if depth == 4 else 3]
        assert line["rank"] == int((middle > 0.1).sum())
        assert line["norm"] == pytest.approx(sum(float((W**2).sum()) for W in layers), rel=1e-12)
        assert line["cost"] == pytest.approx(line["fit"] + 1e-3 * line["norm"], rel=1e-12)
    for rank in (1, 3):
        shallow, deep = told[4, f"family {rank}"], told[7, f"family {rank}"]
        assert shallow["rank"] <= rank
        assert deep["slope"] == pytest.approx((deep["norm"] - shallow["norm"]) / 3.0, rel=1e-12)
        assert deep["cost"] <= shallow["cost"] + 3.0 * 1e-3 * 2.0 * rank
    has_a_picture(depth_rank.DESIGN, arrays, numbers, tmp_path / "figure.png")


# ---- elsewhere
@pytest.mark.gpu
@pytest.mark.parametrize("module", [denoising, rank_recovery, symmetry, depth_rank])
def test_figures_are_made_on_a_gpu(module: object) -> None:
    assert made(module.DESIGN, 5.0, "cuda")[1]  # type: ignore[attr-defined]
