from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from covopt.figures import Curve, RunPicture, draw_curves, draw_run
from covopt.loop import Progress


def picture(samples: int, neurons: int, history: list[Progress]) -> RunPicture:
    rng = np.random.default_rng(0)
    return RunPicture(
        title="toy",
        history=history,
        norms=rng.random(neurons),
        activations=np.maximum(rng.standard_normal((samples, neurons)), 0.0),
        order=np.arange(samples),
        order_name="class",
    )


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
    draw_curves("toy", curves, lower, tmp_path / "figure.png")
    drawn = imread(tmp_path / "figure.png")
    assert drawn.shape[:2] == (624, 1430)
    assert drawn[..., :3].min() < 0.5
