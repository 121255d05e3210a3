"""Entries and weights of a file, held against what is found again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Cost, check_network, evaluate


def weights_of(arrays: Mapping[str, Any]) -> list[Tensor]:
    """W_1 ... W_L by their numbers."""
    found = {int(match[1]): array for name, array in arrays.items() if (match := re.fullmatch(r"W(\d+)", name))}
    if any(array.dtype.kind != "f" or array.ndim != 2 for array in found.values()):
        raise ValueError("weights that are no matrices of numbers")
    return [torch.from_numpy(found[number]).double() for number in sorted(found)]


def evaluated(problem: Problem, weights: list[Tensor]) -> Cost:
    """The cost of weights from a file."""
    check_network(problem, weights)
    return evaluate(problem, weights)


def equal(a: object, b: object) -> bool:
    """Whether two entries are the same, and of the same kind (true is not 1)."""
    return a is not ... and json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def same(a: float, b: float, rounding: float) -> bool:
    """Whether b is a but for rounding, relative."""
    return abs(a - b) <= rounding * abs(a)


def alike(stated: object, found: object, rounding: float) -> bool:
    """Whether two entries are the same but for the rounding of their numbers."""
    if isinstance(found, dict):
        same = isinstance(stated, dict) and stated.keys() == found.keys()
        return same and all(alike(stated[key], found[key], rounding) for key in found)  # type: ignore[index]
    if isinstance(found, list):
        same = isinstance(stated, list) and len(stated) == len(found)
        return same and all(alike(a, b, rounding) for a, b in zip(stated, found, strict=True))  # type: ignore[arg-type]
    if isinstance(found, float) and isinstance(stated, float):
        return math.isclose(stated, found, rel_tol=rounding, abs_tol=rounding * 1e-3)
    return type(stated) is type(found) and stated == found
