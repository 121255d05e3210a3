"""Proved bounds of h(q) = |Lambda^T sigma(P q)|, |q| <= 1, over many simplicial cones at once.

A cone is given by its generators: V (r, r), one unit vector in each row, q = V^T theta with theta >= 0. Write
sigma_a(x) = a x + (1 - a) x_+, lambda'_i = (1 - a) lambda_i, x_ij = p_i^T v_j and x = x^+ - x^-. Between its values at
the generators, sigma is linear where sample i keeps its sign; elsewhere its chord exceeds it by (1 - a) times

    gap_i(theta) = sum_j theta_j (x_ij)_+ - (sum_j theta_j x_ij)_+ in [0, min(sum theta_j x_ij^+, sum theta_j x_ij^-)],

so that gap_i <= sum_j theta_j gamma_ij with gamma_ij = x_ij^+ - t_i x_ij for every t_i in [0, 1]. Let
G_j = Lambda^T sigma(P v_j):

    G(q) = Lambda^T sigma(P q) = sum_j theta_j G_j - sum_i lambda'_i gap_i.

**Vertex values.** Let u be a unit vector of outputs, a_i = u^T lambda'_i, and let the index o mean "orthogonal to u":

    +u^T G(q) <= sum theta_j d_j,    d_j  =  u^T G_j + sum_i (a_i)_- gamma_ij,
    -u^T G(q) <= sum theta_j d'_j,   d'_j = -u^T G_j + sum_i (a_i)_+ gamma_ij,
    |G_o(q)|  <= sum theta_j e_j,    e_j  = |G_oj - sum_i lambda'_oi gamma_ij / 2| + sum_i |lambda'_oi| gamma_ij / 2,

the last because gap_i is within gamma_i / 2 of gamma_i / 2. Norms are convex, so h(q) <= sum_j theta_j D_j with
D_j = |(max(d_j, d'_j), e_j)|. With one output, u = 1 and u = -1 are bounded by cones of their own and D_j = d_j.

**From vertex values to a number.** If c^T v_j >= D_j - s for all j, then sum theta_j D_j <= c^T q + s sum theta_j <=
|c| + s sqrt(r): the generators of a cone lie in one orthant, so sum theta_j^2 <= |q|^2. *Every* c and t give a bound;
good ones come from max_theta min_t sum theta_j D_j(t) - |V^T theta|^2 / 2, a concave quadratic programme. The proof
does not depend on the accuracy of its solver.

**Why it suffices.** Samples that change sign within the cone and raise u^T G (a_i > 0) cost their gap, of second order
in the cone's size once they are few. Those with a_i < 0 cost nothing at the best t, even if the maximum is on their
kink, as it is at the dual optimum. Turning outputs cost e_j^2 / 2, again of second order.

**Rounding.** u = 2^-53, S = sum_i |lambda_i| |p_i|; sums in any order; generators are unit vectors up to (r + 2) u.
* x_ij is off by at most 1.01 r u |p_i|, G_j by 1.01 (N + r + 2) u S; u is a unit vector up to (m + 4) u, and
  |lambda'_i| <= 2 |lambda_i|, gamma_ij <= |x_ij|. Together d_j and d'_j are off by at most (3 N + 3 r + 6 m + 28) u S
  and e_j by (5 N + 5 r + 10 m + 60) u S, up to 1 %; D_j is charged 16 (N + r + 2 m + 16) u S.
* |lambda'_oi|^2 = |lambda'_i|^2 - a_i^2 cancels: (8 m + 32) u |lambda'_i|^2 are added before its root is taken.
* The products c^T v_j and |c| are charged (2 r + 16) u |c|.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.cones.quadratic import edge_gaps, least_multiple
from covopt.linalg.rounding import UNIT_ROUNDOFF
from covopt.model.activation import Activation


class Bounded(NamedTuple):
    """The bounds of B cones."""

    upper: Float[Tensor, " B"]  # proved bounds (B,) on max h over each cone and the ball
    theta: Float[Tensor, "B r"]  # the maximiser of the relaxation, in coordinates of the generators
    # the cost, at the midpoint of each edge, of samples that change sign on it (B, r (r - 1) / 2), edges in the order
    # of `triu_indices`; 0 if the first bound was enough
    gaps: Float[Tensor, "B e"]


class _Terms(NamedTuple):
    """The terms from which the vertex values of B cones are computed."""

    X: Float[Tensor, "B r N"]
    plus: Float[Tensor, "B r N"]
    G: Float[Tensor, "B r m"]
    u: Float[Tensor, "B m"]
    a: Float[Tensor, "B N"]
    across: Float[Tensor, "B N"]


class ConeBounds:
    """Bounds for one P (N, r), one activation and one Lambda (N, m), float64; scale both to about 1 first."""

    # Of the programmes at a node, on whose accuracy no proof depends:
    steps = 10  # interior-point steps for t
    boundary = 0.99  # the largest step as a fraction of the distance to the boundary
    regularisation = 1e-14  # added to the Gram matrices of generators

    def __init__(self, P: Float[Tensor, "N r"], activation: Activation, Lambda: Float[Tensor, "N m"]) -> None:
        self.P, self.activation, self.Lambda = P, activation, Lambda
        self.kinked = (1.0 - activation.slope) * Lambda
        self.size = self.kinked.norm(dim=1)
        N, r = P.shape
        m = Lambda.shape[1]
        self.one_sided = m == 1
        self.mass = float((Lambda.norm(dim=1) * P.norm(dim=1)).sum()) * (1.0 + 2.0**-40)
        # 2^-1000: products that underflow
        self.rounding = 16 * (N + r + 2 * m + 16) * UNIT_ROUNDOFF * self.mass + 2.0**-1000
        self._cancelled = 1.0 + (8 * m + 32) * UNIT_ROUNDOFF
        self._edges = torch.triu_indices(r, r, 1, device=P.device)

    def __call__(self, V: Float[Tensor, "B r r"], side: Float[Tensor, " B"], enough: float) -> Bounded:
        """Bound h over the cones V; if the first bound exceeds `enough`, improve t.

        With one output, `side` is +1 or -1 and side * (Lambda^T sigma(P q)) is bounded; otherwise it is ignored.
        """
        terms = self._terms(V, side)
        t = (terms.X.sum(dim=1) > 0).to(V.dtype)
        D = self.vertex_values(terms, t)
        upper, theta = self.largest(V, D)
        gaps = V.new_zeros(len(V), self._edges.shape[1])
        rows = (upper > enough).nonzero()[:, 0]
        if len(rows):
            some = _Terms(*(part[rows] for part in terms))
            upper[rows], theta[rows], gaps[rows] = self._closer(
                V[rows], some, t[rows], D[rows], upper[rows], theta[rows], enough
            )
        return Bounded(upper, theta, gaps)

    def _closer(
        self, V: Tensor, terms: _Terms, t: Tensor, D: Tensor, upper: Tensor, theta: Tensor, enough: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (bounds, theta, gaps) with a better t and, for one output, less the gaps (`quadratic.py`)."""
        gaps = edge_gaps(terms.X, terms.a.clamp_min(0.0) + terms.across)
        other = self.vertex_values(terms, self._better_t(V, terms, t, D))
        bound, point = self.largest(V, other)
        improves = bound < upper
        upper, D = torch.where(improves, bound, upper), torch.where(improves[:, None], other, D)
        theta = torch.where(improves[:, None], point, theta)
        if self.one_sided:
            stretch = self.largest(V, torch.ones_like(D))[0]
            upper = least_multiple(V @ V.mT, stretch, D, gaps, self.rounding, enough, upper)
        return upper, theta, gaps

    def _terms(self, V: Tensor, side: Tensor) -> _Terms:
        X = V @ self.P.T
        G = self.activation(X) @ self.Lambda
        # u = 0 where all outputs cancel: then everything is orthogonal to it.
        u = side[:, None] if self.one_sided else torch.nn.functional.normalize(G.sum(dim=1), dim=1)
        a = u @ self.kinked.T
        if self.one_sided:
            across = torch.zeros_like(a)
        else:
            across = (self._cancelled * self.size.square() - a.square()).clamp_min(0.0).sqrt()
        return _Terms(X, X.clamp_min(0.0), G, u, a, across)

    def vertex_values(self, terms: _Terms, t: Float[Tensor, "B N"]) -> Float[Tensor, "B r"]:
        """Return D_j for the given t in [0, 1]."""
        gamma = terms.plus - t[:, None] * terms.X
        along = (terms.G @ terms.u[:, :, None])[:, :, 0]
        d = along + (gamma @ (-terms.a).clamp_min(0.0)[:, :, None])[:, :, 0]
        if self.one_sided:
            return d
        d = torch.maximum(d, (gamma @ terms.a.clamp_min(0.0)[:, :, None])[:, :, 0] - along)
        middle = terms.G - 0.5 * (gamma @ self.kinked)
        middle = middle - (middle @ terms.u[:, :, None]) * terms.u[:, None]
        e = middle.norm(dim=2) + 0.5 * (gamma @ terms.across[:, :, None])[:, :, 0]
        return torch.hypot(d, e)

    def largest(self, V: Float[Tensor, "B r r"], D: Float[Tensor, "B r"]) -> tuple[Tensor, Tensor]:
        """Return bounds on sum theta_j D_j over |V^T theta| <= 1, theta >= 0, and about the maximisers theta.

        An active-set method finds the shortest c with V c >= D, c = V^T theta: generators with theta_j < 0 leave one by
        one, violated ones return. The bound is |c| plus the violation, for any c.
        """
        r = V.shape[1]
        identity = torch.eye(r, dtype=V.dtype, device=V.device)
        upper, best = torch.full_like(D[:, 0], math.inf), torch.full_like(D, 1.0 / r)
        Gram, active = V @ V.mT, torch.ones_like(D, dtype=torch.bool)
        rows = torch.arange(len(V), device=V.device)  # the cones whose sets still change
        for _ in range(r + 2):
            both = active[:, :, None] & active[:, None]
            system = torch.where(both, Gram, identity) + self.regularisation * identity
            theta = torch.linalg.solve_ex(system, torch.where(active, D, 0.0))[0]
            theta = torch.where(active, theta, 0.0)
            c = (theta[:, None] @ V)[:, 0]
            missing = D - (V @ c[:, :, None])[:, :, 0]
            value = self._bound(c, missing)
            better = value < upper[rows]
            upper[rows[better]], best[rows[better]] = value[better], theta[better]
            leaving = torch.nn.functional.one_hot(theta.argmin(dim=1), r).bool() & (theta < 0.0)
            missed = torch.where(active, 0.0, missing)
            entering = torch.nn.functional.one_hot(missed.argmax(dim=1), r).bool() & (missed > 1e-12)
            entering = entering & ~leaving.any(dim=1, keepdim=True)
            moving = (leaving | entering).any(dim=1).nonzero()[:, 0]
            if len(moving) == 0:
                break
            active, rows = ((active & ~leaving) | entering)[moving], rows[moving]
            Gram, V, D = Gram[moving], V[moving], D[moving]
        return upper, best.clamp_min(0.0)

    def _bound(self, c: Float[Tensor, "B r"], missing: Float[Tensor, "B r"]) -> Float[Tensor, " B"]:
        """Return |c| + sqrt(r) max_j missing_j, with the rounding of D, of c^T v_j and of this sum."""
        r, length = c.shape[1], c.norm(dim=1)
        products = (2 * r + 16) * UNIT_ROUNDOFF * length
        short = missing.amax(dim=1).clamp_min(0.0) + self.rounding + products
        return (length + products + math.sqrt(r) * short) * (1.0 + 16 * UNIT_ROUNDOFF)

    def _better_t(self, V: Tensor, terms: _Terms, t: Tensor, D: Tensor) -> Float[Tensor, "B N"]:
        """Return t, optimised jointly for the worst undecided samples with a_i < 0 and unchanged for the others."""
        weight = (-terms.a).clamp_min(0.0)
        worst = weight * torch.minimum(terms.X.amax(dim=1), -terms.X.amin(dim=1)).clamp_min(0.0)
        if not bool((worst > 0).any()):
            return t
        # The same number for every cone: a cone's bound must not depend on the other cones of its batch.
        value, chosen = worst.topk(min(16, worst.shape[1]), dim=1)
        scale = weight.gather(1, chosen) * (value > 0)
        Z = terms.X.gather(2, chosen[:, None].expand(-1, V.shape[1], -1)).mT * scale[:, :, None]
        old = t.gather(1, chosen)
        new = saddle(V @ V.mT, D + (old[:, None] @ Z)[:, 0], Z, self.steps, self.boundary)
        new = torch.where((value > 0) & new.isfinite(), new, old).clamp(0.0, 1.0)
        return t.scatter(1, chosen, new)

    def edge_to_split(self, V: Float[Tensor, "B r r"], bounded: Bounded) -> Int[Tensor, " B"]:
        """Return the edge, in the order of `triu_indices`, whose gaps weaken the bound most."""
        first, second = self._edges
        share = bounded.theta / bounded.theta.sum(dim=1, keepdim=True).clamp_min(1e-300)
        near = torch.minimum(share[:, first], share[:, second]) + 0.25  # edges far from the maximum count a little
        length = 1.0 - (V[:, first] * V[:, second]).sum(dim=2)
        return ((bounded.gaps.sqrt() + 0.3 * length) * near).argmax(dim=1)


def saddle(
    Gram: Float[Tensor, "B r r"], g: Float[Tensor, "B r"], Z: Float[Tensor, "B K r"], steps: int, boundary: float
) -> Float[Tensor, "B K"]:
    """Return about the t of  max_{theta >= 0} min_{0 <= t <= 1}  theta^T g - t^T Z theta - theta^T Gram theta / 2.

    It is a primal-dual interior-point method for the concave programme max theta^T g - 1^T (Z theta)_+ - ..., in which
    t are the multipliers of the kinks. Eliminating t leaves one (r, r) system for each cone and step; the result is NaN
    if a system fails. The same t belongs to any multiple of g and Z, and the steps to it are those at unit scale.
    """
    r, size = g.shape[1], g.abs().amax(dim=1).clamp_min(1e-300)
    g, Z = g / size[:, None], Z / size[:, None, None]
    theta, low = torch.full_like(g, 1.0 / r), torch.full_like(g, 0.3)
    t = torch.full_like(Z[:, :, 0], 0.5)
    z = (Z @ theta[:, :, None])[:, :, 0]
    u, v = 0.1 + (-z).clamp_min(0.0), 0.1 + z.clamp_min(0.0)  # multipliers of t >= 0 and t <= 1
    for _ in range(steps):
        z = (Z @ theta[:, :, None])[:, :, 0]
        pairs = (theta * low).sum(dim=1) + (u * t + v * (1.0 - t)).sum(dim=1)
        mu = 0.15 * pairs[:, None] / (r + 2 * t.shape[1])  # a step aims at 0.15 of the complementarity
        stiffness = u / t + v / (1.0 - t)
        right = z + mu / t - mu / (1.0 - t)
        system = Gram + torch.diag_embed(low / theta) + (Z.mT / stiffness[:, None]) @ Z
        residual = g - ((t + right / stiffness)[:, None] @ Z)[:, 0] - (Gram @ theta[:, :, None])[:, :, 0] + mu / theta
        step = torch.cholesky_solve(residual[:, :, None], torch.linalg.cholesky_ex(system)[0])
        d_theta = step[:, :, 0]
        d_t = (right + (Z @ step)[:, :, 0]) / stiffness
        d_low = (mu - low * d_theta) / theta - low
        d_u, d_v = (mu - u * d_t) / t - u, (mu + v * d_t) / (1.0 - t) - v
        old = torch.cat([theta, low, t, 1.0 - t, u, v], dim=1)
        new = torch.cat([d_theta, d_low, d_t, -d_t, d_u, d_v], dim=1)
        length = boundary * torch.where(new < 0.0, -old / new, math.inf).amin(dim=1, keepdim=True)
        length = length.clamp_max(1.0)
        theta, low, t = theta + length * d_theta, low + length * d_low, t + length * d_t
        u, v = u + length * d_u, v + length * d_v
    return t
