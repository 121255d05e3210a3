"""What covopt claims of sets: whether an optimum is the only one, cp-ranks, and which matrices are copositive.

Beside what is known without it: optima that a linear programme finds, matrices that were planted, and for small orders
Hadeler's criterion in fractions.
"""

import itertools
from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

import covopt
from tests.adversary import Array, Question, attack
from tests.claims import Claim, Claims, arrays, solved
from tests.copositive_matrices import MAKERS as COPOSITIVE, copositive, planted_matrices
from tests.hostile_matrices import MAKERS, falsehoods, hostile_matrices

SECONDS = 0.5
NEAR = 0.02  # directions that count as one, as an angle
SLACK = 1e-9  # of the outputs and of the cost, relative
GRID = 720  # directions
ANOTHER = 0.2  # of the neurons' amounts, elsewhere than in the network that is said to be the only one


def of_uniqueness(seed: int) -> Claims:
    """Verdicts on the set of all optima, beside other optima."""
    rng = np.random.default_rng(seed)
    given = attack(seed, depth=2, loss="mse", plain=True, samples=int(rng.integers(2, 8)))
    if given is None or not given.question.moderate or given.question.slope == 1.0:
        return
    asked = given.question
    columns = 1 if asked.beta > 0.0 else 2
    if asked.X.shape[1] < columns:
        return
    X = asked.X[:, :columns]
    asked = replace(asked, X=X, lam=float(10.0 ** rng.uniform(-5, -1) * np.abs(X).max() * np.abs(asked.Y).max()))
    if rng.random() < 0.3:  # symmetric data, whose optima come in pairs or are symmetric
        asked = replace(asked, X=np.vstack([asked.X, -asked.X]), Y=np.vstack([asked.Y, asked.Y]))
    found = solved(asked, gap=1e-10, certify="fast", time_limit=SECONDS)
    if found.lower is None or found.cost - found.lower > 1e-8 * found.cost or not min(found.widths):
        return
    told, weights = found.unique, arrays(found)
    yield Claim(f"uniqueness, {told.verdict}", 0.0, 1.0, given.says)
    if told.fewest is not None and told.most is not None:
        yield Claim("uniqueness, ends", told.fewest[0], min(told.fewest[1], told.most[1]), given.says)
    if told.verdict == "not unique":
        for network in found.optima(steps=3):
            yield Claim("another optimum's cost", asked.cost(network), found.cost * (1.0 + 1e-7), given.says)
    if told.verdict == "unique":
        yield Claim("the only optimum", elsewhere(asked, weights), ANOTHER, given.says)


def elsewhere(asked: Question, weights: list[Array]) -> float:
    """The largest part of the neurons' amounts that an optimum with the same outputs can have in other directions."""
    Xt = np.hstack([asked.X, np.full((len(asked.X), 1), asked.beta)])
    used = np.flatnonzero(np.abs(Xt).max(axis=0) > 0.0)
    W, V = weights[0][:, used], weights[1][:, :-1]
    amounts = np.linalg.norm(W, axis=1) * np.linalg.norm(V, axis=0)
    kept = amounts > 1e-9 * amounts.max(initial=0.0)
    own = W[kept] / np.linalg.norm(W[kept], axis=1, keepdims=True)
    angles = np.linspace(0.0, 2.0 * np.pi, GRID, endpoint=False)
    others = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, : len(used)]
    if len(used) == 2:
        kinks = np.stack([-Xt[:, used[1]], Xt[:, used[0]]], axis=1)
        sizes = np.linalg.norm(kinks, axis=1, keepdims=True)
        kinks = (kinks / np.where(sizes > 0.0, sizes, 1.0))[sizes[:, 0] > 0.0]
        others = np.vstack([others, kinks, -kinks])
    far = (others @ own.T).max(axis=1, initial=-1.0) < np.cos(NEAR)
    directions = np.vstack([own, others[far]])
    Z = Xt[:, used] @ directions.T
    features = np.where(Z >= 0.0, Z, asked.slope * Z)
    F = asked.outputs(weights)
    Lambda = (asked.Y - F) / (len(F) * asked.lam)
    d = features.T @ Lambda
    sizes = np.linalg.norm(d, axis=1)
    active = sizes > 1.0 - 1e-4
    parts = np.einsum("nk,km->nmk", features[:, active], d[active] / sizes[active, None])
    target = F - asked.beta * weights[1][:, -1]
    A, count = parts.reshape(target.size, -1) * (amounts.sum() / np.abs(target).max()), int(active[: len(own)].sum())
    target = target.ravel() / np.abs(target).max()
    rows = np.vstack([A, -A, np.ones((1, A.shape[1]))])
    bounds = np.concatenate([target, -target, [1.0]]) + SLACK
    price = np.concatenate([np.zeros(count), -np.ones(A.shape[1] - count)])
    digits = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10)
    answer = linprog(price, A_ub=rows, b_ub=bounds, method="highs", options=digits)
    return 0.0 if answer.x is None else float(-answer.fun)


def of_cp_rank(seed: int) -> Claims:
    """Verdicts and ends of cp-ranks of matrices with planted factors, or planted reasons why there is none."""
    hostile = next(itertools.islice(hostile_matrices(len(MAKERS), seed), seed % len(MAKERS), None))
    found = covopt.cp_rank(hostile.A, time_limit=SECONDS, seed=seed, **hostile.options)  # type: ignore[arg-type]
    for falsehood in falsehoods(hostile, found):
        yield Claim("cp-rank", 1.0, 0.0, f"{hostile.kind}: {falsehood}")
    if found.lower is not None and hostile.most is not None:
        yield Claim("cp-rank, lower end", found.lower, hostile.most, hostile.kind)
    if hostile.positive and found.exact and found.upper is not None:
        yield Claim("cp-rank, upper end", hostile.least, found.upper, hostile.kind)
    yield Claim(f"cp-rank, {found.verdict}", 0.0, 1.0, hostile.kind)


def of_copositivity(seed: int) -> Claims:
    """Verdicts on matrices of which it is known by their making, and of small ones by a criterion in fractions."""
    if seed % 2:
        planted = next(
            itertools.islice(planted_matrices(2 * len(COPOSITIVE), seed), seed % (2 * len(COPOSITIVE)), None)
        )
        C, known, says = planted.C, planted.copositive, planted.kind
    else:
        C, says = small(np.random.default_rng(seed)), f"seed {seed}, small"
        known = copositive(C)
    told = covopt.copositivity(C, time_limit=SECONDS)
    yield Claim(f"copositivity, {told.verdict}", 0.0, 1.0, says)
    if told.verdict != "undecided":
        yield Claim("copositivity", float(known != (told.verdict == "copositive")), 0.0, says)


def small(rng: np.random.Generator) -> Array:
    """A symmetric matrix of order 2 to 6, small whole numbers or all digits, scaled, on the boundary or next to it."""
    n = int(rng.integers(2, 7))
    C = rng.integers(-3, 4, (n, n)).astype(float) if rng.random() < 0.6 else rng.standard_normal((n, n))
    kind = rng.choice(["any", "definite", "sum", "diagonal"])
    if kind == "definite":
        C = C.T @ C
    if kind == "sum":
        C = C[: n - 1].T @ C[: n - 1] + np.abs(rng.integers(0, 2, (n, n)))
    C = np.triu(C) + np.triu(C, 1).T
    if kind in ("any", "diagonal"):
        np.fill_diagonal(C, np.abs(np.diag(C)) + (rng.integers(0, 4, n) if kind == "diagonal" else 0.0))
    if rng.random() < 0.3:
        C[0, -1] = C[-1, 0] = C[0, -1] - 2.0 ** -float(rng.integers(1, 45))
    scale = 2.0 ** rng.integers(-200, 200, n) if rng.random() < 0.3 else np.ones(n)
    return C * np.outer(scale, scale)
