"""A larger bound for exact fits with two outputs, or of rank two: edges that count by their direction.

The text is MATH.md section 5, "Two outputs" (derived). Let B be as in edges.py, a its reach, F = B Y of rank two, and
M = B S S^T B^T with the outputs S of the last hidden layer. For each T = diag(t), t > 0, the form B^T T B has no
positive entry off its diagonal either, so that

    prod_{l<L} |W_l| >= |B Z|_* / a >= Tr T M / (a |T M T|_op^(1/2)).

An exact fit has M >= F J F^T and |W_L|^2 >= Tr J^-1 with J = (F^T M^+ F)^-1. If M = F J F^T + R and r = |T R T|_op,
then Tr T M >= tau + r / max t and |T M T|_op <= kappa + r with tau = Tr T F J F^T and kappa = |T F J F^T T|_op. Hence

    (|W_1| ... |W_L|)^2 >= min_J max_T Phi^2 Tr J^-1 / a^2,    Phi^2 = min_{r >= 0} (tau + r / max t)^2 / (kappa + r).

With T = 1 this is (g(f) / a)^2 of ranks.py, whose worst J stretches one direction. Here T makes the edges along that
direction count less. With F = P diag(f) V^T, row e of P at the angle theta_e, and J = V diag(1/f) G diag(1/f) V^T,

    G = (1, x, y) = (1/2) [[1 + x, y], [y, 1 - x]],    x^2 + y^2 < 1,    t_e = 1 - a cos 2 theta_e - b sin 2 theta_e,

so that tau, and the matrix whose norm is kappa, are sums of |p_e|^2 exp(2 i k theta_e), k = 0 to 3. The minimum over
the disc of (x, y) is bounded over triangles. On one T is fixed; kappa is convex and at most its chord, and for each
c <= 2 / max t, Phi^2 >= 2 c tau - c^2 kappa. Tr J^-1 = sum_i f_i^2 (G^-1)_ii is convex and at least its tangents. The
product of these two linear functions is at least the minimum of (p_i q_j + p_j q_i) / 2 over their values p, q at the
corners.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Complex, Float
from torch import Tensor

Triangles = Float[Tensor, "K 3 2"]
Form = tuple[Tensor, Tensor]  # the symmetric matrices (1/2) [[u + Re z, Im z], [Im z, u - Re z]] as (u, z)


@dataclass(frozen=True)
class Plane:
    """The edges' differences of the targets in the plane of their two largest singular values."""

    f: tuple[float, float]  # these singular values f_1 >= f_2
    moments: Complex[Tensor, " 4"]  # sum_e |p_e|^2 exp(2 i k theta_e), k = 0, 1, 2, 3
    missed: float  # an upper bound on |F' - F|_F / f_2 over all F' that a fit may have
    # (a, b) over (1 + gamma) (x, y), where gamma is the smaller over the larger eigenvalue of G
    shares: ClassVar[tuple[float, ...]] = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    tangents: ClassVar[tuple[float, ...]] = (1.0, 0.9, 0.7)  # where they are taken on the way to the middle of the disc
    near: ClassVar[float] = 2e-3  # the relative accuracy of the minimum; a circle, the hardest case, takes 0.1 s
    most: ClassVar[int] = 100_000  # the largest number of triangles at once; a circle needs 700
    thinnest: ClassVar[float] = 0.05  # the least f_2 / f_1: at 0.1 it proves 0.5 % more than ranks.py, at 0.06 no more
    smallest: ClassVar[float] = 1e-60  # smaller f, and larger than the inverse, are left to ranks.py: squares underflow

    @classmethod
    def of(cls, F: Float[Tensor, "E m"], missed: float) -> Plane | None:
        """Return the plane of F = B Y, whose rounding is in `missed` too, or None if F is too near to rank one."""
        P, f, _ = torch.linalg.svd(F, full_matrices=False)
        if len(f) < 2 or not cls.smallest < cls.thinnest * float(f[0]) < float(f[1]) < 1.0 / cls.smallest:
            return None
        rows = torch.complex(P[:, 0], P[:, 1])
        sizes = rows.abs().square()
        turns = torch.where(sizes > 0.0, rows.square() / sizes.clamp_min(1e-300), 0.0)  # exp(2 i theta)
        moments = torch.stack([(sizes * turns**k).sum() for k in range(4)])
        return cls((float(f[0]), float(f[1])), moments, missed / float(f[1]))

    @property
    def ceiling(self) -> float:
        """Return the product of three linear layers, which is more than can be proved here."""
        return sum(f ** (2.0 / 3.0) for f in self.f) ** 1.5

    def least_product(self) -> float:
        """Return a lower bound on a |W_1| ... |W_L|; 0 if it takes too many triangles."""
        angles = torch.arange(17, dtype=torch.float64) * (math.pi / 8.0)
        corners = 1.02 * torch.stack([angles.cos(), angles.sin()], dim=1)  # 1 / cos(pi / 16) is 1.0196
        triangles = torch.stack([torch.zeros_like(corners[1:]), corners[:-1], corners[1:]], dim=1)
        best, keeps = math.inf, (1.0 - self.near) ** 2
        # The misfits change tau^(1/2) by 2.4 and kappa^(1/2) by 5.7 of them at most, because t is between 0.3 and 1.7.
        rounding = max(0.0, 1.0 - 12.0 * self.missed) * (1.0 - 2.0**-26)
        while len(triangles) <= self.most:
            lows, values = self._bounded(triangles)
            best = min(best, float(values.min()))
            triangles = triangles[lows < keeps * best]
            if not len(triangles):
                return rounding * (1.0 - self.near) * math.sqrt(best)
            triangles = _halved(triangles)
        return 0.0

    def _bounded(self, triangles: Triangles) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        """Return a lower bound on the squared product in each triangle, and its value at a point of each."""
        middle = triangles.mean(dim=1)
        radius = middle.norm(dim=1, keepdim=True)
        outside = ((middle / radius)[:, None] * triangles).sum(dim=2).amin(dim=1) >= 1.0
        middle = middle / radius.clamp_min(1e-300) * radius.clamp(1e-9, 0.999)
        lines = torch.stack([self._tangent(middle * k, triangles) for k in self.tangents])  # (K', K, 3)
        best = lines.amin(dim=2).argmax(dim=0)
        last = lines[best, torch.arange(len(best))]
        at_middle = self._tangent(middle, middle[:, None])[:, 0]
        lows, values = torch.zeros_like(at_middle), torch.zeros_like(at_middle)
        v, corners = torch.view_as_complex(middle.contiguous()), torch.view_as_complex(triangles.contiguous())
        for share in self.shares:
            h = share * 2.0 / (1.0 + v.abs()) * v  # 1 + gamma = 2 / (1 + |v|)
            first, second = self._forms(h)
            t = 1.0 + h.abs()
            tau, kappa = _trace(first, v), _largest(second, v)
            c = torch.minimum(tau / kappa, 2.0 / t)
            values = torch.maximum(values, (2.0 * c * tau - c**2 * kappa) * at_middle)
            first, second = ((u[:, None], z[:, None]) for u, z in (first, second))
            before = 2.0 * c[:, None] * _trace(first, corners) - c[:, None] ** 2 * _largest(second, corners)
            both = before[:, :, None] * last[:, None, :]
            low = (0.5 * (both + both.mT)).flatten(1).amin(dim=1)
            lows = torch.maximum(lows, torch.where((before > 0.0).all(dim=1), low, 0.0))
        return torch.where(outside, math.inf, lows), torch.where(outside, math.inf, values)

    def _tangent(self, at: Float[Tensor, "K 2"], points: Float[Tensor, "K n 2"]) -> Float[Tensor, "K n"]:
        """Return the tangent of sum_i f_i^2 (G^-1)_ii at these (x, y), taken at the points."""
        total, difference = self.f[0] ** 2 + self.f[1] ** 2, self.f[0] ** 2 - self.f[1] ** 2
        x, y = at[:, :1], at[:, 1:]
        size = 1.0 - x.square() - y.square()
        value = total - difference * x
        slope_x, slope_y = 4.0 * value * x / size**2 - 2.0 * difference / size, 4.0 * value * y / size**2
        return 2.0 * value / size + slope_x * (points[..., 0] - x) + slope_y * (points[..., 1] - y)

    def _forms(self, h: Complex[Tensor, " K"]) -> tuple[Form, Form]:
        """Return P^T T P and P^T T^2 P for t_e = 1 - Re(conj(h) exp(2 i theta_e))."""
        m, back, square = self.moments, h.conj(), h.abs().square()
        pull = (back * m[1]).real
        turned = 0.5 * (h * m[0] + back * m[2])
        twice = 0.5 * (square * m[0].real + (back**2 * m[2]).real)
        across = 0.5 * square * m[1] + 0.25 * (back**2 * m[3] + h**2 * m[1].conj())
        return (m[0].real - pull, m[1] - turned), (m[0].real - 2.0 * pull + twice, m[1] - 2.0 * turned + across)


def _trace(form: Form, v: Complex[Tensor, "*K"]) -> Float[Tensor, "*K"]:
    """Return Tr H G for H = (u, z) and G = (1, v)."""
    u, z = form
    return 0.5 * (u + (z.conj() * v).real)


def _largest(form: Form, v: Complex[Tensor, "*K"]) -> Float[Tensor, "*K"]:
    """Return the largest eigenvalue of H G, convex in v because H is positive semi-definite."""
    u, z = form
    trace = _trace(form, v)
    determinants = (u.square() - z.abs().square()) * (1.0 - v.abs().square()) / 16.0
    return 0.5 * (trace + (trace.square() - 4.0 * determinants).clamp_min(0.0).sqrt())


def _halved(triangles: Triangles) -> Float[Tensor, "M 3 2"]:
    """Return the halves of each triangle, cut at the middle of its longest side."""
    longest = (triangles - triangles.roll(-1, dims=1)).norm(dim=2).argmax(dim=1)
    order = (longest[:, None] + torch.arange(3)) % 3
    first, second, third = triangles.gather(1, order[..., None].expand(-1, -1, 2)).unbind(dim=1)
    middle = 0.5 * (first + second)
    return torch.cat([torch.stack([first, middle, third], dim=1), torch.stack([middle, second, third], dim=1)])
