"""What covopt claims of problems made to break it, each claim beside what is known without it.

A claim is a number that is said to be at most another one: a lower bound beside the cost of a network that NumPy
evaluated, a lower end beside what a construction attains. Networks that covopt itself found with another method count,
once NumPy has evaluated them.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax, xlogy

import covopt
from covopt.answer.result import Result
from covopt.certify.proof import Proof, Target
from covopt.certify.proofs import PROOFS
from covopt.certify.rank_one import rank_one
from covopt.certify.relaxation.bound import Relaxation
from covopt.certify.spectral import spectral_bound
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import rounding_of
from covopt.studies.depth.depth_limit import limit_of
from covopt.studies.path.lam_max import lam_max
from covopt.studies.width.width_bounds import narrow_bounds, needed, upper_bounds
from tests.adversary import Array, Attack, Question, attack, least

SECONDS, RIVAL, LONG = 0.4, 0.15, 1.0
"""Of a solve; of a solve by another method, for its network; of the relaxation."""
DEEPER = (3, 4, 6, 13)
ATTAINED = 0.99  # of h, where it is 1 or more in truth, by ascents that kinks may stop
LAMS = 9  # between the ends of a path


@dataclass(frozen=True)
class Claim:
    """A number that is said to be at most another one.

    Attributes:
        kind: what states it.
        low, high: low <= high is claimed.
        says: of which problem.
    """

    kind: str
    low: float
    high: float
    says: str


Claims = Iterator[Claim]


def problem_of(given: Attack, **changed: object) -> Problem:
    """The question as covopt holds it."""
    return make_problem(given.X, given.Y, free=True, **{**given.options, **changed}).double()  # type: ignore[arg-type]


def solved(asked: Question, **options: object) -> Result:
    """A short solve."""
    return covopt.solve(asked.X, asked.Y, **{"time_limit": SECONDS, **asked.options, **options})  # type: ignore[arg-type]


def arrays(result: Result) -> list[Array]:
    """Its weights."""
    return [W.double().numpy() for W in result.weights]


def tampered(proof: Proof, rng: np.random.Generator) -> Proof:
    """The same with arrays that somebody has changed: its check must give a true bound as well."""
    changed = proof.arrays()
    for name, array in changed.items():
        if name not in ("Lambda", "maximum") and array.dtype.kind == "f" and array.size:
            noise = 10.0 ** rng.uniform(-12, 1) * rng.standard_normal(array.shape)
            changed[name] = (array * (1.0 + noise) + noise * (rng.random() < 0.5)).astype(array.dtype)
    if "Lambda" in changed:
        noise = 10.0 ** rng.uniform(-12, 1) * rng.standard_normal(changed["Lambda"].shape)
        changed["Lambda"] = changed["Lambda"] * (1.0 + noise) * float(rng.choice([1.0, 1.0, 2.0, 1e3]))
        changed["maximum"] = np.array(rng.choice([float(changed["maximum"]), 0.1, 1.0]))
    return type(proof).read(proof.lower, changed)


def checks(given: Attack, problem: Problem, proof: Proof, upper: float, rng: np.random.Generator) -> Claims:
    """What a proof and a tampered one prove again."""
    if proof.kind is covopt.Certificate.NONE:
        return
    yield Claim(f"{proof.kind}, checked", proof.bound(problem), upper, given.says)
    try:
        again = tampered(proof, rng).bound(problem)
    except covopt.ProblemError:
        return
    yield Claim(f"{proof.kind}, tampered", again, upper, given.says)


def of_solve(seed: int) -> Claims:
    """`solve`, its network in NumPy, another method's network, and its proof checked again."""
    given, rng = attack(seed), np.random.default_rng(seed)
    if given is None:
        return
    asked, upper = given.question, given.upper
    problem = problem_of(given)
    if not asked.free:
        yield Claim("spectral", spectral_bound(problem), upper, given.says)
    found = solved(asked, certify=("auto", "full")[seed % 2], max_iterations=1 + seed % 7, seed=seed)
    if seed % 3 == 0:
        methods = ["cone"] + ["train"] * (asked.loss != "interpolate") + ["hidden"] * (not asked.free)
        rival = solved(asked, certify="none", method=str(rng.choice(methods)), seed=seed + 1, time_limit=RIVAL)
        upper = min(upper, asked.cost(arrays(rival)))
    own = asked.cost(arrays(found))
    if math.isfinite(found.cost) and asked.loss != "interpolate":
        off = abs(own - found.cost)
        yield Claim("rounding of a cost", off, rounding_of(found.problem, found.weights) + 1e-12 * own, given.says)
    upper = min(upper, own)
    name = f"{found.certificate}, {given.question.loss.partition(':')[0]}"
    name += ", free biases" if asked.free else ", three layers and more" if asked.depth > 2 else ""
    if found.lower is not None:
        yield Claim(name, found.lower, upper, given.says)
        assert found.proof is not None
        yield from checks(given, problem, found.proof, upper, rng)


def of_relaxation(seed: int) -> Claims:
    """The doubly non-negative relaxation and its trees of signs, at the planted network's dual point."""
    given, rng = attack(seed, depth=2), np.random.default_rng(seed)
    if given is None or given.question.free:
        return
    asked, problem = given.question, problem_of(given)
    if asked.loss == "interpolate":
        Lambda = problem.Y.numpy() + 0.1 * rng.standard_normal(problem.Y.shape)
    else:
        Lambda = (-asked.shares[:, None] * asked.slopes(asked.outputs(given.best)) / (2.0 * asked.lam))[
            asked.shares > 0
        ]
    if not np.isfinite(Lambda).all():
        return
    target = Target(torch.from_numpy(Lambda), time_limit=float(rng.choice([LONG, LONG / 8])))
    proof = Relaxation.prove(problem, target).proof
    yield Claim(f"{proof.kind}, direct", proof.lower, given.upper, given.says)
    yield from checks(given, problem, proof, given.upper, rng)


def of_deep(seed: int) -> Claims:
    """Every certifier of three layers and more by itself."""
    rng = np.random.default_rng(seed)
    loss = str(rng.choice(["interpolate", "interpolate", "mse", "cross_entropy"]))
    given = attack(seed, depth=int(rng.choice(DEEPER)), loss=loss, plain=bool(rng.random() < 0.8))
    if given is None or given.question.free:
        return
    problem = problem_of(given)
    yield Claim("spectral", spectral_bound(problem), given.upper, given.says)
    deadline = time.perf_counter() + SECONDS
    for kind in PROOFS:
        if not kind.applies(problem):
            continue
        proved = kind.prove(problem, Target(stop=lambda: time.perf_counter() > deadline))
        if proved is None:
            continue
        yield Claim(f"{kind.kind}, {given.question.loss}", proved.proof.lower, given.upper, given.says)
        yield from checks(given, problem, proved.proof, given.upper, rng)


def of_widths(seed: int) -> Claims:
    """What is proved of narrow networks, beside the planted ones of that width, and the ends of a width."""
    given = attack(seed)
    if given is None:
        return
    asked, problem = given.question, problem_of(given)
    width, layer = max(len(W) for W in given.best[:-1]), None
    dual = None
    if asked.depth == 2 and asked.loss == "mse" and not asked.free:
        dual = solved(asked, max_iterations=4, certify="fast").dual
    elif asked.depth > 2 and seed % 2:
        layer = 1 + seed % (asked.depth - 1)
    bounds = narrow_bounds(problem, layer, dual, most=width + 1)
    for n, bound in enumerate(bounds[: width + 1]):
        narrow = given.upper if n == width else _narrow(given, n, layer)
        if math.isfinite(narrow):
            yield Claim(
                f"width {'0' if n == 0 else 'n'}, {asked.loss.partition(':')[0]}", bound.lower, narrow, given.says
            )
    most = min(bound.width for bound in upper_bounds(problem, layer))
    yield Claim("neurons needed", needed(bounds, given.upper).width, width, given.says)
    yield Claim(
        "neurons needed of those that suffice", needed(bounds, least(asked, given.weights)[0]).width, most, given.says
    )


def _narrow(given: Attack, n: int, layer: int | None) -> float:
    """What a network costs whose hidden layers, or that one, have n of the planted neurons."""
    weights = [W.copy() for W in given.best]
    for k in range(1, given.question.depth):
        if layer in (None, k):
            weights[k - 1] = weights[k - 1][:n]
            inner = len(given.best[k - 1])
            weights[k] = np.delete(weights[k], range(min(n, inner), inner), axis=1)
    return least(given.question, weights)[0]


def of_path(seed: int) -> Claims:
    """The bounds of a path at every lam, between its points too."""
    rng = np.random.default_rng(seed)
    given = attack(seed, depth=int(rng.choice([2, 2, 2, 2, 3])), loss=str(rng.choice(["mse", "mse", "cross_entropy"])))
    if given is None or given.question.weight is not None:
        return
    asked = given.question
    options = {name: value for name, value in asked.options.items() if name != "lam"}
    found = covopt.path(
        asked.X, asked.Y, points=4, ratio=10.0 ** rng.uniform(-6, -1), max_iterations=2, time_limit=SECONDS,
        certify=str(rng.choice(["auto", "fast"])), seed=seed, **options,  # type: ignore[arg-type]
    )  # fmt: skip
    networks = [given.weights, given.best, *([W.double().numpy() for W in point.weights] for point in found.points)]
    scales = np.geomspace(1e-3, 10.0, 17)
    lines = [asked.parts([W * scale for W in net]) for net in networks[:2] for scale in scales]
    lines += [asked.parts(net) for net in networks[2:]]
    low, high = found.lams[-1], found.lams[0]
    lams = np.exp(rng.uniform(np.log(low), np.log(high), LAMS)).clip(low, high)
    for lam in [*lams, *found.lams]:
        upper = min(fit + lam * norm for fit, norm in lines)
        at, _ = least(replace(asked, lam=float(lam)), given.best)
        yield Claim("path, at every lam", found.bounds(float(lam))[0], min(upper, at), f"{given.says}, lam {lam:g}")
    for point in found.points:
        lower, kind = found.proved(point)
        if lower is not None:
            yield Claim(f"path, {kind}", lower, min(fit + point.lam * norm for fit, norm in lines), given.says)
    yield from _ends(given, *found.lam_max)


def of_lam_max(seed: int) -> Claims:
    """Both ends of lam_max."""
    rng = np.random.default_rng(seed)
    loss = str(rng.choice(["mse", "cross_entropy"]))
    given = attack(seed, depth=int(rng.choice([2, 2, 2, 3, 6])), loss=loss)
    if given is None or (given.question.weight is not None and not given.question.free):
        return
    found = lam_max(problem_of(given), float(rng.choice([0.0, 0.3])), seed)
    yield from _ends(given, found.lower, found.upper)


def _ends(given: Attack, lower: float | None, upper: float | None) -> Claims:
    """No network is cheaper than those without neurons from the upper end on; some is below the lower one."""
    asked = given.question
    if lower is not None and upper is not None:
        yield Claim("lam_max, its ends", lower, upper, given.says)
    if upper is not None and upper > 0.0 and replace(asked, lam=upper).moderate:
        at = replace(asked, lam=upper * (1.0 + 1e-9))
        rivals = [[W * scale for W in asked.balanced(given.weights)] for scale in np.geomspace(1e-4, 10.0, 21)]
        best = min([*rivals, at.trained(given.best), at.trained(given.weights)], key=at.cost)
        yield Claim("lam_max, upper end", without_neurons(at)[0], at.cost(best), given.says)
    if lower and asked.depth == 2 and not asked.free and replace(asked, lam=lower).moderate:
        at = replace(asked, lam=lower * (1.0 - 1e-3))
        cost, F = without_neurons(at)
        found = steepest(at, F)
        if found < ATTAINED:  # ascents that kinks stopped: a solver's network counts as well
            network = arrays(solved(at, max_iterations=30, certify="fast", gap=1e-9))
            found = float(at.cost(network) < cost)
        yield Claim("lam_max, lower end", ATTAINED, found, given.says)


def steepest(asked: Question, F: Array, draws: int = 2000, ascents: int = 50) -> float:
    """max_w |Lambda^T sigma(Xt w)| at these outputs, as far as drawn directions and ascents from them find it."""
    rng = np.random.default_rng(0)
    Lambda = -asked.shares[:, None] * asked.slopes(F) / (2.0 * asked.lam)
    Xt = np.hstack([asked.X, np.full((len(asked.X), 1), asked.beta)])
    rows = np.argsort(rng.random((draws // 4, len(Xt))), axis=1)[:, : min(len(Xt), Xt.shape[1] - 1)]
    kinks = np.linalg.svd(Xt[rows])[2][:, -1]  # a corner of cells each
    anywhere = rng.standard_normal((draws, Xt.shape[1])) / np.where(Xt.any(axis=0), np.abs(Xt).max(axis=0), 1.0)
    W = np.vstack([anywhere, Xt, -Xt, kinks, -kinks])
    best = 0.0
    for _ in range(ascents):
        W = W[np.linalg.norm(W, axis=1) > 0.0]
        if not len(W):
            break
        W = W / np.linalg.norm(W, axis=1, keepdims=True)
        Z = Xt @ W.T
        d = np.where(Z >= 0.0, Z, asked.slope * Z).T @ Lambda
        h = np.linalg.norm(d, axis=1)
        best = max(best, float(h.max()))
        kept = np.argsort(-h)[:20]
        W = np.einsum("nk,nd->kd", np.where(Z >= 0.0, 1.0, asked.slope)[:, kept] * (Lambda @ d[kept].T), Xt)
    return best


def without_neurons(asked: Question) -> tuple[float, Array]:
    """The least cost of constants, and with a free skip of affine functions; and their outputs."""
    q, Y, lam = asked.shares[:, None], asked.Y, asked.lam
    mean = (q * Y).sum(axis=0)
    F, norm = 0.0 * Y, 0.0
    if asked.beta > 0.0 and asked.loss == "mse":
        bias = asked.beta * mean / (asked.beta**2 + lam)
        F, norm = F + asked.beta * bias, float(bias @ bias)
        if asked.free:
            moved = np.hstack([np.ones((len(Y), 1)), asked.X * asked.skip])
            F, norm = moved @ np.linalg.lstsq(np.sqrt(q) * moved, np.sqrt(q) * Y)[0], 0.0
    elif asked.free:
        return float(-(q * xlogy(Y, mean)).sum()), F + np.log(np.maximum(mean, 1e-300))
    elif asked.beta > 0.0:

        def cost(u: Array) -> tuple[float, Array]:  # u = beta b
            slope = softmax(u) - mean + 2.0 * lam / asked.beta**2 * u
            return float(logsumexp(u) - u @ mean + lam / asked.beta**2 * u @ u), slope

        exactly = {"gtol": 1e-14, "ftol": 0.0, "maxiter": 1000}
        u = minimize(cost, 0.0 * mean, jac=True, method="L-BFGS-B", options=exactly).x
        F, norm = F + u, float(u @ u) / asked.beta**2
    return float((asked.shares * asked.losses(F)).sum() + lam * norm), F


def of_limit(seed: int) -> Claims:
    """Large depths: the ends of R(L) - L, what rank 1 costs, and R0, beside planted networks of one neuron a layer."""
    rng = np.random.default_rng(seed)
    given = attack(seed, depth=int(rng.choice(DEEPER)), loss="interpolate", plain=True)
    if given is None:
        return
    asked, problem = given.question, problem_of(given)
    limit = limit_of(problem, [(problem, [torch.from_numpy(W) for W in given.best])])
    narrow = min(len(W) for W in given.weights[:-1]) == 1
    if limit is not None and limit.low is not None:
        yield Claim("limit, R1 from below", limit.low + asked.depth, given.upper, given.says)
        if limit.high is not None:
            yield Claim("limit, R1's ends", limit.low, limit.high, given.says)
    if limit is not None and limit.R0 is not None and narrow and asked.slope == 0.0:
        yield Claim("limit, R0", limit.R0, 1.0, given.says)
    if narrow:
        yield Claim("networks of one neuron", rank_one(problem).bound(asked.depth), given.upper, given.says)
