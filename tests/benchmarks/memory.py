"""What a solve says that it needs of memory, and the peak that it reaches in a process of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass, field

from tests.benchmarks.harness import Outcome, Settings, benchmark

SOLVE = """
import json, sys
import numpy as np
import covopt

given = json.loads(sys.argv[1])
N, d, m = given.pop("sizes")
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((N, d)), rng.standard_normal((N, m))
Y += np.maximum(X[:, :1], 0.0)
if given.get("loss") == "cross_entropy":
    Y = np.eye(m)[Y.argmax(axis=1)]
plan = covopt.plan(X, Y, **{"lam": 1e-3} | given)
need = plan.need
result = plan.solve()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([need.total, need.held, need.largest, 1024.0 * float(peak.split()[1]), str(result.status)]))
"""


@dataclass(frozen=True)
class Case:
    """Samples, inputs and outputs, and how they are solved."""

    sizes: tuple[int, int, int]
    options: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """Bytes: the need that was told, what was held before, and the peak; the largest phase; how the solve ended."""

    need: float
    held: float
    largest: str
    peak: float
    status: str


def measure(case: Case) -> Measured:
    """One solve in a process of its own, of which Linux tells the peak."""
    given = json.dumps({"sizes": case.sizes} | case.options)
    told = subprocess.run([sys.executable, "-c", SOLVE, given], capture_output=True, text=True, check=True)
    return Measured(*json.loads(told.stdout.splitlines()[-1]))


CASES = [
    Case((200, 10, 1), {"certify": "none"}),
    Case((1000, 64, 10), {"certify": "none"}),
    Case((4000, 20, 1), {"certify": "none"}),
    Case((4000, 200, 10), {"certify": "none", "max_iterations": 2}),
    Case((4000, 784, 10), {"certify": "none", "time_limit": 60.0}),
    Case((8000, 64, 10), {"certify": "none", "loss": "cross_entropy", "time_limit": 90.0}),
    Case((10000, 8, 1), {"certify": "none", "time_limit": 60.0}),
    Case((20000, 784, 10), {"certify": "none"}),
    Case((60000, 100, 10), {"certify": "none"}),
    Case((40000, 784, 10), {"certify": "fast"}),
    Case((100, 20, 3), {"certify": "full"}),
    Case((300, 64, 10), {"certify": "full"}),
    Case((450, 100, 10), {"certify": "full", "time_limit": 60.0}),
    Case((4000, 5, 1), {"certify": "auto"}),
    Case((20000, 64, 10), {"certify": "full", "time_limit": 120.0}),
    Case((500, 2, 1), {"certify": "fast"}),
    Case((1200, 2, 1), {"certify": "fast", "max_iterations": 3}),
    Case((20000, 1, 1), {"certify": "auto", "max_iterations": 3}),
    Case((1000, 20, 5), {"certify": "none", "bias": "free"}),
    Case((500, 20, 5), {"certify": "none", "depth": 3}),
    Case((500, 20, 5), {"certify": "auto", "depth": 5}),
    Case((3000, 20, 5), {"certify": "auto", "depth": 3}),
    Case((20000, 200, 5), {"certify": "none", "depth": 4}),
    Case((500, 20, 5), {"certify": "none", "method": "train"}),
    Case((5000, 20, 5), {"certify": "none", "method": "train", "width": 100, "starts": 10}),
    Case((3000, 20, 5), {"certify": "none", "method": "train", "depth": 4, "width": 50, "starts": 20}),
    Case((200, 20, 5), {"certify": "none", "method": "hidden"}),
    Case((800, 20, 5), {"certify": "none", "method": "hidden"}),
    # Within a limit.
    Case((4000, 200, 10), {"certify": "none", "max_iterations": 1, "memory_limit": 0.8}),
    Case((8000, 64, 10), {"certify": "none", "loss": "cross_entropy", "memory_limit": 0.9}),
    Case((450, 100, 10), {"certify": "full", "memory_limit": 0.6}),
]
LEAST, MOST = 0.7, 1.8
"""What the need may be of the peak."""


@benchmark("memory", "the memory that solves need, told and measured (20 min)")
def run_memory(settings: Settings) -> Outcome:
    """All cases, one after another."""
    rows, parts = [], []
    for case in CASES[: 2 if settings.quick else len(CASES)]:
        found = measure(Case(case.sizes, {"time_limit": settings.limit(20.0)} | case.options))
        parts.append(found.need / found.peak)
        words = ", ".join(f"{name} {value}" for name, value in case.options.items())
        megabytes = [round(size / 1e6) for size in (found.held, found.need, found.peak)]
        rows.append((str(case.sizes), words, *megabytes, parts[-1], found.largest, found.status))
        print(*rows[-1], flush=True)
    return Outcome(
        target=f"the predicted memory is between {LEAST} and {MOST} of the peak",
        reached=f"{min(parts):.2f} to {max(parts):.2f} of it in {len(parts)} solves",
        met=min(parts) >= LEAST and max(parts) <= MOST,
        columns=("N, d, m", "options", "held before (MB)", "need (MB)", "peak (MB)", "need / peak", "phase", "status"),
        rows=rows,
    )
