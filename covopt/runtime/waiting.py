"""How OpenMP's threads wait for one another, which is decided when PyTorch is loaded.

By default they spin: after each small product every thread holds its core until the next one, and where other programs
are at work, those that compute wait for those that spin. Asleep they cost a few microseconds for each product instead.
This module loads nothing, so that it can be asked before PyTorch is loaded.
"""

from __future__ import annotations

import os
import sys

POLICY, PASSIVE = "OMP_WAIT_POLICY", "PASSIVE"
_at_loading = os.environ.get(POLICY, "")


def wait_passively() -> None:
    """Let threads sleep while they wait, unless OMP_WAIT_POLICY is set or PyTorch is loaded."""
    global _at_loading
    if "torch" not in sys.modules:
        _at_loading = os.environ.setdefault(POLICY, PASSIVE)


def passive() -> bool:
    """Return True if PyTorch's threads sleep while they wait, as far as is known."""
    return _at_loading.upper() == PASSIVE
