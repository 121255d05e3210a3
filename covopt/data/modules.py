"""Check that a PyTorch module is the plain ReLU network of its weights."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, autocast, nn
from torch.random import fork_rng

from covopt.runtime.errors import DataError, counted

LAYERS = "give Linear layers with one kind of ReLU, LeakyReLU or Identity between them"
FOLD = "fold it into the Linear layer before it with torch.nn.utils.fusion.fuse_linear_bn_eval"

IDLE = (nn.Identity, nn.Dropout, nn.AlphaDropout, nn.Flatten)
"""Modules that do not change rows of numbers in evaluation mode."""
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU)
PLAIN = (nn.Linear, nn.Sequential, *ACTIVATIONS, *IDLE)
"""Modules whose `forward` must be PyTorch's, because only their weights are read."""
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the network inside DataParallel, DistributedDataParallel and torch.compile, which must have no hooks."""
    dynamo = sys.modules.get("torch._dynamo")  # loads slowly; it is loaded if something was compiled
    while True:
        _check_hooks(module, "itself")
        if type(module) in (nn.DataParallel, nn.parallel.DistributedDataParallel):
            wrapped = module.module
        elif dynamo is not None and type(module) is dynamo.OptimizedModule:
            wrapped = module._orig_mod
        else:
            return module
        assert isinstance(wrapped, nn.Module)
        module = wrapped


def _check_hooks(part: nn.Module, place: str) -> None:
    if getattr(part, "_forward_hooks", None) or getattr(part, "_forward_pre_hooks", None):
        raise DataError(f"The network has a forward hook (at {place}), which can change its outputs; remove it.")


def check_plain(module: nn.Module) -> None:
    """Raise a DataError if a module does something that its weights do not show."""
    for name, part in module.named_modules():
        place = f"'{name}'" if name else "itself"
        _check_hooks(part, place)
        kind = next((kind for kind in PLAIN if isinstance(part, kind)), None)
        if kind is not None and ("forward" in vars(part) or type(part).forward is not kind.forward):
            raise DataError(
                f"The network has a {type(part).__name__} (at {place}) with a forward of its own in place of that of"
                f" {kind.__name__}; {LAYERS}."
            )
    first: dict[int, str] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        if weight.numel() and (other := first.setdefault(weight.data_ptr(), name)) != name:
            raise DataError(
                f"The network's '{other}' and '{name}' are the same numbers, which the penalty would count twice;"
                " give each layer its own."
            )


def _slope_of_stack(module: nn.Sequential) -> float:
    """Return the slope of the activation of a Sequential; 1 if it has none."""
    slopes: list[list[float]] = []
    for part in _parts(module):
        if isinstance(part, nn.Linear):
            slopes.append([])
        elif slopes and isinstance(part, ACTIVATIONS):
            slopes[-1].append(_slope_of(part))
        elif isinstance(part, NORMS):
            raise DataError(f"The network holds a {type(part).__name__}; {FOLD}.")
        elif not isinstance(part, IDLE):
            raise DataError(f"The network holds a {type(part).__name__} where it cannot be; {LAYERS}.")
    if len(slopes) < 2:
        raise DataError(f"The network has {counted(len(slopes), 'Linear layer')}; give at least two.")
    distinct = {slope for layer in slopes[:-1] for slope in (layer or [1.0])}
    if len(distinct) != 1 or max(len(layer) for layer in slopes[:-1]) > 1 or any(s != 1.0 for s in slopes[-1]):
        raise DataError(f"The network's activations differ, or stand after its last layer; {LAYERS}.")
    return distinct.pop()


def slopes_of(module: nn.Module) -> list[float]:
    """Return the slopes that the activation of a module can have: one for a Sequential, else several."""
    if isinstance(module, nn.Sequential):
        return [_slope_of_stack(module)]
    declared = [_slope_of(part) for part in module.modules() if isinstance(part, ACTIVATIONS)]
    leaky = 0.01  # the default slope of functional.leaky_relu
    return list(dict.fromkeys([*declared, 0.0, leaky, 1.0]))


def slope_by_outputs(
    module: nn.Module, weights: list[NDArray[np.float64]], beta: float, slopes: Sequence[float], rows: Tensor | None
) -> float:
    """Return the slope with which the weights have the outputs of the module.

    They are compared at random inputs and at all `rows`. A copy of the module in float64 is called, so that only
    rounding is tolerated; if there is no such copy, the module itself is called.
    """
    lengths = np.logspace(-3, 5, 40)
    probes = np.random.default_rng(0).standard_normal((len(lengths), weights[0].shape[1] - 1)) * lengths[:, None]
    batches = [torch.from_numpy(probes)]
    if rows is not None and rows.shape[1] == probes.shape[1]:
        batches += rows.split(4096)
    called = _in_float64(module, batches[0]) or module
    rounding = 32.0 * max(torch.finfo(W.dtype).eps for W in called.parameters())  # relative to sums of magnitudes
    for X in batches:
        inputs, own = X.double().cpu().numpy(), _outputs_of(called, X)
        largest = _answers([np.abs(W) for W in weights], np.abs(inputs), beta, 1.0).max(axis=1, keepdims=True)
        slopes = [s for s in slopes if _agree(own, _answers(weights, inputs, beta, s), rounding * largest)]
    if slopes:
        return slopes[0]
    raise DataError(
        f"The network is a {type(module).__name__} that does not answer as its Linear layers with one activation"
        " between them do; give them as an nn.Sequential, without anything that changes its inputs or outputs."
    )


def _agree(own: NDArray[np.float64] | None, expected: NDArray[np.float64], allowed: NDArray[np.float64]) -> bool:
    if own is None or own.shape != expected.shape:
        return False
    finite = np.isfinite(own.sum(axis=1))  # half precision overflows at large inputs
    return 2 * finite.sum() >= len(finite) and bool(np.less_equal(np.abs(own - expected), allowed)[finite].all())


def _in_float64(module: nn.Module, X: Tensor) -> nn.Module | None:
    """Return a copy of a module in float64; None if it cannot be made or called."""
    try:
        copied = copy.deepcopy(module).double()
    except Exception:  # a user's own module may raise anything
        return None
    return None if _outputs_of(copied, X) is None else copied


def _outputs_of(module: nn.Module, X: Tensor) -> NDArray[np.float64] | None:
    """Return the outputs of a module in evaluation mode; None if it fails or returns no tensor."""
    like, modes = next(module.parameters()), {part: part.training for part in module.modules()}
    own = [like.device] if like.is_cuda else []  # functional.dropout draws numbers in evaluation mode too
    try:
        with torch.no_grad(), autocast(like.device.type, enabled=False), fork_rng(own):
            answered = module.eval()(X.to(like))
    except Exception:  # a user's own module may raise anything
        return None
    finally:
        for part, training in modes.items():
            part.training = training
    return answered.double().cpu().numpy() if isinstance(answered, Tensor) else None


def _answers(weights: list[NDArray[np.float64]], X: NDArray[np.float64], beta: float, slope: float) -> NDArray:
    Z = X
    for layer, W in enumerate(weights):
        Z = (np.where(Z > 0.0, Z, slope * Z) if layer else Z) @ W[:, :-1].T + (beta if beta > 0.0 else 1.0) * W[:, -1]
    return Z


def _slope_of(part: nn.Module) -> float:
    if isinstance(part, nn.LeakyReLU):
        return float(part.negative_slope)
    return 0.0 if isinstance(part, nn.ReLU) else 1.0


def _parts(module: nn.Sequential) -> list[nn.Module]:
    """Return the modules in the order of their calls, nested Sequentials unpacked."""
    return [part for child in module for part in (_parts(child) if isinstance(child, nn.Sequential) else [child])]
