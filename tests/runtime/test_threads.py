"""Threads: asleep while they wait where covopt is imported first, else one for small products, unless somebody said."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import covopt
from covopt.runtime import threads, waiting


@pytest.fixture
def two(two, monkeypatch):
    """PyTorch with two threads of which nobody has said anything, and which spin."""
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(waiting, "_at_loading", "")


def _after(*lines: str, **environment: str) -> str:
    code = "; ".join([*lines, "from covopt.runtime import waiting; print(waiting.passive())"])
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
    assert _after("import sys; sys.path[:] = " + repr(sys.path), *lines, **said) == passive


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


@pytest.mark.parametrize("before", [False, True])
def test_subnormal_numbers_are_zero_in_a_block_and_then_as_before(before):
    if not torch.set_flush_denormal(before):
        pytest.skip("this processor cannot round subnormal numbers to 0")
    try:
        with threads.without_subnormals():
            assert float(torch.full((), 1e-40) * 1.0) == 0.0
        assert (float(torch.full((), 1e-40) * 1.0) == 0.0) is before
    finally:
        torch.set_flush_denormal(False)


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


# ------------------------------------------------------------------------------------------------- every public door

PRODUCTS = ("matmul", "mm", "bmm", "einsum", "linear", "linalg")


class Watch(TorchFunctionMode):
    """Notes how many threads PyTorch has at each product and factorisation."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "").strip("_")
        if name.removeprefix("r") in PRODUCTS or "linalg" in name:
            self.threads.add(torch.get_num_threads())
        return func(*args, **kwargs or {})


X, Y = np.arange(4.0)[:, None], np.array([[0.0], [1.0], [0.0], [1.0]])
W = [np.array([[1.0, 0.0], [1.0, -1.0], [1.0, -2.0]]), np.array([[1.0, -2.0, 2.0, 0.0]])]
Z = [X @ W[0][:, :1].T + W[0][:, 1], Y]
DOORS = {
    "solve": lambda _: covopt.solve(X, Y, lam=0.1, max_iterations=2),
    "plan": lambda _: covopt.plan(X, Y, lam=0.1),
    "validate": lambda _: covopt.validate(W, X, Y, lam=0.1, time_limit=1.0),
    "compare": lambda _: covopt.compare(X, Y, lam=0.1, methods=["cone"], time_limit=1.0),
    "depth": lambda _: covopt.depth(X, Y, lam=0.1, depths=[2], time_limit=1.0),
    "path": lambda _: covopt.path(X, Y, lams=[0.1], time_limit=1.0),
    "plateau": lambda _: covopt.plateau(X, Y, lam=0.1, widths=[1], time_limit=0.5),
    "ranks": lambda _: covopt.ranks(X, Y, lam=[0.1], seeds=1, steps=2, rate=0.1, batch_size=2, time_limit=1.0),
    "jacobians": lambda run: covopt.jacobians(run, X),
    "ntk": lambda run: covopt.ntk(run, X),
    "spectra": lambda run: covopt.spectra(run, X),
    "forces": lambda run: covopt.forces(run),
    "loss_of_weights": lambda _: covopt.loss_of_weights(X, Y, W, lam=0.1),
    "preactivations": lambda _: covopt.preactivations(X, W),
    "loss_of_representations": lambda _: covopt.loss_of_representations(X, Y, Z, lam=0.1),
    "weights_of": lambda _: covopt.weights_of(X, Z),
    "project_to_range": lambda _: covopt.project_to_range(Z, X),
    "covariances_of": lambda _: covopt.covariances_of(Z[0]),
    "loss_of_covariances": lambda _: covopt.loss_of_covariances(X, Y, [covopt.covariances_of(Z[0])], Y, lam=0.1),
    "Monitor": lambda _: covopt.Monitor(X, Y, lam=0.1)(W),
    "CovoptRegressor": lambda _: covopt.CovoptRegressor(time_limit=1.0).fit(X, Y[:, 0]).predict(X),
    "Result.predict": lambda run: run.predict(X),
}
# What computes without products of tensors, with NumPy say, or by the functions above.
OTHERS = {"cp_rank", "copositivity", "in_cone", "load", "read_data", "representations_of", "sigma_rank"}
OTHERS |= {"data_of_graph", "gram_of_graph", "sweep", "verify", "write_report"}


@pytest.fixture(scope="module")
def solved() -> covopt.Result:
    return covopt.solve(X, Y, lam=0.1)


@pytest.mark.parametrize("name", DOORS)
def test_every_public_function_computes_with_one_thread_where_products_are_small(name, two, solved) -> None:
    with Watch() as watch:
        DOORS[name](solved)
    assert watch.threads == {1}
    assert torch.get_num_threads() == 2


def test_no_public_function_is_forgotten() -> None:
    functions = {name for name in covopt.__all__ if inspect.isfunction(getattr(covopt, name))}
    assert functions == {name for name in DOORS if name in functions} | OTHERS
