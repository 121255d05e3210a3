"""Check an audit's facts on the network as a function: recompute them from its files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from covopt.data.arrays import read_npz
from covopt.model.problem import Problem
from covopt.studies.audit.audited import AT, ORBITS
from covopt.studies.audit.function import checked_inputs, function_of

Summary = Mapping[str, Any]
Sentences = Iterator[str]

NOISE = 1e-12
"""Rounding of the singular values of one list, relative to the largest of them, and of differences of numbers, relative
to these numbers or to 1."""
DIFFERENCES = ("distance", "R1_lower", "nonlinearity", "orbit_collapse", "sum", "at_most")


def function(s: Summary, problem: Problem, weights: list[Tensor], directory: Path, rounding: float) -> Sentences:
    """Check every entry of `function` against the network; an interrupted audit has none."""
    stated = s["function"]
    if stated is None:
        return
    if not isinstance(stated, Mapping):
        yield "audit.json states nothing of the network as a function."
        return
    arrays = (read_npz(file)["X"] if file.is_file() else None for file in (directory / AT, directory / ORBITS))
    at, orbits = checked_inputs(problem, *arrays)
    computed = function_of(problem, weights, at=at, orbits=orbits).summary()
    size = max(1.0, s["norm"])
    for name in {**computed, **stated}:
        if not _agrees(name, stated.get(name, ...), computed.get(name, ...), rounding, size):
            yield f"audit.json states another {name} of the network as a function than the network has."


def _agrees(name: str, stated: object, computed: object, rounding: float, size: float) -> bool:
    """Return True if two entries are equal up to rounding; `size` is the network's |W|^2."""
    if isinstance(computed, dict):
        if not isinstance(stated, Mapping) or stated.keys() != computed.keys():
            return False
        return all(_agrees(key, stated[key], value, rounding, size) for key, value in computed.items())
    if isinstance(computed, list):
        if not isinstance(stated, list) or len(stated) != len(computed):
            return False
        numbers = [abs(value) for value in computed if isinstance(value, float)]
        noise = NOISE * max(numbers, default=0.0)
        return all(
            _close(a, b, rounding, noise) if isinstance(b, float) else _agrees(name, a, b, rounding, size)
            for a, b in zip(stated, computed, strict=True)
        )
    if isinstance(computed, float):
        return _close(stated, computed, rounding, NOISE * size if name in DIFFERENCES else 0.0)
    return type(stated) is type(computed) and stated == computed


def _close(stated: object, computed: float, rounding: float, noise: float) -> bool:
    if not isinstance(stated, float) or not math.isfinite(stated) or stated < 0.0 <= computed:
        return False
    return abs(stated - computed) <= rounding * abs(computed) + noise
