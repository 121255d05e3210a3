"""What a Result says of itself, and how it draws itself."""

import json
from pathlib import Path

import numpy as np
import pandas
from matplotlib.figure import Figure
from runs import toy_result

from covopt.answer.result import Result
from covopt.answer.solve import solve
from covopt.answer.stored import load
from covopt.records import record


def test_a_result_says_itself_in_five_lines() -> None:
    result = toy_result(bias=0.7)
    lines = repr(result).splitlines()
    assert len(lines) == 5
    s = result.summary()
    assert lines[0] == record.headline(s)
    shown = float(lines[1].split()[1])
    assert result.cost <= shown <= result.cost * (1 + 1e-6)
    assert lines[3].split(maxsplit=1)[1] == "4 hidden neurons"
    assert str(result.status) in lines[4]
    assert len(repr(Result(result.problem, "cone", "none", 0)).splitlines()) == 5


def test_a_proved_bound_is_rounded_downwards_in_the_five_lines() -> None:
    result = toy_result(proved=True)
    shown = float(repr(result).splitlines()[2].split()[2])
    assert shown <= result.lower
    assert str(result.certificate) in repr(result)


def test_a_result_draws_itself() -> None:
    line = solve([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5], lam=0.01, time_limit=5)
    axes = line.plot(Figure().add_subplot())
    dots, drawn, *_ = axes.get_lines()
    np.testing.assert_allclose(drawn.get_ydata(), line.predict(np.asarray(drawn.get_xdata())[:, None])[:, 0])
    np.testing.assert_array_equal(dots.get_xydata(), [[0.0, 0.0], [1.0, 1.0], [2.0, 0.5]])
    plane = toy_result()
    costs = plane.plot(Figure().add_subplot()).get_lines()[0].get_ydata()
    np.testing.assert_array_equal(costs, [p.cost for p in plane.history if np.isfinite(p.cost)])


def test_the_names_of_a_data_frame_are_kept(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"age": [1.0, 2.0, 3.0], "height": [0.0, 1.0, 0.5]})
    result = solve(frame, [0.0, 1.0, 0.5], lam=0.1, time_limit=5)
    assert result.columns == ("age", "height")
    result.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "origin.json").read_text())["columns"] == ["age", "height"]
    assert solve(frame.to_numpy(), [0.0, 1.0, 0.5], lam=0.1, time_limit=5).columns is None


def test_predict_follows_the_names_of_a_data_frame(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"age": [1.0, 2.0, 3.0], "height": [0.0, 1.0, 0.5]})
    result = solve(frame, [0.0, 1.0, 0.5], lam=0.01, max_iterations=2)
    result.save(tmp_path / "run")
    turned = frame[["height", "age"]]
    for network in (result, load(tmp_path / "run")):
        outputs = network.predict(frame.to_numpy())
        np.testing.assert_array_equal(network.predict(frame), outputs)
        np.testing.assert_array_equal(network.predict(turned), outputs)
        assert np.abs(network.predict(turned.to_numpy()) - outputs).max() > 0.1
