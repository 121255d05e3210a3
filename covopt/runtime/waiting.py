"""Choose how the threads of OpenMP wait for one another: OMP_WAIT_POLICY is read when PyTorch is loaded.

By default they spin: after each small product, every thread occupies its core until the next one. If other programs use
the machine, threads that compute then wait for threads that spin. Sleeping costs a few microseconds for each product.
This module imports no other package, so that it can run before PyTorch is loaded.
"""

from __future__ import annotations

import os
import sys

POLICY, PASSIVE = "OMP_WAIT_POLICY", "PASSIVE"
_at_loading = os.environ.get(POLICY, "")


def wait_passively() -> None:
    """Let threads sleep while they wait; no effect if OMP_WAIT_POLICY is set or PyTorch is loaded."""
    global _at_loading
    if "torch" not in sys.modules:
        _at_loading = os.environ.setdefault(POLICY, PASSIVE)


def passive() -> bool:
    """Return True if OMP_WAIT_POLICY makes waiting threads of PyTorch sleep."""
    return _at_loading.upper() == PASSIVE
