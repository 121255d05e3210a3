"""The slices of `python -m tests.benchmarks gpu`, without a GPU: they are stored, cut short, and gone on with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import covopt
from tests.benchmarks import gpu, harness
from tests.benchmarks.fake_gpu import fake_gpu
from tests.benchmarks.frozen import CLASSES, HEIGHT, LINE, PLANE, WAVE, WIDE_X, X, Y, trained_network
from tests.benchmarks.harness import Settings

CPU = Settings(quick=True, device="cpu")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return tmp_path / "quick" / "gpu.json"


def program(text: str, seconds: float = 30.0) -> gpu.Slice:
    return gpu.Slice(("-c", text), seconds)


def test_slices_go_on_where_a_call_stopped(results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second fails once; a call of no minutes runs one slice alone."""
    note = tmp_path / "note"
    failing = (
        f"import pathlib, sys; p = pathlib.Path({str(note)!r}); there = p.exists(); p.touch(); sys.exit(not there)"
    )
    parts = {"first": program("print('one')"), "second": program(failing), "third": program("print('three')")}
    monkeypatch.setattr(gpu, "SLICES", parts)
    ends = []
    for _ in range(4):
        text = gpu.run_slices(CPU, minutes=0.2)
        ends.append({name: part["end"] for name, part in json.loads(results.read_text()).items()})
    assert ends[0] == {"first": "done"}
    assert ends[1] == {"first": "done", "second": "failed, exit code 1"}
    assert ends[2] == {"first": "done", "second": "failed, exit code 1", "third": "done"}
    assert set(ends[3].values()) == {"done"}
    assert "3 of 3 slices done; remove" in text
    assert json.loads(results.read_text())["third"]["printed"] == ["three"]


def test_a_slice_is_cut_short_at_its_limit(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SLICES", {"endless": program("import time; print('begun', flush=True); time.sleep(60)")})
    assert "endless: cut short\n0 of 1 slices done; the same command goes on." in gpu.run_slices(CPU, minutes=0.02)


def test_no_slice_is_longer_than_a_call_and_all_are_benchmarks() -> None:
    names = harness.benchmarks()
    assert all(part.seconds <= 60.0 * gpu.MINUTES for part in gpu.SLICES.values())
    assert all(name == "tests" or name in names for name in gpu.SLICES)


def test_trees_over_signs_run_with_thousands_of_nodes_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "TREES", {"wine": lambda: gpu.works.digits(8, 1e-2)})
    (run,) = gpu.run_sign_trees(Settings(quick=True, threads=1), "wine").runs
    assert run.error is None
    assert run.options["nodes"] == 4096
    assert run.lower is not None
    assert 0.0 < run.lower <= run.cost


def asked(face: Callable[..., Any], *data: Any, **options: Any) -> Callable[[], Any]:
    return lambda: face(*data, **{"device": "cuda", "time_limit": 0.5} | options)


CALLS: dict[str, Callable[[], Any]] = {
    "solve": asked(covopt.solve, X, Y, lam=1e-2),
    "solve, proofs": asked(covopt.solve, PLANE[:4], HEIGHT[:4], depth=3, bias=0.0, time_limit=2.0),
    "solve, classes": asked(covopt.solve, X, CLASSES, lam=1e-2, loss="cross_entropy", depth=3),
    "solve, batches": asked(covopt.solve, WIDE_X, WIDE_X[:, :2], lam=1e-2, max_iterations=1, certify="none"),
    "solve, free biases": asked(covopt.solve, LINE, WAVE, bias="free", skip=True),
    "solve, hidden": asked(covopt.solve, X, Y, lam=1e-2, depth=3, method="hidden"),
    "solve, Frank-Wolfe": asked(covopt.solve, X, Y, lam=1e-2, depth=3, method="frank-wolfe"),
    "solve, training": asked(covopt.solve, X, Y, lam=1e-2, depth=3, method="train"),
    "plateau": asked(covopt.plateau, PLANE, HEIGHT, lam=3e-2),
    "plateau, depth 3": asked(covopt.plateau, LINE, WAVE, lam=3e-2, depth=3),
    "path": asked(covopt.path, X, Y, points=2),
    "depth": asked(covopt.depth, LINE, WAVE, depths=[2, 3], time_limit=2.0),
    "ranks": asked(covopt.ranks, X, Y, lam=1e-2, rate=0.01, time_limit=2.0),
    "validate": asked(covopt.validate, trained_network(depth=3), X, Y, lam=1e-2, function=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_operation_mixes_devices(name: str, tmp_path: Path) -> None:
    """Each call by `device="cuda"` on a GPU that is none; what it returns is stored and verified as always."""
    with fake_gpu():
        answer = CALLS[name]()
        answer.save(tmp_path / "run")
        assert covopt.verify(tmp_path / "run").passed


def test_the_fake_gpu_refuses_what_cuda_refuses() -> None:
    with fake_gpu():
        there, here = torch.zeros(3, device="cuda"), torch.zeros(3)
        assert (there.is_cuda, here.is_cuda, (there + 1.0).device.type) == (True, False, "cuda")
        for refused in (
            lambda: there + here,
            lambda: torch.rand(3, generator=torch.Generator(device="cuda")),
            lambda: torch.rand(3, generator=torch.Generator(), device="cuda"),
            lambda: torch.linalg.lstsq(there[None], there[None], driver="gelsd"),
        ):
            with pytest.raises(RuntimeError):
                refused()
        with pytest.raises(TypeError, match="cpu"):
            there.numpy()
        assert torch.equal(there.cpu(), here)
