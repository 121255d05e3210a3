"""covopt.cp_rank and covopt cprank: known ranks, invariance, witnesses, honest intervals, bad input."""

import json
import math
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from copositive_matrices import HORN
from hostile_matrices import falsehoods, hostile_matrices
from hypothesis import given, strategies as st
from instances import cases
from references.grams import bipartite_gram, edge_gram
from runs import Run
from scipy.optimize import linprog

import covopt
from covopt import CovoptError, cp_rank
from covopt.completely_positive.connected import Part, Verdict
from covopt.completely_positive.ends import ByEdges, ByFactor, ByRank, ByTheorem, End
from covopt.completely_positive.prepared import prepare, whole
from covopt.completely_positive.words import pairs

CASES = cases("cp_rank")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_known_matrices(case: dict) -> None:
    A = np.array(case["A"], dtype=float)
    answer = cp_rank(A)
    assert answer.check(A)
    if not case["cp"]:
        assert answer.verdict == "not completely positive"
        assert answer.exact
        assert answer.lower is answer.upper is answer.B is None
        assert (A * answer.witness.C).sum() < 0
        return
    assert answer.verdict == "completely positive"
    if case["cp_rank"] is not None:
        assert answer.lower == answer.upper == case["cp_rank"] == len(answer.B)
        assert answer.exact
    else:
        assert case["lower"] <= answer.lower <= answer.upper <= case["upper"]
    assert np.linalg.norm(A - answer.B.T @ answer.B) <= 1e-9 * np.linalg.norm(A)
    assert (answer.B >= 0).all()


def test_the_boundary_is_within_the_residual_only() -> None:
    """Five atoms (a, a + b, b, 0, 0) in a circle, a b = 1 and a + b = sqrt(5), are the circulant matrix exactly."""
    A = np.array(CASES["circulant-boundary"]["A"], dtype=float)
    a, b = (math.sqrt(5) + 1) / 2, (math.sqrt(5) - 1) / 2
    atoms = np.array([np.roll([a, a + b, b, 0, 0], k) for k in range(5)])
    assert atoms.T @ atoms == pytest.approx(A)
    answer = cp_rank(A)
    assert (answer.lower, answer.upper) == (5, 5)
    assert not answer.exact


@pytest.mark.parametrize(("p", "q"), [(p, q) for p in range(1, 11) for q in range(p, 11)])
def test_complete_bipartite_graphs(p: int, q: int) -> None:
    answer = cp_rank(bipartite_gram(p, q))
    assert answer.exact
    assert answer.lower == answer.upper == p * q == len(answer.B)


def test_graphs_with_triangles() -> None:
    # Each clique of the octahedron's smallest cover is needed; the octahedron's own four triangles make it.
    cliques = np.array([[1, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 1], [0, 1, 1, 0, 0, 1], [0, 1, 0, 1, 1, 0]], dtype=float)
    answer = cp_rank(cliques.T @ cliques)
    assert answer.lower == answer.upper == 4
    # A triangle with pendant edges: an edge-clique cover of four, rank four.
    answer = cp_rank(edge_gram(nx.Graph([(0, 1), (0, 2), (1, 2), (0, 3), (1, 4), (2, 5)])))
    assert answer.lower == answer.upper == 6


def test_direct_sums_add_up() -> None:
    blocks = [bipartite_gram(2, 2), np.ones((3, 3)), np.array([[2.0]]), np.zeros((2, 2))]
    A = np.zeros((10, 10))
    start = 0
    for block in blocks:
        A[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    answer = cp_rank(A)
    assert answer.lower == answer.upper == 4 + 1 + 1
    assert answer.residual <= 1e-15
    assert cp_rank(np.zeros((3, 3))).upper == 0
    # One component that is not completely positive decides.
    A[:2, :2] = [[1.0, 2.0], [2.0, 1.0]]
    A[:2, 2:4] = A[2:4, :2] = 0.0
    bad = cp_rank(A)
    assert bad.verdict == "not completely positive"
    assert bad.check(A)


@st.composite
def products(draw: st.DrawFn) -> np.ndarray:
    order, atoms = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    density = draw(st.sampled_from([0.4, 0.7, 1.0]))
    return rng.uniform(0.2, 1.0, (atoms, order)) * (rng.random((atoms, order)) < density)


@given(products())
def test_intervals_of_products_are_true(B: np.ndarray) -> None:
    A = B.T @ B
    answer = cp_rank(A, time_limit=5.0)
    assert answer.verdict == "completely positive"
    assert answer.lower <= answer.upper
    assert answer.lower <= len(B)
    assert answer.check(A)
    if answer.B is not None:
        assert len(answer.B) >= answer.lower


@given(products(), st.integers(0, 10**6))
def test_permutation_and_scaling(B: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    B = np.round(64 * B) / 64  # exact data stay exact under scaling by powers of two
    order, scale = rng.permutation(B.shape[1]), np.exp2(rng.integers(-30, 30, B.shape[1]))
    A = B.T @ B
    moved = A[np.ix_(order, order)] * np.outer(scale, scale)
    one, two = cp_rank(A, time_limit=5.0), cp_rank(moved, time_limit=5.0)
    assert (one.verdict, one.lower) == (two.verdict, two.lower)
    assert two.check(moved)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_verdicts_against_are_free_of_scale(scale: float) -> None:
    d = np.array([1.0, scale, 3.0, 1 / scale, 0.7])
    A = np.array(CASES["five-cycle-not-cp-b"]["A"], dtype=float)
    answer = cp_rank(A * np.outer(d, d))
    assert answer.verdict == "not completely positive"
    assert answer.check(A * np.outer(d, d))


def test_dense_matrices_that_are_not_completely_positive() -> None:
    case = CASES["circulant-boundary"]
    A = np.array(case["A"]) - 0.01 * HORN
    assert np.linalg.eigvalsh(A)[0] > 0.4
    answer = cp_rank(A)
    assert answer.verdict == "not completely positive"
    assert answer.check(A)
    assert not answer.check(np.array(case["A"]))


@pytest.mark.parametrize(("order", "jumps"), [(13, [1, 5])])
def test_dense_matrices_beyond_order_ten_are_separated(order: int, jumps: list[int]) -> None:
    """Schrijver's bound on the stable sets of a circulant graph, where it is not sharp: w (I + A) - J separates it.

    The matrix of the bound is circulant, so that a linear programme finds it; a dense completely positive matrix is
    added, by which most of the separation stays.
    """
    graph = nx.circulant_graph(order, jumps)
    k = np.arange(order)
    cosines = np.cos(2.0 * np.pi * np.outer(k, k) / order)
    entries = linprog(
        -np.ones(order),
        A_ub=-cosines,
        b_ub=np.zeros(order),
        bounds=[(1.0, 1.0)] + [(0.0, 0.0) if min(i, order - i) in jumps else (0.0, None) for i in k[1:]],
    ).x
    X = np.array([np.roll(entries, i) for i in k])
    B = np.random.default_rng(0).random((2 * order, order))
    A = (X + X.T) / 2.0 + 3e-4 * B.T @ B + 1e-6 * np.eye(order)
    stable = max(len(clique) for clique in nx.find_cliques(nx.complement(graph)))
    separating = stable * (np.eye(order) + nx.to_numpy_array(graph)) - 1.0
    assert (A * separating).sum() < -0.05 * np.abs(A * separating).sum()
    assert np.linalg.eigvalsh(A)[0] > 1e-7
    answer = cp_rank(A, time_limit=60.0)
    assert answer.verdict == "not completely positive"
    assert answer.check(A)


def test_order_four_is_decided_by_theorem() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        F = rng.integers(-2, 4, (4, 4)).astype(float)
        A = F @ F.T
        answer = cp_rank(A)
        assert (answer.verdict == "completely positive") == bool((A >= 0).all())
        assert answer.exact


def test_a_number_of_atoms_asked_for() -> None:
    C = np.abs(np.random.default_rng(0).standard_normal((8, 16)))
    A = C @ C.T
    for rank in (8, 12, 24):
        answer = cp_rank(A, rank=rank)
        assert len(answer.B) == rank == answer.upper
        assert answer.exact
    # Fewer than the rank there cannot be.
    assert len(cp_rank(A, rank=3).B) >= 8
    # Where the cp-rank is known, atoms are split.
    answer = cp_rank(bipartite_gram(2, 2), rank=9)
    assert answer.B.shape == (9, 4)
    assert answer.residual < 1e-15


def test_more_time_never_hurts_and_none_is_honest() -> None:
    C = np.abs(np.random.default_rng(3).standard_normal((6, 7)))
    A = C @ C.T
    hasty, patient = cp_rank(A, time_limit=1e-9), cp_rank(A)
    assert hasty.verdict in ("undecided", "completely positive")
    assert hasty.lower <= patient.lower <= patient.upper
    if hasty.upper is not None:
        assert patient.upper <= hasty.upper


def test_rounded_data_count_as_known_up_to_the_tolerance() -> None:
    B = np.abs(np.random.default_rng(0).standard_normal((3, 6)))
    noise = 1e-13 * np.random.default_rng(1).standard_normal((6, 6))
    answer = cp_rank(B.T @ B + noise + noise.T)
    assert answer.lower == answer.upper == 3
    assert not answer.exact
    A = bipartite_gram(2, 2) + 1e-8
    assert cp_rank(A, tolerance=1e-6).lower == 4
    assert not cp_rank(A, tolerance=1e-6).exact


def test_a_rank_that_only_digits_show() -> None:
    """det A = 1e-11 > 0: A has rank 2 and, being a tree, cp-rank 2, though a matrix nearby has rank 1."""
    A = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-11]])
    answer = cp_rank(A, tolerance=0.0)
    assert answer.exact
    assert answer.lower == answer.upper == 2
    nearby = cp_rank(A)
    assert not nearby.exact
    assert nearby.lower == nearby.upper == 1
    assert answer.check(A)
    assert nearby.check(A)
    assert not replace(nearby, exact=True).check(A)
    # A dense one of order 5: a proved upper end may not rest on the rank that the tolerance leaves.
    B = np.random.default_rng(0).uniform(0.5, 1.5, (3, 6))
    answer = cp_rank(B.T @ B + 1e-11 * np.eye(6))
    assert not answer.exact or answer.upper >= 6


@pytest.mark.parametrize("tolerance", [1e-9, 0.01])
@pytest.mark.parametrize(("p", "q"), [(2, 3), (3, 3), (3, 4)])
def test_entries_too_small_to_count_still_join_vertices(p: int, q: int, tolerance: float) -> None:
    """Without its small entries A has a triangle-free graph with p q edges; its own positive root has p + q rows."""
    K = np.zeros((p + q, p + q))
    K[:p, p:] = K[p:, :p] = 1.0
    A = np.eye(p + q) + tolerance * (2.0 * K + 0.9 * (1.0 - K - np.eye(p + q)))
    values, vectors = np.linalg.eigh(A)
    assert ((vectors * np.sqrt(values)) @ vectors.T > 0.3 * tolerance).all()
    answer = cp_rank(A, tolerance=tolerance, time_limit=3.0)
    assert answer.lower == p + q
    assert answer.upper in (p + q, None)
    assert answer.check(A)
    if answer.verdict == "completely positive":
        assert answer.exact
    # A lower end of the clean matrix alone does not pass for one of A.
    clean = np.where(tolerance < A, A, 0.0)
    assert cp_rank(clean).lower == p * q
    assert not replace(cp_rank(clean), tolerance=tolerance).check(A)


def test_zeros_that_noise_hides_do_not_count_as_proved() -> None:
    """The edges of the clean matrix are no proof; moments are one, since so small an entry carries no atom."""
    A = bipartite_gram(2, 3) + 1e-17
    answer = cp_rank(A, time_limit=20.0)
    assert answer.lower == answer.upper == 6
    assert answer.lower_reason == "moments (semidefinite programming)"
    assert not answer.exact
    assert answer.check(A)


def test_an_upper_end_by_rank_needs_the_rank_of_the_matrix_in_question() -> None:
    """Rank 6, but two of its eigenvalues are large: r (r + 1) / 2 - 1 = 2 holds for r = 2 alone."""
    rng = np.random.default_rng(5)
    B, E = rng.random((2, 6)), rng.random((12, 6))
    answer = cp_rank(B.T @ B + 1e-11 * E.T @ E, time_limit=5.0)
    assert not answer.exact
    assert "at rank r" not in (answer.upper_reason or "")
    if answer.upper is not None:
        assert answer.upper == min(len(answer.B), 6 * 7 // 2 - 4)
        assert "for a matrix within the residual" in dict(pairs(answer.summary()))["upper bound"]


def test_small_rows_must_be_symmetric_too() -> None:
    A = np.diag([1e20, 1.0, 1.0])
    A[1, 2], A[2, 1] = 0.5, 0.4
    with pytest.raises(CovoptError, match="rows and columns 1 and 2 differ"):
        cp_rank(A)


def test_nothing_false_of_matrices_whose_truth_is_known() -> None:
    """A sample of the benchmark `hostile-matrices`."""
    for hostile in hostile_matrices(60, seed=7):
        assert not falsehoods(hostile, cp_rank(hostile.A, time_limit=0.2, **hostile.options)), hostile.kind


def test_tensors_and_float32() -> None:
    assert cp_rank(torch.tensor(bipartite_gram(2, 3), dtype=torch.float32)).upper == 6
    assert cp_rank([[1, 1], [1, 1]]).upper == 1


# ---- the command
def test_the_command_and_its_files(tmp_path: Path, run: Run) -> None:
    A, out = bipartite_gram(2, 2), tmp_path / "found.npz"
    np.save(tmp_path / "a.npy", A)
    np.savez(tmp_path / "a.npz", A=A, other=np.ones(3))
    np.savetxt(tmp_path / "a.csv", A, delimiter=",")
    for name in ("a.npy", "a.npz", "a.csv"):
        code, text, _ = run("cprank", tmp_path / name, "--json", "--out", out, "--force")
        told = json.loads(text)
        assert code == 0
        assert (told["verdict"], told["exact"], told["lower"], told["upper"]) == ("completely positive", True, 4, 4)
        assert told["lower_reason"]
        assert told["upper_reason"]
        B = np.load(out)["B"]
        assert pytest.approx(A) == B.T @ B
    code, text, error = run("cprank", tmp_path / "a.npy", "--out", out)
    assert (code, text) == (2, "")
    assert "--force" in error
    code, text, _ = run("cprank", tmp_path / "a.npy")
    assert code == 0
    assert "completely positive, proved" in text
    assert "4 atoms: edges of a triangle-free support graph" in text


def test_the_witness_is_stored(tmp_path: Path, run: Run) -> None:
    np.save(tmp_path / "a.npy", np.array([[1.0, -1.0], [-1.0, 1.0]]))
    code, text, _ = run("cprank", tmp_path / "a.npy", "--out", tmp_path / "c.npz")
    assert code == 0
    assert "not completely positive" in text
    assert list(np.load(tmp_path / "c.npz")) == ["C"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "c.npz"]


def test_descriptions_of_every_verdict() -> None:
    assert dict(pairs(cp_rank(np.eye(1)).summary()))["upper bound"].startswith("1 atom: ")
    assert dict(pairs(cp_rank(np.eye(2)).summary()))["verdict"] == "completely positive, proved"
    assert "witness" in dict(pairs(cp_rank(-np.eye(2)).summary()))
    # <A, C> is -0.2, all of it negative, and |A| |C| is 2.01.
    line = dict(pairs(cp_rank(np.array([[1.0, -0.1], [-0.1, 1.0]])).summary()))["witness"]
    assert line.startswith("<A, C> = -1 sum |A_ij C_ij|, ")


# ---- what can be checked again
def answers() -> list[tuple[np.ndarray, covopt.CPRank]]:
    """One of every reason for an end."""
    octahedron = np.array([[1, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 1], [0, 1, 1, 0, 0, 1], [0, 1, 0, 1, 1, 0]], dtype=float)
    C = np.abs(np.random.default_rng(0).standard_normal((6, 12)))
    blocks = np.zeros((7, 7))
    blocks[:4, :4], blocks[4:, 4:] = bipartite_gram(2, 2), np.ones((3, 3))
    matrices = [octahedron.T @ octahedron, C @ C.T, blocks, bipartite_gram(1, 3), np.eye(2), np.zeros((2, 2))]
    matrices += [np.array(case["A"], dtype=float) for case in CASES.values()]
    return [(A, cp_rank(A)) for A in matrices]


def test_every_end_can_be_checked_again_and_not_for_a_better_number() -> None:
    for A, answer in answers():
        assert answer.check(A)
        if answer.verdict != "completely positive":
            continue
        assert not replace(answer, lower=answer.lower + 1).check(A)
        assert not replace(answer, upper=answer.upper - 1).check(A)
        for i, part in enumerate(answer.parts):
            for forged in (
                replace(part, lower=replace(part.lower, value=part.lower.value + 1)),
                replace(part, upper=replace(part.upper, value=part.upper.value - 1)),
            ):
                claims = replace(
                    answer,
                    lower=answer.lower + forged.lower.value - part.lower.value,
                    upper=answer.upper + forged.upper.value - part.upper.value,
                    parts=(*answer.parts[:i], forged, *answer.parts[i + 1 :]),
                )
                assert not claims.check(A)


def test_edges_count_in_graphs_without_triangles_only() -> None:
    """The matrix of ones has ten edges and cp-rank 1, though there is a factor of three atoms as well."""
    ones, edges = np.ones((5, 5)), cp_rank(bipartite_gram(2, 3)).parts[0].lower.proof
    answer = cp_rank(ones, rank=3)
    assert (answer.lower, answer.upper) == (1, 3)
    part = replace(answer.parts[0], lower=replace(answer.parts[0].lower, value=3, proof=edges))
    assert not replace(answer, lower=3, parts=(part,)).check(ones)


def test_a_matrix_with_a_negative_entry_is_completely_positive_within_the_tolerance_only() -> None:
    """Its sign is lost where it is prepared: only the entries that differ show that no exact answer is one of it."""
    A, positive = (np.array([[1.0, entry], [entry, 1.0]]) for entry in (-1e-12, 1e-12))
    answer = cp_rank(A)
    assert answer.verdict == "completely positive"
    assert not answer.exact
    loose = replace(cp_rank(np.array([[1.0, 1e-8], [1e-8, 1.0]])), tolerance=1e-6)
    assert loose.exact
    assert loose.check(positive)
    assert not loose.check(A)


def test_answers_are_about_one_matrix() -> None:
    A = bipartite_gram(2, 3)
    answer = cp_rank(A)
    assert not answer.check(bipartite_gram(2, 2))
    assert not answer.check(A + 0.1)
    assert not cp_rank(A + 1.0).check(A)
    within = next(answer for _, answer in answers() if answer.verdict == "completely positive" and not answer.exact)
    matrix = next(A for A, answer in answers() if answer.verdict == "completely positive" and not answer.exact)
    assert within.check(matrix)
    assert not replace(within, exact=True, parts=tuple(replace(p, exact=True) for p in within.parts)).check(matrix)


def test_a_part_whose_lower_end_is_not_proved_fails() -> None:
    """Rank 1, and a factor of four atoms: the interval is [1, 4], and [2, 4] is not proved."""
    A, B = np.ones((2, 2)), np.full((4, 2), 0.5)
    upper = End(4, "a factor with this number of atoms", ByFactor(B))
    part = Part(Verdict.POSITIVE, False, End(1, "rank", ByRank()), upper, B)
    assert part.check(A, 1e-9)
    assert not replace(part, lower=End(2, "rank", ByRank())).check(A, 1e-9)
    parts = (replace(part, vertices=(0, 1)),)
    answer = covopt.CPRank(Verdict.POSITIVE, False, 1, 4, "rank", upper.reason, B, 0.0, None, 1e-9, parts)
    assert answer.check(A)
    assert not replace(answer, exact=True).check(A)


def test_entries_that_are_left_out_are_part_of_the_distance() -> None:
    """A small positive entry and a small negative one, in a matrix of unit diagonal: both are missing afterwards."""
    M = np.array([[1.0, 1e-10, -2e-10], [1e-10, 1.0, 0.5], [-2e-10, 0.5, 1.0]])
    given_matrix = prepare(M)
    _, rest, distance = whole(given_matrix, given_matrix.without_small(1e-9), 0.0)
    assert rest[0, 1] == rest[0, 2] == 0.0
    assert np.linalg.norm(M - rest) == pytest.approx(math.sqrt(10.0) * 1e-10)
    assert distance >= np.linalg.norm(M - rest) * (1.0 - 1e-12)
    assert not given_matrix.faithful


def test_proofs_hold_for_their_number_of_atoms() -> None:
    """A circle of four vertices has one atom for each edge, and a factor proves no fewer atoms than it has."""
    assert ByEdges().check(bipartite_gram(2, 2), 4, 0.0)
    assert not ByEdges().check(bipartite_gram(2, 2), 5, 0.0)
    assert not ByEdges().check(np.ones((3, 3)), 3, 0.0)  # a triangle, of one atom
    one, factor = np.ones((1, 1)), ByFactor(np.full((2, 1), math.sqrt(0.5)))
    assert factor.check(one, 2, 1e-12)
    assert not factor.check(one, 1, 1e-12)


def test_a_matrix_of_rank_3_needs_as_many_atoms_as_the_theorem_allows() -> None:
    """The r (r + 1) / 2 - 1 = 5 corners of a pentagon that a circle passes through, over the pentagon's sides.

    Each atom is H z for a point z of the cone over the pentagon. The atoms of A sum up to 0 in the quadratic form that
    is 0 on the circle and positive inside it, so that each is a corner, and the outer products of the corners are
    linearly independent: A is a sum of corners in one way only.
    """
    corners = np.array([[5, 0, 5], [3, 4, 5], [-4, 3, 5], [-3, -4, 5], [4, -3, 5]])
    assert (corners**2 @ [1, 1, -1] == 0).all()
    H = np.cross(corners, np.roll(corners, -1, axis=0))
    atoms = (corners @ H.T).astype(float)
    assert (atoms >= 0).all()
    assert np.linalg.matrix_rank(np.einsum("ki,kj->kij", corners, corners).reshape(5, 9)) == 5
    A = atoms.T @ atoms
    assert ByTheorem(3).check(A, 5, 0.0)
    assert not ByTheorem(3).check(A, 4, 0.0)
    assert ByFactor(atoms).check(A, 5, 1e-12)
