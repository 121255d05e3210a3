"""Benchmarks of complete positivity and the width: verdicts, ranks, and factors of random matrices."""

from __future__ import annotations

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
from tests.benchmarks.harness import Benchmark, Outcome, Settings, show
from tests.references.grams import bipartite_gram, edge_gram, gram_data

CASES = Path(__file__).resolve().parents[1] / "cases" / "cp_rank.json"
HIGH = CASES.with_name("high_cp_rank.json")
SUCCESS = STOP  # of |A - B^T B|^2 / |A|^2, as in the literature
LIMIT = 30.0  # seconds for one factor
THEIRS = {20: 10, 50: 5, 100: 3}  # trials of the published methods, by order
SHOWN = 1e-4  # up to what the covariances of a solved network are known


def _asked(A: np.ndarray, **options: object) -> tuple[covopt.CPRank, float]:
    """The answer and its seconds; the checks of the answer are not counted."""
    begun = time.perf_counter()
    answer = covopt.cp_rank(A, **options)  # type: ignore[arg-type]
    return answer, time.perf_counter() - begun


def run_cases(settings: Settings) -> Outcome:
    """Matrices from the literature."""
    rows, met = [], True
    for case in json.loads(CASES.read_text())["cases"]:
        A = np.array(case["A"], dtype=float)
        answer, seconds = _asked(A, time_limit=settings.limit(60.0))
        right = answer.check(A) and answer.verdict.value == ("" if case["cp"] else "not ") + "completely positive"
        if case["cp"]:
            low, high = (case["cp_rank"] or case[end] for end in ("lower", "upper"))
            true = low <= answer.lower <= answer.upper <= high
            right = right and true and (case["cp_rank"] is None or answer.lower == answer.upper)
        met = met and right and seconds < 60.0
        rows.append((case["name"], answer.verdict.value, answer.exact, answer.lower, answer.upper))
        rows[-1] += (answer.lower_reason, seconds, bool(right))
    return Outcome(
        target="every verdict right, every known rank exactly, every interval true, under 60 s each",
        reached=f"{sum(row[-1] for row in rows)} of {len(rows)}, slowest {show(max(row[-2] for row in rows))} s",
        met=met,
        columns=("matrix", "verdict", "exact", "lower", "upper", "why not fewer", "seconds", "right"),
        rows=rows,
        runs=[],
    )


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
        runs=[],
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
        runs=[],
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
        runs=[],
    )


def run_plateau_ends(settings: Settings) -> Outcome:
    """Proposition 14: X = I, where the width is a cp-rank; B_N and one-hot classes."""
    rows = []
    for N in (4, 6, 8):
        A = bipartite_gram(N // 2, N // 2)
        X, Y = gram_data(A)
        cost, width, seconds = _solved(X, Y, settings)
        rows.append((f"B_{N}", cost, float(N * N), width, N * N // 4, _wide(N), N * N + N, seconds))
    for sizes in ((1, 1, 1), (1, 2, 5), (3, 4, 6, 2)):
        Y = np.eye(len(sizes))[np.repeat(np.arange(len(sizes)), sizes)]
        cost, width, seconds = _solved(np.eye(len(Y)), Y, settings)
        value = 2.0 * float(np.sum(np.sqrt(sizes)))
        rows.append((f"one-hot {sizes}", cost, value, width, len(sizes), None, None, seconds))
    good = [_close(row[1], row[2]) and row[3] == f"{row[4]} to {row[4]}" for row in rows]
    good = [g and (row[5] is None or _close(row[5], row[6])) for g, row in zip(good, rows, strict=True)]
    return Outcome(
        target="R to 1e-6, the width exactly, and the cost N^2 + N of the network of width N",
        reached=f"{sum(good)} of {len(good)}",
        met=all(good),
        columns=("data", "cost", "R", "width", "known", "cost at width N", "N^2 + N", "seconds"),
        rows=rows,
        runs=[],
    )


def _solved(X: np.ndarray, Y: np.ndarray, settings: Settings) -> tuple[float, str, float]:
    begun = time.perf_counter()
    result = covopt.solve(X, Y, bias=0.0, gap=1e-9, time_limit=settings.limit(60.0))
    # Covariances of a solved network are rounded: what is too small to be shown counts as zero, and is made zero.
    A = result.covariances(1)[1]
    size = np.sqrt(np.diag(A))
    answer = covopt.cp_rank(np.where(SHOWN * np.outer(size, size) < A, A, 0.0), tolerance=SHOWN)
    return result.cost, f"{answer.lower} to {answer.upper}", time.perf_counter() - begun


def _wide(N: int) -> float:
    """|W_1|^2 + |W_2|^2 of W_1 = sqrt(N/2) I, W_2 = sqrt(2/N) E^T E; [JGHG22], Remark 23. It fits: W_2 W_1 = E^T E."""
    A = bipartite_gram(N // 2, N // 2)
    W1, W2 = np.sqrt(N / 2) * np.eye(N), np.sqrt(2 / N) * A
    return float(np.sum(W1**2) + np.sum(W2**2)) if np.allclose(np.maximum(W1, 0.0) @ W2.T, A) else math.nan


def _close(value: float, known: float) -> bool:
    return abs(value - known) <= 1e-6 * known


WIDTH = {
    "cp-rank": Benchmark(run_cases, "matrices from the literature: complete positivity and cp-rank"),
    "triangle-free": Benchmark(run_triangle_free, "cp-rank of graphs without triangles"),
    "cp-factors": Benchmark(run_factors, "random completely positive matrices, n = 20, 50, 100 (300 trials)"),
    "cp-high-rank": Benchmark(
        run_high_ranks, "matrices of high cp-rank from the literature: fewest atoms, and lower ends"
    ),
    "width-exact": Benchmark(run_plateau_ends, "Proposition 14: the width of X = I is a cp-rank"),
}
