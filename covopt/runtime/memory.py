"""The memory of this process, and of the machine or its container, in bytes.

Linux reports both in files (proc(5), cgroups(7)), PyTorch reports those of a GPU. On other systems the process counts
as `LIBRARIES`, and the memory of the machine is unknown.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

LIBRARIES = 300e6  # the bytes that Python and PyTorch take
ROOT = Path("/")


def held(device: torch.device) -> float:
    """Return the bytes that this process holds; on a GPU, those of its arrays there."""
    if device.type == "cuda":
        return float(torch.cuda.memory_allocated(device))
    try:
        return float((ROOT / "proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return LIBRARIES


def available(device: torch.device) -> float | None:
    """Return the bytes available until the machine, container or GPU is full; None if unknown."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    kibibytes = _table(ROOT / "proc/meminfo").get("MemAvailable:")  # free without swapping, by the kernel's estimate
    machine = [] if kibibytes is None else [1024.0 * kibibytes]
    return min([*machine, *_of_containers()], default=None)


def _of_containers() -> list[float]:
    """Return the memory that the limits of the control groups allow, parent groups included."""
    try:
        lines = (ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    rooms = []
    for _, kinds, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        old = "memory" in kinds.split(",")
        if kinds and not old:
            continue
        top = ROOT / "sys/fs/cgroup" / ("memory" if old else "")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
        for group in {top / path.lstrip("/"), top, *(top / path.lstrip("/")).parents} - set(top.parents):
            limit, taken = (_number(group / name) for name in names)
            if limit is not None and taken is not None:
                statistics = _table(group / "memory.stat")
                cached = statistics.get("total_inactive_file", statistics.get("inactive_file", 0.0))
                rooms.append(max(0.0, limit - taken + cached))
    return rooms


def _number(file: Path) -> float | None:
    """Return the number in a file; None where there is none, as in `max`."""
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return None


def _table(file: Path) -> dict[str, float]:
    """Return the numbers in a file by their names; each line has one of both."""
    try:
        rows = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: float(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
