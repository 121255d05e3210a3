"""Ranks under SGD: the grid, what it says, its files; the ranks and bounds themselves are in test_rank_audit.py."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run
from instances import gaussian

import covopt
from covopt.runtime.loop import Status
from covopt.studies.ranks import words as rank_words
from covopt.studies.ranks.rank_curves import curve

LAM_MAX = Path(__file__).parents[2] / "cases" / "lam_max.npz"


def classes(samples: int = 24, features: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, with an input that is always 0."""
    X = gaussian(samples, features, seed=5).numpy()
    X[:, 3] = 0.0
    return X, np.eye(3)[np.arange(samples) % 3]


def small(**options: object) -> covopt.Ranks:
    chosen = {"lam": 0.02, "loss": "cross_entropy", "width": 8, "seeds": 2, "reference": 0} | options
    return covopt.ranks(*classes(), **chosen)  # type: ignore[arg-type]


def test_by_default_settings_are_compared_at_equal_decay() -> None:
    """T is the least number of steps with (1 - 2 mu lam)^T <= kept, whatever the batch; epochs differ."""
    found = small(batch_size=[2, 12], rate=[0.1, 0.2], kept=0.03)
    assert found.status is Status.CONVERGED
    assert [(c.setting.batch_size, c.setting.rate, c.setting.seed) for c in found.cells] == [
        (size, rate, seed) for size in (2, 12) for rate in (0.1, 0.2) for seed in (0, 1)
    ]
    for cell in found.cells:
        q = 1.0 - 2.0 * float(cell.setting.rate or 0.0) * 0.02
        assert cell.finished
        assert cell.kept == pytest.approx(q ** float(cell.steps or 0), rel=1e-11)
        assert q ** float(cell.steps or 0) <= 0.03 < q ** (float(cell.steps or 0) - 1.0)
        assert cell.epochs == pytest.approx(float(cell.steps or 0) * float(cell.setting.batch_size or 0) / 24)


def test_what_is_left_of_the_start_is_in_the_weights() -> None:
    """An input that is always 0: its column of W_1 is kept times that of the start, with momentum too."""
    for options in ({"momentum": 0.9, "nesterov": True, "rate": 0.02}, {"rate": 0.1}):
        for cell in small(batch_size=5, steps=400, **options).cells:
            expected = float(cell.kept or 0.0) * cell.start[0][:, 3]
            torch.testing.assert_close(cell.weights[0][:, 3], expected, rtol=1e-11, atol=0.0)


def test_without_decay_the_start_never_fades() -> None:
    still, decayed = small(lam=[0.0, 0.05], epochs=20, batch_size=6, seeds=1).cells
    assert still.kept == 1.0
    assert still.steps == decayed.steps == 80
    assert "never fade" in still.summary(None)["verdict"][1]  # type: ignore[index]
    assert still.cost.total == still.cost.fit


def test_weights_that_decay_to_nothing_have_rank_0_as_the_solver_says() -> None:
    """1.25 lam_max of two layers and mse: zero is the minimum; at half of it rank 1 and 1.133047, which is proved."""
    case = np.load(LAM_MAX)
    how = {"batch_size": 20, "rate": 0.05, "steps": 4000, "depth": 2, "width": 30, "bias": 0.0, "seeds": 1}
    found = covopt.ranks(case["X"], case["Y"], lam=[0.445166, 0.1780664], **how, time_limit=30.0, reference=8.0)
    for cell, rank in zip(found.cells, (0, 1), strict=True):
        minimum = found.references[cell.setting.lam]
        assert [layer.rank[1e-3] for layer in cell.layers] == [rank, rank]
        assert [layer.rank[1e-3] for layer in minimum.layers] == [rank, rank]
        assert cell.cost.total == pytest.approx(minimum.result.cost, rel=1e-4)
    assert sum(float(W.square().sum()) for W in found.cells[0].weights) < 1e-12
    assert found.cells[1].cost.total == pytest.approx(1.133047, rel=1e-4)


def test_the_curve_meets_the_end_and_the_prediction_bounds_what_few_steps_leave() -> None:
    """After T steps of batches of B, s_i(W_T) >= kept s_(i + T B)(W_0): so few steps cannot lower the rank much."""
    cell = small(batch_size=1, rate=0.5, steps=2, width=40, seeds=1).cells[0]
    points = curve(cell, 2, 1e-3)
    assert points["epochs"].tolist() == pytest.approx([1 / 24, 2 / 24])
    assert points["rank"][-1] == cell.layers[1].rank[1e-3] >= 40 - 2
    assert points["kept"].tolist() == pytest.approx([0.98, 0.98**2])
    assert cell.layers[1].predicted == {1e-3: int(points["predicted"][-1])}


def test_a_network_given_with_its_start_is_audited_as_the_one_that_was_trained(tmp_path: Path, run: Run) -> None:
    trained = small(batch_size=4, rate=0.1, steps=300, seeds=1).cells[0]
    assert trained.start is not None
    for name, weights in (("net", trained.weights), ("start", trained.start)):
        W1, W2, W3 = (W.numpy() for W in weights)
        np.savez(tmp_path / f"{name}.npz", W1=W1, W2=W2, W3=W3)
    X, Y = classes()
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    asked = ["--lam", "0.02", "--loss", "cross_entropy", "--batch-size", "4", "--rate", "0.1", "--steps", "300"]
    files = ["--net", str(tmp_path / "net.npz"), "--start", str(tmp_path / "start.npz"), "--reference", "0", "--json"]
    code, answer, _ = run("ranks", str(tmp_path / "data.npz"), *asked, *files, "--out", str(tmp_path / "run"))
    assert code == 0
    cell, expected = json.loads(answer)["cells"][0], json.loads(json.dumps(trained.summary(None)))
    assert cell["layers"] == expected["layers"]
    assert cell["kept"] == expected["kept"] == pytest.approx(cell["kept_measured"], rel=1e-11)
    code, answer, _ = run("ranks", str(tmp_path / "data.npz"), *asked[:-1], "100", *files[:-1])
    assert "0.3 of the given initial weights, but this training retains 0.67" in answer
    assert cell["seed"] is None
    assert covopt.verify(tmp_path / "run").passed


def test_a_stored_grid_comes_back_and_is_verified(tmp_path: Path) -> None:
    found = small(batch_size=[3, 24], kept=0.3, tolerance=[1e-3, 1e-2], reference=0.5, depth=2)
    found.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    again = covopt.load(tmp_path / "run")
    assert isinstance(again, covopt.Ranks)
    assert again.summary() == found.summary()
    assert again.rank(1, batch_size=3) == found.rank(1, batch_size=3)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *("ranks.json", "cells.csv", "networks.npz", "spectra.npz", "problem.npz", "figure.png", "origin.json"),
        "references",
    }
    assert "Against what remains" in covopt.write_report(tmp_path / "run").read_text(encoding="utf-8")
    columns, rows = rank_words.table(found.summary())
    assert len(rows) == 4
    assert columns[:2] == ["batch", "steps"]


def test_what_time_ends_is_told_as_unfinished() -> None:
    found = small(batch_size=[4, 8], rate=1e-6, steps=10**8, time_limit=0.5, seeds=1)
    assert found.status is Status.TIME_LIMIT
    assert not any(cell.finished for cell in found.cells)
    assert "a longer --time-limit finishes them" in rank_words.answer(found.summary())
    interrupted = rank_words.answer(replace(found, status=Status.INTERRUPTED).summary())
    assert "did not take all steps and are reported as they are; the training was interrupted." in interrupted


def test_networks_near_their_initial_weights_are_not_compared() -> None:
    """After a few steps ranks are those of the initialisation, and no effect of the batches is measured."""
    few = rank_words.answer(small(batch_size=[4, 24], epochs=2, width=12).summary())
    assert "To compare ranks at equal decay, train until --kept 1e-4 remains." in few
    assert "After these steps the rank of" in few
    assert "At equal decay" not in few
    assert "At equal decay" in rank_words.answer(small(batch_size=[4, 24], kept=1e-4, width=12).summary())


def test_networks_that_diverge_are_told_and_cost_nothing_else() -> None:
    found = small(batch_size=4, rate=[0.1, 1e7], steps=60, seeds=1)
    assert [cell.diverged for cell in found.cells] == [False, True]
    assert "1 network diverged at the rate 1e+07" in rank_words.answer(found.summary())
    assert found.summary()["cells"][1]["layers"] == []  # type: ignore[index]
