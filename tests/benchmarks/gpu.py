"""`python -m tests.benchmarks gpu`: everything that needs a GPU, in slices, each stored as it ends.

A slice is a program of its own and takes at most nine minutes. A call starts slices as long as they fit into its
minutes; the next call goes on after the last slice that ended well. Slices that failed or were cut short come last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tests.benchmarks import machine, works
from tests.benchmarks.harness import ENDED, Outcome, Settings, benchmark, covopt, ended, show

MINUTES = 9.0
"""The longest slice, and what a call takes by default."""
NODES = (4, 256, 4096)
"""Nodes that a tree over signs splits together: as on a processor, and for a GPU."""
GROWING = 60.0  # seconds of each tree
TREES = {
    "wine": lambda: works.table("wine", None, 1e-2),
    "breast-cancer": lambda: works.table("breast-cancer", 100, 1e-2),
    "diabetes": lambda: works.table("diabetes", 100, 1e-2),
    "digits-200": lambda: works.digits(200, 1e-3),
}


@dataclass(frozen=True)
class Slice:
    """A program and its limit.

    Attributes:
        arguments: of Python.
        seconds: after which it is cut short; a minute in a quick run.
    """

    arguments: tuple[str, ...]
    seconds: float


def measured(name: str, seconds: float, *options: str) -> Slice:
    """A benchmark as a slice."""
    return Slice(("-m", "tests.benchmarks", name, *options), seconds)


RACED = ("--seconds", "10", "--threads", "1")
SLICES = {
    "tests": Slice(("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests"), 400.0),
    "kernels": measured("kernels", 540.0),
    "soon": measured("soon", 420.0),
    "growth": measured("growth", 300.0),
    "rivals-20000": measured("rivals-20000", 480.0, *RACED),
    "rivals-digits-200": measured("rivals-digits-200", 480.0, *RACED),
    "rivals-digits-200-depth-4": measured("rivals-digits-200-depth-4", 480.0, *RACED),
    "rivals-training": measured("rivals-training", 480.0, *RACED),
    **{f"sign-trees-{name}": measured(f"sign-trees-{name}", 420.0) for name in TREES},
    "rivals-20000-classes": measured("rivals-20000-classes", 480.0, *RACED),
}
"""In the order in which they run; the benchmarks store their own results as well."""
SIMILAR = {"rivals-digits-200", "rivals-digits-200-depth-4", "rivals-20000-classes"} | {
    f"sign-trees-{name}" for name in list(TREES)[1:]
}
"""Left out of a quick run, because others run the same code on other data."""
QUICK = ("--quick", "--seconds", "0.5", "--threads", "1")
QUICK_TESTS = "tests/solvers/test_devices.py"


def run_slices(settings: Settings, minutes: float = MINUTES) -> str:
    """Run the slices that come next, and say what is done."""
    if settings.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("There is no CUDA device; --device cpu --quick shows that the slices run.")
    path, started = settings.directory / "gpu.json", time.monotonic()
    stored = json.loads(path.read_text()) if path.exists() else {}
    names = [name for name in SLICES if not (settings.quick and name in SIMILAR)]
    pending = sorted((name for name in names if not stored.get(name, {}).get("done")), key=lambda name: name in stored)
    for number, name in enumerate(pending):
        limit = 60.0 if settings.quick else SLICES[name].seconds
        if number > 0 and time.monotonic() - started + limit > 60.0 * minutes:
            break
        print(f"{name}: at most {limit:.0f} s", file=sys.stderr, flush=True)
        stored[name] = _carry_out(SLICES[name], settings, min(limit, 60.0 * minutes))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(stored, indent=1) + "\n")
        print(f"  {stored[name]['end']} after {stored[name]['seconds']:.0f} s", file=sys.stderr, flush=True)
    done = sum(bool(stored.get(name, {}).get("done")) for name in names)
    lines = [f"{name}: {stored[name]['end'] if name in stored else 'not run yet'}" for name in names]
    after = f"remove {_shown(path)} to start anew" if done == len(names) else "the same command goes on"
    return "\n".join([*lines, f"{done} of {len(names)} slices done; {after}."])


def _carry_out(part: Slice, settings: Settings, limit: float) -> dict[str, object]:
    """Run a slice: how it ended, and the last lines of what it printed."""
    arguments, started = list(part.arguments), time.monotonic()
    if "tests.benchmarks" in arguments:
        arguments += ["--device", settings.device, *(QUICK if settings.quick else ())]
    elif settings.quick:
        arguments = [QUICK_TESTS if argument == "tests" else argument for argument in arguments]
    # A session of its own: what is cut short takes its contenders with it.
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=machine.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=limit)
        end = "done" if process.returncode == 0 else f"failed, exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        text, _ = process.communicate()
        end = "cut short"
    return {
        "done": end == "done",
        "end": end,
        "seconds": round(time.monotonic() - started, 1),
        "commit": machine.commit(),
        "machine": machine.describe(settings.threads) | named(settings.device),
        "printed": text.splitlines()[-20:],
    }


def _shown(path: Path) -> Path:
    return path.relative_to(machine.ROOT) if path.is_relative_to(machine.ROOT) else path


def named(device: str) -> dict[str, str]:
    """Return the name of the GPU, for what a result says of the machine."""
    return {} if device == "cpu" else {"gpu": torch.cuda.get_device_name()}


def run_sign_trees(settings: Settings, name: str) -> Outcome:
    """One problem with `certify="full"`, with more and more nodes in a batch."""
    rows, runs = [], []
    work, seconds = TREES[name](), settings.limit(GROWING)
    for nodes in NODES[-1:] if settings.quick else NODES:
        asked = {"certify": "full", "time_limit": seconds, "device": settings.device, "nodes": nodes}
        (run,) = covopt(work, settings, [0], **asked)
        runs.append(run)
        rows.append((nodes, run.cost, run.lower, run.gap, run.certificate, *ended(run)))
    return Outcome(
        target=f"measured: the gap that is proved in {seconds:g} s with {', '.join(map(str, NODES))} nodes in a batch",
        reached=", ".join(show(run.gap) for run in runs),
        met=None,
        columns=("nodes", "cost", "lower", "gap", "certificate", *ENDED),
        rows=rows,
        runs=runs,
    )


for _name in TREES:
    benchmark(f"sign-trees-{_name}", f"trees over signs for {_name}, more nodes in a batch (4 min); --device cuda")(
        partial(run_sign_trees, name=_name)
    )
