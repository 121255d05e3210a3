"""A study holds runs of one question: those of other data are refused, however well its summary agrees with them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from editing import forged, moved, states

import covopt
from covopt.answer import verify
from covopt.model.biases import Free, FreeWithSkip
from covopt.model.problem import make_problem
from covopt.records import record
from covopt.studies.depth import check as depths
from covopt.studies.path import check as paths
from covopt.studies.ranks import check as ranks

X = np.linspace(-1.0, 1.0, 5)[:, None]
Y, FAR = np.abs(X), 5.0 * np.abs(X)
LIMIT = 0.4


def check(directory: Path, says: str) -> None:
    checked = covopt.verify(directory)
    assert not checked.passed
    assert says in checked.message


def test_what_a_question_is_made_of() -> None:
    one = make_problem(X, Y, lam=0.1, sample_weight=np.arange(1.0, 6.0), free=True)
    other = {
        "X": make_problem(X + 1e-12, Y, lam=0.1, sample_weight=np.arange(1.0, 6.0)),
        "Y": make_problem(X, Y * (1 + 1e-12), lam=0.1, sample_weight=np.arange(1.0, 6.0)),
        "sample weights": make_problem(X, Y, lam=0.1),
        "loss": replace(one, loss=make_problem(X, Y, lam=0.1, loss="huber:2").loss),
        "lam": replace(one, lam=0.2),
        "depth": replace(one, depth=3),
        "bias": replace(one, biases=Free()),
        "activation": make_problem(X, Y, lam=0.1, activation="leaky:0.1", sample_weight=np.arange(1.0, 6.0)),
    }
    assert verify.first_difference(one, one) is None
    assert {name: verify.first_difference(one, each) for name, each in other.items()} == {name: name for name in other}
    assert all(verify.first_difference(one, each, {name}) is None for name, each in other.items())
    assert verify.first_difference(replace(one, biases=Free()), replace(one, biases=FreeWithSkip())) == "skip"
    single = replace(one, X=one.X.float())
    assert verify.first_difference(replace(one, X=single.X.double()), single) is None
    assert torch.equal(one.X, make_problem(X, Y, lam=0.1).X)


def test_a_comparison_of_methods_on_other_data_is_refused(tmp_path: Path) -> None:
    for name, targets in (("ours", Y), ("other", FAR)):
        covopt.compare(X, targets, lam=0.01, methods=["cone", "frank-wolfe"], time_limit=LIMIT).save(tmp_path / name)
    ours, other = tmp_path / "ours", tmp_path / "other"
    assert covopt.verify(ours).passed
    moved(other / "cone", ours / "cone")
    told, far = (json.loads((each / record.COMPARISON).read_text()) for each in (ours, other))
    entries = [next(e for e in far["methods"] if e["method"] == "cone"),
               next(e for e in told["methods"] if e["method"] == "frank-wolfe")]  # fmt: skip
    best = min(entries, key=lambda entry: entry["cost"])
    lower = max(entry["lower"] for entry in entries if entry["lower"] is not None)
    forged(states(record.COMPARISON, methods=entries, best=best["cost"], method=best["method"], lower=lower))(ours)
    check(ours, "they differ in Y")


def test_a_study_of_depths_of_other_data_is_refused(tmp_path: Path) -> None:
    for name, targets in (("ours", Y), ("other", FAR)):
        covopt.depth(X, targets, lam=0.01, depths=[2, 3], time_limit=LIMIT).save(tmp_path / name)
    ours, other = tmp_path / "ours", tmp_path / "other"
    assert covopt.verify(ours).passed
    place = "depths/2" if (ours / "depths/2").is_dir() else "depths/3"
    moved(other / place, ours / place)
    forged(states("depth.json", **json.loads(record.as_json(depths.load(ours).summary()))))(ours)
    check(ours, "another problem")


def test_a_path_that_ends_with_other_data_is_refused(tmp_path: Path) -> None:
    covopt.path(X, Y, lams=[0.1, 0.01], interpolate=True, time_limit=LIMIT).save(tmp_path / "ours")
    covopt.solve(X, FAR, time_limit=LIMIT).save(tmp_path / "other")
    ours = tmp_path / "ours"
    assert covopt.verify(ours).passed
    moved(tmp_path / "other", ours / "end")
    forged(states("path.json", end=json.loads(record.as_json(paths.load(ours).summary()))["end"]))(ours)
    check(ours, "The run end in it solves another problem than the path: they differ in Y.")


def test_ranks_beside_a_solve_with_other_weights_are_refused(tmp_path: Path) -> None:
    small = {"batch_size": 2, "steps": 3, "width": 2, "depth": 2, "seeds": 1, "rate": 0.1}
    covopt.ranks(X, Y, lam=[0.01], **small, time_limit=LIMIT).save(tmp_path / "ours")
    weights = np.array([20.0, 1.0, 1.0, 1.0, 1.0])
    covopt.solve(X, Y, lam=0.01, time_limit=LIMIT, sample_weight=weights).save(tmp_path / "other")
    ours = tmp_path / "ours"
    assert covopt.verify(ours).passed
    moved(tmp_path / "other", ours / "references/1")
    forged(states("ranks.json", **json.loads(record.as_json(ranks.load(ours).summary()))))(ours)
    check(ours, "they differ in sample weights")


def test_a_bound_above_a_cost_is_told() -> None:
    assert list(verify.crossed({"a": 1.0, "b": 2.0}, {"c": 0.9, "d": None}, 1e-9)) == []
    assert list(verify.crossed({"a": 1.0, "b": 2.0}, {"c": 1.1}, 1e-9)) == [
        "The bound 1.1 of c is above 1, which a costs."
    ]
