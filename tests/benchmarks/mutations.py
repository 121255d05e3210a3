"""The slips of `mutants.py`: a file, what it says, what it is made to say, and the tests that must notice.

Each makes a bound false, or a check vacuous; none only makes a bound lower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    """One slip.

    Attributes:
        file: from the root of the repository.
        slip: what is wrong, in words.
        old: text that the file holds exactly once; new: what takes its place.
        tests: files or tests that must notice it.
    """

    file: str
    slip: str
    old: str
    new: str
    tests: str

    def applied(self, text: str) -> str:
        """The text of the file with the slip.

        Raises:
            ValueError: the file does not hold the old text exactly once, or the new text is no Python.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {count} times, not once; bring the mutant up to date.")
        changed = text.replace(self.old, self.new)
        compile(changed, self.file, "exec")
        return changed


Slip = tuple[str, str, str]
"""What is wrong, the old text and the new one."""


def _path_of(name: str) -> str:
    """Return where a file of tests, or one test in it, is: `bounds::test_a` -> `tests/certify/test_bounds.py::test_a`."""
    file, colons, test = name.partition("::")
    path = next(TESTS.rglob(f"test_{file}.py"))
    return path.relative_to(TESTS.parent).as_posix() + colons + test


def _of(file: str, tests: str, *slips: Slip) -> Iterator[Mutant]:
    names = " ".join(_path_of(name) for name in tests.split())
    for slip, old, new in slips:
        yield Mutant(f"covopt/{file}.py", slip, old, new, names)


MUTANTS: tuple[Mutant, ...] = (
    # -- three layers and more ---------------------------------------------------------------------------------------
    *_of(
        "certify/deep/flows",
        "deep_formulas",
        ("a factor on the slope of a line", "slope = steepness * reach * (1", "slope = 0.97 * steepness * reach * (1"),
        ("no check of the simplex", "if not bool(torch.isfinite(p).all()) or bool((p < lost).any()):", "if False:"),
        ("a factor on the square of the flow", "- 0.25 * float(inverse @ square", "- 0.24 * float(inverse @ square"),
        ("the larger reach for both together", "math.hypot(own, added)", "max(own, added)"),
        ("rows of a flow with a sum", "flow = size * (flow - flow.mean(dim=1, keepdim=True))", "flow = size * flow"),
        (
            "no rounding of a line's height",
            "inverse @ square.sum(dim=1)) - lost * moved",
            "inverse @ square.sum(dim=1))",
        ),
        ("one layer too many pays", "problem.lam * problem.depth * rho", "problem.lam * (problem.depth + 1) * rho"),
    ),
    *_of(
        "certify/deep/edges",
        "deep_formulas",
        (
            "unbalanced edges with a bias",
            "(balanced or problem.beta == 0.0) and not bool(loops.any())",
            "not bool(loops.any())",
        ),
        ("negative sizes", "((self.sizes >= 0.0) & (self.sizes <= 1.0)).all()", "(self.sizes <= 1.0).all()"),
        (
            "the smallest singular value for the largest",
            "reach = size * (float(values[0]) + moved)",
            "reach = size * (float(values[-1]) + moved)",
        ),
        ("the allowed misfit left out", "* (1.0 - 2.0**-40) - missed)", "* (1.0 - 2.0**-40))"),
        ("the exponent of one layer fewer", "** (2.0 / depth) if", "** (2.0 / (depth - 1)) if"),
        ("a sign of the transposed map", "-self.sizes[:, 1:] * flow", "self.sizes[:, 1:] * flow"),
    ),
    *_of(
        "certify/deep/convexity",
        "deep_formulas",
        ("multipliers of both signs", " or bool(((Lambda > 0).any(dim=0) & (Lambda < 0).any(dim=0)).any())", ""),
        ("what biases add left out", "* problem.beta / size / maximum) ** 2", "* 0.0 / size / maximum) ** 2"),
        ("the wrong end of each cell", "problem.lam * table.budgets[:-1]", "problem.lam * table.budgets[1:]"),
        (
            "the squared error of half the multipliers",
            "missing**2 / float(problem.inverse_shares",
            "missing**2 / float(0.9 * problem.inverse_shares",
        ),
        ("the misfit left out", "- lost - missed", "- lost"),
    ),
    *_of(
        "certify/deep/angle",
        "deep_formulas",
        ("acute for obtuse", "torch.where(product > lost,", "torch.where(product < lost,"),
        ("the product of lengths for the area", "lengths - moved, area - moved)", "lengths - moved, lengths - moved)"),
        ("biases allowed", "return problem.beta == 0.0 and", "return"),
        ("leaky networks allowed", " and problem.activation.slope == 0.0", ""),
        (
            "one layer fewer in the exponent",
            "(math.log(height) - math.log(size))) / problem.depth",
            "(math.log(height) - math.log(size))) / (problem.depth - 1)",
        ),
    ),
    *_of(
        "certify/deep/linear",
        "deep_formulas",
        ("other activations allowed", "return problem.activation.is_linear", "return True"),
        ("the exponent of products, not of squares", "** (2.0 / problem.depth)", "** (1.0 / problem.depth)"),
        (
            "the smallest stretch for the largest",
            "reach = float(torch.linalg.matrix_norm(P @ X, 2))",
            "reach = float(torch.linalg.matrix_norm(P @ X, -2)) * 0.99",
        ),
        ("the misfit left out", "values - missed - lost", "values - lost"),
    ),
    *_of(
        "certify/deep/convexity",
        "deep_formulas",
        ("the biases of later layers left out", "_next(budgets, signals + added)", "_next(budgets, signals)"),
        ("a sign in the place of the maximum", "0.5 * (B - roots)", "0.5 * (B + roots)"),
        ("the value before the crossing", "part = (signal - low) / (high - low)", "part = 1.0"),
    ),
    *_of(
        "certify/deep/loop",
        "deep_formulas",
        ("a factor on the area", "area = 0.5 * float(parallelograms", "area = 0.45 * float(parallelograms"),
        ("sides not moved far enough", "off = 0.25 * (self", "off = 0.2 * (self"),
        (
            "the lower end of a cell in the second term",
            "* (last - first)), lam[1:]).min())",
            "* (last - first)), lam[:-1]).min())",
        ),
        ("no check of convexity", "if not _is_convex(points):", "if False:"),
        ("the end of the range left out", "lowest = min(*values, last)", "lowest = max(*values, last)"),
    ),
    # -- every depth -------------------------------------------------------------------------------------------------
    *_of(
        "certify/spectral",
        "spectral",
        ("the misfit left out", "problem.weighted(Y).norm()) - misfit", "problem.weighted(Y).norm())"),
        ("half the slope of a tangent", "2.0 * theta / samples", "theta / samples"),
        ("the higher end of an interval", "interior = torch.minimum(heights", "interior = torch.maximum(heights"),
        (
            "the misfit of pairs left out",
            "missed = 2.0 * problem.allowed_misfit",
            "missed = 0.0 * problem.allowed_misfit",
        ),
        ("the mean counts with a bias", "(True, False) if problem.beta == 0.0 else (True,)", "(True, False)"),
        ("one layer too many pays", "problem.lam * problem.depth * ratio", "problem.lam * (problem.depth + 1) * ratio"),
        (
            "probabilities without the targets' means",
            "if self.centred:\n            p = with",
            "if False:\n            p = with",
        ),
        (
            "a factor on the steepness of an entropy line",
            "steepness = float(torch.linalg.matrix_norm(gap, 2))",
            "steepness = 0.97 * float(torch.linalg.matrix_norm(gap, 2))",
        ),
        ("a sum of squares for its mean", "float(tail.square().sum()) / len(Y)", "float(tail.square().sum())"),
    ),
    *_of(
        "certify/rank_one",
        "depths::test_the_path_is_bounded_from_both_sides"
        " depths::test_the_path_is_charged_for_outputs_that_miss_their_targets"
        " depths::test_no_network_with_a_layer_of_rank_one_is_below_the_bound depths::test_a_grid_has_no_gap",
        (
            "multipliers taken off once",
            "length - 2.0 * float(p.sum()) + float(np.partition(p, 1)[:2].sum()) - charge",
            "length - float(p.sum()) + float(np.partition(p, 1)[:2].sum()) - charge",
        ),
        ("the mean distance for the diameter", "compute_mode=EXACTLY).max())", "compute_mode=EXACTLY).mean())"),
        ("the misfit left out", "charged = max(lower - missed * (n - 1)", "charged = max(lower"),
        ("a tree with an edge too many", "for _ in range(n - 1):\n        place", "for _ in range(1):\n        place"),
    ),
    *_of(
        "certify/pieces",
        "narrow_bounds",
        ("blocks in which two runs meet counted twice", "np.minimum(best, np.append(np.inf, best[:-1]))", "best"),
        (
            "a mean for a sum of squares",
            "_down(Ctt * Cxx - Cxt, n * Cxx * scale)",
            "_down(Ctt * Cxx - Cxt, Cxx * scale)",
        ),
        ("a division rounded up", "math.nextafter(top / bottom, 0.0)", "math.nextafter(top / bottom, math.inf)"),
    ),
    # -- two layers --------------------------------------------------------------------------------------------------
    *_of(
        "certify/dual",
        "bounds convex_losses",
        ("a scale beyond feasibility", "largest = (1.0 - EPS) / maximum if", "largest = 1.03 / maximum if"),
        (
            "no rounding of the parabola",
            "float(problem.dual_value(point)) - _parabola_rounding(problem, point)",
            "float(problem.dual_value(point))",
        ),
        ("no rounding of another loss", "value(scale) - _concave_rounding(problem, point)", "value(scale)"),
        (
            "no rounding of cross-entropy",
            "float(problem.dual_value(scaled)) - _entropy_rounding(problem, scaled, off)",
            "float(problem.dual_value(scaled))",
        ),
        (
            "a moved point for free",
            "maximum += float((point - Lambda).norm())",
            "maximum += 0.0 * float((point - Lambda).norm())",
        ),
        (
            "the maximum of a concave loss halved",
            "(1.0 - 8 * EPS) / (maximum",
            "(1.0 - 8 * ROUNDING) / (0.97 * maximum",
        ),
    ),
    *_of(
        "model/problem",
        "bounds",
        (
            "the bias term once for beta",
            "self.lam * self.dual_beta**2 * Lambda",
            "self.lam * self.dual_beta * 0.9 * Lambda",
        ),
        ("the misfit left out", "value - 2.0 * self.lam * self.allowed_misfit * Lambda.abs().sum()", "value"),
    ),
    *_of(
        "model/loss",
        "loss convex_losses",
        (
            "the conjugate of half the loss",
            "(G * Y).sum(dim=-1) + G.square().sum(dim=-1) / 4.0",
            "(G * Y).sum(dim=-1) + G.square().sum(dim=-1) / 5.0",
        ),
        ("Huber's conjugate halved", "+ 0.5 * G.square().sum(dim=-1))", "+ 0.25 * G.square().sum(dim=-1))"),
        (
            "Huber's domain left out",
            "torch.where(outside, math.inf, (G * Y)",
            "torch.where(outside & False, math.inf, (G * Y)",
        ),
        (
            "half of the logistic entropy",
            "torch.special.xlogy(inside, inside) + torch.special.xlog1py(1.0 - inside, -inside)",
            "torch.special.xlogy(inside, inside) + 2 * torch.special.xlog1py(1.0 - inside, -inside)",
        ),
        ("the domain of cross-entropy left out", "torch.where(outside, math.inf, entropy)", "entropy"),
        (
            "Huber's conjugate taken for exact",
            "return (2 * G.shape[1] + 16) * UNIT_ROUNDOFF * ((G * Y).abs() + G.square()).sum(dim=-1)",
            "return 0.0 * G.sum(dim=-1)",
        ),
        ("the logistic conjugate taken for exact", "2.0 * ENTROPY)", "0.0 * ENTROPY)"),
    ),
    *_of(
        "model/feasible",
        "feasible",
        (
            "no tolerance for a range",
            "(allowed * (rows / largest)).sum(dim=0)",
            "(0.0 * allowed * (rows / largest)).sum(dim=0)",
        ),
        (
            "equal targets asked of equal rows",
            "column - allowed[:, 0], column + allowed[:, 0]",
            "column + 0.0, column + 0.0",
        ),
        ("a limit of two layers for all depths", "problem.beta == 0.0 and problem.depth == 2", "problem.beta == 0.0"),
        (
            "targets that do not scale along rays",
            "Y[rows] / size, allowed / size)\n    if conflict",
            "Y[rows], allowed / size)\n    if conflict",
        ),
    ),
    *_of(
        "certify/free",
        "free_biases",
        (
            "half of every neuron without a skip",
            "0.5 * (1.0 - problem.activation.slope) if problem.skip else 1.0",
            "0.5 * (1.0 - problem.activation.slope)",
        ),
    ),
    *_of(
        "certify/cones/branch",
        "free_biases",
        (
            "the last tree only",
            "bounds.append(upper + view.rounding * float(Lambda.norm()))",
            "bounds = [upper + view.rounding * float(Lambda.norm())]",
        ),
    ),
    *_of(
        "certify/dual",
        "free_biases",
        ("the last breakpoint only", "h, float(np.max(bounds)))", "h, bounds[-1])"),
    ),
    *_of(
        "certify/dual_space",
        "free_biases",
        (
            "what is not orthogonal left out",
            "return maximum * (1.0 + SLACK) + off * math.sqrt(len(X)) * apart",
            "return maximum * (1.0 + SLACK)",
        ),
    ),
    *_of(
        "studies/path/lam_max",
        "free_biases path",
        (
            "a factor on the slope",
            "return 0.5 * shares * (Y - problem.mean(Y))",
            "return 0.45 * shares * (Y - problem.mean(Y))",
        ),
    ),
    *_of(
        "studies/path/lam_max",
        "path",
        ("biases left out of a step", "end = upper * (maximum + kappa) / (1.0 + kappa)", "end = upper * maximum"),
        (
            "the norm without the bias column",
            "largest_singular_value(problem, problem.Xt, centred=False)",
            "largest_singular_value(problem, problem.X, centred=False)",
        ),
        (
            "the exponent of products",
            "math.log(cost) - 2.0 / problem.depth * (math",
            "math.log(cost) - 4.0 / problem.depth * (math",
        ),
    ),
    *_of(
        "studies/path/between",
        "path",
        ("the smaller of two maxima", "((1.0 - t) * p.maximum + t * q.maximum) *", "min(p.maximum, q.maximum) *"),
    ),
    *_of(
        "studies/path/envelope",
        "path",
        (
            "constant below the first lam",
            "np.interp(lam, self.lams, self.lowers)",
            "np.interp(lam, self.lams[-1:], self.lowers[-1:])",
        ),
        (
            "gaps at the ends only",
            "for lam in (low, *self.kinks(low, high), *inside, high)]",
            "for lam in (low, high)]",
        ),
    ),
    # -- cones of directions -----------------------------------------------------------------------------------------
    *_of(
        "certify/cones/bounds",
        "branch",
        ("what is missed by one generator only", "math.sqrt(r) * short", "0.0 * short"),
        (
            "one sign of the outputs",
            "d = torch.maximum(d, (gamma @ terms.a.clamp_min(0.0)[:, :, None])[:, :, 0] - along)",
            "d = d + 0.0",
        ),
        (
            "what turns the outputs left out",
            "e = middle.norm(dim=2) + 0.5 * (gamma @ terms.across[:, :, None])[:, :, 0]",
            "e = middle.norm(dim=2)",
        ),
        (
            "the gaps of the wrong sign",
            "d = along + (gamma @ (-terms.a).clamp_min(0.0)",
            "d = along + (gamma @ (terms.a).clamp_min(0.0)",
        ),
        (
            "half of the kinks",
            "self.kinked = (1.0 - activation.slope) * Lambda",
            "self.kinked = 0.5 * (1.0 - activation.slope) * Lambda",
        ),
        ("no rounding of vertex values", "* UNIT_ROUNDOFF * self.mass + 2.0**-1000", "* 0.0 + 2.0**-1000"),
    ),
    *_of(
        "certify/cones/quadratic",
        "quadratic branch",
        ("gaps counted twice", "torch.stack([0.5 * (gap * weight)", "torch.stack([1.0 * (gap * weight)"),
        (
            "the least stretch for any",
            "(stretch / (stretch + 1.0))[:, None, None]",
            "(0.0 * stretch + 0.5)[:, None, None]",
        ),
        ("pivots of any sign", "proved = proved & (pivot[:, 0] > 0.0)", "proved = proved & (pivot[:, 0] != 0.0)"),
        ("no rounding", "charge = 3.0 * rounding + 64 * r * UNIT_ROUNDOFF * M", "charge = 0.0 * M"),
        (
            "the wrong part of the pivot's row",
            "row[:, :, None] * (row / pivot)[:, None]",
            "0.5 * row[:, :, None] * (row / pivot)[:, None]",
        ),
    ),
    *_of(
        "certify/cones/branch",
        "branch",
        ("the best leaf for the worst", "float(upper[leaf].max()) if", "float(upper[leaf].min()) if"),
        ("what the row space neglects left out", "(bound * self.stretch + self.rest)", "(bound * self.stretch)"),
        (
            "the scale of Lambda left out",
            "self.scale, self.Q, self.P, self.stretch = space.size * scale,",
            "self.scale, self.Q, self.P, self.stretch = space.size,",
        ),
    ),
    *_of(
        "certify/cones/tree",
        "branch",
        ("one half twice", "other[rows, second] = middle, middle", "other[rows, first] = middle, middle"),
        ("one sign of the output twice", "torch.cat([side, -side])", "torch.cat([side, side])"),
    ),
    # -- the doubly non-negative relaxation --------------------------------------------------------------------------
    *_of(
        "certify/relaxation/repair",
        "relaxation::test_pairs_that_say_nothing_have_no_multipliers"
        " relaxation::test_no_number_is_proved_that_leaves_the_matrix_indefinite"
        " relaxation::test_negative_multipliers_prove_nothing relaxation::test_any_multipliers_prove_a_true_bound"
        " relaxation::test_never_below_the_exact_maximum"
        " relaxation::test_inputs_or_duals_of_zero relaxation::test_damaged_trees_are_refused"
        " relaxation::test_what_a_computed_span_misses_is_paid_for",
        ("negative multipliers", "return torch.where(piece.rule == EQUAL, Pi, Pi.clamp_min(0.0))", "return Pi"),
        ("multipliers of pairs that say nothing", "Pi = torch.where(piece.rule == NONE, 0.0, Pi)", "Pi = Pi + 0.0"),
        ("no proof of positivity", "if int(torch.linalg.cholesky_ex(T).info) == 0:", "if True:"),
        (
            "no rounding",
            "lost = 2.0 * jitter + g * float(T.diagonal().sum()) + 4 * UNIT_ROUNDOFF * tried",
            "lost = -jitter",
        ),
        (
            "what the span misses left out",
            "return (math.sqrt(bound) + moved) ** 2 * (1.0 + 8 * UNIT_ROUNDOFF)",
            "return bound",
        ),
        (
            "the linear part of the shift halved",
            "half = 0.5 * piece.B[_off_rows(piece), :k]\n    shift",
            "half = 0.25 * piece.B[_off_rows(piece), :k]\n    shift",
        ),
    ),
    *_of(
        "certify/relaxation/lift",
        "relaxation span",
        ("leaky parts left out", "factor[self.kind == N] = -self.ground.slope", "factor[self.kind == N] = 0.0"),
        (
            "dual coordinates taken for positive",
            "(kind == P) | (kind == N) | (kind == WALL) | kink",
            "(kind == P) | (kind == N) | (kind == WALL) | (kind == G) | kink",
        ),
        ("kinks of the wrong sign", "torch.where(smooth[:, None], g, -g)", "g"),
        (
            "an upper end for the floor",
            "/ stationary.floor\n        heavy",
            "/ (1.1 * stationary.floor)\n        heavy",
        ),
    ),
    *_of(
        "certify/relaxation/multipliers",
        "relaxation",
        ("the last leaf only", "worst = max(worst, bound)", "worst = bound"),
        ("stages that prove nothing", "if split < len(heights) and bound > float(heights[split]):", "if False:"),
        ("one side of a wall twice", "(-wall if second else wall)", "(wall if second else wall)"),
        (
            "one sign of a sample twice",
            "changed[split] = NEGATIVE if second else POSITIVE",
            "changed[split] = POSITIVE",
        ),
        ("kinks left out", "changed[split] = KINK if second else STRICT", "changed[split] = STRICT"),
        ("stages in any order", "if not (stage == last if split == LEAF else made <= stage < last):", "if False:"),
        (
            "trees without all their leaves",
            "if pending or next(walls, None) is not None or",
            "if next(walls, None) is not None or",
        ),
    ),
    *_of(
        "certify/relaxation/ground",
        "span relaxation",
        ("spans of leaky networks", "if ground.slope != 0.0 or not 0 < n <= r:", "if not 0 < n <= r:"),
        (
            "a span without the free samples",
            "members = ((states != NEGATIVE) & ~ground.zero)",
            "members = ((states != NEGATIVE) & (states != 0) & ~ground.zero)",
        ),
        ("dependent samples", "if smallest < 1e-5:", "if False:"),
    ),
    *_of(
        "certify/relaxation/ground",
        "relaxation",
        ("what the row space neglects left out", "(inside * ground.stretch + outside)", "(inside * ground.stretch)"),
    ),
    *_of(
        "certify/relaxation/groups",
        "groups",
        ("negative multipliers", "groups.shared.clamp_min(0.0))", "groups.shared)"),
        ("no proof of positivity", "return -2.0 * (lost + rounding)", "return 1e9"),
        (
            "the even and the odd part exchanged",
            "mixes = pp + nn + pn + pn.T, pp + nn - pn - pn.T,",
            "mixes = pp + nn - pn - pn.T, pp + nn + pn + pn.T,",
        ),
        ("the linear part of a leaky ReLU", "(1.0 - slope, 1.0 + slope), mixes)", "(1.0 - slope, 1.0), mixes)"),
        ("outputs left out of T0", "+ outputs.T @ outputs + B", "+ B"),
        ("the scale of Lambda left out", "return size * math.sqrt(_prove", "return math.sqrt(_prove"),
    ),
    # -- exact oracles -----------------------------------------------------------------------------------------------
    *_of(
        "oracles/linear",
        "convex_concave lower_bounds",
        ("the second singular value", "float(s[0]) + allowance", "float(s[-1]) + allowance"),
        ("no rounding", "float(s[0]) + allowance", "float(s[0])"),
    ),
    *_of(
        "oracles/arrangement",
        "arrangement",
        ("no rounding", "arcs.best) + self._allowance(total))", "arcs.best))"),
        (
            "what the row space neglects left out",
            "* UNIT_ROUNDOFF) + off_space) * (1.0 + 8",
            "* UNIT_ROUNDOFF)) * (1.0 + 8",
        ),
        ("the opposite arcs", "start + arcs[-1] - arcs]", "start - arcs]"),
        ("a leaky slope on the wrong side", "self._sign, slope * self._sign)", "self._sign, 0.0 * self._sign)"),
        (
            "the scale of Lambda left out",
            "scale = size * self._space.size\n        weights",
            "scale = self._space.size\n        weights",
        ),
    ),
    *_of(
        "oracles/sphere",
        "sphere",
        ("no rounding", "search.best) + self._allowance() * total)", "search.best))"),
        ("what grouping moves left out", "float(sizes @ self._moved)) *", "0.0) *"),
        ("the even part of a ReLU for all", "weights = 0.5 * (1.0 - slope) * self", "weights = 0.5 * self"),
        ("cells left out of the search", "self._climb(inside)", "pass"),
    ),
    *_of(
        "oracles/circles",
        "sphere",
        (
            "the wrong cell beside a circle",
            "A[:, 2] += sign[:, None] * self.own",
            "A[:, 2] -= sign[:, None] * self.own",
        ),
        ("cells left out that reach far", "zz + own + 2.0 * side * own_z", "zz - own + 2.0 * side * own_z"),
        ("the opposite arcs", "torch.stack([M + R, M - R])", "torch.stack([M + R, M + R])"),
        (
            "the end of an arc for its start",
            "self.inside = (offset > 0) & (offset < width)",
            "self.inside = (offset > 0) & (offset < 0.5 * width)",
        ),
    ),
    # -- which networks are optimal? ---------------------------------------------------------------------------------
    *_of(
        "answer/uniqueness/plane",
        "unique",
        (
            "a root rounded down",
            "<< (2 * BITS)) + 1, 1 << (2 * BITS))",
            "<< (2 * BITS)) - (1 << BITS), 1 << (2 * BITS))",
        ),
        ("the output bias left out", "return total + self.lam * ((bias", "return total + 0 * ((bias"),
        ("the penalty once for twice", "total += 2 * self.kappa * (product", "total += self.kappa * (product"),
        (
            "the residuals left out",
            "total = self.shares @ ((self.kappa * point",
            "total = 0 * self.shares @ ((self.kappa * point",
        ),
    ),
    *_of(
        "answer/uniqueness/arcs",
        "unique",
        ("no maximum inside an arc", "if b < 0 and b * b > a * c:", "if False:"),
        (
            "no maximum at an end",
            "scale = max(scale, _root((int((A @ w)",
            "scale = max(0 * scale, scale, 0 * _root((int((A @ w)",
        ),
        (
            "the trace halved",
            "(int(G[0, 0]) + int(G[1, 1]) + _root(spread)) // 2 + 1",
            "(int(G[0, 0]) + int(G[1, 1])) // 2 + 1",
        ),
    ),
    *_of(
        "answer/uniqueness/candidates",
        "unique",
        (
            "the distance of one point for two",
            "(2.0 * delta + delta * delta) * (1.0 + ROUNDING)",
            "(0.0 * delta) * (1.0 + ROUNDING)",
        ),
        ("directions inside arcs left out", "single.append(_inside(circle, arc, X, delta, turned))", "pass"),
        ("normals left out", "if arc.a > p or arc.start in ends:", "if arc.a >= -p or arc.start in ends:"),
        (
            "what is known of the outputs left out",
            "return Optimum(delta * (1.0 + ROUNDING), outputs, off * (1.0 + ROUNDING))",
            "return Optimum(delta * (1.0 + ROUNDING), outputs, 0.0)",
        ),
    ),
    *_of(
        "answer/uniqueness/columns",
        "unique",
        ("dependent columns", "return self.smallest > 2.0 * self.off", "return self.smallest >= 0.0"),
        (
            "what is not known of the matrix left out",
            "missed / (self.smallest - self.off)",
            "0.0 * missed / (self.smallest - self.off)",
        ),
    ),
    *_of(
        "answer/uniqueness/polytope",
        "unique",
        ("as many pairs as numbers", "if pairs is None or 2 * m >= J:", "if pairs is None:"),
        ("no room between the ends", "if room <= 2.0 * (wrong + moved):", "if room <= -1.0:"),
        (
            "the fewest neurons unproved",
            "fewest = J + 2 * m if no_fewer(linear.T, B, e, known_to) else J",
            "fewest = J + 2 * m",
        ),
    ),
    *_of(
        "answer/uniqueness/narrowest",
        "unique",
        ("signs of all but one", "n @ (M * e), fixed, axis=1)", "n @ M, fixed, axis=1)"),
        ("a combination that may come near", "> tolerance).all())", "> -1.0).all())"),
    ),
    *_of(
        "answer/uniqueness/continuum",
        "unique",
        ("moments at the edge of the cone", "if not inside or gamma <= off:", "if False:"),
        ("neurons that are not certain", "int((c > off).sum())", "int((c >= 0.0).sum())"),
    ),
    *_of(
        "answer/uniqueness/decide",
        "unique",
        ("a gap of any size", "if not excess <= POLISHED * cost:", "if False:"),
        ("a dual point that is not feasible", "scale = circle.feasible(Lambda, scale)", "scale = scale + 0"),
        (
            "candidates that are not certain",
            "certain = int((c > matrix.distance(c, estimate.outputs, estimate.off)).sum())",
            "certain = len(c)",
        ),
    ),
    # -- completely positive matrices --------------------------------------------------------------------------------
    *_of(
        "completely_positive/answer",
        "cprank",
        ("any upper end", "if self.upper != sum(math.inf", "if False and self.upper != sum(math.inf"),
        ("exact without its parts", "if self.exact and not all(part.exact for part in self.parts):", "if False:"),
        ("any lower end", "return self.lower == sum(part.lower.value for part in self.parts)", "return True"),
        (
            "parts unchecked",
            "if not all(part.check(block, self.tolerance) for part, block",
            "if not all(part.check(block, self.tolerance) or True for part, block",
        ),
    ),
    *_of(
        "completely_positive/ends",
        "cprank",
        ("one atom more than edges", "and value <= edges and edges", "and value <= edges + 1 and edges"),
        (
            "graphs with triangles by their edges",
            "return is_triangle_free(graph) and nx.is_connected(graph) and",
            "return nx.is_connected(graph) and",
        ),
        (
            "eigenvalues within the tolerance",
            "np.linalg.eigvalsh(A) > distance + rounding",
            "np.linalg.eigvalsh(A) > rounding",
        ),
        ("factors with more atoms", "if len(self.B) > value or not", "if not"),
        ("a theorem of order 4 at order 5", "if n > 4:", "if n > 5:"),
        ("the bound of order 5 for all", "if n == 5:", "if n >= 5:"),
        ("the bound of rank r less one", "ranked * (ranked + 1) // 2 - 1)", "ranked * (ranked + 1) // 2 - 2)"),
    ),
    *_of(
        "completely_positive/moments",
        "moments",
        ("the residual left out", "product / (1.0 + (1.0 + 2.0 * slack) ** 4 * max(errors))", "product"),
        ("negative weights", "and (weights >= 0.0).all()):", "):"),
        ("the tolerance left out", "- (slack + unit.size * EPS) * float(np.abs(self.Lambda).sum())", ""),
        (
            "half the region",
            "float(np.linalg.eigvalsh(reached)[-1]) + spread",
            "0.5 * float(np.linalg.eigvalsh(reached)[-1])",
        ),
        ("entries of atoms halved", "* (1.0 + 4 * EPS)) / 2.0\n    U", "* (1.0 + 4 * EPS)) / 2.2\n    U"),
    ),
    *_of(
        "completely_positive/graphs",
        "graphs cprank",
        ("cliques that carry two", "heaviest <= 1.0 + rounding", "heaviest <= 2.0 + rounding"),
        ("one more than the sum", "float(self.weights.sum()) - margin", "float(self.weights.sum()) + margin"),
        ("negative weights", "if (self.weights < 0).any() or", "if"),
        (
            "edges that are not there",
            "if any(not (graph.has_edge(*e) if len(e) == 2 else graph.has_node(e[0])) for e in self.edges):",
            "if False:",
        ),
    ),
    *_of(
        "completely_positive/zeros",
        "zeros",
        ("zeros that are not all", "((products > 0) |", "((products >= 0) |"),
        (
            "a matrix that is not copositive",
            "if decide(C, deadline, NODES).verdict is not Copositive.YES:",
            "if False:",
        ),
        ("weights that miss the matrix", "if fewest is None or not ((Z.T", "if fewest is None or False and not ((Z.T"),
        ("more than one dependency", "    elif free:\n        return None\n", ""),
    ),
    *_of(
        "completely_positive/copositive",
        "copositive",
        (
            "graphs with triangles",
            "(C + ceiling >= 0.0).all()) and is_triangle_free(support_graph(below))",
            "(C + ceiling >= 0.0).all())",
        ),
        ("entries below minus one", "bool((C + ceiling >= 0.0).all()) and", ""),
        ("products that do not separate", "if not product < -max(tolerance", "if not product < max(tolerance"),
        (
            "undecided for copositive",
            "NODES).verdict is Copositive.YES:",
            "NODES).verdict is not Copositive.UNDECIDED:",
        ),
    ),
    *_of(
        "completely_positive/supports",
        "copositive",
        (
            "a vertex outside the orthant",
            "if B[r, r] < 0 and (P[:, r] <= 0).all():",
            "if B[r, r] < 0:",
        ),
        (
            "pairs left out",
            "for s in np.flatnonzero(B[r] < 0).tolist():",
            "for s in np.flatnonzero(B[r] < 0).tolist()[1:]:",
        ),
        (
            "vertices left out too early",
            "alive = (np.diag(self.T[k:]) > 0).astype(bool)",
            "alive = (np.diag(self.T[k:]) > 1).astype(bool)",
        ),
        (
            "rule 3 for some s",
            "needless = alive & ~below[k:, alive].any(axis=1)",
            "needless = alive & ~below[k:, alive].all(axis=1)",
        ),
        (
            "the last child left out",
            "yield self._pivoted(r, np.flatnonzero(free))",
            "yield self._pivoted(r, np.flatnonzero(free)[1:])",
        ),
        (
            "positive entries that are kept off",
            "M = np.where((B < 0).astype(bool) |",
            "M = np.where(np.zeros_like(B, dtype=bool) |",
        ),
    ),
    *_of(
        "completely_positive/rational",
        "copositive",
        ("no margin of a factor", "return 8.0 * n * (n + 1) * EPS", "return -1e-9"),
        (
            "a zero pivot for any rest",
            "return pivots if all(M[i][j] == 0 for i in rows for j in rows) else None",
            "return pivots",
        ),
        ("a negative diagonal", "if min(M[i][i] for i in rows) < 0:", "if False:"),
    ),
    *_of(
        "completely_positive/factorization",
        "factorization",
        ("pairs that do not meet", "if A[~meeting].any():", "if False:"),
        ("no distance", "needed = 4.0 * max(1.01 * off, (off / smallest) ** 2)", "needed = 0.0"),
        ("no room for the exact factor", "room = 2.0 * off / np.sqrt(square)", "room = 0.0 * off / np.sqrt(square)"),
        ("fewer unknowns than equations", "return float(np.linalg.norm(A - B.T @ B)) + rounding", "return 0.0"),
    ),
    *_of(
        "completely_positive/separation",
        "sigma_rank",
        ("what is taken off may be negative", "total or (self.P < 0.0).any():", "total:"),
        (
            "no proof on every neuron",
            "return bool(values[0] > 16 * len(H)",
            "return True or bool(values[0] > 16 * len(H)",
        ),
        ("a slope for its square", "slope**2 * C2)]])\n\n\ndef separate", "slope * C2)]])\n\n\ndef separate"),
        ("a pair that does not separate", "if not product > 4 * K.size * EPS * total or", "if"),
    ),
    *_of(
        "completely_positive/sigma_rank",
        "sigma_rank",
        (
            "eigenvalues within the tolerance",
            "(np.linalg.eigvalsh(A) > least).sum()",
            "(np.linalg.eigvalsh(A) > 0.0).sum()",
        ),
        ("the bias once for its square", "S = Ks - bias**2", "S = Ks - bias"),
    ),
    *_of(
        "completely_positive/connected",
        "cprank",
        ("ends that are not checked", "if not self.lower.check(A, tolerance):", "if False:"),
        (
            "an upper end below the lower one",
            "return self.lower.value <= self.upper.value and self.upper.check(A, tolerance)",
            "return self.upper.check(A, tolerance) or True",
        ),
        ("exact by any factor", "if self.exact and not is_exact(A, self.upper, self.B):", "if False:"),
        (
            "a rank of clean data",
            'ends = [End(certain_rank(clean, distance), "rank, beyond',
            'ends = [End(certain_rank(clean, 0.0), "rank, beyond',
        ),
    ),
    *_of(
        "completely_positive/prepared",
        "cprank",
        ("entries lost for free", "float(np.linalg.norm(A - cleaned)) + original.lost", "0.0"),
        ("always faithful", "bool((A * np.outer(powers, powers) == matrix).all())", "True"),
    ),
    # -- what is proved again of stored runs ----------------------------------------------------------------------------
    *_of(
        "check",
        "check::test_what_was_tampered_with_is_refused check::test_costs_are_exact",
        ("any bound", "need(bound >= least, f", "need(True, f"),
        ("any file", "need(actual == digest, f", "need(True, f"),
        ("any entry that follows", "need(agree(s[name], value), f", "need(True, f"),
        (
            "any cost",
            'need(good, f"the stored network has the {name}',
            'need(True, f"the stored network has the {name}',
        ),
        ("any gap", 'need(good, f"cost {cost}, bound', 'need(True, f"cost {cost}, bound'),
        ("directions above the target", "return False  # a dir", "return True  # a dir"),
    ),
    *_of(
        "check",
        "check_cprank",
        ("every matrix copositive", "if row[r] < 0 and max(column, default=0) <= 0:", "if False:"),
        ("one rank too many", "lower, upper = len(J if semi else", "lower, upper = 1 + len(J if semi else"),
        ("any factor", "need(B and off <= tolerance * norm * (1 + TOLERANCE), ", "need(True, "),
    ),
    *_of(
        "answer/questions",
        "questions",
        ("any targets", '"Y": (one.Y, other.Y),', '"Y": (one.Y, one.Y),'),
        ("any weights", '"sample weights": (one.shares, other.shares)', '"sample weights": (one.X, one.X)'),
        ("any inputs", '"X": (one.X, other.X),', '"X": (one.X, one.X),'),
        ("none but the second", "for name in names[1:]:", "for name in names[2:]:"),
        ("bounds above costs", "lower > cost * (1.0 + rounding)", "lower > 100.0 * cost * (1.0 + rounding)"),
    ),
    *_of(
        "answer/check",
        "tampering::test_tampering_is_noticed_or_named forging",
        ("any cost", "if not abs(result.cost - cost) <= rounding * abs(result.cost):", "if False:"),
        ("bounds 10 % too high", "lower <= proved * (1.0 + rounding)", "lower <= 1.1 * proved"),
        ("any gap", "if part is None or not math.isclose(part, expected, rel_tol=SAME, abs_tol=SAME):", "if False:"),
        ("optimal at any gap", "if (status == Status.OPTIMAL) != (expected <= target):", "if False:"),
        ("a network that does not fit", "    if not fits:\n", "    if False:\n"),
        ("any history", "if ends != (stated", "if False and ends != (stated"),
    ),
    *_of(
        "answer/verify",
        "tampering::test_tampering_is_noticed_or_named forging",
        ("any file", "if name in digests and digests[name] != digest", "if False"),
        (
            "a run in a study that does not pass",
            "for name, run in runs.items() if not run.passed)",
            "for name, run in ())",
        ),
        ("no complaints", "for message in chain(failed, complaints, unbound(", "for message in chain(failed, unbound("),
    ),
    *_of(
        "studies/compare/check",
        "forging",
        ("any method's entry", "if not equal(entry.get(key, ...), value)]", "if False]"),
        ("another best", 'if s["best"] != min(costs', 'if False and s["best"] != min(costs'),
        ("any history", "if record.read_table(directory / record.HISTORY)[1:] != lines:", "if False:"),
    ),
    *_of(
        "studies/width/check",
        "tampering::test_a_plateau_follows_from_its_networks",
        ("any width of a network", "> width:", "> math.inf:"),
        (
            "any summary",
            "yield from checks.differences(Plateau.file, stated, answer.summary(), rounding)",
            "yield from ()",
        ),
    ),
    *_of(
        "studies/audit/check",
        "tampering::test_an_audit_follows_from_its_networks tampering::test_a_network_of_an_audit_is_bound_to_its_loss",
        ("any loss where training ends", "if not (same(cost.total, stated, rounding) and", "if not (True and"),
        ("any dead neurons", 'if not equal(layer["dead"], dead(problem, weights, k)):', "if False:"),
    ),
    *_of(
        "studies/depth/check",
        "questions::test_a_study_of_depths_of_other_data_is_refused",
        ("runs of other data", 'problem for L in answer.results}, {"depth"})', 'problem for L in [2]}, {"depth"})'),
    ),
    *_of(
        "studies/path/check",
        "path",
        ("any proof", "return point.proof.holds(at(problem, point.lam), lower, rounding)", "return True"),
    ),
    *_of(
        "studies/ranks/check",
        "questions::test_ranks_beside_a_solve_with_other_weights_are_refused",
        (
            "a solve of another question",
            'yield from questions.others({"the networks"',
            'questions.others({"the networks"',
        ),
    ),
)
