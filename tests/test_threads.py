"""Threads: asleep while they wait where covopt is imported first, else one for small products, unless somebody said."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from covopt.linalg import threads, waiting


@pytest.fixture
def two(monkeypatch):
    """PyTorch with two threads of which nobody has said anything, and which spin."""
    for name in threads.SAID:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(waiting, "_at_loading", "")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _after(*lines: str, **environment: str) -> str:
    code = "; ".join([*lines, "from covopt.linalg import waiting; print(waiting.passive())"])
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    ("lines", "said", "passive"),
    [
        (["import covopt"], {}, "True"),
        (["import covopt"], {"OMP_WAIT_POLICY": "ACTIVE"}, "False"),
        (["import sys", "sys.modules['torch'] = sys", "import covopt"], {}, "False"),
        (["import sys", "sys.modules['torch'] = sys", "import covopt"], {"OMP_WAIT_POLICY": "passive"}, "True"),
    ],
)
def test_threads_sleep_where_covopt_is_first_and_nobody_says_otherwise(lines, said, passive):
    path = "import sys; sys.path[:] = " + repr(sys.path)
    assert _after(path, *lines, **said) == passive


def test_small_solves_have_one_thread_and_the_others_come_back(two):
    with threads.fitting(1000):
        assert torch.get_num_threads() == 1
        assert threads.usable() == 2
        with threads.fitting(1000):
            assert threads.usable() == 2
    assert torch.get_num_threads() == threads.usable() == 2
    with pytest.raises(ZeroDivisionError), threads.fitting(1000):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
    assert "spin" in threads.chosen()


def test_all_threads_where_products_are_large_or_somebody_said(two, monkeypatch):
    with threads.fitting(threads.LARGE):
        assert torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert "OMP_NUM_THREADS" in threads.chosen()
    with threads.fitting(10):
        assert torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.chosen() == "with 2 threads, as torch.set_num_threads says"
    for nothing in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", nothing)
        assert threads.chosen().startswith("with 1 thread below")
        with threads.fitting(10):
            assert torch.get_num_threads() == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(waiting, "_at_loading", "passive")
    assert "sleep" in threads.chosen()
    torch.set_num_threads(1)
    assert threads.chosen() == "with 1 thread"
    with threads.fitting(10):
        assert torch.get_num_threads() == 1
