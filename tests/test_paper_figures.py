"""The figures of the papers (examples/papers): their numbers against closed forms, and their programs."""

import itertools
import subprocess
import sys
from pathlib import Path

import attraction_repulsion
import counterexample
import denoising
import depth_rank
import numpy as np
import pytest
import rank_recovery
import sgd_grid
import sgd_layers
import sgd_networks
import sgd_steps
import symmetry
import torch
import trained_depths
import trained_recovery
import trained_symmetry
import tripoints
import width_digits
import width_teacher
from figure_design import Arrays, Asked, Design, Numbers, network
from matplotlib.image import imread

import covopt
from covopt.runtime.loop import Budget

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
MODULES = (
    attraction_repulsion, counterexample, denoising, depth_rank, rank_recovery, sgd_grid, sgd_layers, sgd_steps,
    symmetry, trained_depths, trained_recovery, trained_symmetry, tripoints, width_digits, width_teacher,
)  # fmt: skip

TABLE = {
    4: (0.1155, 2.5420, 0.4375, 1.12),
    10: (0.0722, 1.9405, 0.1737, 1.34),
    20: (0.0488, 1.5191, 0.0868, 1.55),
    50: (0.0278, 1.0415, 0.0347, 1.95),
    100: (0.0176, 0.7526, 0.0173, 2.36),
    200: (0.0109, 0.5267, 0.0087, 2.93),
    1000: (0.0033, 0.2060, 0.0017, 5.14),
    10000: (0.0005, 0.0434, 0.0002, 12.8),
}
"""Of each depth: the best e, |W|^2 - 3 L, the bound of the Jacobian, the Lipschitz constant; computed elsewhere."""


def made(design: Design, seconds: float = 600.0, device: str = "cpu") -> tuple[Arrays, Numbers]:
    """The arrays and the numbers of a figure."""
    arrays = design.make(Asked(device=device, budget=Budget(seconds))).arrays
    return arrays, design.numbers(arrays)


def quickly(design: Design, path: Path, seed: int = 0) -> tuple[Arrays, Numbers]:
    """The arrays and the numbers of the quick version of a figure, which has a picture and a table."""
    arrays = design.make(Asked(quick=True, seed=seed, budget=Budget(600.0))).arrays
    numbers = design.numbers(arrays)
    design.picture(arrays, numbers).savefig(path / "figure.png")
    assert all(len(row) == len(design.columns) for row in design.rows(numbers))
    assert design.claims(numbers)
    return arrays, numbers


def test_every_program_stands_on_the_page_of_figures() -> None:
    docs = PAPERS.parents[1] / "docs"
    page = (docs / "figures.md").read_text(encoding="utf-8")
    sections = "".join(file.read_text(encoding="utf-8") for file in (docs / "figures").glob("*.md"))
    programs = {path.stem for path in PAPERS.glob("*.py") if "DESIGN.run()" in path.read_text(encoding="utf-8")}
    assert programs == {module.__name__ for module in MODULES}
    for name in programs:
        assert f"\n## {name}\n" in sections
        assert f"\n| `{name}.py` |" in page


def test_a_program_prints_what_is_seen_and_draws_it(tmp_path: Path) -> None:
    """As a person runs it, from another directory."""
    out = subprocess.run(
        [sys.executable, PAPERS / "counterexample.py", "--seed", "3"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "NOT SEEN" not in out
    assert out.count("\nseen: ") == 5
    assert "0.043449" in out
    assert "(of the paper)" in out
    assert imread(tmp_path / "counterexample.png").std() > 0.01


# ---- attraction and repulsion
def test_the_forces_on_digits_balance(tmp_path: Path) -> None:
    """Both forces by dense inverses; they point against each other, most of all in the plane of the neurons."""
    arrays, numbers = quickly(attraction_repulsion.DESIGN, tmp_path)
    layers, N = network(arrays, "network"), len(arrays["X"])
    assert sorted(np.unique(arrays["labels"], return_counts=True)[1]) == [14, 14, 14]
    Z, Zs = [], [np.column_stack([arrays["X"], np.ones(N)])]
    for W in layers:
        Z.append(Zs[-1] @ W.T)
        Zs.append(np.column_stack([np.maximum(Z[-1], 0.0), np.ones(N)]))
    for layer, line in enumerate(numbers["layers"], start=1):
        t = attraction_repulsion.TIKHONOV * np.linalg.norm(Zs[layer], 2) ** 2
        below, above = (Zs[k] @ Zs[k].T + t * np.eye(N) for k in (layer - 1, layer))
        attraction = 2.0 * np.linalg.solve(below, Z[layer - 1])
        A = np.linalg.solve(above, Z[layer])
        repulsion = -2.0 * (Z[layer - 1] > 0.0) * (A @ A.T @ Zs[layer])[:, :-1]
        assert line["attraction"] == pytest.approx(np.linalg.norm(attraction), rel=1e-8)
        cosine = -(attraction * repulsion).sum() / np.linalg.norm(attraction) / np.linalg.norm(repulsion)
        assert line["cosine"] == pytest.approx(cosine, abs=0.02)  # the program projects on the range of Zs below
        assert line["cosine"] > 0.6
        assert line["neurons"] > 0.9


# ---- counterexample
def test_the_table_of_the_counterexample() -> None:
    lines = {line["depth"]: line for line in made(counterexample.DESIGN, 60.0)[1]["depths"]}
    for depth, (e, beyond, lower, lipschitz) in TABLE.items():
        line = lines[depth]
        assert line["e"] == pytest.approx(e, abs=5.1e-5)
        assert line["excess"] == pytest.approx(beyond, abs=5.1e-5)
        assert line["network"] == pytest.approx(beyond, abs=5.1e-5)
        assert line["lower"] == pytest.approx(lower, abs=5.1e-5)
        assert line["lipschitz"] == pytest.approx(lipschitz, rel=5e-3)
        assert line["error"] <= (1e-14 if depth <= 100 else depth * 2.0**-52)


@pytest.mark.parametrize("depth", [4, 12, 60])
def test_no_other_stretch_is_cheaper(depth: int) -> None:
    best = counterexample.best_stretch(depth)
    norms = [sum((A**2).sum() for A in counterexample.ridge_network(depth, best * t)) for t in (0.9, 0.99, 1.01, 1.1)]
    assert min(norms) > 3 * depth + counterexample.excess(depth, best)


def test_its_bound_is_that_of_the_networks_own_jacobians() -> None:
    X = np.random.default_rng(1).random((20, 3))
    layers = counterexample.ridge_network(20, counterexample.best_stretch(20))
    J = covopt.jacobians([np.column_stack([A, np.zeros(len(A))]) for A in layers], X)
    s = np.linalg.svd(J, compute_uv=False)
    line = next(line for line in made(counterexample.DESIGN, 60.0)[1]["depths"] if line["depth"] == 20)
    assert 20 * (s ** (2.0 / 20)).sum(axis=1).max() - 60.0 == pytest.approx(line["lower"], abs=1e-10)


# ---- tripoints
def test_tripoints_of_pictures_whose_tripoints_are_known() -> None:
    """Three sectors meet once; a strip between two halves meets nothing; a cross of four quarters is one point."""
    y, x = np.mgrid[-50:50, -50:50] + 0.5
    sectors = ((np.arctan2(y, x) + np.pi) / (2.0 * np.pi / 3.0)).astype(int)
    assert tripoints.tripoints(sectors) == 1
    assert tripoints.adjacent(sectors) == [[0, 1], [0, 2], [1, 2]]
    strip = (x > -10).astype(int) + (x > 10)
    assert tripoints.tripoints(strip) == 0
    assert tripoints.adjacent(strip) == [[0, 1], [1, 2]]
    assert tripoints.tripoints(2 * (x > 0) + (y > 0)) == 1
    assert tripoints.tripoints(np.where(x < 0, y > 5, 2 + (y > -5))) == 2


@pytest.fixture(scope="module")
def boundaries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Arrays, Numbers]:
    return quickly(tripoints.DESIGN, tmp_path_factory.mktemp("tripoints"))


def test_deep_boundaries_have_no_tripoints(boundaries: tuple[Arrays, Numbers]) -> None:
    shallow, deep = boundaries[1]["penalised"]
    assert (shallow["depth"], deep["depth"]) == (2, 9)
    assert shallow["tripoints"] > 0
    assert (deep["tripoints"], deep["adjacent"]) == (0, [[0, 1], [1, 2], [2, 3]])
    assert all(claim.seen for claim in tripoints.DESIGN.claims(boundaries[1])[:4])


def test_its_numbers_are_those_of_the_networks(boundaries: tuple[Arrays, Numbers]) -> None:
    """The loss is that of `validate`'s reading of the same weights, by torch."""
    arrays, numbers = boundaries
    X, labels = arrays["X"], arrays["labels"]
    assert [line["lam"] for line in numbers["penalised"] + numbers["free"]] == [1e-4, 1e-4, 0.0, 0.0]
    for line in numbers["penalised"] + numbers["free"]:
        layers = [torch.from_numpy(W) for W in network(arrays, line["name"])]
        F = _outputs(layers, torch.from_numpy(X))
        entropy = torch.nn.functional.cross_entropy(F, torch.from_numpy(labels).long())
        assert line["cross_entropy"] == pytest.approx(float(entropy), rel=1e-12)
        assert line["misclassified"] == int((F.argmax(dim=1).numpy() != labels).sum())
        cost = float(entropy + line["lam"] * sum((W**2).sum() for W in layers))
        assert line["cost"] == pytest.approx(cost, rel=1e-12)


# ---- denoising
def test_distances_to_a_curve() -> None:
    line = np.column_stack([np.linspace(-1.0, 1.0, 2001), np.zeros(2001)])
    assert denoising.distances(np.array([[0.0, 0.5], [2.0, 0.0]]), line) == pytest.approx([0.5, 1.0], abs=1e-12)


def test_a_trained_network_takes_out_noise(tmp_path: Path) -> None:
    """Errors and losses by torch; the deep network takes out more noise across the curve."""
    arrays, numbers = quickly(denoising.DESIGN, tmp_path, seed=1)
    lines = {line["name"]: line for line in numbers["networks"] + numbers["images"]}
    X, fresh, blurred = (torch.from_numpy(arrays[name]) for name in ("X", "fresh", "blurred"))
    for name in denoising.NETWORKS:
        layers = [torch.from_numpy(W) for W in network(arrays, name)]
        cost = (_outputs(layers, X) - X).square().sum(dim=1).mean() + 1e-4 * sum(W.square().sum() for W in layers)
        assert lines[f"curve, {name}"]["cost"] == pytest.approx(float(cost), rel=1e-10)
    for name in denoising.IMAGE_NETWORKS:
        layers = [torch.from_numpy(W) for W in network(arrays, f"images_{name}")]
        before, after = ((P - fresh).square().mean().sqrt() for P in (blurred, _outputs(layers, blurred)))
        assert float(before) == pytest.approx(denoising.IMAGE_NOISE, rel=0.05)
        assert lines[f"images, {name}"]["ratio"] == pytest.approx(float(after / before), rel=1e-10)
    assert lines["curve, deep"]["ratio"] < 0.6
    assert lines["curve, deep"]["ratio"] < lines["curve, shallow"]["ratio"]


def _outputs(layers: list[torch.Tensor], X: torch.Tensor) -> torch.Tensor:
    for number, W in enumerate(layers):
        X = (torch.relu(X) if number else X) @ W[:, :-1].T + W[:, -1]
    return X


# ---- steps of SGD
@pytest.mark.parametrize("name", sgd_steps.LOSSES)
def test_a_step_of_sgd_is_its_rate_times_the_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of all samples: an epoch is one step along the slope of the loss with its penalty, by autograd."""
    count, rate = sgd_steps.SAMPLES, sgd_steps.RATE
    monkeypatch.setattr(sgd_steps, "BATCH", count)
    rng = np.random.default_rng(0)
    X, labels = torch.from_numpy(rng.standard_normal((count + 50, 6))), torch.from_numpy(rng.integers(0, 3, count + 50))
    course = sgd_steps.train(name, X, labels, 1, seed=1)[0]
    torch.manual_seed(1)
    layers = [torch.nn.Linear(n, m) for n, m in itertools.pairwise([6, 100, 100, 100, 100, 3])]
    weights = [W.detach().double().requires_grad_() for layer in layers for W in (layer.weight, layer.bias)]

    def loss(weights: list[torch.Tensor]) -> torch.Tensor:
        F = X[:count]
        for place in range(0, 10, 2):
            F = (torch.relu(F) if place else F) @ weights[place].T + weights[place + 1]
        log = torch.log_softmax(F, dim=1)[torch.arange(count), labels[:count]]
        far = (F - torch.eye(3, dtype=F.dtype)[labels[:count]]).square().sum(dim=1)
        fit = -log.mean() if name == "cross-entropy" else far.mean()
        return fit + sgd_steps.LAM * sum(W.square().sum() for W in weights)

    slopes = torch.autograd.grad(loss(weights), weights)
    assert course[0] == pytest.approx(rate * np.mean([float(slope.norm()) for slope in slopes[::2]]))
    assert course[3] == pytest.approx(
        float(loss([W - rate * g for W, g in zip(weights, slopes, strict=True)]).detach())
    )


def test_ranks_fall_and_steps_go_on(tmp_path: Path) -> None:
    arrays, numbers = quickly(sgd_steps.DESIGN, tmp_path)
    for name, course in numbers["courses"].items():
        assert arrays[name].shape == (15, 5)
        distance, train, test, loss, rank = arrays[name].T
        assert (distance > 0.0).all()
        assert 0.2 < train.max() <= 1.0  # a tenth without training
        assert 0.2 < test.max() <= 1.0
        assert loss[-1] < loss[0]
        assert (rank <= (64 + 3 * 100 + 10) / 5.0).all()
        assert course["rows"][-1] == [15, *arrays[name][-1]]
        assert course["steps"] == pytest.approx(distance[-2:].mean() / distance.mean())


# ---- losses against the width
@pytest.mark.parametrize("module", [width_digits, width_teacher])
def test_losses_against_the_width(module: object, tmp_path: Path) -> None:
    """The lowest of all trials of at most that width, with the test loss of that network, at every lam."""
    panel = module.PANEL  # type: ignore[attr-defined]
    arrays, numbers = quickly(module.DESIGN, tmp_path)  # type: ignore[attr-defined]
    trials, curves = arrays["trials"], numbers["curves"]
    assert [curve["lam"] for curve in curves] == list(panel.strengths)
    for curve in curves:
        mine = trials[trials[:, 0] == curve["lam"]]
        assert sorted(mine[:, 1]) == [1, 1, 1, 3, 3, 3]
        assert [n for n, _, _ in curve["curve"]] == [1, 3]
        for (n, train, test), alone in zip(curve["curve"], curve["alone"], strict=True):
            narrow = mine[mine[:, 1] <= n]
            assert train == narrow[:, 3].min()
            assert test == narrow[narrow[:, 3].argmin(), 4]
            assert alone == mine[mine[:, 1] == n, 3].min()
        assert curve["level"] == min(train for _, train, _ in curve["curve"])
        assert curve["start"]["0.1"] in (1, 3)


def test_a_plateau_is_seen_where_there_is_one() -> None:
    """Trials that end higher than those of fewer neurons do not raise the curve."""

    def numbers(losses: list[float]) -> Numbers:
        trials = [[lam, n, 0.0, loss, n] for lam in (1e-5, 1e-6) for n, loss in enumerate(losses, start=1)]
        return width_teacher.PANEL.numbers({"trials": np.array(trials)})

    def seen(losses: list[float]) -> list[bool]:
        return [claim.seen for claim in width_teacher.PANEL.claims(numbers(losses))[:3]]

    assert seen([3.0, 2.0, 1.0, 1.005, 1.0]) == [True, True, True]
    assert seen([3.0, 2.0, 1.0, 1.1, 1.0]) == [True, False, True]
    assert seen([3.0, 2.0, 1.5, 1.2, 1.0]) == [False, True, True]
    assert seen([1.0, 1.0, 1.0, 1.0, 1.0]) == [True, True, False]
    curve = numbers([3.0, 2.0, 1.0, 1.1, 0.9])["curves"][1]["curve"]
    assert curve == [(1, 3.0, 1.0), (2, 2.0, 2.0), (3, 1.0, 3.0), (4, 1.0, 3.0), (5, 0.9, 5.0)]


# ---- ranks under SGD with normalised networks
@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sgd_networks, "SAMPLES", 128)
    monkeypatch.setattr(sgd_networks, "WIDTH", 8)


def test_the_grid_varies_one_option_at_a_time(few_images: None, tmp_path: Path) -> None:
    """Of each row what is left of the start is the product over its steps, and nothing of a rank is lost so soon."""
    arrays, numbers = quickly(sgd_grid.DESIGN, tmp_path)
    batch, rate, lam = sgd_grid.BASE
    for name, axes in numbers.items():
        assert len(arrays[name]) == 10
        for option, rows in axes.items():
            assert [row[0] for row in rows] == list(sgd_grid.VARIED[option])
            for value, kept, rank, start, *right in rows:
                own = {"batch size": batch, "rate": rate, "lam": lam} | {option: value}
                steps = 128 // int(own["batch size"])
                rates = [own["rate"] * 0.2 ** ((t >= steps * 0.5) + (t >= steps * 0.75)) for t in range(steps)]
                assert kept == pytest.approx(np.prod([1.0 - 2.0 * mu * own["lam"] for mu in rates]), rel=1e-6)
                assert 0.8 * start <= rank <= (5 * 8 + 9) / 6
                assert all(0.0 <= share <= 1.0 for share in right)


def test_ranks_of_layers(few_images: None, tmp_path: Path) -> None:
    _, numbers = quickly(sgd_layers.DESIGN, tmp_path)
    for networks in numbers.values():
        assert [network["batch"] for network in networks] == list(sgd_layers.BATCHES)
        assert all(len(network["ranks"]) == 10 and max(network["ranks"]) <= 10 for network in networks)


def test_claims_of_layers_follow_the_ranks() -> None:
    def seen(ranks: list[list[float]]) -> list[bool]:
        return [claim.seen for claim in sgd_layers._claims({"residual": [{"ranks": each} for each in ranks]})]

    assert seen([[9.0, 5, 4, 2, 1, 9], [9.0, 8, 8, 8, 8, 9]]) == [True, True]
    assert seen([[9.0, 1, 2, 4, 8, 9], [9.0, 8, 8, 8, 8, 9]]) == [False, False]
