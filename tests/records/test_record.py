import csv
import inspect
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import toy_result

import covopt
from covopt.answer import words
from covopt.records import record, storing
from covopt.runtime.errors import RecordError
from covopt.runtime.loop import Status

FIELDS = (
    "kind cost fit norm residual lower gap certificate attainable status widths depth bias skip loss lam activation"
    " layers starts unique method certify target data scale rows weighted targets shuffle test seconds timing seed"
    " version files"
).split()
FILES = "certificate.npz figure.png history.csv network.npz network.pt origin.json problem.npz result.json".split()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"proved": False},
        {"lam": None, "activation": "leaky:0.3"},
        {"bias": 0.0, "loss": "cross_entropy"},
        {"width": 0},
        {"activation": "linear", "width": 1},
    ],
)
def test_run_comes_back_as_it_was_stored(tmp_path: Path, options: dict) -> None:
    result = toy_result(**options)
    result.save(tmp_path / "deep" / "run")
    back = covopt.load(tmp_path / "deep" / "run")
    numbers = ("cost", "fit", "norm", "residual", "gap")
    # The toy network does not fit, and has none of these numbers where it should.
    assert back.summary() == result.summary() | (dict.fromkeys(numbers) if result.problem.interpolates else {})
    assert back.history == result.history
    assert all(torch.equal(a, b) for a, b in zip(back.weights, result.weights, strict=True))
    assert np.array_equal(back.problem.X.numpy(), result.problem.X.numpy())
    assert (back.dual is None) == (result.dual is None)
    if result.dual is not None:
        assert np.array_equal(back.dual.Lambda, result.dual.Lambda)
    X = np.random.default_rng(1).standard_normal((4, 3))
    assert np.array_equal(back.predict(X), result.predict(X))


def test_single_precision_data_stay_single(tmp_path: Path) -> None:
    result = toy_result()
    p = result.problem
    result.problem = type(p)(p.X.float(), p.Y.float(), p.loss, p.lam, p.depth, p.beta, p.activation)
    result.save(tmp_path / "run")
    assert covopt.load(tmp_path / "run").problem.X.dtype == torch.float32


def test_files_are_those_promised_and_a_plain_network_takes_bias_beta_w(tmp_path: Path) -> None:
    result = toy_result(bias=0.7)
    result.save(tmp_path / "run")
    run = tmp_path / "run"
    assert sorted(p.name for p in run.iterdir()) == FILES
    assert list(tmp_path.iterdir()) == [run]
    summary = json.loads((run / "result.json").read_text())
    assert list(summary) == FIELDS
    assert (summary["widths"], summary["residual"], summary["version"]) == ([4], None, covopt.__version__)
    assert (run / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert [float(row["cost"]) for row in csv.DictReader((run / "history.csv").open())] == [
        line.cost for line in result.history
    ]
    network = np.load(run / "network.npz", allow_pickle=False)
    assert (network["W1"].shape, network["W2"].shape) == ((4, 4), (3, 5))
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).double()
    net.load_state_dict(torch.load(run / "network.pt", weights_only=True))
    X = np.random.default_rng(1).standard_normal((5, 3))
    np.testing.assert_allclose(net(torch.from_numpy(X)).detach().numpy(), result.predict(X), rtol=1e-12, atol=1e-12)
    assert torch.equal(net[0].bias, 0.7 * result.weights[0][:, -1])


def test_unknown_numbers_are_null_not_nan(tmp_path: Path) -> None:
    result = toy_result(proved=False)
    result.seconds, result.lower = math.nan, -math.inf
    text = record.as_json(result.summary())
    assert "NaN" not in text
    assert json.loads(text)["seconds"] is None
    assert json.loads(text)["lower"] is None
    result.save(tmp_path / "run")
    assert math.isnan(covopt.load(tmp_path / "run").seconds)


def test_force_never_replaces_what_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("dear")
    (tmp_path / "notes").write_text("dear")
    for name in ("thesis", "notes"):
        with pytest.raises(RecordError, match="not a run of covopt"):
            toy_result().save(tmp_path / name, force=True)
    with pytest.raises(RecordError, match="not a writable directory"):
        toy_result().save(tmp_path / "notes" / "run")
    assert (tmp_path / "thesis" / "chapter.tex").exists()


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_half_written_is_left(tmp_path: Path, failure: BaseException) -> None:
    toy_result().save(tmp_path / "run")
    writers = toy_result().files()

    def fail(path: Path) -> None:
        path.write_text("half")
        raise failure

    expected = RecordError if isinstance(failure, OSError) else KeyboardInterrupt
    for target, force in ((tmp_path / "new", False), (tmp_path / "run", True)):
        with pytest.raises(expected):
            storing.put(target, record.SUMMARY, writers | {"more": fail}, force=force)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == FILES


def test_a_disk_that_fills_up_at_any_file_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    toy_result().save(tmp_path / "kept")
    sizes = sorted({file.stat().st_size for file in (tmp_path / "kept").iterdir() if file.suffix != ".png"})
    full = """
        import resource, sys, covopt
        result = covopt.load(sys.argv[1] + "/kept")
        for size in map(int, sys.argv[2:]):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, resource.RLIM_INFINITY))
            try:
                result.save(sys.argv[1] + "/full")
            except covopt.RecordError as error:
                print(error)
    """
    command = [sys.executable, "-c", inspect.cleandoc(full), str(tmp_path), *map(str, sizes)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [f"{tmp_path}/full cannot be written (File too large); choose another directory."] * len(sizes)
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_description_says_what_is_and_is_not_proved() -> None:
    proved, open_ = (dict(words.pairs(toy_result(proved=p).summary())) for p in (True, False))
    assert proved["certificate"].startswith("proved")
    assert (open_["lower bound"], open_["gap"]) == ("none proved", "unknown")
    page = toy_result(status=Status.TIME_LIMIT)._repr_html_()
    assert "<table>" in page
    assert "stopped by the time limit" in page
