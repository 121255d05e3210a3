"""Kinds of second-layer neurons with one output, and cells of the shares that classes of them have (MATH.md section 5).

The kind of a neuron is the sign of its output weight and the samples on which it is active. A cell divides the kinds
into classes by a list of splits. Each split divides one class by a feature, the output's sign or the activity on one
sample, and says in which interval the new class's part of the divided class's share lies. The share of a class is its
part of |W_3|^2.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

# Codes of cuts in the place of a feature: the interval of a split, the scale, and none (a leaf).
INTERVAL, SCALE, LEAF = -1, -2, -3
MOST_SPLITS = 8  # a cell has at most 2^8 corners


class Kinds:
    """All kinds of neurons on N samples that are active somewhere."""

    def __init__(self, samples: int) -> None:
        patterns = np.array(list(itertools.product((False, True), repeat=samples))[1:])
        self.active: Bool[np.ndarray, "P N"] = np.vstack([patterns, patterns])  # the samples of each
        self.signs: Float[np.ndarray, " P"] = np.repeat([1.0, -1.0], len(patterns))  # the signs of the output weights
        # Positive output; active on each sample.
        self.features: Bool[np.ndarray, "_ P"] = np.vstack([self.signs > 0.0, self.active.T])


class Cut(NamedTuple):
    """A cut of a cell in two."""

    place: int  # the class that is divided, or the split whose interval is cut
    feature: int  # the feature that divides the class; INTERVAL, SCALE or LEAF
    at: float  # where


class Split(NamedTuple):
    """A division of a class: kinds with the feature become a new class, with a part in [low, high] of the share."""

    divided: int
    feature: int
    low: float
    high: float


@dataclass(frozen=True)
class Cell:
    """Networks whose classes have shares in a box of parts, and whose |W_3|^2 is in an interval."""

    splits: tuple[Split, ...] = ()  # the k-th of them makes class k; class 0 is there from the start
    scale: tuple[float, float] = (0.0, math.inf)  # the interval of |W_3|^2 without the bias of the output

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return len(self.splits) + 1

    def labels(self, features: Bool[np.ndarray, "F P"]) -> Int[np.ndarray, " P"]:
        """Return the class of each kind."""
        labels = np.zeros(features.shape[1], dtype=int)
        for k, split in enumerate(self.splits, start=1):
            labels[(labels == split.divided) & features[split.feature]] = k
        return labels

    @cached_property
    def corners(self) -> Float[np.ndarray, "V K"]:
        """Shares of the classes that span those of all networks in the cell: they are multilinear in the parts."""
        corners = np.ones((1, 1))
        for split in self.splits:
            ends = []
            for part in sorted({split.low, split.high}):
                shares = corners.copy()
                shares[:, split.divided] *= 1.0 - part
                ends.append(np.column_stack([shares, corners[:, split.divided] * part]))
            corners = np.vstack(ends)
        return corners

    def halves(self, cut: Cut) -> tuple[Cell, Cell] | None:
        """Return the two cells that a cut leaves, which together hold all networks of this one; None if it is none."""
        place, feature, at = cut
        splits, (low, high) = self.splits, self.scale
        if feature == SCALE and low < at < high:
            return replace(self, scale=(low, at)), replace(self, scale=(at, high))
        if feature == INTERVAL and 0 <= place < len(splits) and splits[place].low < at < splits[place].high:
            before, split, after = splits[:place], splits[place], splits[place + 1 :]
            below, above = split._replace(high=at), split._replace(low=at)
            return replace(self, splits=(*before, below, *after)), replace(self, splits=(*before, above, *after))
        if feature >= 0 and 0 <= place < self.classes <= MOST_SPLITS and 0.0 < at < 1.0:
            below, above = Split(place, feature, 0.0, at), Split(place, feature, at, 1.0)
            return replace(self, splits=(*splits, below)), replace(self, splits=(*splits, above))
        return None

    def below(self, place: int) -> tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]:
        """Return the classes that come of split `place`'s new class, and those of both its sides."""
        new, both = {place + 1}, {self.splits[place].divided, place + 1}
        for k, split in enumerate(self.splits[place + 1 :], start=place + 2):
            new |= {k} if split.divided in new else set()
            both |= {k} if split.divided in both else set()
        return np.array(sorted(new)), np.array(sorted(both))
