"""The slices of `python -m tests.benchmarks gpu`, without a GPU: they are stored, cut short, and gone on with."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import gpu, harness
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
