"""`covopt compare`: every method on one problem, in Python, on the command line and on disk."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from runs import Run, toy_result

import covopt
from covopt.answer.result import Result
from covopt.answer.stored import load
from covopt.data.data import Dataset
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Progress, Status
from covopt.solvers.options import METHODS
from covopt.studies.compare import compare as study


class Solvers:
    """Three methods with answers made by hand: `train` makes three starts, `hidden` refuses."""

    def __init__(self) -> None:
        self.asked: list[dict[str, object]] = []
        self.status = Status.CONVERGED

    def solve(self, X: object, Y: object, *, method: str, callback: object = None, **options: object) -> Result:
        self.asked.append({"method": method, **options})
        if method == "hidden":
            raise ProblemError("The method hidden needs a penalty; give lam.")
        if callable(callback):
            callback(Progress(0, 0.0, 1.0, None, 1))
        result = toy_result(X=X, Y=Y, width=4 if method == "cone" else 6, proved=method == "cone", status=self.status)
        result.method = method
        result.starts = [] if method == "cone" else [result.cost + step for step in (0.5, 0.0, 2.0)]
        return result


@pytest.fixture
def solvers(monkeypatch: pytest.MonkeyPatch) -> Solvers:
    fake = Solvers()
    monkeypatch.setattr(study, "solve", fake.solve)
    monkeypatch.setattr(study, "METHODS", ("cone", "hidden", "train"))
    return fake


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((8, 2)), rng.standard_normal((8, 1))


def test_every_method_of_covopt_answers_the_same_problem() -> None:
    X, Y = data()
    seen: list[str] = []
    found = covopt.compare(
        X, Y, lam=0.1, bias=1.0, time_limit=1.0, gap=1e-6, callback=lambda method, line: seen.append(method)
    )
    assert [c.method for c in found.contenders] == list(METHODS)
    assert list(dict.fromkeys(seen)) == list(found.results)
    assert found.best.cost == min(result.cost for result in found.results.values())
    lower = found.lower
    for contender in found.contenders:
        result = contender.result
        assert lower <= result.cost * (1 + 1e-9)
        assert result.cost <= min(contender.starts) * (1 + 1e-9)
        assert result.cost <= 1.05 * found.best.cost
        assert result.history[-1].cost >= result.cost * (1 - 1e-9)


def test_the_table_holds_best_and_median_and_what_cannot_be_done(solvers: Solvers) -> None:
    X, Y = data()
    found = study.compare(X, Y, methods=("cone", "hidden", "train"), width=6, starts=3, lam=0.1, seed=4)
    assert [asked["method"] for asked in solvers.asked] == ["cone", "hidden", "train"]
    common = {"lam": 0.1, "seed": 4, "sample_weight": None}
    assert solvers.asked[0] == {"method": "cone", "certify": "auto", **common}
    assert solvers.asked[2] == {"method": "train", "width": 6, "starts": 3, "certify": "fast", **common}
    weighted = Dataset(X, Y, "weighted", None, "none", 8, weights=np.arange(1.0, 9.0))
    study.compare(weighted, methods=("cone", "train"), lam=0.1, certify="full")
    assert [(a["certify"], a["sample_weight"] is weighted.weights) for a in solvers.asked[3:]] == [("full", True)] * 2
    cone, hidden, train = found.rows()
    cost = found.results["train"].cost
    assert cone[1] == cone[2] == found.results["cone"].cost
    assert (train[1], train[2]) == (cost, cost + 0.5)
    assert hidden[1:4] == (None, None, None)
    assert "needs a penalty" in str(hidden[-1])
    assert found.lower == found.results["cone"].lower
    summary = found.summary()
    assert summary["method"] == found.best.method
    told = summary["methods"]
    assert told[1] == {"method": "hidden", "reason": "The method hidden needs a penalty; give lam."}
    assert told[2]["median"] == cost + 0.5
    assert len(told[2]["starts"]) == 3


def test_ctrl_c_ends_the_comparison_with_what_there_is(solvers: Solvers, run: Run, tmp_path: Path) -> None:
    solvers.status = Status.INTERRUPTED
    code, out, _ = run("compare", "iris", "--rows", 9, "--lam", 0.1, "--out", tmp_path / "c")
    assert code == 130
    assert [asked["method"] for asked in solvers.asked] == ["cone"]
    assert "interrupted" in out
    assert (tmp_path / "c" / "comparison.json").is_file()


@pytest.mark.filterwarnings("error")
def test_the_directory_holds_runs_history_and_a_picture(solvers: Solvers, tmp_path: Path) -> None:
    X, Y = data()
    found = study.compare(X, Y, methods=("cone", "hidden", "train"), lam=0.1)
    found.save(tmp_path / "c")
    stored = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert "cone/network.npz" in stored.pop("files")
    assert stored == {"kind": "comparison", **found.summary()}
    assert imread(tmp_path / "c" / "figure.png").shape[:2] == (624, 1430)
    with (tmp_path / "c" / "history.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert {line["method"] for line in lines} == {"cone", "train"}
    assert len(lines) == sum(len(result.history) for result in found.results.values())
    assert load(tmp_path / "c" / "train").cost == pytest.approx(found.results["train"].cost)
    found.save(tmp_path / "c", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_the_command_line_prints_a_table_or_json(solvers: Solvers, run: Run, tmp_path: Path) -> None:
    code, out, err = run(
        "compare", "iris", "--rows", 12, "--shuffle", 0, "--lam", 0.1, "--starts", 3, "--out", tmp_path / "c"
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "iris, 12 rows" in lines[0]
    assert lines[2].split()[:3] == ["method", "cost", "median"]
    assert [line.split()[0] for line in lines[3:6]] == ["cone", "hidden", "train"]
    assert "needs a penalty" in lines[4]
    assert f"stored in {tmp_path / 'c'};" in lines[-1]
    assert solvers.asked[-1]["starts"] == 3
    chosen = ("--method", "cone", "--json")
    code, out, err = run("compare", "iris", "--rows", 12, "--shuffle", 0, "--lam", 0.1, *chosen)
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert [each["method"] for each in json.loads(out)["methods"]] == ["cone"]


def test_the_command_line_solves_and_complains(run: Run) -> None:
    question = ("iris", "--lam", 0.1, "--activation", "linear", "--time-limit", 5)
    code, out, err = run("compare", *question, "--json", "--method", "cone")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["methods"][0]["data"] == "iris"
    assert 0 < told["lower"] <= told["best"]
    code, _, err = run("compare", "iris", "--lam", -1)
    assert code == 2
    assert "lam" in err
    assert run("compare", "iris", "--method", "magic")[0] == 2
