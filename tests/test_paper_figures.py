"""The figures of the papers on depth: their numbers against closed forms, and figures as stored runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import Run
from tampering import judge, tamperings

import covopt
from covopt.commands.figure import Name
from covopt.errors import ProblemError
from covopt.io import directories
from covopt.kinds.runs import find
from covopt.loop import Budget
from covopt.model.problem import make_problem
from covopt.study.figure2 import Figure2
from covopt.study.figures import counterexample, denoising, tripoints
from covopt.study.figures.design import applied, network
from covopt.study.figures.paper_figure import DESIGNS, NAMES, PaperFigure

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


def made(name: str, **options: object) -> PaperFigure:
    found = covopt.figure(name, **options)  # type: ignore[arg-type]
    assert isinstance(found, PaperFigure)
    return found


def test_the_names_are_the_same_everywhere() -> None:
    assert tuple(Name) == NAMES
    page = (Path(__file__).parents[1] / "docs" / "figures.md").read_text()
    for name in NAMES:
        assert f"\n## {name}\n" in page
        assert f"\n| `{name}` |" in page


# ---- counterexample


def test_the_table_of_the_counterexample() -> None:
    lines = {line["depth"]: line for line in made("counterexample").numbers["depths"]}
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
    line = next(line for line in made("counterexample").numbers["depths"] if line["depth"] == 20)
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
    quarters = 2 * (x > 0) + (y > 0)
    assert tripoints.tripoints(quarters) == 1
    two = np.where(x < 0, y > 5, 2 + (y > -5))
    assert tripoints.tripoints(two) == 2


@pytest.fixture(scope="module")
def boundaries() -> PaperFigure:
    return made("tripoints", time_limit=6.0)


def test_deep_boundaries_have_no_tripoints(boundaries: PaperFigure) -> None:
    shallow, deep = boundaries.numbers["depths"]
    assert (shallow["depth"], deep["depth"]) == (2, 9)
    assert shallow["tripoints"] > 0
    assert (deep["tripoints"], deep["adjacent"]) == (0, [[0, 1], [1, 2], [2, 3]])
    assert all(claim.seen for claim in boundaries.claims)


def test_its_numbers_are_those_of_the_networks(boundaries: PaperFigure) -> None:
    """The loss is that of `validate`'s reading of the same weights, by torch."""
    X, labels = boundaries.arrays["X"], boundaries.arrays["labels"]
    for line in boundaries.numbers["depths"]:
        layers = [torch.from_numpy(W) for W in network(boundaries.arrays, f"L{line['depth']}")]
        F = torch.from_numpy(X)
        for W in layers[:-1]:
            F = torch.relu(F @ W[:, :-1].T + W[:, -1])
        F = F @ layers[-1][:, :-1].T + layers[-1][:, -1]
        entropy = torch.nn.functional.cross_entropy(F, torch.from_numpy(labels).long())
        assert line["cross_entropy"] == pytest.approx(float(entropy), rel=1e-12)
        assert line["misclassified"] == int((F.argmax(dim=1).numpy() != labels).sum())
        assert line["cost"] == pytest.approx(float(entropy + 1e-4 * sum((W**2).sum() for W in layers)), rel=1e-12)


# ---- denoising


def test_distances_to_a_curve() -> None:
    line = np.column_stack([np.linspace(-1.0, 1.0, 2001), np.zeros(2001)])
    assert denoising.distances(np.array([[0.0, 0.5], [2.0, 0.0]]), line) == pytest.approx([0.5, 1.0], abs=1e-12)


def test_the_samples_lie_on_their_curve() -> None:
    clean, noisy, fine = denoising.curve(5)
    assert denoising.distances(clean, fine).max() < 1e-2
    assert clean.mean(axis=0) == pytest.approx([0.0, 0.0], abs=1e-12)
    assert (clean**2).mean() == pytest.approx(1.0)
    assert (noisy - clean).std() == pytest.approx(0.2, rel=0.2)


def test_the_family_of_rank_1_takes_out_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denoising, "FAMILY", (1,))
    monkeypatch.setattr(denoising, "TIMES", 1)
    clean, noisy, fine = denoising.curve(0)
    problem = make_problem(clean[:20], clean[:20], lam=1e-4, loss="mse", depth=5)
    layers = [W.numpy() for W in denoising.rank_one(problem, 0, Budget(60.0))]
    s = np.linalg.svd(covopt.jacobians(layers, noisy), compute_uv=False)
    assert s[:, 1].max() < 0.05
    assert s[:, 0].max() > 0.5
    before, after = (denoising.distances(points, fine).mean() for points in (noisy, applied(layers, noisy)))
    assert after <= 0.5 * before


@pytest.mark.parametrize("name", ["tripoints", "denoising"])
def test_trained_figures_are_checked_from_their_networks(name: str, tmp_path: Path, boundaries: PaperFigure) -> None:
    """Of a training that was cut short too; and a weight that is changed changes the numbers."""
    found = boundaries if name == "tripoints" else made("denoising", time_limit=2.0)
    found.save(tmp_path / "run")
    checked = covopt.verify(tmp_path / "run")
    assert checked.passed, checked.message
    assert "that the networks were trained as the settings say" in checked.unchecked
    assert covopt.load(tmp_path / "run").rows() == found.rows()
    with np.load(tmp_path / "run" / "arrays.npz") as held:
        arrays = dict(held)
    last = max(key for key in arrays if key.endswith("_W2"))
    np.savez(tmp_path / "run" / "arrays.npz", **(arrays | {last: 1.01 * arrays[last]}))
    assert "other numbers" in covopt.verify(tmp_path / "run").message


# ---- what every figure is


@pytest.mark.parametrize("name", ["counterexample"])
def test_a_figure_is_stored_shown_checked_and_reported(name: str, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("figure", name, "--seed", "3", "--out", tmp_path / "run")
    assert code == 0
    files = {"figure.json", "table.csv", "arrays.npz", "figure.png", "origin.json", "report.html"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == files
    kind, summary = find(tmp_path / "run")
    assert (kind.name, summary["name"], summary["seed"]) == ("figure", name, 3)
    loaded = covopt.load(tmp_path / "run")
    assert loaded.summary().items() <= summary.items()
    checked = covopt.verify(tmp_path / "run")
    assert checked.passed, checked.message
    assert "settings" in checked.unchecked
    told = run("show", tmp_path / "run")[1]
    assert told == out[: out.index("\n\n") + 1]
    assert "chosen here" in told
    assert "the paper's" in told
    with (tmp_path / "run" / "table.csv").open(newline="") as stream:
        table = list(csv.reader(stream))
    assert table[0] == list(DESIGNS[name].columns)
    assert len(table) == len(loaded.rows()) + 1
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count("<img") == len(loaded.panels())
    assert DESIGNS[name].source in page
    for claim in loaded.claims:
        assert claim.text in page


def test_tampering_with_a_figure_is_noticed_or_named(tmp_path: Path) -> None:
    made("counterexample").save(tmp_path / "stored")
    assert covopt.verify(tmp_path / "stored").passed
    found = list(tamperings(tmp_path / "stored"))
    assert len(found) > 100
    judged = {each.name: judge(tmp_path / "stored", tmp_path / "run", each) for each in found[::23]}
    assert {name: said for name, said in judged.items() if said not in ("noticed", "named", "the same")} == {}


@pytest.mark.parametrize("what", ["table", "number", "claim"])
def test_what_does_not_follow_from_the_arrays_is_refused(what: str, tmp_path: Path) -> None:
    """Also where the list of files fits."""
    path = tmp_path / "run"
    made("counterexample").save(path)
    summary = json.loads((path / "figure.json").read_text())
    if what == "table":
        text = (path / "table.csv").read_text()
        (path / "table.csv").write_text(text.replace("\n4,0.11", "\n4,0.12", 1))
    elif what == "number":
        summary["numbers"]["depths"][0]["excess"] *= 1.001
    else:
        summary["claims"][0]["seen"] = False
    summary["files"] = {name: digest for name, digest in directories.digests(path).items() if name != "figure.json"}
    (path / "figure.json").write_text(json.dumps(summary))
    checked = covopt.verify(path)
    assert not checked.passed
    assert {"table": "another table", "number": "other numbers", "claim": "another claims"}[what] in checked.message


def test_width_is_figure_2() -> None:
    found = covopt.figure("width", time_limit=0.5)
    assert isinstance(found, Figure2)
    assert found.panel == "teacher"
    assert {trial.width for trial in found.trials} == {1, 2, 4, 6, 8, 10, 12, 16, 20}


def test_what_no_figure_takes() -> None:
    with pytest.raises(ProblemError, match="no figure 'height'"):
        covopt.figure("height")
    with pytest.raises(ProblemError, match="compute on meta"):
        covopt.figure("counterexample", device="meta")
