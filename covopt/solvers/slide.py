"""Moving all active neurons at once between master solves (sliding Frank-Wolfe).

Frank-Wolfe's atoms stand still; their neurons need not. In weights the objective of the mixture is

    S(F) + |U|_F^2 + |V|_F^2 + |b|^2,  F = sigma(X U^T) V + beta 1 b^T,

in units of lam (S is the fit's smooth loss), and a few L-BFGS steps from the balanced network of the mixture lower it
along all neurons together. Kinks stop L-BFGS short (MATH.md section 4): the oracle's ascents, which continue from the
moved neurons, put them exactly on their kinks afterwards.

Source: Denoyelle, Duval, Peyre, Soubies, The sliding Frank-Wolfe algorithm (2019).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.cone.reduce import balance
from covopt.model.activation import Activation

Smooth = Callable[[Float[Tensor, "N m"]], tuple[Float[Tensor, ""], Float[Tensor, "N m"]]]


@dataclass(frozen=True)
class SlideOptions:
    """L-BFGS's limits.

    Attributes:
        memory: pairs of steps and gradient differences that approximate the Hessian.
        iterations: at most.
        window: iterations over which progress is judged.
        slow: stop when `window` iterations lower the value by less than this, relative.
        decrease, curvature: the constants of the weak Wolfe conditions.
        trials: of the step length in one line search, at most.
        roughly: `slow` of a descent in float32 that goes before.
        entries: of X, from which on it does: below, its arithmetic is not what takes the time.
    """

    memory: int = 30
    iterations: int = 2000
    window: int = 10
    slow: float = 1e-5
    decrease: float = 1e-4
    curvature: float = 0.9
    trials: int = 25
    roughly: float = 3e-5
    entries: int = 2**14


def slide(
    X: Float[Tensor, "N r"],
    activation: Activation,
    beta: float,
    smooth: Smooth,
    directions: Float[Tensor, "n r"],
    outputs: Float[Tensor, "n m"],
    bias: Float[Tensor, " m"],
    stop: Callable[[], bool],
    options: SlideOptions | None = None,
) -> tuple[Float[Tensor, "n r"], Float[Tensor, "n m"], Float[Tensor, " m"]]:
    """L-BFGS on the balanced network (directions, outputs, bias); its balanced weights (U, V, b) after the descent.

    The value never rises: the line search accepts decrease only, and the descent in float32 that goes before where X is
    large ends lower in the dtype of X, or is dropped.
    """
    options = options or SlideOptions()
    U, V = balance(directions, outputs)
    shapes = [U.shape, V.shape, bias.shape]

    def value(x: Tensor, X: Tensor) -> tuple[float, Tensor]:
        U, V, b = _parts(x, shapes)
        Z = X @ U.T
        Phi = activation(Z)
        S, G = smooth(torch.addmm(beta * b, Phi, V).to(bias))
        G = G.to(x)
        dU = activation.pull_back(G @ V.T, Z).T @ X
        gradient = torch.cat([dU.flatten(), (Phi.T @ G).flatten(), beta * G.sum(dim=0)])
        return float(S) + float(x @ x), gradient.add_(x, alpha=2.0)

    x = torch.cat([U.flatten(), V.flatten(), bias])
    rounding = X.dtype == torch.float64 and X.numel() >= options.entries
    if rounding:
        single, rough = X.float(), replace(options, slow=max(options.slow, options.roughly))
        found = lbfgs(lambda x: value(x, single), x.float(), stop, rough).to(x)
        if value(found, X)[0] < value(x, X)[0]:
            x = found
    if not rounding or options.slow < options.roughly:
        x = lbfgs(lambda x: value(x, X), x, stop, options)
    U, V, b = _parts(x, shapes)
    return *balance(U, V), b


def _parts(x: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    return [part.view(shape) for part, shape in zip(x.split([s.numel() for s in shapes]), shapes, strict=True)]


def lbfgs(
    value: Callable[[Float[Tensor, " p"]], tuple[float, Float[Tensor, " p"]]],
    x: Float[Tensor, " p"],
    stop: Callable[[], bool],
    options: SlideOptions,
) -> Float[Tensor, " p"]:
    """Limited-memory BFGS with the weak Wolfe line search that suits kinks; `value` gives f and its gradient.

    Source: Nocedal, Wright, Numerical Optimization, algorithm 7.4; Lewis, Overton, Nonsmooth optimization via
    quasi-Newton methods (2013), algorithm 2.6. (torch.optim's L-BFGS takes seconds to import and wants strong Wolfe.)
    """
    f, g = value(x)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=options.memory)
    recent: deque[float] = deque([f], maxlen=options.window + 1)
    for _ in range(options.iterations):
        if stop():
            break
        direction = -_inverse_hessian(pairs, g)
        slope = float(g @ direction)
        if not slope < 0.0:
            break
        first = 1.0 if pairs else min(1.0, 1.0 / float(g.norm()))
        found = _weak_wolfe(value, x, f, direction, slope, first, options)
        if found is None:
            break
        new, f, gradient = found
        step, change = new - x, gradient - g
        curvature = float(step @ change)
        if curvature > 0.0:
            pairs.append((step, change, curvature))
        x, g = new, gradient
        recent.append(f)
        if len(recent) > options.window and recent[0] - f <= options.slow * abs(f):
            break
    return x


def _inverse_hessian(pairs: deque[tuple[Tensor, Tensor, float]], g: Tensor) -> Tensor:
    """The two-loop recursion: the approximate inverse Hessian times g."""
    q, weights = g.clone(), []
    for step, change, curvature in reversed(pairs):
        weights.append(float(step @ q) / curvature)
        q.sub_(change, alpha=weights[-1])
    if pairs:
        _, change, curvature = pairs[-1]
        q.mul_(curvature / float(change @ change))
    for (step, change, curvature), weight in zip(pairs, reversed(weights), strict=True):
        q.add_(step, alpha=weight - float(change @ q) / curvature)
    return q


def _weak_wolfe(
    value: Callable[[Tensor], tuple[float, Tensor]],
    x: Tensor,
    f: float,
    direction: Tensor,
    slope: float,
    length: float,
    options: SlideOptions,
) -> tuple[Tensor, float, Tensor] | None:
    """A point of sufficient decrease and flatter slope, by bisection; any point of decrease where trials run out."""
    low, high, found = 0.0, torch.inf, None
    for _ in range(options.trials):
        new = torch.add(x, direction, alpha=length)
        at, gradient = value(new)
        if not at <= f + options.decrease * length * slope:
            high = length
        else:
            found = (new, at, gradient)
            if float(gradient @ direction) >= options.curvature * slope:
                break
            low = length
        length = 0.5 * (low + high) if high < torch.inf else 2.0 * length
    return found
