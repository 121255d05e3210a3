"""Where trained networks come from: files, modules, state dicts and arrays; all checked, none trusted.

Weights are in covopt's convention, W_l (n_l, n_{l-1} + 1) with the bias column last: PyTorch's bias is beta W_l[:, -1].
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray
from torch import nn

from covopt.arrays import read_npz
from covopt.errors import DataError, counted, listed
from covopt.tensors import as_array, read_torch

STATE_DICT = "save the state dict of Linear layers with torch.save(model.state_dict(), file)"
LAYERS = "give Linear layers with one kind of ReLU, LeakyReLU or Identity between them"


@dataclass(frozen=True)
class Network:
    """A trained network.

    Attributes:
        weights: W_1 ... W_L, shapes (n_l, n_{l-1} + 1), finite, L >= 2.
        slope: the activation's slope a; None where the source does not tell.
    """

    weights: list[Float64[np.ndarray, "_ _"]]
    slope: float | None = None


def read_network(path: str | os.PathLike[str], beta: float) -> Network:
    """A network from a file: .pt with a state dict, or .npz with W1 ... WL.

    Args:
        path: the file; nothing in it is run.
        beta: the amount of bias, by which PyTorch's biases are divided.

    Raises:
        DataError: one sentence that says what is wrong and what to do.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix in (".pt", ".pth"):
        content = read_torch(file, STATE_DICT)
        if not isinstance(content, Mapping):
            raise DataError(f"{file} holds a {type(content).__name__}, not a state dict; {STATE_DICT}.")
        return Network(_from_state(content, str(file), beta))
    if suffix == ".npz":
        return Network(_from_arrays(_listed(read_npz(file), file), str(file), beta))
    if not file.exists():
        raise DataError(f"There is no file {file}; check the name.")
    raise DataError(f"{file} is of no known format; give a .pt file with a state dict, or a .npz file with W1 ... WL.")


def as_network(net: object, beta: float) -> Network:
    """A network from an nn.Sequential, a state dict, or a list of arrays W_1 ... W_L; nothing else is one.

    Raises:
        DataError: one sentence that says what is wrong and what to do.
    """
    if isinstance(net, nn.Module):
        slope = _slope(net)
        return Network(_from_state(net.state_dict(), "the network", beta), slope)
    if isinstance(net, Mapping):
        return Network(_from_state(net, "the network", beta))
    try:
        arrays = [_as_array(W, f"W{i}") for i, W in enumerate(net, start=1)]  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise DataError("The network is none; give an nn.Sequential, a state dict, or arrays W_1 ... W_L.") from error
    return Network(_from_arrays(arrays, "the network", beta))


def _as_array(W: object, name: str) -> NDArray:
    return as_array(W, name, "the network") if isinstance(W, torch.Tensor) else np.asarray(W)


def _listed(arrays: Mapping[str, NDArray], file: Path) -> list[NDArray]:
    """W1 ... WL in their order."""
    names = [f"W{i}" for i in range(1, len(arrays) + 1)]
    if set(names) != set(arrays):
        held = listed(sorted(arrays))
        raise DataError(f"{file} holds {held}; name the weights W1 ... WL, the bias column last in each, and no more.")
    return [arrays[name] for name in names]


def _from_arrays(arrays: Sequence[NDArray], source: str, beta: float) -> list[NDArray[np.float64]]:
    weights = [_checked(W, f"W{i}", source, 2) for i, W in enumerate(arrays, start=1)]
    return _chained(weights, [f"W{i}" for i in range(1, len(weights) + 1)], source, beta)


def _from_state(state: Mapping, source: str, beta: float) -> list[NDArray[np.float64]]:
    """The weights of a state dict, whose layers are in the order of their numbers (or of the file, without numbers)."""
    layers: dict[str, dict[str, NDArray[np.float64]]] = {}
    for key, value in state.items():
        layer, _, kind = str(key).rpartition(".")
        if not isinstance(value, torch.Tensor) or kind not in ("weight", "bias"):
            raise DataError(f"'{key}' in {source} is no weight or bias of a Linear layer; {LAYERS}.")
        array = as_array(value, f"'{key}'", source)
        layers.setdefault(layer, {})[kind] = _checked(array, f"'{key}'", source, 2 if kind == "weight" else 1)
    if len({re.sub(r"\d+", "#", name) for name in layers}) == 1:
        layers = dict(sorted(layers.items(), key=lambda item: [int(n) for n in re.findall(r"\d+", item[0])]))
    weights = [_with_bias(name, parts, source, beta) for name, parts in layers.items()]
    return _chained(weights, [f"'{name}.weight'" for name in layers], source, beta)


def _with_bias(name: str, parts: dict[str, NDArray[np.float64]], source: str, beta: float) -> NDArray[np.float64]:
    """One W_l of a Linear layer's weight and bias."""
    if "weight" not in parts:
        raise DataError(f"'{name}' in {source} has a bias and no weight; {LAYERS}.")
    weight = parts["weight"]
    bias = parts.get("bias", np.zeros(len(weight)))
    if len(bias) != len(weight):
        raise DataError(
            f"'{name}' in {source} has {counted(len(weight), 'neuron')} and a bias of {len(bias)}; {LAYERS}."
        )
    if beta == 0.0 and bias.any():
        raise _bias_refused(f"'{name}.bias'", source)
    return np.column_stack([weight, bias / beta if beta > 0.0 else bias])


def _checked(array: NDArray, name: str, source: str, dimensions: int) -> NDArray[np.float64]:
    """A finite real array of so many dimensions."""
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} in {source} does not hold real numbers (its type is {array.dtype}); give numbers.")
    if array.ndim != dimensions:
        kind = " (a convolution, say)" if array.ndim > 2 else ""
        raise DataError(f"{name} in {source} has {array.ndim} dimensions{kind}, not {dimensions}; {LAYERS}.")
    if not np.isfinite(array).all():
        place = ", ".join(str(int(i)) for i in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{name} in {source} has a NaN or infinite entry at ({place}); train the network again.")
    return array.astype(np.float64)


def _chained(weights: list[NDArray[np.float64]], names: list[str], source: str, beta: float) -> list[NDArray]:
    """The weights, each of which must take what the one before gives."""
    if len(weights) < 2:
        raise DataError(f"{source} has {counted(len(weights), 'layer')} of weights; give at least two.")
    for (below, W), (above, V) in pairwise(zip(names, weights, strict=True)):
        if V.shape[1] != len(W) + 1:
            raise DataError(
                f"In {source} {below} has {len(W)} rows, but {above} takes {V.shape[1] - 1} inputs; give layers that"
                " fit on each other, in their order."
            )
    if beta == 0.0:
        for name, W in zip(names, weights, strict=True):
            if W[:, -1].any():
                raise _bias_refused(f"The last column of {name}", source)
    return weights


def _bias_refused(name: str, source: str) -> DataError:
    return DataError(f"{name} in {source} is not zero, but the bias is 0; give the bias that it was trained with.")


def _slope(module: nn.Module) -> float:
    """The slope of a Sequential's activation; 1 where there is none."""
    if not isinstance(module, nn.Sequential):
        raise DataError(f"The network is a {type(module).__name__}, not an nn.Sequential; give its state dict.")
    slopes: list[list[float]] = []
    for part in _parts(module):
        if isinstance(part, nn.Linear):
            slopes.append([])
        elif slopes and isinstance(part, (nn.ReLU, nn.LeakyReLU, nn.Identity)):
            slopes[-1].append(_slope_of(part))
        else:
            raise DataError(f"The network holds a {type(part).__name__} where it cannot be; {LAYERS}.")
    if len(slopes) < 2:
        raise DataError(f"The network has {counted(len(slopes), 'Linear layer')}; give at least two.")
    found = {slope for each in slopes[:-1] for slope in (each or [1.0])}
    if len(found) != 1 or max(len(each) for each in slopes[:-1]) > 1 or any(s != 1.0 for s in slopes[-1]):
        raise DataError(f"The network's activations differ, or stand after its last layer; {LAYERS}.")
    return found.pop()


def _slope_of(part: nn.Module) -> float:
    if isinstance(part, nn.LeakyReLU):
        return float(part.negative_slope)
    return 0.0 if isinstance(part, nn.ReLU) else 1.0


def _parts(module: nn.Sequential) -> list[nn.Module]:
    """The modules in the order in which they act, those of inner Sequentials among them."""
    return [part for child in module for part in (_parts(child) if isinstance(child, nn.Sequential) else [child])]
