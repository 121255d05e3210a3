"""What a benchmark ran on: processor, cores, memory, system, versions, threads, and how busy the machine was."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")


def describe(threads: int) -> dict[str, object]:
    """The machine as it is now; `load` is the one-minute average, about 0 on a quiet machine."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": _memory(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "threads": threads,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str | None:
    """The commit of this checkout, with a + where the package differs from it; None outside a checkout."""
    head = _git("rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+" if _git("status", "--porcelain", "--", "covopt", "tests/benchmarks/*.py") else "")


def _git(*arguments: str) -> str | None:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    """Physical memory in GiB."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None
