"""Effort is counted, not timed: where no time limit ends a solve, a machine 300 times slower gives the same answer."""

import time
from typing import Any

import numpy as np
import pytest
import torch

import covopt

RNG = np.random.default_rng(0)
X, Y, CLASSES = RNG.standard_normal((12, 3)), RNG.standard_normal((12, 2)), np.eye(2)[np.arange(12) % 2]
CASES: dict[str, dict[str, Any]] = {
    "fast": {"certify": "fast"},
    "auto": {},
    "full": {"certify": "full"},
    "train": {"method": "train"},
    "hidden": {"method": "hidden"},
    "deep": {"depth": 3, "starts": 1, "max_iterations": 1},
    "interpolate": {"lam": None, "max_iterations": 6},
    "cross-entropy": {"loss": "cross_entropy"},
}


@pytest.mark.parametrize("name", CASES)
def test_a_slower_machine_gives_the_same_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"lam": 1e-2, "max_iterations": 4, "time_limit": 1e7} | CASES[name]
    targets = CLASSES if name == "cross-entropy" else Y
    plain = covopt.solve(X, targets, **asked)
    clock, began = time.perf_counter, time.perf_counter()
    monkeypatch.setattr(time, "perf_counter", lambda: began + 300.0 * (clock() - began))
    slow = covopt.solve(X, targets, **asked)
    assert slow.seconds > plain.seconds
    assert (slow.cost, slow.lower, slow.status) == (plain.cost, plain.lower, plain.status)
    for mine, theirs in zip(slow.weights, plain.weights, strict=True):
        assert torch.equal(mine, theirs)
