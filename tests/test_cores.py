"""Work in pieces on several cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from instances import gaussian

from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.cores import cores
from covopt.model.activation import Activation
from covopt.oracles.oracle import oracle_values

CPU = torch.device("cpu")


@pytest.fixture
def two() -> Iterator[None]:
    """PyTorch with two threads, as on two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_pieces_keep_their_order_and_run_side_by_side(two):
    meeting = threading.Barrier(2, timeout=30.0)  # passed only by two threads at once

    def work(number: int) -> tuple[int, int]:
        meeting.wait()
        return number**2, torch.get_num_threads()

    with cores(CPU) as team:
        assert team.count == 2
        assert team.map(work, range(6)) == [(number**2, 1) for number in range(6)]
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_an_error_comes_back_and_the_threads_end(two):
    def fail(number: int) -> int:
        raise ValueError(f"piece {number}")

    before = threading.active_count()
    with pytest.raises(ValueError, match="piece 0"), cores(CPU) as team:
        team.map(fail, range(3))
    assert threading.active_count() == before
    assert torch.get_num_threads() == 2


def test_one_core_and_other_devices_have_no_threads(two):
    with cores(torch.device("meta")) as team:
        assert team.count == 1
        assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with cores(CPU) as team:
        assert team.map(lambda _: threading.current_thread(), range(2)) == [threading.current_thread()] * 2


@pytest.mark.parametrize("outputs", [1, 2])
def test_cones_prove_the_same_on_two_cores(two, outputs):
    X, Lambda = gaussian(30, 4, seed=3), gaussian(30, outputs, seed=4)
    options = BranchOptions(slack=1e-3)
    several, same = (
        branch_and_bound(X, Activation(), Lambda, target=0.0, time_limit=60.0, options=options) for _ in range(2)
    )
    assert np.array_equal(several.tree.codes, same.tree.codes)
    assert several.upper_bound == same.upper_bound
    torch.set_num_threads(1)
    one = branch_and_bound(X, Activation(), Lambda, target=0.0, time_limit=60.0, options=options)
    best = float(oracle_values(X, Activation(), Lambda, one.directions).max())
    for answer in (one, several):
        assert answer.open_nodes == 0
        assert best <= answer.upper_bound <= best * (1 + 1.001e-3)
    again = replay(X, Activation(), Lambda, several.tree, claimed=several.upper_bound)
    assert best <= again <= several.upper_bound * (1 + 1e-9)
