"""Benchmarks of complete positivity: ranks, and factors of random matrices."""

import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import numpy as np

import covopt
from covopt.completely_positive.factorization import search
from covopt.completely_positive.graphs import clique_cover, support_graph
from covopt.completely_positive.moments import moment_bound
from tests.benchmarks.factor_contenders import METHODS, STOP, Method
from tests.benchmarks.harness import Outcome, Settings, benchmark, show
from tests.references.grams import bipartite_gram, edge_gram

HIGH = Path(__file__).resolve().parents[1] / "cases" / "high_cp_rank.json"
SUCCESS = STOP  # of |A - B^T B|^2 / |A|^2, as in the literature
LIMIT = 30.0  # seconds for one factor
THEIRS = {20: 10, 50: 5, 100: 3}  # trials of the published methods, by order


def _asked(A: np.ndarray, **options: object) -> tuple[covopt.CPRank, float]:
    """The answer and its seconds; the checks of the answer are not counted."""
    begun = time.perf_counter()
    answer = covopt.cp_rank(A, **options)  # type: ignore[arg-type]
    return answer, time.perf_counter() - begun


@benchmark("triangle-free", "cp-rank of graphs without triangles")
def run_triangle_free(settings: Settings) -> Outcome:
    """Complete bipartite graphs, and random triangle-free graphs with random weights."""
    rows = []
    for name, graphs in (("K_{p,q}, p, q up to 10", _bipartite()), ("random, up to 40 vertices", _random_graphs())):
        taken = list(itertools.islice(graphs, 5 if settings.quick else None))
        right, slowest, worst = 0, 0.0, 0.0
        for A, edges in taken:
            answer, seconds = _asked(A)
            exact = answer.exact and answer.lower == answer.upper == edges == len(answer.B)
            right += bool(exact and answer.check(A))
            slowest, worst = max(slowest, seconds), max(worst, math.inf if answer.residual is None else answer.residual)
        rows.append((name, len(taken), right, worst, slowest))
    return Outcome(
        target="lower = upper = number of edges, proved, in less than 10 s each",
        reached=f"{sum(row[2] for row in rows)} of {sum(row[1] for row in rows)}, slowest "
        f"{show(max(row[4] for row in rows))} s",
        met=all(row[1] == row[2] and row[4] < 10.0 for row in rows),
        columns=("graphs", "number", "right", "worst residual", "slowest seconds"),
        rows=rows,
    )


def _bipartite() -> Iterator[tuple[np.ndarray, int]]:
    """K_{p,q}; a star's cp-rank is its rank, which is the number of edges too."""
    for p, q in itertools.combinations_with_replacement(range(1, 11), 2):
        yield bipartite_gram(p, q), p * q


def _random_graphs() -> Iterator[tuple[np.ndarray, int]]:
    """Connected, with a cycle: a random tree, and edges that close no triangle; half of them with random weights."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        order = int(rng.integers(5, 41))
        graph = nx.random_labeled_tree(order, seed=seed)
        wanted = int(rng.integers(order, 4 * order))
        for u, v in rng.permutation(list(itertools.combinations(range(order), 2))):
            if graph.number_of_edges() < wanted and not set(graph[u]) & set(graph[v]):
                graph.add_edge(int(u), int(v))
        if graph.number_of_edges() < order:
            continue
        # E^T E lies on the boundary of the cone: weights with few digits leave it there.
        d = rng.integers(8, 33, order) / 16.0 if seed % 2 else np.ones(order)
        yield edge_gram(graph) * np.outer(d, d), graph.number_of_edges()


@benchmark("cp-factors", "random completely positive matrices, n = 20, 50, 100 (300 trials)")
def run_factors(settings: Settings) -> Outcome:
    """A = C C^T, C = |Gaussian| (n, 2n), a factor with r atoms, fifty trials each; published methods on some."""
    rows, ours = [], 3 if settings.quick else 50
    for n, share in itertools.product((20, 50, 100), (1.5, 3.0)):
        r = int(share * n)
        rows.append((n, r, "covopt", *_tried(_found, n, r, ours), *_with_proof(n, r, min(5, ours))))
        for name, method in METHODS.items():
            rows.append((n, r, name, *_tried(method, n, r, min(ours, THEIRS[n])), None, None))
            print(f"  n = {n}, r = {r}, {name}: {show(rows[-1][6])} s", file=sys.stderr, flush=True)
    mine = [row for row in rows if row[2] == "covopt"]
    others = [row for row in rows if row[2] != "covopt"]
    return Outcome(
        target=f"squared relative error < {SUCCESS} in every trial",
        reached=f"{sum(row[4] for row in mine)} of {sum(row[3] for row in mine)}, worst "
        f"{show(max(row[5] for row in mine))}; mean seconds "
        f"{', '.join(f'{row[6]:.2g} (n = {row[0]}, r = {row[1]})' for row in mine)}; published methods: "
        f"{sum(row[4] for row in others)} of {sum(row[3] for row in others)} in {LIMIT:g} s each",
        met=all(row[3] == row[4] for row in mine),
        columns=(
            *("n", "r", "method", "trials", "successes", "worst squared error", "mean seconds", "slowest"),
            *("proved exact", "mean seconds with the proof"),
        ),
        rows=rows,
    )


def _random(n: int, seed: int) -> np.ndarray:
    C = np.abs(np.random.default_rng(seed).standard_normal((n, 2 * n)))
    return C @ C.T


def _found(A: np.ndarray, r: int, rng: np.random.Generator, deadline: float) -> np.ndarray | None:
    B = search(A, r, int(rng.integers(2**31)), deadline)
    return None if B is None else B.T


def _tried(method: Method, n: int, r: int, trials: int) -> tuple[int, int, float | None, float, float]:
    """(trials, successes, the worst squared error of these, mean seconds and the slowest of all)."""
    times, errors = [], []
    for seed in range(trials):
        A, begun = _random(n, seed), time.perf_counter()
        B = method(A, r, np.random.default_rng(seed), begun + LIMIT)
        times.append(time.perf_counter() - begun)
        if B is not None and B.shape == (n, r) and (B >= 0).all():
            errors.append(float(np.sum((A - B @ B.T) ** 2) / np.sum(A**2)))
    successes = [error for error in errors if error <= SUCCESS]
    return trials, len(successes), max(successes, default=None), statistics.mean(times), max(times)


def _with_proof(n: int, r: int, trials: int) -> tuple[str, float]:
    """The whole answer, with its proof that an exact factor exists: how many have it, and their mean seconds."""
    asked = [_asked(_random(n, seed), rank=r) for seed in range(trials)]
    proved = sum(bool(answer.exact and answer.upper == r) for answer, _ in asked)
    return f"{proved} of {trials}", statistics.mean(seconds for _, seconds in asked)


@benchmark("cp-high-rank", "matrices of high cp-rank from the literature: fewest atoms, and lower ends")
def run_high_ranks(settings: Settings) -> Outcome:
    """Matrices whose cp-rank exceeds rank and clique covers: what zeros of copositive matrices and moments add."""
    rows = []
    for case in json.loads(HIGH.read_text())["cases"]:
        A = np.array(case["A"], dtype=float)
        answer, seconds = _asked(A, time_limit=settings.limit(60.0))
        cover = clique_cover(support_graph(A))
        simple = max(
            int(np.linalg.matrix_rank(A)), 0 if cover is None else cover.cover_number or cover.fractional.bound
        )
        begun = time.perf_counter()
        bound = moment_bound(A, 1e-9, begun + settings.limit(60.0))
        spent = time.perf_counter() - begun
        value = 0.0 if bound is None else bound.value(A, 1e-9)
        true = value <= case["upper"] and answer.lower <= case["upper"] == answer.upper and answer.check(A)
        better = max(answer.lower, 0 if bound is None else bound.bound(A, 1e-9)) > simple
        rows.append((case["name"], len(A), case["upper"], simple, value, spent))
        rows[-1] += (answer.lower, answer.upper, answer.lower_reason, seconds, bool(true and better))
    return Outcome(
        target="the fewest atoms known, and a lower end above rank and cliques, for every matrix",
        reached=f"{sum(row[-1] for row in rows)} of {len(rows)}; "
        f"{', '.join(f'{row[0]}: {row[6]} to {row[7]} (moments alone {row[4]:.2f})' for row in rows)}",
        met=all(row[-1] for row in rows),
        columns=(
            *("matrix", "order", "known factor", "rank and cliques", "moments", "seconds"),
            *("lower", "upper", "why not fewer", "seconds of the answer", "right"),
        ),
        rows=rows,
    )
