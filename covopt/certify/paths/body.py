"""Neurons of the second layer: all combinations of first-layer neurons and a bias, of total weight 1.

A neuron's pre-activation is h = sum_j m_j s(w_j) + beta b 1 with |m|_1 + r |b| <= 1, r the price of its bias.
This file says, for vectors of prices c, how large <c, h> can be; the first layer is the dictionary of `shares`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.shares.dictionary import CHARGED, Dictionary

ENTRIES = 1 << 22  # numbers of the products that are held at a time


@dataclass(frozen=True)
class Body:
    """The pre-activations of second-layer neurons."""

    atoms: Dictionary  # the first layer's neurons
    bias: float  # the entry of the bias column, 0 without biases
    price: float  # r, at least 0; it does not matter without biases
    chosen: Int[np.ndarray, " _"] | None = None  # the neurons of the dictionary that a search looks at; None for all

    @cached_property
    def corners(self) -> Float[Tensor, "N J"]:
        """The corners of nonnegative weights: the chosen neurons, and with biases their column over its price."""
        values = self.atoms.values if self.chosen is None else self.atoms.values[:, self.chosen]
        if self.bias:
            values = np.column_stack([values, np.full(len(values), self.bias / self.price)])
        return torch.from_numpy(values)

    def reaches(
        self, prices: Float[np.ndarray, "B N"], charged: Float[np.ndarray, " N"]
    ) -> tuple[Float[np.ndarray, " B"], Int[np.ndarray, " B"]]:
        """Return an upper bound on <c, h> over all h of nonnegative weights, at least 0, rounding included.

        The second array says at which neuron of the dictionary it is the largest. An entry of c, the prices, is off by
        at most what is `charged`.
        """
        atoms, rows = self.atoms, max(1, ENTRIES // self.atoms.values.shape[1])
        most, where = np.zeros(len(prices)), np.zeros(len(prices), dtype=int)
        for first in range(0, len(prices), rows):
            part = slice(first, first + rows)
            size = np.abs(prices[part]) * (1.0 + CHARGED) + charged
            c = prices[part] + CHARGED * size + charged
            steep = c @ atoms.values + size @ atoms.missed
            where[part] = steep.argmax(axis=1)
            most[part] = np.maximum(steep.max(axis=1), 0.0) * atoms.secant + atoms.neglected * size.sum(axis=1)
            if self.bias:
                most[part] = np.maximum(most[part], self.bias / self.price * c.sum(axis=1) * (1.0 + CHARGED))
        return most, where


@dataclass(frozen=True)
class Directions:
    """Unit vectors u_k of the outputs with |v| <= secant max_k <u_k, v> for every v."""

    vectors: Float[np.ndarray, "K m"]
    secant: float  # at least 1

    @staticmethod
    def of(outputs: int, count: int) -> Directions:
        """Return two directions of one output, or this many of two."""
        if outputs == 1:
            return Directions(np.array([[1.0], [-1.0]]), 1.0)
        angles = 2.0 * math.pi / count * np.arange(count)
        circle = np.column_stack([np.cos(angles), np.sin(angles)])
        return Directions(circle, (1.0 + CHARGED) / math.cos(math.pi / count))
