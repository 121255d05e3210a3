"""Fewer neurons for the same outputs at no higher cost: those that switch on the same samples become one.

A scalar output, unit form: F = sum_k s_k sigma(Xt u_k) with u_k = |v_k| w_k and s_k = sign(v_k); the balanced cost is
2 sum_k |u_k|. Where two neurons agree in s and their pre-activations nowhere have opposite signs, sigma is linear on
both of them sample by sample, so that sigma(Xt u_1) + sigma(Xt u_2) = sigma(Xt (u_1 + u_2)), and
|u_1 + u_2| <= |u_1| + |u_2|. With one input these are the neurons of one orientation with their cusps in the same gap
between samples ([JGHG22], Prop. 15); with several inputs, or several outputs along one direction, the same holds.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.oracles.neurons import Merged

# A pre-activation this small, relative to |x_i||u|, is a zero: it agrees with either sign.
ZERO = 1e-14


def merge_cusps(
    Xt: Float[Tensor, "N d"], weights: Float[Tensor, "n d"], outputs: Float[Tensor, "n m"], tolerance: float = 1e-14
) -> Merged:
    """Make one neuron of all those with the same samples on and parallel outputs; F stays, 2 sum_k |v_k| never rises.

    With one input and one output at most 4N neurons are left for distinct inputs ([JGHG22], Prop. 15).

    Args:
        Xt: inputs with their bias column.
        weights: hidden weights u (n, d), the bias column included; of any length.
        outputs: v (n, m).
        tolerance: outputs are parallel when the cosine of their angle is at least 1 - tolerance; exact for one output.
    """
    lengths, sizes = weights.norm(dim=1), outputs.norm(dim=1)
    strength = lengths * sizes
    alive = strength > 0
    rays = torch.where(alive[:, None], weights * sizes[:, None], 0.0)
    axes = torch.nn.functional.normalize(outputs, dim=1)
    sums, signs, heads = [], [], []
    group = torch.full((len(weights),), -1, dtype=torch.int64, device=weights.device)
    for k in strength.argsort(descending=True, stable=True).tolist():
        if not alive[k]:
            continue
        sign = _signs(Xt, rays[k])
        for place, head in enumerate(heads):
            fits = bool((sign * signs[place] >= 0).all()) and float(axes[k] @ axes[head]) >= 1.0 - tolerance
            if fits:
                sums[place] = sums[place] + rays[k]
                signs[place] = torch.where(signs[place] == 0, sign, signs[place])
                group[k] = place
                break
        else:
            group[k] = len(heads)
            heads.append(k)
            sums.append(rays[k])
            signs.append(sign)
    joined = torch.stack(sums) if sums else rays[:0]
    norms = joined.norm(dim=1, keepdim=True)
    return Merged(torch.nn.functional.normalize(joined, dim=1), norms * axes[heads], group)


def _signs(Xt: Float[Tensor, "N d"], ray: Float[Tensor, " d"]) -> Float[Tensor, " N"]:
    z = Xt @ ray
    return torch.where(z.abs() > ZERO * Xt.norm(dim=1) * ray.norm(), z.sign(), 0.0)
