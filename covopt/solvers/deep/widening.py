"""Wider copies of a deep network, so that descents leave a basin and fits become exact."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from covopt.model.weights import Weights
from covopt.solvers.deep.pruning import parts, with_parts


def widened(
    weights: Weights, more: Sequence[int], strength: float, generator: torch.Generator, widest: int | None = None
) -> list[Tensor]:
    """Return a copy with more neurons of random weights in each hidden layer.

    Args:
        weights: W_1 ... W_L.
        more: neurons to be added to hidden layers 1 ... L - 1.
        strength: root mean square of their weights, relative to the layer's; small enough, and the copy stays in its
            basin.
        generator: of the random weights.
        widest: no hidden layer gets wider than this.
    """
    grown = list(weights)
    for layer, number in enumerate(more, start=1):
        incoming, outgoing = parts(grown, layer)
        if widest is not None:
            number = max(0, min(number, widest - len(incoming)))
        wider = [torch.cat([old, _noise(number, old, strength, generator)]) for old in (incoming, outgoing)]
        grown = with_parts(grown, layer, wider[0], wider[1])
    return grown


def _noise(rows: int, like: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    size = like.square().mean().sqrt() if like.numel() else like.new_zeros(())
    noise = torch.randn(rows, like.shape[1], generator=generator, dtype=like.dtype, device=generator.device)
    return strength * size * noise.to(like.device)
