"""What a Result says of itself, the figures that it draws, and the progress that functions show."""

import base64
import json
import math
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from runs import toy_result
from torch.utils.data import TensorDataset

import covopt
from covopt.answer import drawing, words
from covopt.answer.drawing import Curve, RunPicture, draw_run
from covopt.answer.progress import progress_line
from covopt.answer.result import Result
from covopt.answer.solve import solve
from covopt.answer.stored import load
from covopt.records import record
from covopt.records.svg import picture as svg
from covopt.runtime.loop import Progress, Status


def test_a_result_says_itself_in_five_lines() -> None:
    result = toy_result(bias=0.7, proved=True)
    lines = repr(result).splitlines()
    assert len(lines) == 5
    assert lines[0] == record.headline(result.summary())
    assert result.cost <= float(lines[1].split()[1]) <= result.cost * (1 + 1e-6)
    assert float(lines[2].split()[2]) <= result.lower
    assert str(result.certificate) in lines[2]
    assert lines[3].split(maxsplit=1)[1] == "4 hidden neurons"
    assert str(result.status) in lines[4]
    assert str(result).splitlines() == [f"{label:<12} {text}" for label, text in result.describe()]  # print shows all
    assert len(repr(Result(result.problem, "cone", "none", 0)).splitlines()) == 5


def test_zero_targets_cost_nothing_and_need_no_bound() -> None:
    result = solve(np.eye(3), np.zeros(3), lam=0.1, time_limit=2.0)
    assert [line.split(maxsplit=2)[2] for line in repr(result).splitlines()[2:3]] == ["0 (no cost is below 0)"]
    lines = dict(words.pairs(result.summary()))
    assert lines["status"] == "optimal: no cost is below 0"
    assert "certificate" not in lines
    assert "gap" not in lines


def test_a_stored_network_that_should_fit_and_does_not_has_no_cost_when_it_is_loaded(tmp_path: Path) -> None:
    result = solve(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), time_limit=2.0)
    result.weights[1] = 1.001 * result.weights[1]
    result.cost = result.fit = result.norm = result.residual = math.nan
    result.status = Status.TIME_LIMIT
    result.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert math.isnan(loaded.cost)
    assert "no network was found" in repr(loaded)
    assert repr(loaded) == repr(result)


def test_a_result_draws_itself() -> None:
    line = solve([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5], lam=0.01, time_limit=5)
    dots, drawn, *_ = line.plot(Figure().add_subplot()).get_lines()
    np.testing.assert_allclose(drawn.get_ydata(), line.predict(np.asarray(drawn.get_xdata())[:, None])[:, 0])
    np.testing.assert_array_equal(dots.get_xydata(), [[0.0, 0.0], [1.0, 1.0], [2.0, 0.5]])
    plane = toy_result()
    costs = plane.plot(Figure().add_subplot()).get_lines()[0].get_ydata()
    np.testing.assert_array_equal(costs, [p.cost for p in plane.history if np.isfinite(p.cost)])


def test_the_names_of_a_data_frame_are_kept_and_predict_follows_them(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"age": [1.0, 2.0, 3.0], "height": [0.0, 1.0, 0.5]})
    result = solve(frame, [0.0, 1.0, 0.5], lam=0.01, max_iterations=2)
    assert result.columns == ("age", "height")
    assert solve(frame.to_numpy(), [0.0, 1.0, 0.5], lam=0.01, max_iterations=2).columns is None
    result.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "origin.json").read_text())["columns"] == ["age", "height"]
    turned = frame[["height", "age"]]
    for network in (result, load(tmp_path / "run")):
        outputs = network.predict(frame.to_numpy())
        np.testing.assert_array_equal(network.predict(frame), outputs)
        np.testing.assert_array_equal(network.predict(turned), outputs)
        assert np.abs(network.predict(turned.to_numpy()) - outputs).max() > 0.1


# ---- the progress that functions show, and data that come as one object
X = np.linspace(-1.0, 1.0, 8)[:, None]
Y = np.abs(X)


def slowly(line: Progress) -> None:
    """Leave the line the time to be printed."""
    time.sleep(0.05)


def test_a_line_is_shown_where_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covopt.answer.progress.EVERY", 0.01)
    for progress in (None, False):
        covopt.solve(X, Y, lam=0.1, max_iterations=1, certify="none", callback=slowly, progress=progress)
        assert capsys.readouterr().err == ""
    covopt.path(X, Y, lams=[0.1], certify="none", time_limit=10, callback=slowly, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("covopt: cost ") and line.endswith(" of 10 s") for line in lines)  # of the study alone
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)  # in a notebook, the line replaces itself
    covopt.CovoptRegressor(max_iter=1).fit(X, Y)
    assert capsys.readouterr().err == ""
    covopt.solve(X, Y, lam=0.1, max_iterations=1, certify="none", callback=slowly)
    shown = capsys.readouterr().err
    assert shown.startswith("\rcovopt: ")
    assert "\n" not in shown


def test_the_outermost_function_decides() -> None:
    for outer in (True, False):
        with progress_line(5.0, outer) as show, progress_line(5.0, True) as within:
            assert (show is not None, within) == (outer, None)
    with pytest.raises(covopt.ProblemError, match="progress is 3; give true or false"):
        covopt.solve(X, Y, progress=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"solve\(\) has no argument weight_decay \(did you mean lam, which is half of"):
        covopt.solve(X, Y, weight_decay=0.1)
    with pytest.raises(TypeError, match=r"solve\(\): too many positional arguments; give options by name, as in"):
        covopt.solve(X, Y, 0.1)  # type: ignore[misc]


def test_a_data_set_of_two_tensors_holds_inputs_and_targets() -> None:
    inputs, labels = torch.from_numpy(X), torch.arange(8) % 2
    options = {"lam": 0.1, "loss": "cross_entropy", "max_iterations": 1, "certify": "none"}
    result = covopt.solve(TensorDataset(inputs, labels), **options)
    assert result.cost == covopt.solve(X, labels.numpy(), **options).cost
    assert result.coding is not None
    assert result.coding.classes == ("0", "1")
    assert covopt.plan(TensorDataset(inputs, labels), **options).problem.Y.shape == (8, 2)
    iris = covopt.read_data("iris", rows=9, shuffle=0)
    assert covopt.plan(iris, lam=0.1).problem.Y.tolist() == iris.Y.tolist()
    with pytest.raises(covopt.ProblemError, match="TensorDataset of 3; give one of two tensors"):
        covopt.solve(TensorDataset(inputs, labels, labels), **options)


# ---- figures
def picture(samples: int, neurons: int, history: list[Progress]) -> RunPicture:
    rng = np.random.default_rng(0)
    norms, activations = rng.random(neurons), np.maximum(rng.standard_normal((samples, neurons)), 0.0)
    return RunPicture("toy", history, norms, activations, np.arange(samples), "class")


def line(i: int, cost: float, lower: float | None) -> Progress:
    return Progress(iteration=i, seconds=0.1 * i, cost=cost, lower=lower, width=i)


@pytest.mark.parametrize(
    ("samples", "neurons", "history"),
    [
        (30, 12, [line(i, 1 + 100 * 2.0**-i, 1 - 2.0**-i if i > 2 else None) for i in range(20)]),
        (1, 1, [line(0, 1.0, None)]),
        (5, 0, [line(0, 1.0, 0.5)]),
        (200, 300, []),
        (4, 2, [line(0, float("inf"), None), line(1, 2.0, 0.0)]),
        (4, 2, [line(0, 0.0, 0.0), line(1, 0.0, 0.0)]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_every_run_has_a_picture(tmp_path: Path, samples: int, neurons: int, history: list[Progress]) -> None:
    draw_run(picture(samples, neurons, history), tmp_path / "figure.png")
    image = imread(tmp_path / "figure.png")
    assert image.shape[0] > 400
    assert image.shape[1] > 900
    assert image.std() > 0.01


def test_neurons_that_never_fire_are_drawn(tmp_path: Path) -> None:
    silent = RunPicture("toy", [line(0, 1.0, None)], np.ones(3), np.zeros((5, 3)), np.arange(5), "target")
    draw_run(silent, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    "curves",
    [
        [
            Curve("cone", [line(i, 1 + 100 * 2.0**-i, None) for i in range(20)], []),
            Curve("train", [line(i, 1 + 50 * 2.0**-i, None) for i in range(9)], [1.3, 1.2, 1.9]),
        ],
        [Curve("cone", [line(0, float("inf"), None)], []), Curve("train", [line(0, 2.0, None)], [2.0])],
        [Curve("cone", [line(0, 0.0, None), line(1, 0.0, None)], [0.0])],
        [Curve("cone", [], [])],
    ],
)
@pytest.mark.parametrize("lower", [None, 0.5])
@pytest.mark.filterwarnings("error")
def test_every_comparison_has_a_picture(tmp_path: Path, curves: list[Curve], lower: float | None) -> None:
    drawing.draw_curves("toy", curves, lower, tmp_path / "figure.png")
    drawn = imread(tmp_path / "figure.png")
    assert drawn.shape[:2] == (624, 1430)
    assert drawn[..., :3].min() < 0.5


def test_a_bar_of_colours_is_an_image() -> None:
    # As 256 shapes beside each other it has seams, which show as stripes.
    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        drawing.color_bar(axes.imshow(np.eye(3)), axes)

    found = base64.b64decode(svg(draw, alt="", caption="").uri.split(",", 1)[1]).decode()
    assert found.count("<image") == 2
    assert found.count("<path") < 60


def test_weights_of_zero_let_the_page_show_through() -> None:
    assert drawing.SIGNED(0.5)[3] < 0.01
    assert drawing.SIGNED(0.0)[3] == drawing.SIGNED(1.0)[3] == 1.0


def test_outliers_do_not_set_the_scale() -> None:
    values = np.concatenate([np.linspace(0.0, 1.0, 1000), [50.0]])
    limit, beyond = drawing.robust_limit(values)
    assert limit == pytest.approx(np.percentile(values, 98.0))
    assert beyond == "max"
    assert drawing.robust_limit(np.append(values, -1.0))[1] == "both"
    assert drawing.robust_limit(np.linspace(-1.0, 1.0, 1000)) == (1.0, "neither")
    assert drawing.robust_limit(np.zeros(4)) == (1.0, "neither")


def test_the_gap_over_time_leaves_out_what_is_not_proved_or_closed() -> None:
    history = [line(0, math.inf, 1.0), line(1, 4.0, None), line(2, 4.0, 1.0), line(3, 2.0, 1.5), line(4, 2.0, 2.0)]
    assert drawing.gaps(history) == [(pytest.approx(0.2), 0.75), (pytest.approx(0.3), 0.25)]


def test_an_axis_of_one_neuron_counts_one() -> None:
    axes = Figure().subplots()
    axes.set_xlim(0.5, 1.5)
    drawing.count_along(axes.xaxis)
    assert [tick for tick in axes.get_xticks() if 0.5 <= tick <= 1.5] == [1.0]


@pytest.mark.parametrize("size", [1e-41, 1.0, 1e150])
def test_labels_stand_above_the_lines(size: float) -> None:
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    drawing.draw_convergence(axes, [line(i, size * (1.0 + 2.0**-i), size * (1.0 - 2.0**-i)) for i in range(9)])
    figure.draw_without_rendering()
    inside = axes.get_window_extent()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 2
    assert all(box.y0 >= inside.y1 for box in boxes)
    assert not boxes[0].overlaps(boxes[1])


def test_logarithmic_axes_have_plain_numbers_that_do_not_touch() -> None:
    figure = Figure(figsize=(5.0, 3.0))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([2.05, 39.3], [1.0, 2.0])
    axes.set_xscale("log")
    drawing.plain_numbers(axes.xaxis)
    figure.canvas.draw()
    labels = [label for label in axes.get_xticklabels(which="both") if label.get_text()]
    boxes = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in labels))
    assert {"2", "10", "40"} <= {label.get_text() for label in labels}
    assert all(end < start for (_, end), (start, _) in pairwise(boxes))
