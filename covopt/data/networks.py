"""Sources of trained networks: files, modules, state dicts and arrays; none is trusted.

Weights follow covopt's convention, W_l (n_l, n_{l-1} + 1) with the bias column last: PyTorch's bias is beta W_l[:, -1].
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray
from torch import Tensor, nn

from covopt.data import arrays
from covopt.data.arrays import read_npz
from covopt.data.modules import FOLD, LAYERS, check_plain, slope_by_outputs, slopes_of, unwrapped
from covopt.data.tensors import as_array, read_torch, write_torch
from covopt.runtime import files
from covopt.runtime.errors import DataError, RecordError, counted, listed, shown

STATE_DICT = "save the state dict of Linear layers with torch.save(model.state_dict(), file)"

STATE_FILES = (".pt", ".pth")
WEIGHTS = r"W\d+"  # a regular expression for the names of the arrays in a file of weights
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""The statistics that BatchNorm stores in a state dict."""


@dataclass(frozen=True)
class Network:
    """A trained network."""

    weights: list[Float64[np.ndarray, "_ _"]]  # W_1 ... W_L, shapes (n_l, n_{l-1} + 1), finite, L >= 2
    slope: float | None = None  # the activation's slope a; None if the source does not give it
    stored: torch.dtype = torch.float64  # the smallest precise floating type of the weights; float64 for integers


class FoundWeights(list[Tensor]):
    """The weights [W_1, ..., W_L] of a network that was found, its amount of bias and the activation's slope."""

    def __init__(self, weights: Iterable[Tensor], beta: float, slope: float) -> None:
        super().__init__(weights)
        self.beta, self.slope = beta, slope

    def to_torch(self) -> nn.Sequential:
        """Return a plain `torch.nn.Sequential` in float64; its bias is beta W[:, -1]."""
        return as_sequential(self, self.beta, self.slope)


def as_sequential(weights: Sequence[Tensor], beta: float, slope: float) -> nn.Sequential:
    """Return a plain Sequential of Linear and activation in float64, with bias beta W[:, -1]."""
    modules: list[nn.Module] = []
    for W in weights:
        with warnings.catch_warnings():  # torch warns of layers without neurons, which the zero function has
            warnings.simplefilter("ignore", UserWarning)
            linear = nn.Linear(W.shape[1] - 1, W.shape[0], dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(W[:, :-1])
            linear.bias.copy_(beta * W[:, -1])
        modules += [linear, nn.ReLU() if slope == 0.0 else nn.Identity() if slope == 1.0 else nn.LeakyReLU(slope)]
    return nn.Sequential(*modules[:-1])


def check_free(path: Path, force: bool = False) -> None:
    """Raise a RecordError unless a network may be written: no file exists, or `force` is set."""
    if path.suffix.lower() not in (".npz", *STATE_FILES):
        raise RecordError(f"{path} is to hold a network; give a name that ends in .pt (a state dict) or .npz.")
    if path.suffix.lower() in STATE_FILES:
        files.check_free(path, force, _holds_state)
    else:
        arrays.check_free(path, force, WEIGHTS)


def _holds_state(path: Path) -> bool:
    """Return True if a file is a state dict, which may be replaced."""
    try:
        content = read_torch(path, "")
    except DataError:
        return False
    return isinstance(content, Mapping) and all(isinstance(value, Tensor) for value in content.values())


def write_network(path: Path, network: FoundWeights, force: bool = False) -> None:
    """Write a state dict (.pt), or W1 ... WL (.npz); the file whole or not at all."""
    check_free(path, force)
    if path.suffix.lower() in STATE_FILES:
        state = network.to_torch().state_dict()
        files.write_file(path, lambda draft: write_torch(draft, state), force, _holds_state)
    else:
        arrays.write_npz(path, named(network), force, WEIGHTS)


def named(weights: Sequence[Tensor]) -> dict[str, NDArray]:
    """Return W1 ... WL by the names that files of arrays use."""
    return {f"W{i}": W.cpu().numpy() for i, W in enumerate(weights, start=1)}


def read_network(path: str | os.PathLike[str], beta: float) -> Network:
    """Read a network from a file: .pt with a state dict, or .npz with W1 ... WL; no code in it is run.

    PyTorch's biases are divided by beta, the amount of bias.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix in STATE_FILES:
        content = read_torch(file, STATE_DICT)
        if not isinstance(content, Mapping):
            raise DataError(f"{file} holds a {type(content).__name__}, not a state dict; {STATE_DICT}.")
        return _from_state(_inner(content), str(file), beta)
    if suffix == ".npz":
        arrays = _listed(read_npz(file), file)
        return Network(_from_arrays(arrays, str(file), beta), None, _coarsest(arrays))
    if not file.exists():
        raise DataError(f"There is no file {file}; check the name.")
    raise DataError(f"{file} is of no known format; give a .pt file with a state dict, or a .npz file with W1 ... WL.")


def as_network(net: object, beta: float, X: Tensor | None = None) -> Network:
    """Read a network from an nn.Module, a state dict, or a list of arrays W_1 ... W_L.

    A module is read from its state dict and then called: its outputs at random inputs and at the rows of X must be
    those of the weights. Modules with hooks, with a `forward` that overrides PyTorch's, or with weights that two layers
    share are refused.
    """
    if isinstance(net, nn.Module):
        module = unwrapped(net)
        declared, network = slopes_of(module), _from_state(module.state_dict(), "the network", beta)
        check_plain(module)
        return replace(network, slope=slope_by_outputs(module, network.weights, beta, declared, X))
    if isinstance(net, Mapping):
        return _from_state(_inner(net), "the network", beta)
    if getattr(net, "ndim", 3) < 3:  # an array or a table
        raise DataError("The network is an array; give the network first, then X and Y.")
    try:
        matrices = list(net)  # type: ignore[call-overload]
        arrays = [
            as_array(W, f"W{i}", "the network") if isinstance(W, Tensor) else np.asarray(W)
            for i, W in enumerate(matrices, start=1)
        ]
    except (TypeError, ValueError) as error:
        remedy = "give an nn.Sequential, a state dict, or arrays W_1 ... W_L"
        if hasattr(net, "result_"):  # an estimator, which scales its data
            remedy = "give its result_, and as the data result_.problem.X and result_.problem.Y"
        raise DataError(f"The network is {shown(net)}; {remedy}.") from error
    return Network(_from_arrays(arrays, "the network", beta), None, _coarsest(matrices))


def _inner(state: Mapping) -> Mapping:
    """Return the state dict inside a checkpoint, or the mapping itself if it is none."""
    inside = [
        part
        for part in state.values()
        if isinstance(part, Mapping) and part and all(isinstance(value, Tensor) for value in part.values())
    ]
    return inside[0] if len(inside) == 1 else state


def _coarsest(arrays: Iterable[object]) -> torch.dtype:
    """Return the floating type with the largest unit roundoff; float64 if there is none."""
    dtypes = [torch.float64]
    for array in arrays:
        if isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.dtype.itemsize <= 8:
            dtypes.append(torch.from_numpy(np.empty(0, array.dtype.newbyteorder("="))).dtype)
        elif isinstance(array, Tensor) and array.dtype.is_floating_point:
            dtypes.append(array.dtype)
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def _listed(arrays: Mapping[str, NDArray], file: Path) -> list[NDArray]:
    """Return W1 ... WL in their order."""
    names = [f"W{i}" for i in range(1, len(arrays) + 1)]
    if set(names) != set(arrays):
        held = listed(sorted(arrays))
        raise DataError(f"{file} holds {held}; name the weights W1 ... WL, the bias column last in each, and no more.")
    return [arrays[name] for name in names]


def _from_arrays(arrays: Sequence[NDArray], source: str, beta: float) -> list[NDArray[np.float64]]:
    weights = [_checked(W, f"W{i}", source, 2) for i, W in enumerate(arrays, start=1)]
    return _chained(weights, [f"W{i}" for i in range(1, len(weights) + 1)], source, beta)


def _from_state(state: Mapping, source: str, beta: float) -> Network:
    """Return the network of a state dict, its layers ordered by the numbers in their names, else as in the file."""
    for key in state:
        if str(key).rpartition(".")[2] in STATISTICS:
            raise DataError(f"'{key}' in {source} is no weight or bias of a Linear layer but BatchNorm's; {FOLD}.")
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
    names = [f"'{name}.weight'" for name in layers]
    return Network(_chained(weights, names, source, beta), None, _coarsest(state.values()))


def _with_bias(name: str, parts: dict[str, NDArray[np.float64]], source: str, beta: float) -> NDArray[np.float64]:
    """Return W_l from the weight and the bias of a Linear layer."""
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
    """Check that an array is finite, real and has `dimensions` dimensions; return it in float64."""
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} in {source} does not hold real numbers (its type is {array.dtype}); give numbers.")
    if array.ndim != dimensions:
        kind = " (a convolution, say)" if array.ndim > 2 else ""
        raise DataError(f"{name} in {source} has {counted(array.ndim, 'dimension')}{kind}, not {dimensions}; {LAYERS}.")
    if not np.isfinite(array).all():
        place = ", ".join(str(int(i)) for i in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{name} in {source} has a NaN or infinite entry at ({place}); train the network again.")
    return array.astype(np.float64)


def _chained(weights: list[NDArray[np.float64]], names: list[str], source: str, beta: float) -> list[NDArray]:
    """Check that each layer takes the outputs of the one before, and return all layers."""
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
