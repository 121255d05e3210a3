"""Compare stored entries and weights with recomputed ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Cost, check_network, evaluate


def weights_of(arrays: Mapping[str, NDArray], prefix: str = "") -> list[Tensor]:
    """Return the arrays W1 ... WL of a file, or p7_W1 ... p7_WL by their prefix, as tensors in this order."""
    named = re.compile(rf"{re.escape(prefix)}W(\d+)")
    matrices = {int(match[1]): array for name, array in arrays.items() if (match := named.fullmatch(name))}
    if any(array.dtype.kind != "f" or array.ndim != 2 for array in matrices.values()):
        raise ValueError("weights that are no matrices of numbers")
    return [torch.from_numpy(matrices[number]).double() for number in sorted(matrices)]


def evaluated(problem: Problem, weights: list[Tensor]) -> Cost:
    """Check the shapes of stored weights, and return their cost."""
    check_network(problem, weights)
    return evaluate(problem, weights)


def equal(a: object, b: object) -> bool:
    """Return True if two JSON entries are equal, types included (true is not 1)."""
    # Callers give `...` for an entry that is missing.
    return a is not ... and json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def same(a: float, b: float, rounding: float) -> bool:
    """Return True if b equals a up to a relative error of `rounding`."""
    return abs(a - b) <= rounding * abs(a)


def alike(stated: object, recomputed: object, rounding: float) -> bool:
    """Return True if two JSON entries are equal up to the rounding of their floats."""
    if isinstance(recomputed, dict):
        same_keys = isinstance(stated, dict) and stated.keys() == recomputed.keys()
        return same_keys and all(alike(stated[key], recomputed[key], rounding) for key in recomputed)  # type: ignore[index]
    if isinstance(recomputed, list):
        same_length = isinstance(stated, list) and len(stated) == len(recomputed)
        return same_length and all(alike(a, b, rounding) for a, b in zip(stated, recomputed, strict=True))  # type: ignore[arg-type]
    if isinstance(recomputed, float) and isinstance(stated, float):
        # Numbers below 1e-3 are compared absolutely: their relative rounding errors can be larger.
        return math.isclose(stated, recomputed, rel_tol=rounding, abs_tol=rounding * 1e-3)
    return type(stated) is type(recomputed) and stated == recomputed
