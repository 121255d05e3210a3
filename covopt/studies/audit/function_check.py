"""What an audit says of a network as a function, computed again from the stored network and inputs."""

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

# Differences that rounding leaves: of the singular values of one list, relative to the largest of them, and of what is
# a difference of numbers, relative to these or to 1.
NOISE = 1e-12
DIFFERENCES = ("distance", "R1_lower", "nonlinearity", "orbit_collapse", "sum", "at_most")


def function(s: Summary, problem: Problem, weights: list[Tensor], directory: Path, rounding: float) -> Sentences:
    """Every entry of `function`, held against the network; audits from before it have none."""
    told = s.get("function")
    if told is None:
        return
    if not isinstance(told, Mapping):
        yield "audit.json states nothing of the network as a function."
        return
    given = (read_npz(file)["X"] if file.is_file() else None for file in (directory / AT, directory / ORBITS))
    at, orbits = checked_inputs(problem, *given)
    found = function_of(problem, weights, at=at, orbits=orbits).summary()
    size = max(1.0, s["norm"])
    for name in {**found, **told}:
        if not _agrees(name, told.get(name, ...), found.get(name, ...), rounding, size):
            yield f"audit.json states another {name} of the network as a function than the network has."


def _agrees(name: str, told: object, found: object, rounding: float, size: float) -> bool:
    """Whether two entries are the same but for rounding; `size` is that of the network's |W|^2."""
    if isinstance(found, dict):
        if not isinstance(told, Mapping) or told.keys() != found.keys():
            return False
        return all(_agrees(key, told[key], value, rounding, size) for key, value in found.items())
    if isinstance(found, list):
        if not isinstance(told, list) or len(told) != len(found):
            return False
        numbers = [abs(value) for value in found if isinstance(value, float)]
        noise = NOISE * max(numbers, default=0.0)
        return all(
            _close(a, b, rounding, noise) if isinstance(b, float) else _agrees(name, a, b, rounding, size)
            for a, b in zip(told, found, strict=True)
        )
    if isinstance(found, float):
        return _close(told, found, rounding, NOISE * size if name in DIFFERENCES else 0.0)
    return type(told) is type(found) and told == found


def _close(told: object, found: float, rounding: float, noise: float) -> bool:
    if not isinstance(told, float) or not math.isfinite(told) or told < 0.0 <= found:
        return False
    return abs(told - found) <= rounding * abs(found) + noise
