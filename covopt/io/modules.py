"""What a module computes, compared with what its weights tell: nothing but a plain ReLU network is read as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, autocast, nn
from torch.random import fork_rng

from covopt.errors import DataError, counted

LAYERS = "give Linear layers with one kind of ReLU, LeakyReLU or Identity between them"
FOLD = "fold it into the Linear layer before it with torch.nn.utils.fusion.fuse_linear_bn_eval"

IDLE = (nn.Identity, nn.Dropout, nn.AlphaDropout, nn.Flatten)
"""What does nothing to rows of numbers when a network is evaluated."""
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU)
PLAIN = (nn.Linear, nn.Sequential, *ACTIVATIONS, *IDLE)
"""What must act as PyTorch wrote it, since the weights alone are read."""
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# A module's own outputs and those of the weights that were read agree to this, relative to the largest, in float32.
AGREES = 1e-3
PROBES = np.logspace(-3, 5, 40)
"""Lengths of the random inputs on which they are compared."""
ROWS = 256
"""Rows of the data on which they are compared, too."""
LEAKY = 0.01
"""The slope of a LeakyReLU of which nobody says it."""


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the network inside of DataParallel and its kin, and of torch.compile.

    Raises:
        DataError: one of them has a hook.
    """
    while True:
        _check_hooks(module, "itself")
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
            module = inner
        else:
            return module


def _check_hooks(part: nn.Module, place: str) -> None:
    if getattr(part, "_forward_hooks", None) or getattr(part, "_forward_pre_hooks", None):
        raise DataError(f"The network has a forward hook (at {place}), which can change its outputs; remove it.")


def check_plain(module: nn.Module) -> None:
    """Raise a DataError where a module does something that its weights do not tell."""
    for name, part in module.named_modules():
        place = f"'{name}'" if name else "itself"
        _check_hooks(part, place)
        kind = next((kind for kind in PLAIN if isinstance(part, kind)), None)
        if "forward" in vars(part) or (kind is not None and type(part).forward is not kind.forward):
            raise DataError(
                f"The network has a {type(part).__name__} (at {place}) with a forward of its own in place of that of"
                f" {type(part).__name__ if kind is None else kind.__name__}; {LAYERS}."
            )
    first: dict[int, str] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        if (other := first.setdefault(id(weight), name)) != name:
            raise DataError(
                f"The network's '{other}' and '{name}' are the same numbers, which the penalty would count twice;"
                " give each layer its own."
            )


def _slope_of_stack(module: nn.Sequential) -> float:
    """The slope of a Sequential's activation; 1 where there is none."""
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
    found = {slope for each in slopes[:-1] for slope in (each or [1.0])}
    if len(found) != 1 or max(len(each) for each in slopes[:-1]) > 1 or any(s != 1.0 for s in slopes[-1]):
        raise DataError(f"The network's activations differ, or stand after its last layer; {LAYERS}.")
    return found.pop()


def slopes_of(module: nn.Module) -> list[float]:
    """Return the slopes that a module can have: one of a Sequential, else those of its activations and of functions.

    Raises:
        DataError: a Sequential of other layers than ours.
    """
    if isinstance(module, nn.Sequential):
        return [_slope_of_stack(module)]
    declared = [_slope_of(part) for part in module.modules() if isinstance(part, ACTIVATIONS)]
    return list(dict.fromkeys([*declared, 0.0, LEAKY, 1.0]))


def slope_by_outputs(
    module: nn.Module, weights: list[NDArray[np.float64]], beta: float, slopes: Sequence[float], given: Tensor | None
) -> float:
    """Return the slope with which the weights answer as the module itself does, to random inputs and to rows given."""
    X = np.random.default_rng(0).standard_normal((len(PROBES), weights[0].shape[1] - 1)) * PROBES[:, None]
    if given is not None and given.shape[1] == X.shape[1]:
        X = np.vstack([X, given[:ROWS].double().cpu().numpy()])
    eps = max(torch.finfo(W.dtype).eps for W in module.parameters())
    own = _outputs_of(module, X)
    largest = _answers([np.abs(W) for W in weights], np.abs(X), beta, 1.0).max(axis=1, keepdims=True)
    for slope in slopes:
        F = _answers(weights, X, beta, slope)
        if own is not None and own.shape == F.shape:
            known = np.isfinite(own.sum(axis=1))  # half precision overflows at large inputs
            allowed = max(AGREES, 16.0 * eps) * np.abs(F).max(axis=1, keepdims=True) + 4.0 * eps * largest
            if known[: len(PROBES) // 2].all() and np.less_equal(np.abs(own - F), allowed)[known].all():
                return slope
    raise DataError(
        f"The network is a {type(module).__name__} that does not answer as its Linear layers with one activation"
        " between them do; give them as an nn.Sequential, without anything that changes its inputs or outputs."
    )


def _outputs_of(module: nn.Module, X: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """What a module answers in evaluation; None where it takes no such inputs."""
    like, modes = next(module.parameters()), {part: part.training for part in module.modules()}
    own = [like.device] if like.is_cuda else []  # dropout by a function draws numbers in evaluation too
    try:
        with torch.no_grad(), autocast(like.device.type, enabled=False), fork_rng(own):
            answered = module.eval()(torch.as_tensor(X).to(like))
    except Exception:  # a module of somebody's own may raise anything
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
    """The modules in the order in which they act, those of inner Sequentials among them."""
    return [part for child in module for part in (_parts(child) if isinstance(child, nn.Sequential) else [child])]
