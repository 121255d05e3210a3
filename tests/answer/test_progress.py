"""The progress that functions show where they are asked to, and data that come as one object."""

import time

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import covopt
from covopt.answer.progress import progress_line
from covopt.runtime.loop import Progress

X = np.linspace(-1.0, 1.0, 8)[:, None]
Y = np.abs(X)


def slowly(line: Progress) -> None:
    """Leave the line the time to be printed."""
    time.sleep(0.05)


def test_a_line_is_shown_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_data_set_of_two_tensors_holds_inputs_and_targets() -> None:
    inputs, labels = torch.from_numpy(X), torch.arange(8) % 2
    options = {"lam": 0.1, "loss": "cross_entropy", "max_iterations": 1, "certify": "none"}
    result = covopt.solve(TensorDataset(inputs, labels), **options)
    assert result.cost == covopt.solve(X, labels.numpy(), **options).cost
    assert result.coding is not None
    assert result.coding.classes == ("0", "1")
    assert covopt.plan(TensorDataset(inputs, labels), **options).problem.Y.shape == (8, 2)
    with pytest.raises(covopt.ProblemError, match="TensorDataset of 3; give one of two tensors"):
        covopt.solve(TensorDataset(inputs, labels, labels), **options)
