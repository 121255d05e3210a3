"""The cones of a branch and bound: how they are cut, which are open, and their tree.

A cone is the set of V^T theta, theta >= 0, of its generators V (r, r), unit vectors in the rows. The roots are the
orthants; a cut replaces one end of an edge by its midpoint, then the other end. Edges are numbered in the order of
`torch.triu_indices(r, r, 1)`. A tree is an array of codes, level by level from the roots: 0 for a leaf,
1 + e for a cone that is cut at its edge e.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor


class OpenCones:
    """The open cones, in slots; a cone that is cut leaves its slot to a half. Empty slots have the bound -infinity."""

    def __init__(self, V: Tensor, side: Tensor) -> None:
        integers = torch.zeros(0, dtype=torch.int64, device=V.device)
        self.fields = [V[:0], side[:0], side[:0], integers, integers, integers]

    @property
    def upper(self) -> Float[Tensor, " n"]:
        """Return the bounds of the slots."""
        return self.fields[2]

    def largest(self) -> float:
        """Return the largest bound, -infinity if no cone is open."""
        return float(self.upper.max()) if len(self.upper) else -math.inf

    def worst(self, count: int, enough: float) -> Int[Tensor, " k"]:
        """Return the slots of the `count` largest bounds that are above `enough`."""
        value, slots = self.upper.topk(min(count, len(self.upper)))
        return slots[value > enough]

    def read(self, slots: Tensor) -> list[Tensor]:
        """Return V, side, upper, edge, name and depth of the cones in `slots`."""
        return [values[slots] for values in self.fields]

    def replace(self, slots: Tensor, cones: tuple[Tensor, ...]) -> None:
        """Empty `slots`, then store new cones, in empty slots first."""
        self.upper[slots] = -math.inf
        count = len(cones[0])
        if count > len(slots):
            slots = (self.upper == -math.inf).nonzero()[:, 0]
        if count > len(slots):
            slots = torch.cat([slots, self._grow(count - len(slots))])
        for values, new in zip(self.fields, cones, strict=True):
            values[slots[:count]] = new

    def _grow(self, extra: int) -> Tensor:
        old = len(self.upper)
        extra = max(extra, old)
        for k, values in enumerate(self.fields):
            fill = -math.inf if k == 2 else 0
            self.fields[k] = torch.cat([values, values.new_full((extra, *values.shape[1:]), fill)])
        return torch.arange(old, old + extra, device=self.upper.device)


class Log:
    """A record of the cuts; the names of cones are numbers in the order of their making."""

    def __init__(self) -> None:
        self.count = self.planted = 0
        self._cuts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []

    def roots(self, count: int) -> Int[Tensor, " n"]:
        """Return the names of the roots."""
        self.count = self.planted = count
        return torch.arange(count)

    def cut(self, name: Int[Tensor, " k"], edge: Int[Tensor, " k"]) -> Int[Tensor, " 2*k"]:
        """Record that cones `name` are cut at `edge`; return the names of the first halves, then of the second."""
        first = np.arange(self.count, self.count + len(name))
        self._cuts.append((name.cpu().numpy(), edge.cpu().numpy() + 1, first))
        self.count += 2 * len(name)
        return torch.arange(self.count - 2 * len(name), self.count, device=name.device)

    def tree(self) -> UInt8[np.ndarray, " n"]:
        """Return the codes level by level: the first halves in the order of their parents, then the second halves."""
        codes, child = np.zeros(self.count, np.uint8), np.zeros(self.count, np.int64)
        second = np.zeros(self.count, np.int64)
        for name, code, first in self._cuts:
            codes[name], child[name], second[name] = code, first, first + len(name)
        level, levels = np.arange(self.planted), []
        while len(level):
            levels.append(codes[level])
            cut = level[codes[level] > 0]
            level = np.concatenate([child[cut], second[cut]])
        return np.concatenate(levels) if levels else codes


def roots(P: Float[Tensor, "N r"], one_sided: bool) -> tuple[Float[Tensor, "B r r"], Float[Tensor, " B"]]:
    """Return the orthants; for one output those for u = 1, then those for u = -1."""
    signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=P.dtype, device=P.device)] * P.shape[1])
    V = torch.diag_embed(signs)
    side = torch.ones(len(V), dtype=P.dtype, device=P.device)
    return (torch.cat([V, V]), torch.cat([side, -side])) if one_sided else (V, side)


def halves(V: Float[Tensor, "B r r"], edge: Int[Tensor, " B"]) -> Float[Tensor, "2*B r r"]:
    """Return the halves of each cone: the midpoint of its edge replaces the first end, then the second."""
    first, second = torch.triu_indices(V.shape[1], V.shape[1], 1, device=V.device)[:, edge]
    rows = torch.arange(len(V), device=V.device)
    middle = torch.nn.functional.normalize(V[rows, first] + V[rows, second], dim=1)
    one, other = V.clone(), V.clone()
    one[rows, first], other[rows, second] = middle, middle
    return torch.cat([one, other])
