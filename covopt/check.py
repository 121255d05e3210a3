"""covopt-check RUN: prove a stored solve or cp-rank again, trusting nothing of covopt.

It imports nothing of covopt, and of NumPy only what opens .npz files; a copy of it runs alone: `python check.py RUN`.
Proofs are made of integers and fractions, with roots, exp and ln rounded outwards; floats only guess where to look. The
theorems are those of docs/MATH.md. The cost is C(F) + lam |W|^2 of the stored weights. With a dual point the bound is
D(t Lambda), t <= T about the least that gives what is stated; h(w) = |Lambda^T sigma(Xt w)| <= 1 / t for unit w proves
it. Without one, and for three layers and more, it follows from the data (MATH.md 5), by what the file holds.
Exit codes: 0 proved, 1 refused, 2 cannot be read, 3 something is not checked."""

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise, product
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE, T = Fraction(1, 10**9), 1 - Fraction(1, 2**30)  # of stated numbers, relative to the cost; above
RBITS, GBITS, FILES = 52, 60, "problem network certificate"  # bits of the inputs and dual points of a Frame
DECIMAL, MARGIN = Context(prec=60, Emax=999999999, Emin=-999999999), Fraction(1, 10**40)  # of a few operations in it
VERDICTS = ("proved: {}, nothing besides", "refused", "cannot be read", "not checked")
ENTROPIES, REFUSED, UNREAD, UNCHECKED = ("cross_entropy", "logistic"), 1, 2, 3
Rows = list[list[Any]]
Corner = tuple[int, ...]
STRICT, KINK, SIDES = 2, 3, {0: (1, -1), 1: (2, 3)}  # of pieces: z > 0, z = 0; what z unknown and z >= 0 split into
PIECES, SEARCHED = ["relaxation", "sign-branching"], ["exact", "branch-and-bound"]  # certificates with a dual point
KINDS = PIECES + SEARCHED + "groups spectral laplacian convexity angle loop linear one-input shares paths none".split()
STATUSES = "unsolved optimal converged tolerance memory_limit time_limit iteration_limit interrupted".split()
ASKED = {"loss": "U", "activation": "U", "depth": "iu", "bias": "fiuU", "lam": "fiu"}  # and the kinds of numpy
NUMBERS, COUNTS = "cost fit norm residual lower gap target".split(), "order atoms lower upper".split()
CP, NOT, OTHERS = "completely positive", "not completely positive", ("ByMoments", "ByCover", "ByEdgeWeights", "ByZeros")
ABOVE = "the stored dual point is not feasible: a neuron is above the maximum that the bound needs"


class Stop(Exception):
    """A verdict other than proved: its exit code, and a sentence."""


def need(condition: object, sentence: str, code: int = REFUSED) -> None:
    if not condition:
        raise Stop(code, sentence)


def in_time(end: float) -> None:
    need(time.monotonic() < end, "the proof takes longer than the time limit", UNCHECKED)


# ---- Exact arithmetic: whole numbers and fractions, with roots, exp and ln rounded outwards.


def dot(a: Any, b: Any) -> Any:
    return sum(map(mul, a, b))


def gram(A: Any, B: Any) -> Rows:
    return [[dot(a, b) for b in B] for a in A]


def turned(A: Any) -> list[Any]:
    return list(zip(*A))


def unit(n: int, t: Any = 1) -> Rows:
    return [[t if a == b else 0 * t for b in range(n)] for a in range(n)]


def plus(A: Any, B: Any, t: Any = 1) -> Rows:
    return [[a + t * b for a, b in zip(*AB)] for AB in zip(A, B)]


def over(A: Any, t: Any) -> Rows:
    return [[x / t for x in row] for row in A]


def scaled(rows: Any) -> tuple[Rows, int]:  # floats, or fractions over powers of two, as integers and the e of 2^-e
    ratios = [[x.as_integer_ratio() for x in row] for row in rows]
    e = max((d.bit_length() - 1 for row in ratios for _, d in row), default=0)
    return [[n << (e - d.bit_length() + 1) for n, d in row] for row in ratios], e


def root(x: Fraction) -> Fraction:  # sqrt(x) from above, to about 100 bits
    s = max(0, 130 - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    return Fraction(math.isqrt((x.numerator << (2 * s)) // x.denominator) + (x > 0), 1 << s)


def size(rows: Rows) -> Fraction:
    return root(sum((dot(row, row) for row in rows), Fraction(0)))  # |rows|_F, from above


def decimal(x: Fraction) -> Decimal:
    return DECIMAL.divide(Decimal(x.numerator), Decimal(x.denominator))


def ln(x: Fraction) -> Fraction:
    return Fraction(DECIMAL.ln(decimal(x)))


def exp(x: Fraction) -> Fraction:
    return Fraction(DECIMAL.exp(decimal(x)))


def power(x: Fraction, n: int) -> Fraction:
    return exp(ln(x) / n) * (1 - MARGIN) if x > 0 else Fraction(0)  # x^(1/n)


def cholesky(M: Rows) -> tuple[Rows | None, list[float]]:  # (L, []), or (None, v) with v^T M v <= 0, in floats
    L: Rows = []
    for i, row in enumerate(M):
        L.append([])
        for j in range(i):
            L[i].append((row[j] - dot(L[i], L[j])) / L[j][j])
        if not 0.0 < (pivot := row[i] - dot(L[i], L[i])) < math.inf:
            v = [-x for x in L[i]]
            for j in range(i - 1, -1, -1):
                w = v[j] / L[j][j]
                v[: j + 1] = [*(x - y * w for x, y in zip(v[:j], L[j])), w]
            return None, [*v, 1.0, *[0.0] * (len(M) - i - 1)]
        L[i].append(math.sqrt(pivot))
    return L, []


def shortfall(M: Rows, one: int) -> Fraction | None:  # d with M + d one I >= 0, by the exact M / one - L L^T, or None
    if (L := cholesky(over(M, one))[0]) is None:
        return None
    rows = [[round(x * 2.0**60) for x in row] for row in L]  # shorter ones end with zeros
    off = (sum(abs((x << 120) - one * y) for x, y in zip(*both)) for both in zip(M, gram(rows, rows)))
    return Fraction(max(off, default=0), one << 120)


def top(M: Rows) -> Any:  # a bound on the largest eigenvalue of a positive semi-definite M, about 1e-12 above it
    need(len(M) <= 600, "this check takes too long for matrices of more than 600 columns", UNCHECKED)
    common, trace = math.lcm(*(x.denominator for row in M for x in row)), sum(row[i] for i, row in enumerate(M))
    if not trace:
        return Fraction(0)
    A, one = [[int(x * common) << 60 for x in row] for row in M], int(trace * common)
    value = lanczos(over(A, one << 60))
    for guess in (math.ceil(value * (1.0 + margin) * 2.0**60) for margin in (1e-12, 1e-10, 1e-8)):
        if (lost := shortfall(plus(unit(len(M), one * guess), A, -1), one << 60)) is not None:
            return trace * (Fraction(guess, 1 << 60) + lost)
    return trace


def lanczos(A: Rows) -> float:  # the largest eigenvalue of a positive semi-definite A, in floats
    Q, a, b, v = [], [], [], [math.sin(i * i + 1.0) for i in range(len(A))]
    value, size = 0.0, math.hypot(*v)
    while len(Q) < len(A) and size > 1e-14 * value:
        Q.append([x / size for x in v])
        v = [dot(row, Q[-1]) for row in A]
        a.append(dot(v, Q[-1]))
        for u in Q + Q:
            t = dot(u, v)
            v = [x - t * y for x, y in zip(v, u)]
        size = math.hypot(*v)
        b.append(size * size)
        if len(Q) % 10 == 0 or len(Q) == len(A) or size <= 1e-14 * value:
            low, high = value, sum(a)
            for _ in range(80):  # t is above all eigenvalues of the tridiagonal matrix if all its pivots are positive
                t, pivot, square = 0.5 * (low + high), 1.0, 0.0
                for x, y in zip(a, b):
                    pivot = t - x - square / pivot
                    square = y
                    if pivot <= 0.0:
                        break
                low, high = (t, high) if pivot <= 0.0 else (low, t)
            if high <= value * (1.0 + 1e-15):
                break
            value = high
    return value


def eigen(S: Rows) -> tuple[list[float], Rows]:  # eigenvalues, eigenvectors in rows, by Jacobi's rotations in floats
    A, V, n = [[*map(float, row)] for row in S], unit(len(S), 1.0), len(S)
    for p, q in [pair for _ in range(10) for pair in combinations(range(n), 2)]:
        angle = 0.5 * math.atan2(2.0 * A[p][q], A[q][q] - A[p][p])
        c, s = math.cos(angle), math.sin(angle)
        for B in (A, V):
            B[p], B[q] = [c * x - s * y for x, y in zip(B[p], B[q])], [s * x + c * y for x, y in zip(B[p], B[q])]
        for row in A:
            row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
    return [A[a][a] for a in range(n)], V


def below_root(x: Fraction) -> Fraction:
    return x / (root(x) or 1)  # sqrt(x) from below, to about 100 bits


def squares(A: Any, unit: Any) -> Rows:  # A^T A / unit, of whole numbers
    return [[Fraction(x, unit) for x in row] for row in gram(turned(A), turned(A))]


def singular(M: Rows) -> list[Fraction]:
    """Lower bounds on the roots of the eigenvalues of a positive semi-definite M, in falling order.

    For any V, lambda_i(M) >= lambda_i(V M V^T) / |V V^T|_op, and for V M V^T = S (I + E) S with a diagonal S it is at
    least (1 - |E|_op) S_ii^2 / |V V^T|_op (Ostrowski, twice). Jacobi's rotations V, thrice, make E small, also where
    S_ii is. Rows with next to nothing on the diagonal are left out (Cauchy)."""
    stretch, common = Fraction(1), math.lcm(*(x.denominator for row in M for x in row))
    A = [[int(x * common) for x in row] for row in M]
    for _ in range(3):
        most = max((row[i] for i, row in enumerate(A)), default=0) or 1
        V = [[round(x * 2.0**60) for x in row] for row in eigen(over(A, most))[1]]
        A, stretch = gram(gram(V, A), V), stretch * max((sum(map(abs, row)) for row in gram(V, V)), default=1)
        most = max((row[i] for i, row in enumerate(A)), default=0)
        J = [i for i, row in enumerate(A) if row[i] << 100 > most]
        A = [[A[i][j] for j in J] for i in J]
    d, n = [row[i] for i, row in enumerate(A)], len(A)
    rests = (sum(Fraction(abs(A[i][j]), math.isqrt(d[i] * d[j])) for j in range(n) if j != i) for i in range(n))
    factor = max(1 - max(rests, default=Fraction(0)), Fraction(0)) / stretch / common
    return sorted((below_root(x * factor) for x in d), reverse=True)


def solved(G: Rows, R: Rows) -> Rows:  # G^-1 R, of a positive definite G, exactly
    rows = [[*map(Fraction, g), *r] for g, r in zip(G, R)]
    for k in range(len(G)):
        head = [x / rows[k][k] for x in rows[k]]
        rows = [head if i == k else [x - row[k] * h for x, h in zip(row, head)] for i, row in enumerate(rows)]
    return [row[len(G) :] for row in rows]


# ---- Copositive matrices.


def pivots(M: Rows) -> tuple[list[int], bool]:  # J with M_J > 0, and whether M is semi-definite of rank |J| (Bareiss)
    M, remaining, J, last = [*M], [*range(len(M))], [], 1
    while remaining and (head := M[k := max(remaining, key=lambda i: M[i][i])])[k] > 0:
        J.append(k)
        remaining.remove(k)
        for i in remaining:
            M[i] = [(a * head[k] - M[i][k] * b) // last for a, b in zip(M[i], head)]
        last = head[k]
    return J, not any(M[i][j] for i in remaining for j in remaining)


def copositive(M: Rows, end: float = math.inf) -> bool:
    """Return True if x^T M x >= 0 for all x >= 0.

    A tree over the least support S of a violation, all exact: nodes have I <= S <= I + R, M_I > 0, P = M_I^-1 M_IR and
    B = M_RR - M_RI P, times |M_I|; x_I = -P x_R. If B_rr < 0, S = I + r; if B_rr = 0, S = I + r + s, B_rs < 0. No S
    holds r if all B_rs >= 0. No S remains if P has a row >= 0, or if B > 0 without its positive entries off the
    diagonal: until that is so, one r after the other is taken in, then out."""
    stack: list[tuple[Rows, Rows, int]] = [([], M, 1)]
    while stack:
        (P, B, last), _ = stack.pop(), in_time(end)
        for r, (row, *column) in enumerate(zip(B, *P)):
            if row[r] < 0 and max(column, default=0) <= 0:
                return False
            for s in [s for s, t in enumerate(row) if t < 0 == row[r]]:
                if between([(2 * row[s], B[s][s]), *((p[r], p[s]) for p in P)]):
                    return False
        R = [r for r, row in enumerate(B) if row[r] > 0]
        while (some := [r for r in R if min(B[r][s] for s in R) < 0]) != R:
            R = some
        if not R or any(min(p[r] for r in R) >= 0 for p in P):
            continue
        bits = [row[r].bit_length() // 2 for r, row in enumerate(B)]
        while R and len(pivots([[min(B[r][s], B[r][r] * (r == s)) for s in R] for r in R])[0]) < len(R):
            R.remove(k := min(R, key=lambda r: sum(B[r][s] / (1 << bits[r] + bits[s]) for s in R)))
            rows = [[(p[s] * B[k][k] - p[k] * B[k][s]) // last for s in R] for p in [*P, *(B[r] for r in R)]]
            stack.append(([*rows[: len(P)], [B[k][s] for s in R]], rows[len(P) :], B[k][k]))
    return True


def between(lines: list[tuple[int, int]]) -> bool:  # whether a t + b < 0 for all (a, b) and some t > 0
    low = max([Fraction(0), *(Fraction(-b, a) for a, b in lines if a < 0)])
    high = min((Fraction(-b, a) for a, b in lines if a > 0), default=math.inf)
    return low < high and all(a or b < 0 for a, b in lines)


# ---- The files of a solve, its cost, and the dual bound of two layers.


def covariance(rows: Any, shares: list[Fraction], centred: bool) -> Rows:  # sum_i q_i x_i x_i^T, or of x_i - mean
    (X, e), common = scaled(rows), math.lcm(*(q.denominator for q in shares))
    weighed = [[q.numerator * (common // q.denominator) * x for q, x in zip(shares, column)] for column in zip(*X)]
    total, sums = int(sum(shares) * common), [sum(column) * centred for column in weighed]
    unit, both = (common * total) << 2 * e, zip(gram(weighed, turned(X)), sums)
    return [[Fraction(x * total - s * t, unit) for x, t in zip(row, sums)] for row, s in both]


def finite(arrays: Any, name: str, dimensions: int, columns: int | None = None, kinds: str = "fiu") -> Any:
    a: Any = arrays.get(name, np.empty(()))
    good = a.ndim == dimensions and a.dtype.kind in kinds and np.isfinite(a).all() and columns in (None, a.shape[-1])
    need(good, f"there is no finite array {name} of the right shape", UNREAD)
    return a if kinds == "iu" else a.astype(np.float64)


def array(arrays: Any, name: str, dimensions: int, columns: int | None = None, kinds: str = "fiu") -> Any:
    return finite(arrays, name, dimensions, columns, kinds).tolist()  # a finite array as lists of Python numbers


def single(arrays: Any, name: str, kinds: str) -> Any:  # the one entry of an array as a Python number or text
    a: Any = arrays.get(name, np.empty(0))
    need(a.size == 1 and a.dtype.kind in kinds, f"there is no single {name} of the right type", UNREAD)
    return a.item()


def number(x: object, types: Any = (int, float)) -> bool:
    return x is None or type(x) in types  # true is no number


def agree(a: Any, b: Any) -> bool:  # the same, and of the same type but for 1 and 1.0
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(agree, a, b))
    return a == b and (type(a) is type(b) or {type(a), type(b)} == {int, float})


def opened(p: Path) -> Any:
    return need(p.is_file(), "no such file", UNREAD) or dict(np.load(p, allow_pickle=False))


class Run:  # the files of a solve: result.json as `stated`, the problem and the network in Python numbers
    def __init__(self, directory: Path) -> None:
        self.stated = json.loads((directory / "result.json").read_text(encoding="utf-8"))
        problem, network, self.certificate = (opened(directory / f"{k}.npz") for k in FILES.split())
        self.X, self.Y = array(problem, "X", 2), array(problem, "Y", 2)
        self.N, self.m, n = len(self.X), len(self.Y[0]), len(self.X[0])
        self.loss, self.activation, self.depth, self.bias, lam = (single(problem, k, t) for k, t in ASKED.items())
        self.fits, self.free, name = self.loss == "interpolate", self.bias == "free", str(self.activation)
        self.skip = "skip" in problem and single(problem, "skip", "b")
        need(self.free or not (self.skip or isinstance(self.bias, str)), "the bias or the skip is unknown", UNREAD)
        need(name in ("relu", "linear") or name.startswith("leaky:"), f"the activation {name} is unknown", UNREAD)
        self.lam, self.beta = Fraction(1 if self.fits else lam), Fraction(1 if self.free else self.bias)
        self.slope = Fraction(float({"relu": "0", "linear": "1"}.get(name) or name.removeprefix("leaky:")))
        good = len(self.Y) == self.N and self.depth >= 2 and self.lam > 0 and self.beta >= 0 and -1 < self.slope <= 1
        good &= not self.fits or lam == 1  # which stands for none
        self.weighted, self.delta = "weights" in problem, None
        weights = array(problem, "weights", 1) if self.weighted and not self.fits else [1.0] * self.N
        self.q = [Fraction(w) / total for total in [sum(map(Fraction, weights))] for w in weights]
        if self.loss == "cross_entropy":
            good &= all(min(row) >= 0 and abs(sum(row) - 1) < 1e-5 for row in self.Y)
        if self.loss == "cross_entropy":
            self.Y = [[Fraction(y) / sum(map(Fraction, r)) for y in r] for r in self.Y]
        if self.loss == "logistic":
            good &= all(row in ([1.0], [-1.0]) for row in self.Y)
        huber = "1" if self.loss == "huber" else self.loss.removeprefix("huber:")
        if huber != self.loss:
            self.delta = Fraction(float(huber))
        good &= self.delta is None or self.delta > 0
        need(good and len(weights) == self.N and min(weights) > 0, "problem.npz asks no question of covopt", UNREAD)
        self.W: list[Any] = []
        for k in range(self.depth):
            into = 1 + (len(self.W[-1]) if k else n) + n * (self.skip and k == self.depth - 1)
            self.W.append(array(network, f"W{k + 1}", 2, into))
        need(len(self.W[-1]) == self.m, "the network has another number of outputs than the targets", UNREAD)
        self.largest = max(Fraction(abs(y)) for row in self.Y for y in row)
        self.misfit = self.largest * Fraction(1e-10 if self.depth == 2 else 1e-7) if self.fits else Fraction(0)

    def cost(self) -> dict[str, tuple[Fraction, Fraction]]:  # intervals for the fit, norm, cost and residual
        (Z, e), (num, den) = (X, first), _ = scaled(self.X), self.slope.as_integer_ratio()
        for layer, W in enumerate(self.W):
            if layer:
                Z, e = [[z * (den if z > 0 else num) for z in row] for row in Z], e + den.bit_length() - 1
            (weights, shift), bits = scaled(W), self.beta.denominator.bit_length() - 1
            up, bias = max(0, bits - e), self.beta.numerator << max(0, e - bits)
            if self.skip and layer == self.depth - 1:
                Z = [[*z, *(t << e - first for t in x)] for z, x in zip(Z, X)]
            Z, e = gram([[*(z << up for z in row), bias] for row in Z], weights), e + up + shift
        F = [[Fraction(z, 1 << e) for z in row] for row in Z]
        fit = sum((q * self.loss_of(f, y) for q, f, y in zip(self.q, F, self.Y)), Fraction(0))
        margin = MARGIN * (9 + max(abs(f) for row in F for f in row)) * self.m**2 * (self.loss in ENTROPIES)
        inputs = [len(self.X[0]), *map(len, self.W)]
        layers = [scaled([w[:n] for w in W] if self.free else W) for n, W in zip(inputs, self.W)]
        norm = sum((Fraction(sum(dot(r, r) for r in rows), 4**e) for rows, e in layers), Fraction(0))
        residual = max(abs(a - Fraction(b)) for f, y in zip(F, self.Y) for a, b in zip(f, y))
        values = ("cost", fit + self.lam * norm), ("fit", fit), ("norm", norm), ("residual", residual)
        return {name: (value - margin, value + margin) for name, value in values}

    def loss_of(self, f: list[Fraction], y: Any) -> Any:  # of one sample
        r = [a - Fraction(b) for a, b in zip(f, y)]
        if self.fits or self.loss == "mse":
            return dot(r, r) * (not self.fits)
        if self.delta is not None:
            return sum(p * (abs(x) - p / 2) for x in r for p in [min(abs(x), self.delta)])
        need(self.loss in ENTROPIES, f"the loss {self.loss} is not known here", UNCHECKED)
        margins = [Fraction(0), -Fraction(y[0]) * f[0]] if self.loss == "logistic" else [x - dot(f, y) for x in f]
        return max(margins) + ln(sum((exp(x - max(margins)) for x in margins), Fraction(0)))

    def dual(self, point: Any, t: Fraction) -> Fraction:  # D(t Lambda) from below, V = 2 lam t Lambda (MATH.md 4)
        sums = [t * sum(column) for column in zip(*point)]
        need(not self.free or not any(sums), "a bound for free biases needs a Lambda with columns of sum 0")
        return self.conjugate(over(point, 1 / (2 * self.lam * t))) - self.lam * self.beta**2 * dot(sums, sums)

    def conjugate(self, V: Any) -> Fraction:  # -C*(-V) from below
        total = Fraction(0)
        for v, y, q in zip(V, self.Y, self.q):
            if self.fits or self.loss == "mse" or self.delta is not None:
                need(self.delta is None or max(map(abs, v)) <= q * self.delta, "Lambda is outside the domain of C*")
                total += sum(a * Fraction(b) - self.misfit * abs(a) for a, b in zip(v, y))
                total -= 0 if self.fits else dot(v, v) / ((4 if self.loss == "mse" else 2) * q)
                continue
            p = [Fraction(b) - a / q for a, b in zip(v, y)]
            if self.loss == "logistic":
                p = [Fraction(y[0]) * v[0] / q, 1 - Fraction(y[0]) * v[0] / q]
            need(min(p) >= 0 and sum(p) == 1, "Lambda is outside the domain of C*")
            total -= q * (sum(x * ln(x) for x in p if x) + 2 * MARGIN * len(p))
        return total

    def point(self) -> Rows:  # Lambda, orthogonal to 1 for free biases and X for a skip; in cross-entropy rows of sum 0
        point: Any = [[Fraction(x) for x in row] for row in array(self.certificate, "Lambda", 2, self.m)]
        need(len(point) == self.N, "Lambda has another shape than Y", UNREAD)
        free = [[1] * self.N] * self.free + turned(self.X) * self.skip
        columns = [list(map(Fraction, column)) for column in [*free, *turned(point)]]
        for k, u in enumerate(columns[: len(free)], start=1):  # Gram and Schmidt, exactly
            for v in columns[k:] * any(u):
                v[:] = [x - t * y for t in [dot(u, v) / dot(u, u)] for x, y in zip(v, u)]
        point = [list(row) for row in turned(columns[len(free) :])]
        for row, y in zip(point, self.Y if self.loss == "cross_entropy" else []):
            row[:] = [min(x, Fraction(0)) if y[c] == 0 else x for c, x in enumerate(row)]
            row[y.index(max(y))] -= sum(row)
        return point


# ---- The maximum of h over all directions, by cones (MATH.md 4).


def orthonormal(rows: Rows, tiny: float) -> tuple[Rows, Rows]:  # Q = T rows, without those within tiny of others' span
    Q, T = [], []
    for place, row in enumerate(rows):
        v, t, length = row, [float(j == place) for j in range(len(rows))], 1.0
        for again in range(3):
            for u, s in zip(Q, T):
                part = dot(u, v)
                v, t = [x - part * y for x, y in zip(v, u)], [x - part * y for x, y in zip(t, s)]
            if (length := math.hypot(*v)) <= (0.5 if again else tiny):
                break
            v, t = [x / length for x in v], [x / length for x in t]
        else:
            Q, T = [*Q, v], [*T, t]
    return Q, T


class Frame:
    """The dual point in fixed point, in a nearly orthonormal basis Q of the rows.

    h(w) <= unity (stretch gauge |Gamma^T sigma(R q)| + slack), |q| <= 1, for |w| = 1 and q = Q w. Here x_i = s_i R_i Q
    + a remainder, and Gamma_i = s_i lambda_i. As sigma is 1-Lipschitz, the slack is |Lambda|_F |remainder of X|_F and
    |rounding of Gamma|_F |R|_F."""

    def __init__(self, X: Rows, e: int, point: Any, tiny: float = 1e-13, most: int = 0) -> None:
        bits = max(abs(x) for row in X for x in row).bit_length() or 1
        half, unity = 1 << (bits - 1), Fraction(2) ** (bits - 1 - e)
        rows = over(X, half)
        sizes, lost = [math.hypot(*row) for row in rows], Fraction(0)
        self.Q = orthonormal(pivoted(rows, most) if most else rows, tiny * max(sizes))[0]
        self.s = [s * (s > 1e-12 * max(sizes)) for s in sizes]
        basis = [[round(x * 2.0**GBITS) for x in v] for v in self.Q]
        self.R = [[round(dot(row, v) / s * 2.0**RBITS) if s else 0 for v in self.Q] for row, s in zip(rows, self.s)]
        for row, R, s in zip(X, self.R, self.s):
            (n, d), columns = s.as_integer_ratio(), zip(row, turned(basis) or [()] * len(row))
            off = [(x * d << (RBITS + GBITS)) - half * n * dot(R, c) for x, c in columns]
            lost += Fraction(dot(off, off), (half * d << (RBITS + GBITS)) ** 2)
        off = plus(gram(basis, basis), unit(len(basis), 1 << 2 * GBITS), -1)
        stretch = 1 + Fraction(sum(abs(x) for row in off for x in row), 1 << 2 * GBITS)
        weighed = [[Fraction(s) * x for x in row] for s, row in zip(self.s, point)]
        most = max(abs(x) for row in weighed for x in row)
        self.gauge = Fraction(2) ** (most.numerator.bit_length() - most.denominator.bit_length())
        self.gamma = [[round(x / self.gauge * 2**GBITS) for x in row] for row in weighed]
        self.unity, self.stretch, self.lost = unity, stretch, root(lost)
        slack = self.lost * size(point) + self.gauge * (len(X) * len(point[0]) + 1) / 2**GBITS
        self.inside = lambda target: (target / unity - slack) / stretch / self.gauge  # what |Gamma^T sigma(R q)| may be


def below(frame: Frame, target: Fraction, slope: Fraction, deadline: float) -> bool:
    """Return True if |Gamma^T sigma(R q)| <= target |q| for every q.

    The tree has cones of generators v_j, cut where a sample vanishes. In a cone, q = sum theta_j v_j, a sample of both
    signs is below its chord by a gap in [0, sum theta_j g_ij]. With c_j the chords less half of the gaps and s_j half
    of the sum of |gamma_i| g_ij, h <= |sum theta_j c_j| + sum theta_j s_j, at most target |q| if
    target^2 V V^T - (1 + eps) (C C^T + s s^T / eps) is copositive."""
    target, num, den, k = frame.inside(target), slope.numerator, slope.denominator, max(2, len(frame.Q))
    columns, kink, size = turned(frame.gamma), den - num, [math.isqrt(dot(g, g)) + 1 for g in frame.gamma]
    if target <= 0 or target * 2**GBITS > 2 * sum(size):
        return target > 0
    square = math.floor(target**2 * den**2 * 4 ** (RBITS + GBITS))

    def vertex(v: list[int], x: list[int]) -> tuple[Any, ...]:  # v, x = R v, Gamma^T sigma(x), bits, float x, |v|^2
        s, bits = [t * (den if t > 0 else num) for t in x], max(map(abs, v)).bit_length()
        return v, x, [dot(c, s) for c in columns], bits, [t / (1 << bits) for t in x], dot(v, v)

    axes = [[vertex(unit(k, t)[a], [t * r[a] if r[a:] else 0 for r in frame.R]) for t in (1, -1)] for a in range(k)]
    stack, new = [list(cone) for cone in product(*axes)], [v for ends in axes for v in ends]
    while stack:
        if any(dot(v[2], v[2]) > square * v[5] for v in new):
            return False  # a direction above the target
        cone, mixed, new, _ = stack.pop(), [], [], in_time(deadline)
        for i, xs in enumerate(zip(*(v[1] for v in cone))):
            if min(xs) < 0 < max(xs):
                high, low = sum(max(v[4][i], 0.0) for v in cone), -sum(min(v[4][i], 0.0) for v in cone)
                mixed.append((size[i] * min(high, low), i, high <= low))
        if decided(cone, mixed, frame.gamma, size, kink, square):
            continue
        harm, i, _ = max(mixed, default=(0.0, 0, True))
        if harm * kink > 1e-13 * math.sqrt(square):
            xs = [v[4][i] for v in cone]
            j, k = xs.index(max(xs)), xs.index(min(xs))
            p, q = -cone[k][1][i], cone[j][1][i]
        else:  # the longest edge
            both = combinations(enumerate(cone), 2)
            _, j, k = min((dot(u[0], v[0]) / math.isqrt(u[5] * v[5]), j, k) for (j, u), (k, v) in both)
            p, q = 1 << cone[k][3], 1 << cone[j][3]
        cut, other = max(0, p.bit_length() - 40), max(0, q.bit_length() - 40)
        p, q = p >> cut << max(0, cut - other), q >> other << max(0, other - cut)
        new = [vertex(*([p * x + q * y for x, y in zip(cone[j][part], cone[k][part])] for part in (0, 1)))]
        stack += [[new[0] if place == at else v for place, v in enumerate(cone)] for at in (j, k)]
    return True


def decided(cone: Any, mixed: Any, gamma: Any, size: Any, kink: int, square: int) -> bool:
    terms, z = [], 0  # for c and s of `below` doubled, and entries rounded down to 100 bits
    for v, x, g, bits, *_ in cone:
        c, s = [2 * t for t in g], 0
        for _, i, positive in mixed:
            gap = (x[i] if positive else -x[i]) * kink
            if gap > 0:
                c, s = [a - y * gap for a, y in zip(c, gamma[i])], s + size[i] * gap
        terms.append((v, bits, c, s))
    slacks = [s / (1 << bits) for _, bits, _, s in terms if s]
    if slacks:  # eps = 2^-z
        ratio = max(math.isqrt(dot(c, c)) / (1 << bits) for _, bits, c, _ in terms) / max(1e-200, *slacks)
        z = round(math.log2(min(max(ratio, 1.0), 2.0**80)))
    factor, common = (1 << z) + bool(slacks), 2 * (RBITS + GBITS) + z - 100
    return copositive(
        [
            [
                (4 * square * dot(u, v) << z) - factor * (dot(c, d) + (s * t << z)) >> common + a + b
                for v, b, d, t in terms
            ]
            for u, a, c, s in terms
        ]
    )


# ---- The same by relaxations: on pieces of the sphere, and with multipliers that groups share (MATH.md 4).


def piece(frame: Frame, tau: Any, slope: Fraction, states: Any, cuts: Any, values: Any, interval: Any) -> bool:
    """Check the doubly non-negative relaxation on the piece with these states and walls.

    On this piece of the sphere, with walls a^T w >= 0, y = (p, n, a^T w) >= 0, p, n = (R w)_+-, p_i n_i = 0. With
    Pi >= 0 but at the pairs (p_i, n_i), h^2 <= tau |w|^2 if u^T S u = tau |w|^2 - h^2 - y^T Pi y is semi-definite in
    u = (w, the p without a sign). For ReLU a maximiser lies in the span V of the rows that are >= 0 there,
    w = sum g_i R_i, and is stationary (MATH.md 4): with (f0, f1) = `interval`, f0 <= h^2 <= f1, and
    a = Gamma Gamma^T p / f0, rows g, a - g and f1 / f0 g - a."""
    k, N, num, den = len(frame.Q), len(states), slope.numerator, slope.denominator
    rows_kept = sorted((i for i, s in enumerate(states) if s >= 0 and any(frame.R[i])), key=lambda i: states[i] != KINK)
    span, full, bits, V = [frame.R[i] for i in rows_kept], 1 << 2 * (RBITS + 30), 0, unit(k)
    T = [[round(x * 2.0**30) for x in row] for row in orthonormal(over(span, 2.0**RBITS), 1e-5)[1]]
    W = gram(T, turned(span))
    off = sum(abs(x) for row in plus(gram(W, W), unit(len(T), full), -1) for x in row)
    if slope == 0 and 0 < len(T) == len(rows_kept) <= k and 100 * off < full:
        bits, V = RBITS + 30, W
    states, interval = (states, interval) if bits else ([min(s, 1) for s in states], 0)
    one, gauge, loose = 1 << RBITS + bits, 2.0**GBITS / float(frame.gauge) ** 2, [i for i in range(N) if not states[i]]
    Z = [row + [0] * len(loose) for row in gram([*frame.R, *cuts], V)]
    P = [[z * (s in (1, STRICT)) for z in row] for row, s in zip(Z, states)]
    for a, i in enumerate(loose, start=len(V)):
        P[i][a] = one
    M = plus(P, Z, -1)
    H = gram(turned(plus([[den * p for p in row] for row in P], M, -num)), turned(frame.gamma))
    y = [(t, i, A[i]) for t, A, fit in ((0, P, (0, 1, STRICT)), (1, M, (0, -1))) for i in range(N) if states[i] in fit]
    if interval:
        g = [[t << 2 * RBITS for t in row] + [0] * len(loose) for row in turned(T)]
        dual = [[(dot(frame.gamma[i], h) << 60) // (interval[0] << 2 * GBITS) for h in H] for i in rows_kept]
        signed = [(i, 1 - 2 * (states[i] == KINK), *rows) for i, *rows in zip(rows_kept, g, plus(dual, g, -1))]
        y += [(kind, i, [t * x for x in rows[kind - 2]]) for kind in (2, 3) for i, t, *rows in signed]
        ends = ((i, *both) for i, *both in zip(rows_kept, g, dual) if states[i] == STRICT)
        y += [(4, i, [interval[1] * t // interval[0] - r for t, r in zip(*both)]) for i, *both in ends]
    y += [(5, j, row) for j, row in enumerate(Z[N:])]
    Pi, K = unit(len(y), 0), unit(len(y), 0)
    for (a, (p, i, _)), (b, (q, j, _)) in combinations_with_replacement(enumerate(y), 2):
        pair = (p, q) if i == j and max(p, q) < 5 else None
        free = pair in ((0, 1), (1, 2)) and states[i] == 0
        firm = all(kind in (0, 1, 5) or (kind < 4 and states[s] == KINK) for kind, s in ((p, i), (q, j)))
        if free or firm or pair == (2, 3) or (pair in ((3, 4), (2, 4), (2, 2)) and states[i] == STRICT):
            need((value := next(values, math.nan)) == value, "the stored multipliers are incomplete")
            Pi[a][b] = Pi[b][a] = round(value * gauge) * den * den if value > 0.0 or free else 0
            K[a][b] = K[b][a] = int(pair == (0, 1))
    rows = turned([row for *_, row in y])
    K, S = gram(rows, gram(rows, K)), plus(gram(H, H), gram(rows, gram(rows, Pi)), 1 << GBITS)
    tau, whole = tau * (1 - Fraction(1, 2**36)) * den * den, one * one << 2 * GBITS
    norm = [row + [0] * len(loose) for row in gram(V, V)] + [[0] * len(rows) for _ in loose]
    S = plus(plus(unit(len(rows), 0), S, -1), norm, math.floor(tau * 4 ** (RBITS + GBITS)))
    kinks = [z for z, s in zip(Z, states) if s == KINK]
    S, K = without(S, kinks, one, whole, float(tau)), without(K, kinks, one, one * one, 0.0)
    c = round(shift(over(S, whole), over(K, one * one)) * 2.0**60)  # u^T K u is twice the sum of p_i n_i
    lost, most = shortfall(plus(S, K, c << 2 * GBITS - 60), whole), 1 + max(sum(map(abs, row)) for *_, row in y)
    off = Fraction(sum(abs(x) for row in Pi for x in row) * 4 * len(rows) * most << GBITS, whole) if interval else 0
    return lost is not None and (lost + off) * (2 + 2 * len(loose)) <= tau / 2**36


def without(S: Any, Z: Any, one: int, whole: int, much: float) -> Any:  # the same where Z u = 0: S + Z^T L + L^T Z
    if not Z:
        return S
    (Q, T), half = orthonormal(over(Z, one), 1e-9), 0.5 * float(whole // one)
    QS = gram(Q, over(S, whole))
    L = gram(turned(T), turned(plus(gram(plus(gram(QS, Q), unit(len(Q), much)), turned(Q)), plus(QS, QS), -1)))
    Z, L = turned(Z), turned([round(half * x) for x in row] for row in L)
    return plus(plus(S, gram(Z, L)), gram(L, Z))


def shift(S: Rows, K: Rows) -> float:  # c with which S + c K seems positive: v tells on which side of a c it lies
    low, high, c = 0.0, math.inf, 0.0
    for _ in range(80):
        L, v = cholesky(plus(S, K, c))
        slope, value = dot(v, [dot(row, v) for row in K]), dot(v, [dot(row, v) for row in S])
        if slope > 0.0:
            low = max(low, c, -value / slope)
        elif v:
            high = min(high, c, -value / slope if slope < 0.0 else 0.0)
        if L or not low < high:
            break
        c = min(4.0 * low + 1e-9 * abs(S[-1][-1]), max(0.1 * high, 0.5 * (low + high) if low else 0.0))
    return c


def relaxation(run: Run, frame: Frame, goal: Fraction, deadline: float) -> int:  # a stage proves the f1 of the next
    tau, N, stored = frame.inside(goal), run.N, run.certificate
    values, tops = iter(array(stored, "values", 1, None, "f")), array(stored, "heights", 1, None, "f")
    nodes = iter(list(zip(*(array(stored, name, 1, None, "iu") for name in ("splits", "stages")), strict=True)))
    walls = ([round(dot(a, q) * 2.0**RBITS) for q in frame.Q] for a in array(stored, "walls", 2, len(run.X[0]) + 1))
    f, tau, last = [math.ceil((Fraction(x) / frame.gauge) ** 2 * 2**60) for x in tops], max(tau, 0) ** 2, len(tops)
    need(last and f[1:] == sorted(f[1:], reverse=True) and (last < 2 or 0 < f[0] <= tau * 2**60), "the heights are off")

    def leaves(states: list[int], cuts: list[list[int]], made: int) -> int:
        (split, stage), _ = next(nodes, (N, 0)), in_time(deadline)
        good = -2 <= split < N and (stage == last if split == -1 else made <= stage < last)
        need(good and (split < 0 or states[split] in SIDES), "the stored splits form no tree")
        interval, least = made and (f[0], f[made]), tau if stage == last else Fraction(f[stage], 2**60)
        good = stage == made or (least > 0 and piece(frame, least, run.slope, states, cuts, values, interval))
        need(good, "the stored multipliers do not prove the maximum that the bound needs")
        if split == -2:
            return sum(leaves(states, [*cuts, a], stage) for w in [next(walls, [])] for a in (w, [-x for x in w]))
        if split == -1:
            return 1
        return sum(leaves([*states[:split], t, *states[split + 1 :]], cuts, stage) for t in SIDES[states[split]])

    count = leaves([0 if s else 1 for s in frame.s], [], 0)
    need([*nodes, *values, *walls] == [], "the stored multipliers do not fit their tree")
    return count


def grouped(run: Run, frame: Frame, point: Rows, goal: Fraction) -> bool:
    """Check multipliers c of samples and M of groups, the columns of A (MATH.md 4, way 5): h^2 <= tau |w|^2.

    With z = R w, q = |z| / 2 and L = ((1 - slope) Gamma, A), h^2 <= w^T T w + 2 q^T L J w + q^T L D L^T q - q^T C q.
    For u = L^T q, q^T C q >= u^T W^-1 u >= |v|^2, where W = L^T C^-1 L <= K K^T and u = K v. It is enough that
    tau |w|^2 - w^T T w - 2 v^T K^T J w + |v|^2 - v^T K^T D K v is semi-definite in (w, v). Any c > 0, M >= 0 do."""
    c, labels = array(run.certificate, "diagonal", 1), array(run.certificate, "labels", 1, None, "iu")
    shared, target = array(run.certificate, "shared", 3), frame.inside(goal)
    good = len(shared) == 3 and len(shared[0]) == len(shared[0][0]) and len(c) == len(labels) == run.N
    k = len(shared[0]) if good else 0
    need(good and min(c) > 0 and all(0 <= g < k for g in labels), "the stored multipliers do not fit the samples")
    need(k + run.m + len(frame.Q) <= 400, "it takes too long beyond 400 groups, outputs and inputs", UNCHECKED)
    used, longest = [i for i, s in enumerate(frame.s) if s], max(abs(x) for row in point for x in row)
    if target <= 0 or not used:
        return target > 0
    square = (Fraction(2) ** (math.frexp(float(longest))[1] - 1) / frame.gauge) ** 2  # c, M are for a Lambda of size 1
    # M as multiples of a small number, and the three sums of the form in q and z.
    unit_ = Fraction(max(1e-300, *(x for part in shared for row in part for x in row))) / 2**70
    pp, nn, pn = ([[max(round(Fraction(x) / unit_), 0) * unit_ * square for x in row] for row in M] for M in shared)
    pp, nn, cross = over(plus(pp, turned(pp)), 2), over(plus(nn, turned(nn)), 2), plus(pn, turned(pn))
    even, odd = plus(plus(pp, nn), cross), plus(plus(pp, nn), cross, -1)
    mixed = plus(plus(pp, nn, -1), plus(turned(pn), pn, -1))
    # C, its inverse from above, and the rows of Gamma, R and A, of the samples that are not 0.
    C = [Fraction(c[i]) * Fraction(frame.s[i]) ** 2 * square for i in used]
    inverse = [Fraction(1.0 / float(x)) * (1 + Fraction(1, 2**50)) for x in C]
    need(all(x * y >= 1 for x, y in zip(C, inverse)), "the stored multipliers are not in range")
    Gamma = over([frame.gamma[i] for i in used], Fraction(2**GBITS))
    R, members = over([frame.R[i] for i in used], Fraction(2**RBITS)), [labels[i] for i in used]
    A = [Fraction(frame.s[i]) for i in used]

    def summed(rows: Rows) -> Rows:  # A^T rows
        sums = [[Fraction(0)] * len(rows[0]) for _ in range(k)]
        for g, a, row in zip(members, A, rows):
            sums[g] = [x + a * y for x, y in zip(sums[g], row)]
        return sums

    bent = over(Gamma, 1 / (1 - run.slope))
    weighed = [[t * x for x in row] for t, row in zip(inverse, bent)]
    corner, sides = gram(turned(weighed), turned(bent)), summed(weighed)
    W = [[*row, *column] for row, column in zip(corner, turned(sides))]
    squares_ = [row[0] for row in summed([[t * a] for t, a in zip(inverse, A)])]
    W += [[*side, *row] for side, row in zip(sides, [[x * (g == j) for j in range(k)] for g, x in enumerate(squares_)])]
    out, B = over(gram(turned(Gamma), turned(R)), 1 / (1 + run.slope)), summed(R)
    J = over([*out, *gram(mixed, turned(B))], 2)
    T = gram(turned([[t * x for x in row] for t, row in zip(C, R)]), turned(R))
    T = over(plus(plus(T, gram(turned(out), turned(out))), gram(gram(turned(B), odd), turned(B))), 4)
    # Powers of two that bring W and tau near 1; K from floats, with K K^T - W dominated by its diagonal.
    n, rank = len(W), len(frame.Q)
    b = [Fraction(2) ** -round(0.5 * math.log2(float(row[i]))) if row[i] else Fraction(1) for i, row in enumerate(W)]
    W = [[x * s * t for x, t in zip(row, b)] for row, s in zip(W, b)]
    L = cholesky([[float(x) + (i == j) * n * 2.0**-49 for j, x in enumerate(row)] for i, row in enumerate(W)])[0]
    if L is None:
        return False
    K = [[round(x * 2.0**60) for x in row] + [0] * (n - len(row)) for row in L]
    above = plus(over(gram(K, K), Fraction(2**120)), W, -1)
    if not all(2 * row[i] >= sum(map(abs, row)) for i, row in enumerate(above)):
        return False
    D = [[Fraction(i == j) if j < run.m else Fraction(0) for j in range(n)] for i in range(run.m)]
    D += [[Fraction(0)] * run.m + row for row in even]
    D, d = scaled([[x / s / t for x, t in zip(row, b)] for row, s in zip(D, b)])
    J, e = scaled([[x / s for x in row] for row, s in zip(J, b)])
    f = Fraction(2) ** -round(math.log2(float(target)))
    core = over(gram(gram(turned(K), D), turned(K)), Fraction(1 << 120 + d))
    coupling = over(gram(turned(K), turned(J)), Fraction(1 << 60 + e) / f)
    S = plus(unit(rank, target**2 * f**2), over(T, 1 / f**2), -1)
    S = [[*row, *(-x for x in column)] for row, column in zip(S, turned(coupling))]
    S += [[*(-x for x in row), *rest] for row, rest in zip(coupling, plus(unit(n, Fraction(1)), core, -1))]
    small = Fraction(1, 2**42)
    S = [[round(x * 2**100) for x in row] for row in plus(S, unit(len(S), small), -1)]
    lost = shortfall(S, 1 << 100)
    return lost is not None and lost + Fraction(len(S), 1 << 100) <= small


# ---- A stored cp-rank (docs/completely-positive.md).


def has_factor(S: Rows, B: Rows, J: list[int]) -> bool:
    """Return True if S, semi-definite of rank |J|, is B'^T B' for a B' >= 0 near B, of its shape (Newton, Kantorovich).

    S = U^T M U with M = S_JJ, and C = B_J. If D -> C^T D + D^T C on the entries that may move has the least singular
    value s, and 4 off < s^2 with off = |M - C^T C|, a D with |D| <= 2 off / s has (C + D)^T (C + D) = M, and
    B' = (C + D) U. Where J is everything, zeros of B stay, and S must be 0 where no two positive entries meet; else all
    entries move."""
    if len(J) == len(S):
        C, U, r = B, unit(len(S), Fraction(1)), root(Fraction(1, 2))
        supports = [[i for i, x in enumerate(row) if x] for row in B]
        pairs = sorted({pair for support in supports for pair in combinations_with_replacement(support, 2)})
        if any(x for i, row in enumerate(S) for j, x in enumerate(row) if (min(i, j), max(i, j)) not in pairs):
            return False
        need(len(pairs) <= 200, "an exact factor takes too long to prove for so many entries", UNCHECKED)
        # The adjoint: twice the entries of B F that may move, for F = E_ii or r (E_ij + E_ji), r^2 just above 1 / 2.
        rows = []
        for i, j in pairs:
            t = 2 * r if i != j else Fraction(1)
            rows.append([t * (row[i] * (k == j) + row[j] * (k == i)) * (x > 0) for row in B for k, x in enumerate(row)])
        count, factor = len(pairs), 1 / (2 * r * r)
    else:
        C = [[row[j] for j in J] for row in B]
        U = solved([[S[i][j] for j in J] for i in J], [S[i] for i in J])
        rows, count, factor = turned(C), len(J), Fraction(4)
    values, M = singular(gram(rows, rows)), [[S[i][j] for j in J] for i in J] if len(J) < len(S) else S
    off = size(plus(M, gram(turned(C), turned(C)), -1))
    if len(values) < count or 4 * off >= values[-1] ** 2 * factor:
        return False
    radius = 2 * off / below_root(values[-1] ** 2 * factor)
    rooms = [radius * root(dot(column, column)) for column in turned(U)]
    return all(x >= t or (not x and len(J) == len(S)) for row in gram(C, turned(U)) for x, t in zip(row, rooms))


def completely_positive(directory: Path, s: Any, end: float) -> str:  # docs/completely-positive.md; why
    A, proof = array(opened(directory / "matrix.npz"), "A", 2), opened(directory / "proof.npz")
    (M, _), n, empty = scaled(A), s["order"], [s[name] is None for name in ("lower", "upper", "atoms", "residual")]
    typed = all(number(s[name], (int,)) for name in COUNTS) and number(s["residual"]) and number(s["separation"])
    typed &= type(s["exact"]) is bool and type(s["tolerance"]) is float and s["verdict"] in (CP, NOT, "undecided")
    need(typed, "an entry of cprank.json is of another type, or its verdict is unknown")
    need(None in (s["lower"], s["upper"]) or s["lower"] <= s["upper"], "no rank lies between the stated ends")
    need(len(A) == n == len(A[0]) and [*map(list, turned(A))] == A, "matrix.npz holds no symmetric matrix", UNREAD)
    if s["verdict"] == NOT:
        C = scaled(array(proof, "witness.C", 2, n))[0]
        need([*map(list, turned(C))] == C and s["exact"] is True and all(empty), "the verdict has no witness")
        value, total = sum(map(dot, M, C)), sum(abs(a * c) for rows in zip(M, C) for a, c in zip(*rows))
        need(value < 0 and abs(s["separation"] - Fraction(value, total)) <= 1e-12, "<A, C> is not what is stated")
        need(pivots(C)[1] or copositive(C, end), "the witness is not copositive")
        return "a copositive C with <A, C> < 0"
    B, there = array(proof, "B", 2, n) if s["atoms"] is not None else [], [i for i in range(n) if A[i][i] > 0]
    A, B = ([[Fraction(x) for x in row] for row in rows] for rows in (A, B))
    off, norm, tolerance = size(plus(A, gram(turned(B), turned(B)), -1) if B else A), size(A), Fraction(s["tolerance"])
    good = s["atoms"] in (None, len(B)) and min(map(min, B), default=0) >= 0 and 2**-50 <= tolerance < 0.1 > empty[0]
    need(good and (not B or abs(s["residual"] - off / (norm or 1)) <= 1e-12), "the factor is not what is stated")
    p = {i: Fraction(2) ** round(math.log2(A[i][i]) / 2) for i in there}
    S, B = [[A[i][j] / p[i] / p[j] for j in there] for i in there], [[row[j] / p[j] for j in there] for row in B]
    n, (J, semi), near = len(S), pivots(M), [{j for j, x in enumerate(row) if x and j != i} for i, row in enumerate(S)]
    flat, part = not any(near[i] & near[j] for i in range(n) for j in near[i]), {0} & {*range(n)}
    for _ in S:
        part |= set().union(*(near[i] for i in part))
    other = len(part) < n or any(word in (directory / "proof.json").read_text(encoding="utf-8") for word in OTHERS)
    certain = plus(S, unit(n, tolerance * size(S)), -1)  # by eigenvalues beyond the tolerance
    lower, upper = len(J if semi else pivots(scaled(certain)[0])[0]), math.inf
    if flat:
        lower = max(lower, sum(map(len, near)) // 2)  # no two edges are in one atom
    if s["exact"]:  # of order at most 4, or no triangles and a semi-definite comparison matrix
        signs = scaled([[x if i == j else -x for j, x in enumerate(row)] for i, row in enumerate(S)])[0]
        ends = [lower] * (flat and len(part) == n and pivots(signs)[1]) + [lower if n < 4 or lower < 3 else n] * (n < 5)
        need(semi and min(map(min, S), default=0) >= 0, "A is not completely positive")
        if B and has_factor(S, B, J):
            ends += [len(B), *([6 if n == 5 else n * (n + 1) // 2 - 4] * (n > 4))]
        need(ends, "no exact factor near B is proved, and no theorem gives one", UNCHECKED)
        upper = min(ends)
    elif s["verdict"] == CP:
        need(B and off <= tolerance * norm * (1 + TOLERANCE), "the factor misses the matrix by more than the tolerance")
        upper = len(B)
    code = UNCHECKED if other else REFUSED
    need(lower >= s["lower"] >= 0, f"only {lower} atoms are proved to be needed, cprank.json states {s['lower']}", code)
    good = s["upper"] is None and s["verdict"] == "undecided" if upper == math.inf else s["verdict"] == CP
    need(good and (upper == math.inf or s["upper"] >= upper), f"{upper} atoms are proved to do, not {s['upper']}", code)
    return "the rank, or edges of a graph without triangles; a factor within the tolerance, or a theorem"


# ---- Two layers (MATH.md 4).


def two_layers(run: Run, kind: str, least: Fraction, deadline: float) -> tuple[Fraction, str]:  # D is concave in t
    point, t, how = run.point(), T, "max h over cones of directions, cut at the kinks (MATH.md 4)"
    for width in (T / 2**bit for bit in range(1, 36)):
        t -= width * (run.dual(point, t - width) >= least)
    (X, e), C = scaled([row if run.free else [*row, run.beta] for row in run.X]), turned(point)
    bound, goal, pieced = run.dual(point, t), 1 / t, not run.free and "splits" in run.certificate
    shared = not run.free and "shared" in run.certificate
    own = ["spectral", *SEARCHED] if run.free else PIECES if pieced else ["groups"] if shared else SEARCHED
    need(kind in own, f"a certificate {kind} of two layers does not come with these arrays")
    if run.slope == 1:
        need(top(gram(gram(C, turned(X)), gram(C, turned(X)))) <= goal**2 * 4**e, ABOVE)
        return bound, "|Lambda^T Xt|_op of a linear network (MATH.md 4)"
    if pieced:
        pieces = relaxation(run, Frame(X, e, point), goal, deadline)
        return bound, f"the doubly non-negative relaxation, in {pieces} pieces that cover all directions (MATH.md 4)"
    if shared:
        need(grouped(run, Frame(X, e, point), point, goal), "the stored multipliers do not prove the maximum")
        return bound, "multipliers that groups of samples share (MATH.md 4)"
    if run.free and kind == "spectral":
        bent = (1 - run.slope) / 2 if run.skip else 1  # of the linear half a skip leaves nothing
        need(top(gram(C, C)) * top(covariance(run.X, [Fraction(1)] * run.N, True)) * bent**2 <= goal**2, ABOVE)
        return bound, "|Lambda|_op |H X|_op (MATH.md 4, free biases)"
    for frame in (Frame(Z, e, point) for Z in ([plus(X, [row] * len(X), -1) for row in X] if run.free else [X])):
        need(len(frame.Q) <= 8, f"the rank {len(frame.Q)} of the inputs is too large for cones", UNCHECKED)
        need(below(frame, goal, run.slope, deadline), ABOVE)
    return bound, f"at every sample's breakpoint, {how}" if run.free else how


# ---- Bounds from the data alone, of every depth (MATH.md 5, "Bounds for every depth"); rho stands for prod_l |W_l|_F.


def widest(X: Any, shares: list[Fraction], centred: bool) -> Fraction:  # |H D X|_op from above, by its smaller side
    if len(X[0]) <= len(X):
        return root(top(covariance(X, shares, centred)))
    rows, roots = [[*map(Fraction, row)] for row in X], [root(q) for q in shares]
    means = [dot(shares, column) / sum(shares) * centred for column in zip(*rows)]
    Z = [[r * (x - a) for x, a in zip(row, means)] for r, row in zip(roots, rows)]
    return root(top(gram(Z, Z)))


def least_of(run: Run, lines: list[tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction]:
    """Return the least max(0, b - g rho) + lam L rho^(2/L) of all rho >= 0, rounded down, and its rho.

    Between two breakpoints of the highest line the sum is concave, and it is least at one of them."""
    lines, rho, values = [*lines, (Fraction(0), Fraction(0))], Fraction(0), []
    b, g = max(lines, key=lambda line: (line[0], -line[1]))
    while True:
        values.append((b - g * rho + run.lam * run.depth * power(rho**2, run.depth), rho))
        flatter = [((b - c) / (g - f), f, c) for c, f in lines if f < g]
        if not flatter:
            return min(values)
        rho, g, b = min(flatter)


def threshold(values: list[float], tau: float) -> float:  # t with sum_i (values_i - t)_+ = tau, of falling values
    sums = [sum(values[:k]) for k in range(1, len(values) + 1)]
    return max([0.0, *((total - tau) / k for k, total in enumerate(sums, start=1))])


class Outputs:
    """Lines b - g rho below C(F), from |H D F|_* <= |H D X|_op rho, with D = diag(q)^(1/2), and H = I if not centred.

    mse: the least |D (F - Y)|^2 with |H D F|_* <= tau is that of the singular values s_i of H D Y alone, and convex in
    tau; its tangents are b = sum_i 2 s_i m_i - m_i^2, m_i = min(s_i, theta), with slope 2 theta.
    cross-entropy: for p in the simplex, with the column means of Y if centred, b is the entropy of p, and the slope is
    |D (p - Y)|_op. The p near the minimiser for this tau come from accelerated projected gradients, in floats."""

    def __init__(self, run: Run, centred: bool) -> None:
        self.run, self.centred, self.a = run, centred, widest(run.X, run.q, centred)
        used = [not centred or any(column) for column in zip(*run.Y)]  # a class without samples has p = 0
        self.Y = [[y for y, used_ in zip(row, used) if used_] for row in run.Y]
        self.values = singular(covariance(run.Y, run.q, centred)) if run.loss == "mse" else []
        self.F = [[0.0] * sum(used) for _ in self.Y]  # D F

    def line(self, rho: Fraction) -> tuple[Fraction, Fraction]:
        tau = float(rho * self.a)
        if self.run.loss != "mse":
            return self.entropy(tau)
        theta = Fraction(threshold([*map(float, self.values)], tau))
        return sum((2 * s * m - m**2 for s in self.values for m in [min(s, theta)]), Fraction(0)), 2 * theta * self.a

    def entropy(self, tau: float) -> tuple[Fraction, Fraction]:
        q, mean, p = self.run.q, [dot(self.run.q, column) for column in zip(*self.Y)], []
        for row in self.nearest(tau):
            whole = [round(x * 2.0**60) for x in row]
            whole[whole.index(max(whole))] += (1 << 60) - sum(whole)
            p.append([Fraction(x, 1 << 60) for x in whole])
        if self.centred:
            off = [a - dot(q, column) for a, column in zip(mean, zip(*p))]
            p = [[x + o for x, o in zip(row, off)] for row in p]
            share = max(-x / (a - x) if x < 0 else Fraction(0) for row in p for x, a in zip(row, mean))
            p = [[x + share * (a - x) for x, a in zip(row, mean)] for row in p]
        b: Any = -sum(t * (sum(x * ln(x) for x in row if x) + 2 * MARGIN * len(row)) for t, row in zip(q, p))
        gaps = turned(plus(p, self.Y, -1))
        weighed = [[t * x for t, x in zip(q, column)] for column in gaps]
        return b, root(top(gram(weighed, gaps))) * self.a

    def nearest(self, tau: float) -> Rows:
        roots, Y = [math.sqrt(t) for t in self.run.q], [[*map(float, row)] for row in self.Y]
        ahead, last, momentum = self.F, self.F, 1.0
        for _ in range(200):
            P = [softmax([x / r for x in row]) for row, r in zip(ahead, roots)]
            Z = [[f - 2.0 * r * (x - y) for f, x, y in zip(*rows)] for r, *rows in zip(roots, ahead, P, Y)]
            new, following = self.shrunk(Z, roots, tau), 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            ahead = plus(new, plus(new, last, -1), (momentum - 1.0) / following)
            last, momentum = new, following
        self.F = last
        return [softmax([x / r for x in row]) for row, r in zip(last, roots)]

    def shrunk(self, Z: Rows, roots: list[float], tau: float) -> Rows:  # the nearest with |H Z|_* <= tau
        means = [dot(roots, column) * self.centred for column in zip(*Z)]
        parts = [[r * a for a in means] for r in roots]
        Z = plus(Z, parts, -1)
        values, U = eigen(gram(turned(Z), turned(Z)))
        sizes = [math.sqrt(max(x, 0.0)) for x in values]
        theta = threshold(sorted(sizes, reverse=True), tau)
        factors, columns = [1.0 - theta / s if s > theta else 0.0 for s in sizes], turned(U)
        K = [[sum(f * x * y for f, x, y in zip(factors, *both)) for both in ((u, v) for v in columns)] for u in columns]
        return plus(gram(Z, K), parts)


def softmax(row: list[float]) -> list[float]:
    terms = [math.exp(x - max(row)) for x in row]
    return [x / sum(terms) for x in terms]


def shortened(x: Fraction) -> Fraction:  # from below, to about 160 bits
    unit_ = Fraction(2) ** (160 + x.denominator.bit_length() - x.numerator.bit_length())
    return math.floor(x * unit_) / unit_


class Lines:  # the lines of a loss, with more where the sum is least
    def __init__(self, run: Run) -> None:
        self.run, self.own = run, [Outputs(run, centred) for centred in ((True,) if run.beta else (True, False))]
        self.lines: list[tuple[Fraction, Fraction]] = []

    def bound(self, others: list[tuple[Fraction, Fraction]], least: Fraction, end: float) -> Fraction:
        (bound, rho), idle = least_of(self.run, self.lines + others), 0
        while bound < least and idle < 3:
            in_time(end)
            new = [outputs.line(rho) for outputs in self.own]
            lines = self.lines + [(shortened(b), -shortened(-g)) for b, g in new]
            before, (bound, rho) = bound, least_of(self.run, lines + others)
            idle = 0 if bound > before * (1 + Fraction(1, 10**9)) else idle + 1
            self.lines = lines if bound > before else self.lines
        return bound


def spectral(run: Run, least: Fraction, end: float) -> tuple[Fraction, str]:
    how, bound = "singular values, and pairs of samples that are to fit (MATH.md 5)", Fraction(0)
    if not run.fits:
        return Lines(run).bound([], least, end), "singular values, and lines below the loss (MATH.md 5)"
    for centred in (True,) if run.beta else (True, False):
        a, values = widest(run.X, run.q, centred), singular(covariance(run.Y, run.q, centred))
        total = sum((max(s - run.misfit * root(Fraction(run.m)), 0) for s in values), Fraction(0))
        bound = max(bound, Fraction(run.depth) * power((total / a) ** 2, run.depth)) if a else bound
    rows = [[[Fraction(t) for t in a] for a in A + [[0.0] * len(A[0])] * (not run.beta)] for A in (run.X, run.Y)]
    for (x, y), (u, v) in combinations(zip(*rows), 2):
        near, far = (sum(((p - q) ** 2 for p, q in zip(*ends)), Fraction(0)) for ends in ((x, u), (y, v)))
        short = max(Fraction(0), below_root(far) - 2 * run.misfit * root(Fraction(run.m)))
        if near:
            bound = max(bound, Fraction(run.depth) * power(short**2 / near, run.depth))
    return bound, how


# ---- Edges between samples, and flows on them (laplacian).


class Edges:
    """The stored edges between samples: row e of B has s at sample i and -t at sample j, s, t >= 0, s = t with biases.

    So B^T B has no positive entry off its diagonal, and B 1 = 0 with biases; then |B sigma(Z)|_F <= |B Z|_F."""

    def __init__(self, run: Run) -> None:
        self.N, self.pairs = run.N, array(run.certificate, "pairs", 2, 2, "iu")
        sizes = array(run.certificate, "sizes", 2, 2)
        good = len(self.pairs) == len(sizes) > 0 and all(0 <= k < run.N for pair in self.pairs for k in pair)
        good &= all(min(both) >= 0 and not (run.beta and both[0] != both[1]) for both in sizes)
        good &= not any(i == j and both[1] for (i, j), both in zip(self.pairs, sizes))
        need(good, "the stored edges do not fit the data")
        self.sizes, self.e = scaled(sizes)

    def rows(self, A: Rows) -> Rows:  # 2^e B A
        return [[s * x - t * y for x, y in zip(A[i], A[j])] for (i, j), (s, t) in zip(self.pairs, self.sizes)]

    def back(self, W: Rows) -> Rows:  # 2^e B^T W
        out = [[0 * x for x in W[0]] for _ in range(self.N)]
        for (i, j), (s, t), row in zip(self.pairs, self.sizes, W):
            out[i] = [a + s * x for a, x in zip(out[i], row)]
            out[j] = [a - t * x for a, x in zip(out[j], row)]
        return out

    def form(self) -> Rows:  # 4^e B^T B
        Q = unit(self.N, 0)
        for (i, j), (s, t) in zip(self.pairs, self.sizes):
            for a, b, x in ((i, i, s * s), (j, j, t * t), (i, j, -s * t), (j, i, -s * t)):
                Q[a][b] += x
        return Q

    def on(self, A: Any, least: bool = False) -> Rows:  # (B A)^T B A, or the smaller of it and B A (B A)^T
        rows, e = scaled(A)
        image = self.rows(rows)
        return squares(turned(image) if least and len(image) < len(A[0]) else image, 4 ** (e + self.e))


def reached(run: Run, point: Rows, high: Fraction, proves: Callable[[Fraction], bool], bits: int, end: float) -> bool:
    """Return True if proves(a) for an a that is at least max |P^T sigma(Xt w)| of all unit w, P = `point` (N, k).

    That is `high`, or, of few inputs, about the largest a with proves(a) if cones of directions prove it."""
    if proves(high):
        return True
    (X, e), low = scaled([[*row, run.beta] for row in run.X]), Fraction(0)
    frame = Frame(X, e, point, most=3)
    if frame.lost > Fraction(1, 10**8) or run.slope == 1:
        return False
    for _ in range(bits):
        middle = (low + high) / 2
        low, high = (middle, high) if proves(middle) else (low, middle)
    return low > 0 and below(frame, low, run.slope, end)


def least_product(f: list[Fraction]) -> Fraction:
    """Return a lower bound on g(f)^2, g = min (sum_i x_i) (sum_i f_i^2 / x_i)^(1/2) of 0 < x_i <= x_1 = 1, f falling.

    If the first k of x are 1 and x_i = kappa f_i for the others, g^2 = (k + kappa T)^2 (S + T / kappa), which falls and
    then rises in kappa. Between two kappas about the least one it is at least the first factor at the lower one times
    the second at the upper one."""
    values = []
    for k, last in enumerate(f, start=1):
        S, T = sum(x**2 for x in f[:k]), sum(f[k:])
        if not T:
            values.append(k * k * S)
            continue
        ends, square = (1 / last if k > 1 else Fraction(0), 1 / f[k]), T**2 + 8 * S * k
        low, high = (min(max((r - T) / (4 * S), ends[0]), ends[1]) for r in (below_root(square), root(square)))
        values.append((k + low * T) ** 2 * (S + T / high))
    return min(values, default=Fraction(0))


class Plane:
    """F = B Y in the plane of about its two largest singular values: P = F V diag(1 / f) (MATH.md 5, two outputs).

    (u, v, w) is the matrix (1/2) [[u + v, w], [w, u - v]], and G = (1, x, y). Numbers are decimals of 60 digits."""

    def __init__(self, F: Rows, missed: Fraction) -> None:
        values, V = eigen(gram(turned(F), turned(F)))
        order = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:2]
        self.f = [Decimal(math.sqrt(max(values[k], 0.0))) for k in order]
        self.thin = len(order) < 2 or self.f[1] * 20 <= self.f[0]
        if self.thin:
            return
        rows = [[Fraction(x) for x in V[k]] for k in order]
        stretch = root(Fraction(max(sum(map(abs, row)) for row in gram(rows, rows))))  # at least |V|_op
        P = [[decimal(dot(row, v)) / f for v, f in zip(rows, self.f)] for row in F]
        Q = gram(turned(P), turned(P))  # about 1: where it is, T >= 0.3 and T <= 1.7 charge the misfit as below
        off = abs(Q[0][0] - 1) + abs(Q[1][1] - 1) + 2 * abs(Q[0][1])
        charged = 12 * (decimal(missed * stretch) / self.f[1] + off) + Decimal("1e-30")
        self.factor = max(1 - charged, Decimal(0)) / decimal(stretch)
        self.moments = [[Decimal(0), Decimal(0)] for _ in range(4)]  # sum |p|^2 exp(2 i k theta)
        for p, q in P:
            squared = p * p + q * q
            x, y = squared, Decimal(0)
            for moment in self.moments if squared else []:
                moment[0], moment[1] = moment[0] + x, moment[1] + y
                c, s = (p * p - q * q) / squared, 2 * p * q / squared
                x, y = c * x - s * y, c * y + s * x

    def forms(
        self, a: Any, b: Any
    ) -> tuple[Any, Any]:  # P^T T P and P^T T^2 P of t = 1 - a cos 2 theta - b sin 2 theta
        (m, _), (p, q), (r, s), (x, y) = self.moments
        c, d, n = a * a - b * b, 2 * a * b, a * a + b * b
        pull, v, w = a * p + b * q, (a * m + a * r + b * s) / 2, (b * m + a * s - b * r) / 2
        second = m - 2 * pull + (n * m + c * r + d * s) / 2
        along = p - 2 * v + n * p / 2 + (c * x + d * y + c * p + d * q) / 4
        across = q - 2 * w + n * q / 2 + (c * y - d * x + d * p - c * q) / 4
        return (m - pull, p - v, q - w), (second, along, across)

    def tangent(self, x: Any, y: Any, points: Any) -> list[Any]:  # of sum_i f_i^2 (G^-1)_ii at (x, y)
        f, g = (k * k for k in self.f)
        size, value = 1 - x * x - y * y, f + g - (f - g) * x
        slopes = 4 * value * x / size**2 - 2 * (f - g) / size, 4 * value * y / size**2
        return [2 * value / size + slopes[0] * (v - x) + slopes[1] * (w - y) for v, w in points]

    def bounds(self, triangle: Any) -> tuple[Decimal, Decimal] | None:  # on Phi^2 Tr J^-1: a lower one, and a value
        x, y = (sum(column, Decimal(0)) / 3 for column in zip(*triangle))
        radius = (x * x + y * y).sqrt()
        if radius and min(x * v + y * w for v, w in triangle) >= radius:
            return None  # the triangle is outside the disc
        x, y = (k * min(Decimal("0.999") / radius, Decimal(1)) if radius else k for k in (x, y))
        last = max((self.tangent(x * k, y * k, triangle) for k in map(Decimal, ("1", "0.9", "0.7"))), key=min)
        (own,), low, value = self.tangent(x, y, [(x, y)]), Decimal(0), Decimal(0)
        for share in range(8):
            a, b = (Decimal(share) / 5 / (1 + (x * x + y * y).sqrt()) * k for k in (x, y))
            first, second = self.forms(a, b)
            tau, kappa, t = trace(first, x, y), largest(second, x, y), 1 + (a * a + b * b).sqrt()
            c = min(tau / kappa, 2 / t)
            value = max(value, (2 * c * tau - c * c * kappa) * own)
            before = [2 * c * trace(first, *v) - c * c * largest(second, *v) for v in triangle]
            if min(before) > 0:
                pairs = combinations_with_replacement(range(3), 2)
                low = max(low, min(before[i] * last[j] + before[j] * last[i] for i, j in pairs) / 2)
        return low, value

    def least_product(self, end: float) -> Fraction:  # a lower bound on the root of min_J max_T Phi^2 Tr J^-1
        if self.thin:
            return Fraction(0)
        with localcontext(DECIMAL):
            corners = [(Decimal(x), Decimal(y)) for x, y in ((2, 0), (0, 2), (-2, 0), (0, -2), (2, 0))]
            triangles, best = [((Decimal(0), Decimal(0)), *pair) for pair in pairwise(corners)], Decimal("inf")
            for triangle in triangles:  # which grows
                in_time(end)
                if (bounds := self.bounds(triangle)) is None:
                    continue
                best = min(best, bounds[1])
                if bounds[0] < best * Decimal("0.997"):
                    p, q, r = max((triangle[k:] + triangle[:k] for k in range(3)), key=lambda o: math.dist(o[0], o[1]))
                    middle = ((p[0] + q[0]) / 2, (p[1] + q[1]) / 2)
                    triangles += [(p, middle, r), (middle, q, r)]
            return Fraction((best * Decimal("0.997")).sqrt() * self.factor)


def trace(H: Any, x: Any, y: Any) -> Any:  # Tr H G
    return (H[0] + H[1] * x + H[2] * y) / 2


def largest(H: Any, x: Any, y: Any) -> Any:  # the largest eigenvalue of H G, convex in G as H is positive semi-definite
    both = (H[0] ** 2 - H[1] ** 2 - H[2] ** 2) * (1 - x * x - y * y)
    return (trace(H, x, y) + max(trace(H, x, y) ** 2 - both / 4, Decimal(0)).sqrt()) / 2


def ridge(run: Run, f: list[Fraction], a: Fraction, b: Fraction, least: Fraction, end: float) -> bool:
    """Return True if sum_i A_i / (w_i + B) + c (sum_i w_i / s)^(2 / (L - 1)) >= least for 0 <= w_i <= w_1 = s^2.

    Here A_i = lam f_i^2, B = lam b^2, c = (L - 1) lam a^(-2 / (L - 1)). The tree has cells of s and of x = T / s with
    T = sum_i w_i / s. On a cell the concave power of T is at least its chord, w_i / s is at least w_i / s at the upper
    end of s, and the least of each w_i is explicit. Numbers are decimals of 60 digits: `least` is raised by more than
    their rounding. It is refused at a point below `least`."""
    if not f or not a:
        return least <= 0
    with localcontext(DECIMAL):
        n, lam, tiny = run.depth - 1, decimal(run.lam), Decimal("1e-30")
        A, B = [lam * decimal(x) ** 2 for x in f], lam * decimal(b) ** 2
        goal, c = decimal(least) * (1 + tiny), n * lam * (-2 * decimal(a).ln() / n).exp()

        def risen(T: Decimal) -> Decimal:  # T^(2 / (L - 1))
            return (2 * T.ln() / n).exp() if T and n > 2 else T

        most = ((goal / c).ln() * n / 2).exp() * (1 + tiny)  # beyond it c s^(2 / (L - 1)) is enough
        cells = [(Decimal(0), most, Decimal(1), Decimal(len(f) if n > 2 else 1))]
        for s, t, x, y in cells:  # which grows, so that the widest cells come first
            in_time(end)
            steep = c * (risen(t * y) - risen(s * x)) / (t * y - s * x) * (1 - tiny)
            w = [min(max((p * t / steep).sqrt() - B, Decimal(0)), t**2) for p in A[1:]]
            fits = sum((p / (v + B) + steep / t * v for p, v in zip(A[1:], w)), A[0] / (t**2 + B))
            if fits + c * risen(s * x) - steep * s * x + steep * s >= goal:
                continue
            middle = (s + t) / 2
            u = [middle**2, *(min(v, middle**2) for v in w)]
            if sum(p / (v + B) for p, v in zip(A, u)) + c * risen(sum(u) / middle) < goal:
                return False
            if not s or (t - s) / s > ((y - x) / x) ** 2:
                cells += [(s, middle, x, y), (middle, t, x, y)]
            else:
                cells += [(s, t, x, (x + y) / 2), (s, t, (x + y) / 2, y)]
    return True


def flow_lines(run: Run, edges: Edges, eta: Fraction) -> list[tuple[Fraction, Fraction]]:
    """(b, |W|_op) of each stored flow W: C(F) >= -C*(-V) - <V, F>, V = B^T W, |<V, F>| <= |W|_op |B F|_* (MATH.md 5).

    B has the edges and, if eta > 0, the N rows of eta H. In cross-entropy the means of the rows of W are taken out."""
    lines: list[tuple[Fraction, Fraction]] = []
    for flow in array(run.certificate, "flows", 3, run.m):
        need(len(flow) == len(edges.pairs) + run.N * (eta > 0), "the stored flows do not fit the data")
        W, e = scaled(flow)
        if run.loss == "cross_entropy":
            W = [[run.m * x - sum(row) for x in row] for row in W]
        one = (run.m if run.loss == "cross_entropy" else 1) << e
        V = over(edges.back(W), Fraction(one << edges.e))
        if eta:
            own = W[len(edges.pairs) :]
            means = [Fraction(sum(column), run.N) if run.beta else Fraction(0) for column in zip(*own)]
            V = plus(V, [[(x - a) / one for x, a in zip(row, means)] for row in own], eta)
        lines.append((run.conjugate(V), root(top(squares(W, one**2)))))
    return lines


def laplacian(run: Run, least: Fraction, end: float) -> tuple[Fraction, str]:
    edges, bits = Edges(run), 50
    if "flows" in run.certificate:
        (eta,), lines = array(run.certificate, "spread", 1), Lines(run)
        need(not run.fits and eta >= 0, "flows of this size prove nothing")
        flows, how = flow_lines(run, edges, Fraction(eta)), "flows on edges between samples (MATH.md 5)"
        added = (Fraction(eta) * widest(run.X, [Fraction(1)] * run.N, bool(run.beta))) ** 2

        def proves(a: Fraction) -> bool:
            return lines.bound([(b, w * root(a**2 + added)) for b, w in flows], least, end) >= least
    else:
        need(run.loss != "cross_entropy", "the stored edges come without their flows")
        sums = sum((s + t) ** 2 for s, t in edges.sizes)
        missed = run.misfit * root(Fraction(run.m)) * root(Fraction(sums, 4**edges.e))
        f = [x - missed for x in singular(edges.on(run.Y)) if x > missed]
        how = "edges between samples (MATH.md 5, ranks)"
        if run.fits:
            square = least_product(f) if run.slope >= 0 else sum(f, Fraction(0)) ** 2
            rows, e = scaled(run.Y)
            plane = Plane(over(edges.rows(rows), Fraction(1 << (e + edges.e))), missed)
            if run.slope >= 0 and sum(float(x) ** (2 / 3) for x in plane.f) ** 3 > square:
                square = max(square, plane.least_product(end) ** 2)

            def proves(a: Fraction) -> bool:
                return a > 0 and run.depth * power(square / a**2, run.depth) >= least
        else:
            need(run.slope >= 0, "edges without flows prove nothing at a negative slope")
            roots, bits = [root(1 / q) for q in run.q], 20
            Q = [[x * r * s / 4**edges.e for x, s in zip(row, roots)] for row, r in zip(edges.form(), roots)]
            stretch = root(top(Q))

            def proves(a: Fraction) -> bool:
                return ridge(run, f, a, stretch, least, end)

    point = over(turned(edges.rows(unit(run.N))), Fraction(1 << edges.e))
    good = reached(run, point, root(top(edges.on(run.X, True))), proves, bits, end)
    need(good, "the stored edges do not prove the bound")
    return least, how


# ---- Two samples, linear maps, multipliers of one sign, and loops.


def angle(run: Run, *_: Any) -> tuple[Fraction, str]:  # R >= 2 L (Phi(y_i, y_j) / Phi(x_i, x_j))^(1/L)
    pair, bound = array(run.certificate, "pair", 1, 2, "iu"), Fraction(0)
    good = run.fits and run.slope == 0 == run.beta and all(0 <= k < run.N for k in pair)
    need(good, "the stored pair does not fit the data, or no angle bounds this problem")
    (u, v), (y, z) = ([[*map(Fraction, A[k])] for k in pair] for A in (run.X, run.Y))
    inputs, outputs = (([dot(a, a) * dot(b, b), dot(a, b)]) for a, b in ((u, v), (y, z)))
    shift = run.misfit * root(Fraction(run.m))
    moved = shift * (size([y]) + size([z]) + shift)
    above = inputs[0] - max(inputs[1], Fraction(0)) ** 2  # Phi^2: of an obtuse angle |u|^2 |v|^2, else the area's
    under = below_root(outputs[0] - (outputs[1] ** 2 if outputs[1] >= -moved else 0)) - moved
    if above > 0 < under:
        bound = 2 * run.depth * power(below_root(under**2 / above), run.depth)
    return bound, "the angle between two samples (MATH.md 5)"


def linear(run: Run, *_: Any) -> tuple[Fraction, str]:
    """R >= L sum_i (s_i(P Y) / |P X|_op)^(2/L) for any P, with P 1 = 0 if there is a bias.

    P is near the pseudo-inverse of H X: for independent columns C = H X_J, H X = C K and P = K^T (K K^T)^-1 C^+."""
    need(run.fits and run.slope == 1, "no linear map bounds this problem")
    G, e = covariance(run.X, [Fraction(1)] * run.N, bool(run.beta)), scaled(run.X)[1]
    J, how = pivots([[int(x * run.N * 4**e) for x in row] for row in G])[0], "the least linear map (MATH.md 5)"
    means = [sum(map(Fraction, column)) / run.N if run.beta else 0 for column in zip(*run.X)]
    H, GJ = [[Fraction(row[j]) - means[j] for row in run.X] for j in J], [[G[i][j] for j in J] for i in J]
    K = solved(GJ, [G[j] for j in J])
    exact = gram(turned(K), turned(solved(gram(K, K), solved(GJ, H))))
    largest = max((abs(x) for row in exact for x in row), default=Fraction(0))
    if not largest:
        return Fraction(0), how
    P = [[round(x / largest * 2**200) for x in row] for row in exact]
    P = [[run.N * x - sum(row) for x in row] for row in P] if run.beta else P
    X, (Y, f) = scaled(run.X)[0], scaled(run.Y)
    reach = root(top(squares(gram(P, turned(X)), 4**e)))
    missed = root(top(gram([[Fraction(x) for x in row] for row in P], P))) * run.misfit * root(Fraction(run.N * run.m))
    values = [s - missed for s in singular(squares(gram(P, turned(Y)), 4**f)) if s > missed]
    return sum((run.depth * power((s / reach) ** 2, run.depth) for s in values), Fraction(0)), how


def grown(budgets: list[Decimal], heights: list[Decimal]) -> list[Decimal]:
    """Return max_s (B - s) h(s) of each B, from above, where h is the chords of the rising `heights`.

    On a chord it is that of a parabola. The best s rises with B, because (B - s) h(s) has the cross derivative h'."""
    slopes = [(h - g) / (b - a) for (a, b), (g, h) in zip(pairwise(budgets), pairwise(heights))]
    values, stack = [Decimal(0)] * len(budgets), [(1, len(budgets) - 1, 0, len(slopes) - 1)]

    def most(B: Decimal, j: int) -> Decimal:
        s, base = budgets[j], heights[j]
        if slopes[j]:
            s = min(max((B + s - base / slopes[j]) / 2, s), budgets[j + 1])
        return (B - s) * (base + slopes[j] * (s - budgets[j]))

    while stack:
        low, high, first, last = stack.pop()
        if low <= high:
            k = (low + high) // 2
            value, j = max((most(budgets[k], j), j) for j in range(first, min(last, k - 1) + 1))
            values[k] = value * (1 + Decimal("1e-40"))
            stack += [(low, k - 1, first, j), (k + 1, high, j, last)]
    return values


def convexity(run: Run, least: Fraction, end: float) -> tuple[Fraction, str]:
    """Multipliers of one sign: <Lambda, F>^2 <= M^2 T_L(|W|^2) with M >= max |Lambda^T sigma(Xt w)|.

    T_1(B) = B, T_{l+1}(B) = max_s (B - s) (T_l(s) + q / M^2), q = beta^2 |Lambda^T 1|^2. An exact fit reaches the
    signal <Lambda, Y>; C(F) >= (signal - <Lambda, F>)_+^2 / sum_i (|Lambda_i|^2 / q_i) for mse, in each cell of B."""
    how, L = "multipliers of one sign (MATH.md 5)", run.depth
    point = [[Fraction(x) for x in row] for row in array(run.certificate, "multipliers", 2, run.m)]
    signs = all(min(column) >= 0 or max(column) <= 0 for column in zip(*point))
    good = len(point) == run.N and signs and run.slope == 0 and (run.fits or run.loss == "mse")
    need(good, "the stored multipliers change sign, or do not fit the data")
    signal = sum(x * Fraction(y) - run.misfit * abs(x) for rows in zip(point, run.Y) for x, y in zip(*rows))
    added = run.beta**2 * sum(sum(column) ** 2 for column in zip(*point))
    weight = sum(dot(row, row) / q for row, q in zip(point, run.q))
    most, points = least if run.fits else least / run.lam, 2000
    need(signal > 0 < least, "the stored multipliers prove nothing")

    def proves(M: Fraction) -> bool:
        if not M:
            return False
        in_time(end)
        with localcontext(DECIMAL):
            q, goal, up = decimal(added / M**2), decimal(signal / M), 1 + Decimal("1e-40")
            budgets = [decimal(most) * up * k / points for k in range(points + 1)]
            if not q:
                values = [(B / L) ** L * up for B in budgets]
            else:
                values = [((B + q) ** 2 / 4 if q < B else B * q) * up for B in budgets]
                for _ in range(L - 2):
                    values = grown(budgets, [t + q for t in values])
            if run.fits:
                return values[-1] <= goal**2
            unit = decimal(M**2 / weight)
            missing = ((max(goal - t.sqrt(), Decimal(0)) ** 2 * unit, B) for B, t in zip(budgets, values[1:]))
            return all(cost + decimal(run.lam) * B >= decimal(least) * up for cost, B in missing)

    high = root(top(gram(turned(point), turned(point))) * top(squares(*with_bias(run))))
    good = reached(run, point, high, proves, 50 if run.fits else 20, end)
    need(good, "the stored multipliers do not prove the bound")
    return least, how


def with_bias(run: Run) -> tuple[Rows, int]:  # Xt in whole numbers, and the unit of their squares
    X, e = scaled([[*row, run.beta] for row in run.X])
    return X, 4**e


def inside(corners: list[Any], off: list[Decimal]) -> Decimal:  # area of what is farther than off_i from side i
    polygon = corners
    for (x, y), (u, v), far in zip(corners, corners[1:] + corners[:1], off):
        a, b = y - v, u - x
        values = [a * (p - x) + b * (q - y) - far * (a * a + b * b).sqrt() for p, q in polygon]
        cut: list[Any] = []
        for k, (value, corner) in enumerate(zip(values, polygon)):
            if (value > 0) != (values[k - 1] > 0):
                part = values[k - 1] / (values[k - 1] - value)
                cut.append([s + part * (t - s) for s, t in zip(polygon[k - 1], corner)])
            if value > 0:
                cut.append(corner)
        polygon = cut
    return sum((p * s - q * r for (p, q), (r, s) in zip(polygon, polygon[1:] + polygon[:1])), Decimal(0)) / 2


def loop(run: Run, least: Fraction, end: float) -> tuple[Fraction, str]:
    """R >= L (mu^(2/L) + (V / (A mu))^(2/L)) for a mu >= |y_i - y_i+1| / |x_i - x_i+1| of a loop of samples.

    V is the area of the points farther than delta_i = (mu^2 |x_i - x_i+1|^2 - |y_i - y_i+1|^2)^(1/2) / 2 from each side
    of the convex polygon of outputs in a plane, A that of the fan of inputs. It is proved for each cell of mu."""
    order, plane = array(run.certificate, "loop", 1, None, "iu"), array(run.certificate, "plane", 2, run.m)
    good = run.fits and len(order) > 2 == len(plane) and all(0 <= k < run.N for k in order)
    need(good, "the stored loop does not fit the data")
    data = [run.X[k] for k in order], [run.Y[k] for k in order], plane
    X, Y, plane = ([[Fraction(x) for x in row] for row in A] for A in data)
    missed, length = run.misfit * root(Fraction(run.m)), root(top(gram(plane, plane)))
    need(length, "the stored plane is none")
    corners = [[x / length for x in row] for row in gram(Y, plane)]
    sides = [[b - a for a, b in zip(*both)] for both in zip(corners, corners[1:] + corners[:1])]
    following = sides[1:] + sides[:1]
    convex = all(a * d - b * c > 0 for (a, b), (c, d) in zip(sides, following))
    rises = [(b, a) < (0, 0) <= (d, c) for (a, b), (c, d) in zip(sides, following)]  # turns past the first axis
    need(convex and sum(rises) == 1, "the outputs of the stored loop are not convex in its plane")
    steps, jumps = ([dot(d, d) for d in plus(A, A[1:] + A[:1], -1)] for A in (X, Y))
    jumps = [max(below_root(d) - 2 * missed, Fraction(0)) ** 2 for d in jumps]
    mean = [sum(column) / len(X) for column in zip(*X)]
    spokes = [[x - a for x, a in zip(row, mean)] for row in X]
    areas = (dot(u, u) * dot(v, v) - dot(u, v) ** 2 for u, v in zip(spokes, spokes[1:] + spokes[:1]))
    steepest = max((below_root(d / s) if s else Fraction(0)) for d, s in zip(jumps, steps))
    with localcontext(DECIMAL):
        L, A, goal = run.depth, decimal(sum(map(root, areas), Fraction(0)) / 2), decimal(least) * (1 + Decimal("1e-30"))
        polygon = [[decimal(x) for x in row] for row in corners]
        pairs = [(decimal(s), decimal(d)) for s, d in zip(steps, jumps)]
        extra = 2 * decimal(missed) + max(abs(x) for row in polygon for x in row) * Decimal("1e-40")
        need(A > 0, "the stored loop bounds no area")
        up = 1 + Decimal("1e-50")

        def risen(x: Decimal) -> Decimal:  # x^(2 / L)
            return (2 * x.ln() / L).exp() if x > 0 else Decimal(0)

        cells = [(decimal(steepest), ((goal / L).ln() * L / 2).exp())]
        for low, high in cells:  # which grows
            in_time(end)
            if low >= high:
                continue
            off = [max(high * high * s * up - d, Decimal(0)).sqrt() / 2 + extra for s, d in pairs]
            last = risen(inside(polygon, off) / (A * high))
            if L * (risen(low) + last) < goal:
                need(L * (risen(high) + last) >= goal, "the stored loop does not prove the bound")
                middle = (low + high) / 2
                cells += [(low, middle), (middle, high)]
    return least, "the area inside a loop of samples (MATH.md 5)"


# ---- Three layers: trees over the shares of |W_3|^2, or over the signs of the second layer's neurons (MATH.md 5).


def pivoted(rows: Rows, most: int) -> Rows:  # each the farthest from the span of those before it
    chosen: Rows = []
    for _ in range(most):
        Q = orthonormal(chosen, 0.0)[0]
        beyond = plus(rows, gram(gram(rows, Q), turned(Q)), -1) if Q else rows
        chosen.append(rows[max(range(len(rows)), key=lambda i: math.hypot(*beyond[i]))])
    return chosen


def halves(cell: list[Corner], row: Any) -> list[list[Corner]]:
    """Cut a convex cone, by its corners one after the other, where <row, q> = 0; corners are exact."""
    ends = [dot(row, u) for u in cell]
    if not min(ends) < 0 < max(ends):
        return [cell]
    above, below = [], []
    for u, v, x, y in zip(cell, cell[1:] + cell[:1], ends, ends[1:] + ends[:1]):
        above += [u] * (x >= 0)
        below += [u] * (x <= 0)
        if min(x, y) < 0 < max(x, y):
            w = [abs(y) * a + abs(x) * b for a, b in zip(u, v)]
            new = tuple(t // math.gcd(*w) for t in w)  # the same one from both sides of an edge
            above, below = [*above, new], [*below, new]
    return [above, below]


class Sphere:
    """The neurons of the first layer, for inputs of rank 3 at most: S_i(q) = s_i sigma(R_i q) of directions q in space.

    For every unit w a q with |q| <= stretch has |sigma(Xt w) - unit S(q)| <= missed (Frame). Triangles cover the
    sphere, or arcs the equator if all R_i lie in its plane. Their corners n_j are whole numbers, and no sample changes
    its sign within one, so S(sum_j a_j n_j) = sum_j a_j S(n_j) for a_j >= 0."""

    def __init__(self, run: Run, sizes: list[Fraction], end: float) -> None:
        inputs = [[*row, run.beta] for row in run.X] if run.beta else run.X
        rows = [[Fraction(x) / t for x in row] for row, t in zip(inputs, sizes)]
        frame = Frame(*scaled(rows), [[Fraction(1)]] * run.N, most=3)
        self.R, ((self.s,), e) = [(*row, 0, 0, 0)[:3] for row in frame.R], scaled([frame.s])
        self.unit, self.stretch, self.missed = frame.unity / (1 << e + RBITS), frame.stretch, frame.unity * frame.lost
        cells: list[list[Corner]] = [[(x, 0, 0), (0, y, 0), (0, 0, z)] for x, y, z in product((1, -1), repeat=3)]
        for row in self.R:
            cells, _ = [part for cell in cells for part in halves(cell, row)], in_time(end)
        arcs = {tuple(sorted(arc)) for cell in cells for arc in zip(cell, cell[1:] + cell[:1])}
        self.parts: list[Any] = [arc for arc in arcs if not any(z for *_, z in arc)]
        if any(z for *_, z in self.R):
            self.parts = [(cell[0], *arc) for cell in cells for arc in pairwise(cell[1:])]
        self.corners = sorted({u for part in self.parts for u in part})
        self.squares, self.S = [dot(u, u) for u in self.corners], [self.outputs(u) for u in self.corners]
        place, kappas = {u: j for j, u in enumerate(self.corners)}, [1 << 60] * len(self.corners)
        self.faces: list[set[Any]] = [set() for _ in place]  # with two corners or three, of each corner
        self.inverses: dict[Any, tuple[int, Rows]] = {}
        for part in self.parts:
            js = sorted(place[u] for u in part)
            least = min((dot(u, v) ** 2 << 120) // (dot(u, u) * dot(v, v)) for u, v in combinations(part, 2))
            for j in js:
                kappas[j] = min(kappas[j], ((1 << 60) + 2 * math.isqrt(least)) // 3)
                self.faces[j] |= {face for k in (2, 3) for face in combinations(js, k) if j in face}
        self.enough = [math.isqrt(k * square << 60) for k, square in zip(kappas, self.squares)]

    def outputs(self, u: Corner) -> list[int]:
        return [s * max(dot(row, u), 0) for s, row in zip(self.s, self.R)]

    def largest(self, c: list[int], T: int) -> int:
        """Return the larger of T and max <c, S(q)>_+^2 / |q|^2 over all q, rounded up.

        On a part q = sum_j a_j n_j, a_j >= 0, and <c, S(q)> = sum_j a_j h_j. With C >= 0 the least cosine of two
        corners, |q| >= kappa sum_j a_j |n_j|, kappa^2 = (1 + 2 C) / 3. So <c, S(q)> <= T^(1/2) |q| on a part where each
        h_j is at most kappa T^(1/2) |n_j|. The largest on another part is on one of its faces, of Gram matrix G: it is
        h^T G^-1 h if a = G^-1 h >= 0, and is in a smaller face otherwise."""
        h, faces = [dot(c, S) for S in self.S], set()
        T = max([T, *(-(-x * x // square) for x, square in zip(h, self.squares) if x > 0)])
        t = math.isqrt(T)
        for x, enough, around in zip(h, self.enough, self.faces):
            if x << 60 > enough * t:
                faces |= around
        for face in faces:
            if face not in self.inverses:
                corners = [self.corners[j] for j in face]
                G = solved(gram(corners, corners), unit(len(face), Fraction(1)))
                scale = math.lcm(*(x.denominator for row in G for x in row))
                self.inverses[face] = scale, [[int(x * scale) for x in row] for row in G]
            (scale, G), ends = self.inverses[face], [h[j] for j in face]
            a = [dot(row, ends) for row in G]
            if min(a) >= 0:
                T = max(T, -(-dot(a, ends) // scale))
        return T

    def tops(self, square: Callable[[list[int]], int], end: float) -> Iterator[int]:
        """Yield T with f(q)^2 <= T |q|^2 for every q, where f(q)^2 = square(S(q)), closer and closer to the least T.

        f is a seminorm of S, so f(sum_j a_j n_j) <= sum_j a_j f(n_j) on a part. That is at most T^(1/2) |q| for all
        a_j >= 0 if T <n_j, n_k> - f(n_j) f(n_k) is copositive. Otherwise the part is cut across its longest side. T
        rises to f, and other parts stay below."""
        f: dict[Corner, int] = {}
        for accuracy in (10**k for k in range(2, 14, 2)):
            T, stack, new = 1, [*self.parts], [*f, *self.corners]
            while stack:
                for u in new:
                    f[u] = f[u] if u in f else square(self.outputs(u))
                    if f[u] > T * dot(u, u):
                        T = f[u] * (accuracy + 1) // (dot(u, u) * accuracy) + 1
                part, new, _ = stack.pop(), [], in_time(end)
                G = [[T * dot(u, v) - (f[u] if u == v else math.isqrt(f[u] * f[v]) + 1) for v in part] for u in part]
                if min(map(min, G)) < 0 and not copositive(G):
                    u, v = min(combinations(part, 2), key=lambda e: dot(*e) ** 2 / (dot(e[0], e[0]) * dot(e[1], e[1])))
                    k = (dot(v, v).bit_length() - dot(u, u).bit_length()) // 2
                    new = [tuple((x << max(k, 0)) + (y << max(-k, 0)) for x, y in zip(u, v))]
                    stack += [tuple(new[0] if w == old else w for w in part) for old in (u, v)]
            yield T


def costly(x: Fraction, y: Fraction, points: list[tuple[Fraction, ...]], end: float) -> bool:
    """Return True if each z in [x, y] has (a, b, c) and k in [0, 1] with z^2 + 2 k a / z - k^2 (b / z^2 + c) >= 1.

    The first two terms are convex and above their tangent at a cell's middle m, the last is concave and above its
    chord. In a cell from 0 on, k = t z with one t <= 1 / y makes the whole linear in z^2."""
    cells = [(x, y)]
    while cells:
        (x, y), middle, _ = cells.pop(), False, in_time(end)
        m = (x + y) / 2
        for a, b, c in points:
            k, t = min(a * m / (b + c * m * m or 1), Fraction(1)), min(a / (b + c * y * y or 1), 1 / y)
            k, bends = Fraction(math.floor(k * 2**60), 2**60), 2 * k * a / (m * m)
            tangent = (2 * m * z - m * m + bends * (2 * m - z) - k * k * (b / (z * z) + c) for z in (x, y) if x)
            linear = (z * z + 2 * t * a - t * t * (b + c * z * z) for z in (x, y) if not x)
            if min(*tangent, *linear) >= 1:
                break
            middle |= m * m + 2 * k * a / m - k * k * (b / (m * m) + c) >= 1
        else:
            if not middle:
                return False
            cells += [(x, m), (m, y)]
    return True


class Multiplied:
    """Lower bounds by multipliers Lambda of the outputs, a price M of paths and omega of biases: (3) of MATH.md 5.

    Stored multipliers are of inputs and targets over `sizes`, stored weights in a unit whose square is `unit`, as
    covopt computes. On |W_3|^2 = z^2 goal, z^2 < 1, (3) is to be the goal or more."""

    def __init__(self, run: Run, goal: Fraction, end: float) -> None:
        self.run, self.goal, self.end, self.homogeneous = run, goal, end, run.fits and not run.beta
        largest = [max(map(abs, row)) for row in run.X]
        ends = max(*largest, 1e-3 * float(run.beta)), float(run.largest)
        s, t = (math.floor(math.log2(x)) if x else 0 for x in ends)
        powers = [0 if run.beta else math.frexp(x)[1] - 1 if x else s for x in largest]
        self.sizes, self.unit = [Fraction(2) ** k for k in powers], Fraction(2.0 ** (2 * (t - s) % 3 / 3))
        self.unit *= Fraction(2) ** (2 * (t - s) // 3)
        self.sphere = Sphere(run, self.sizes, end)

    def signal(self, L: Rows) -> Any:  # <Lambda, Y> less what the misfit may take
        lost, rows = self.run.misfit, zip(L, self.run.Y, self.sizes)
        return sum((x * Fraction(y) - lost * abs(x)) / t for row, ys, t in rows for x, y in zip(row, ys))

    def proves(self, x: Fraction, y: Fraction, points: list[tuple[Rows, Fraction, Fraction]]) -> bool:
        """Return True if every z in [x, y] has a point (Lambda, M, omega^2) for which (3) is the goal or more."""
        run, goal, terms = self.run, self.goal, []
        if goal <= 0:
            return True
        for L, M, omega in points:
            if (signal := self.signal(L)) <= 0 or not M:
                continue
            if self.homogeneous and 27 * signal**2 >= M**2 * goal**3:
                return True
            b = run.beta**2 * sum(sum(column) ** 2 for column in zip(*L))
            if not run.fits:
                b += run.lam * sum(dot(row, row) / (q * t**2) for row, q, t in zip(L, run.q, self.sizes))
            b, c = -shortened(-b / (M * goal) ** 2), -shortened(-omega / M**2 / goal)
            terms.append((shortened(signal / M * below_root(1 / goal**3)), b, c))
        return not self.homogeneous and costly(shortened(x), -shortened(-y), terms, self.end)


class Shares(Multiplied):
    """Lower bounds on networks whose classes of second-layer neurons have given shares of |W_3|^2.

    The kind of a neuron is the sign e of its output and the samples with h >= 0; h <= 0 on the others. Any Lambda and
    any Z_k of each kind, moved to Z_ki >= e Lambda_i on these samples and to Z_ki <= 0 on the others, prove a bound."""

    def __init__(self, run: Run, goal: Fraction, end: float) -> None:
        super().__init__(run, goal, end)
        self.kinds = [(e, on) for e in (1, -1) for on in product((0, 1), repeat=run.N) if any(on)]

    def prove(self, cell: Any, point: list[float], prices: Rows) -> bool:
        """Return True if every network of the cell costs the goal or more.

        The cell has its classes of kinds, the splits that made them, and an interval of |W_3|^2."""
        (classes, splits, low, high), run = cell, self.run
        if not self.homogeneous and (high == math.inf or low * self.unit >= self.goal):
            return low * self.unit >= self.goal  # |W_3|^2 costs as much
        L, *Z = scaled([point, *prices])[0]
        if self.goal <= 0 or self.signal([[x] for x in L]) <= 0:
            return self.goal <= 0
        moved: Any = [[*zip(row, L, on, [e] * run.N)] for row, (e, on) in zip(Z, self.kinds)]
        moved = [tuple(max(z, e * x) if i else min(z, 0) for z, x, i, e in row) for row in moved]
        rows = [{moved[k] for k in members} for members in classes]
        parts = [(divided, math.floor(a * 2.0**60), math.ceil(b * 2.0**60)) for divided, a, b in splits]

        def square(S: list[int]) -> int:  # max sum_A tau_A max_(k in A) <Z_k, S>^2, rounded up
            return largest_mean([max((dot(z, S) ** 2 for z in own), default=0) for own in rows], parts)

        missed = self.sphere.missed * root(Fraction(max(dot(z, z) for z in moved)))
        omega = run.beta**2 * square([1] * run.N)
        x, y = (Fraction(0), Fraction(1)) if self.homogeneous else (low * self.unit, high * self.unit)
        x, y = below_root(x / self.goal), root(y / self.goal)
        tops = (self.sphere.unit * self.sphere.stretch * root(Fraction(T)) for T in self.sphere.tops(square, self.end))
        return any(self.proves(x, y, [([[x] for x in L], M + missed, omega)]) for M in tops)


def largest_mean(values: list[int], parts: Any) -> int:  # max sum_A tau_A values_A, rounded up
    for divided, *ends in reversed(parts):  # a class that was divided holds 1 - p of its old share, the new class p
        new = values.pop()
        values[divided] = (max((values[divided] << 60) + p * (new - values[divided]) for p in ends) >> 60) + 1
    return values[0]


def one_input(run: Run, least: Fraction, end: float) -> tuple[Fraction, str]:
    """Bound networks whose second hidden layer has lengths rho and tau at x = 1 and x = -1, on rectangles of both.

    With Y the targets there, any C (2, 2) gives the multipliers C Y, whose bound is concave in rho and in tau, so that
    it is the least at a corner. Floats guess C; a rectangle without proof is cut in two."""
    good = run.depth == 3 and run.beta == 0 == run.slope and len(run.X[0]) == 1 and run.loss in ("interpolate", "mse")
    need(good, "the bound of one input is of other networks")
    Y = [[*map(Fraction, y)] for y in run.Y]
    constant = Fraction(0) if run.fits else sum(q * dot(y, y) for q, y in zip(run.q, Y)) / run.lam
    goal, targets, ridges, missed = least / run.lam, [], [], []
    for side in ([max(e * Fraction(a), Fraction(0)) for (a,) in run.X] for e in (1, -1)):
        k = side.index(max(side))
        held = [(Fraction(1), side[k], Y[k])] if run.fits else list(zip(run.q, side, Y))
        c = sum(q * a * a for q, a, _ in held) or Fraction(1)
        targets.append([sum(q * a * y[j] for q, a, y in held) / c for j in range(run.m)])
        ridges.append(Fraction(0) if run.fits else run.lam / c)
        missed.append(run.misfit / side[k] if side[k] else Fraction(0))
        constant -= 0 if run.fits else c * dot(targets[-1], targets[-1]) / run.lam
    (p, q), (_, s) = gram(targets, targets)
    g = Fraction(2) ** round(math.log2(float(p + s) or 1.0) / 6)  # unit: the targets are about g^3, rho and tau g^2
    p, q, s, constant, goal = p / g**6, q / g**6, s / g**6, constant / g**2, goal / g**2
    ridges, missed = [d / g**4 for d in ridges], [t / g**3 for t in missed]
    f = tuple(map(float, (p, q, s, p * s - q * q, *ridges)))
    top = Fraction(math.nextafter(float(goal / 2), math.inf))
    ahead, count = [(Fraction(0), Fraction(0), top, top)], 0
    while ahead:
        low, down, high, up = cell = ahead.pop()
        count, _ = count + 1, in_time(end)
        if 2 * (low + down) >= goal:
            continue
        (n, e), (w, d) = (float(low), float(high)), (float(down), float(up))
        part = (n + e) / (n + e + w + d)
        mixed = [part * a + (1 - part) * b for a, b in zip(priced(n, d, *f), priced(e, w, *f))]
        for C in (priced((n + e) / 2, (w + d) / 2, *f), priced(e, d, *f), mixed):
            i, j, k = map(Fraction, C) if all(map(math.isfinite, C)) else (Fraction(0),) * 3
            u, v = (a * a * p + 2 * a * b * q + b * b * s for a, b in ((i, j), (j, k)))
            c = max(i * j * p + (i * k + j * j) * q + j * k * s, Fraction(0))
            value = constant + 2 * (i * p + 2 * j * q + k * s) - ridges[0] * u - ridges[1] * v - goal
            value -= 2 * sum(t * root(run.m * z) for t, z in zip(missed, (u, v)) if t)
            ends = product((low, high), (down, up))
            if all(2 * (a + b) + value >= u * a * a + v * b * b + 2 * c * a * b for a, b in ends):
                break
        else:
            need(max(high - low, up - down) * 2**60 > top, "two numbers of a network do not prove the bound")
            k = 0 if high - low >= up - down else 1
            at = cell[k + 2] / 4 if cell[k] == 0 else (cell[k] + cell[k + 2]) / 2
            ahead += [(*cell[: k + 2], at, *cell[k + 3 :]), (*cell[:k], at, *cell[k + 1 :])]
    return least, f"{count} cases of two numbers of a network (MATH.md 5)"


def priced(rho: float, tau: float, p: float, q: float, s: float, area: float, d: float, e: float) -> list[float]:
    """Guess the best C of these lengths: (K + ridges)^-1, K the products of the hidden layer's two vectors."""
    a, b = max(rho * rho + d, 1e-100), max(tau * tau + e, 1e-100)
    both, far = p * b + s * a, math.hypot(p * b - s * a, 2 * math.sqrt(area * a * b))
    k = min(max(0.0, 2 * q * a * b / (both + far or 1.0)), rho * tau)
    scale = 2 * a * b * far / (both + far or 1.0) if q > 0 and k < rho * tau else a * b - k * k
    return [b / (scale or 1e-300), -k / (scale or 1e-300), a / (scale or 1e-300)]


def shares(run: Run, least: Fraction, end: float) -> tuple[Fraction, str]:
    """Follow the stored cuts, in preorder: each leaves two cells that cover the one that is cut, whatever it holds."""
    cuts, places = array(run.certificate, "cuts", 2, 2, "iu"), array(run.certificate, "places", 1)
    points, prices = array(run.certificate, "multipliers", 2, run.N), finite(run.certificate, "prices", 3, run.N)
    good = run.m == 1 and run.depth == 3 and run.slope == 0 and run.loss in ("interpolate", "mse")
    good &= prices.shape[:2] == (len(points), 2 * (2**run.N - 1)) and 1e-3 <= single(run.certificate, "step", "f") <= 1
    need(good and len(cuts) == len(places) and points, "the stored tree does not fit the data")
    bounds, leaves, no_tree = Shares(run, least / run.lam, end), 0, "the stored cuts form no tree"
    ahead: list[Any] = [([range(len(bounds.kinds))], [], Fraction(0), math.inf)]
    for (place, feature), at in zip(cuts, places):
        need(ahead, no_tree)
        (classes, splits, low, high), _ = cell, _ = ahead.pop(), in_time(end)
        if feature == -3:  # a leaf
            need(leaves < len(points), no_tree)
            good = bounds.prove(cell, points[leaves], prices[leaves].tolist())
            need(good, "the stored prices do not prove the bound")
            leaves += 1
        elif feature == -2 and low < at < high:
            ahead += [(classes, splits, Fraction(at), high), (classes, splits, low, Fraction(at))]
        elif feature == -1 and 0 <= place < len(splits) and splits[place][1] < at < splits[place][2]:
            divided, *ends = splits[place]
            for part in ((divided, at, ends[1]), (divided, ends[0], at)):
                ahead.append((classes, [*splits[:place], part, *splits[place + 1 :]], low, high))
        else:
            need(0 <= feature <= run.N and 0 <= place < len(classes) <= 8 and 0 < at < 1, no_tree)
            new = [k for k in classes[place] for e, on in [bounds.kinds[k]] if ((e > 0), *on)[feature]]
            remaining = [k for k in classes[place] if k not in {*new}]
            classes = [*classes[:place], remaining, *classes[place + 1 :], new]
            ahead += [(classes, [*splits, (place, *ends)], low, high) for ends in ((at, 1.0), (0.0, at))]
    need(not ahead and leaves == len(points), no_tree)
    return least, f"{leaves} cases of the shares of hidden neurons (MATH.md 5)"


def directions(outputs: int, count: float) -> tuple[Any, Fraction]:
    """Return directions u of the outputs, and a secant with |v| <= secant max_u <u, v> for all v, and a power of 2.

    A v between neighbours u and w is a u + b w, so |v|^2 <= (a + b) max(<u, v>, <w, v>), and |v| / (a + b) is at least
    the distance of 0 from the line through u and w. If each is to the left of the one before, they go around 0."""
    if outputs == 1:
        return [[1], [-1]], Fraction(1)
    angles = (2.0 * math.pi / count * k for k in range(int(count)))
    u: Any = [(round(math.cos(a) * 2.0**60), round(math.sin(a) * 2.0**60)) for a in angles]
    both = [(v, w, v[0] * w[1] - v[1] * w[0]) for v, w in zip(u, u[1:] + u[:1])]
    need(min(t for *_, t in both) > 0, "the stored directions do not go around the circle")
    return u, max(root(Fraction((v[0] - w[0]) ** 2 + (v[1] - w[1]) ** 2)) / t for v, w, t in both)


def paths(run: Run, least: Fraction, end: float) -> tuple[Fraction, str]:
    """Prove |Lambda^T sigma(h)| <= M (|m|_1 + r |b|) for all h = sum_j m_j sigma(Xt w_j) + beta b 1, for each Lambda.

    The cuts are trees over the signs of h, one for each direction u of the outputs; their halves cover all h. In a leaf
    lambda = Lambda u, and prices, moved to where they are valid, have lambda_i sigma(h_i) <= c+_i h+_i - c-_i h-_i for
    the parts h+, h- of positive and negative weights. They are rounded up, which leaves them valid."""
    cuts, prices = array(run.certificate, "cuts", 1, None, "iu"), finite(run.certificate, "prices", 2, run.N)
    points, biases = finite(run.certificate, "multipliers", 3, run.m), array(run.certificate, "bias_prices", 1)
    step, count = (single(run.certificate, name, "f") for name in ("step", "directions"))
    good = run.m <= 2 and run.depth == 3 and run.slope == 0 and run.loss in ("interpolate", "mse")
    good &= points.shape == (len(biases), run.N, run.m) and 0 < len(biases) <= 100 and min(biases) > 0
    good &= 1e-3 <= step <= 1 and (run.m == 1 or count in range(3, 1001))
    need(good, "the stored multipliers do not fit the data")
    bounds, (vectors, secant) = Multiplied(run, least / run.lam, end), directions(run.m, count)
    sphere, nodes, leaves, priced = bounds.sphere, iter(cuts), iter(prices), []
    for point, price in zip(points.tolist(), biases):
        (L, e), T, long, total = scaled(point), 0, 0, 0
        for u in vectors:
            slopes, ahead = [dot(row, u) for row in L], [(0,) * run.N]
            while ahead:
                signs, cut, _ = ahead.pop(), next(nodes, run.N), in_time(end)
                need(-1 <= cut < run.N, "the stored cuts form no trees")
                if cut >= 0:  # the half with h >= 0 comes first
                    ahead += [(*signs[:cut], sign, *signs[cut + 1 :]) for sign in (-1, 1)]
                    continue
                leaf = next(leaves, np.empty(0)).tolist()
                need(leaf, "the stored cuts form no trees")
                for c in moved(leaf, slopes, signs, e + 60 * (run.m == 2)):
                    T, long, total = sphere.largest(c, T), max(long, dot(c, c)), max(total, sum(c))
        M, r = sphere.unit * sphere.stretch * root(Fraction(T)) + sphere.missed * root(Fraction(long)), Fraction(price)
        r *= root(bounds.unit)
        M = secant * max(M, run.beta / r * total)
        priced.append((L, M, (M * r) ** 2 * (run.beta > 0)))
    need(next(nodes, None) is None is next(leaves, None), "the stored cuts form no trees")
    need(bounds.proves(Fraction(0), Fraction(1), priced), "the stored prices do not prove the bound")
    return least, f"{len(prices)} cases of the signs of hidden neurons (MATH.md 5)"


def moved(prices: list[float], slopes: list[int], signs: tuple[int, ...], e: int) -> tuple[list[int], list[int]]:
    """Return c+ and -c- of a leaf, in units of 2^-e."""
    above, below = [], []
    for price, slope, sign in zip(prices, slopes, signs):
        n, d = price.as_integer_ratio()
        c = -((-n << e) // d)
        if slope <= 0:
            c = min(max(c, slope), 0)
        elif sign:
            c = max(c, slope) if sign > 0 else min(c, 0)
        above.append(slope if slope > 0 and not sign else c)
        below.append(0 if slope > 0 and not sign else -c)
    return above, below


DEEP = {"spectral": spectral, "laplacian": laplacian, "angle": angle, "linear": linear}
DEEP |= {"convexity": convexity, "loop": loop, "one-input": one_input, "shares": shares, "paths": paths}


def from_data(run: Run, kind: str, least: Fraction, end: float) -> tuple[Fraction, str]:
    need(kind == "spectral" or run.depth > 2, f"the certificate {kind} comes without its dual point")
    need(kind in DEEP, f"the certificate {kind} is one of two layers, not of {run.depth}")
    supported = not run.free and run.loss in ("interpolate", "mse", "cross_entropy")
    need(supported, f"the bound {kind} of {run.loss} at depth {run.depth} is not known here", UNCHECKED)
    return DEEP[kind](run, least, end)


# ---- What is stated, and the verdict.


def listed(directory: Path, name: str) -> Any:  # the summary, once the files are those that it lists
    s = json.loads((directory / name).read_text(encoding="utf-8"))
    need(type(s) is dict, f"{name} is not the summary of a run", UNREAD)
    need(type(s.get("files")) is dict and s["files"], f"{name} lists no files")
    for file, digest in s["files"].items():
        need((directory / file).is_file(), f"{file} is missing")
        actual = hashlib.sha256((directory / file).read_bytes()).hexdigest()
        need(actual == digest, f"{file} is not the file that was stored: its SHA-256 is another")
    need(s.get("kind") == name.removesuffix(".json"), f"{name} states another kind")
    return s


def stated(run: Run) -> Fraction:  # the exact cost, from above, once result.json states what follows from the files
    s, lam = run.stated, None if run.fits else float(run.lam)
    follows = {"loss": run.loss, "lam": lam, "depth": run.depth, "bias": run.bias, "activation": run.activation}
    follows |= {"rows": run.N, "widths": [len(W) for W in run.W[:-1]], "weighted": run.weighted, "skip": run.skip}
    copies = (("lower", "f"), ("certificate", "U"))
    follows |= {name: single(run.certificate, name, t) for name, t in copies if name in run.certificate}
    for name, value in follows.items():
        need(agree(s[name], value), f"the {name} is {value}, result.json states {s[name]}")
    wrong = [name for name in NUMBERS if not number(s.get(name))]
    need(not wrong, f"{' and '.join(wrong)} in result.json should be numbers")
    need(run.fits or s.get("residual") is None, "result.json states a residual, which only exact fits have")
    need(s["certificate"] in KINDS and s["status"] in STATUSES, "the certificate or the status is unknown")
    terms, cost, lower = run.cost(), s["cost"], s["lower"]
    fits = not run.fits or terms["residual"][1] <= run.misfit * (1 + TOLERANCE * (-1 if cost is None else 1))
    need(fits or cost is None, f"the network misses the targets by {float(terms['residual'][1]):.3g}")
    need(not fits or cost is not None, "result.json states no cost, and the stored network has one")
    for name in ("cost", "fit", "norm", *(["residual"] if run.fits else [])) if fits else ():
        (low, high), scale = terms[name], {"residual": run.largest, "norm": terms["cost"][1] / run.lam}
        slack = TOLERANCE * scale.get(name, terms["cost"][1])
        good = low - slack <= Fraction(s[name]) <= high + slack
        need(good, f"the stored network has the {name} {float(low):.12g}, result.json states {s[name]}")
    need((lower is None) == (s["certificate"] == "none"), "result.json states one of bound and certificate only")
    optimal, good = s["status"] == "optimal", s["gap"] is None
    need(s["status"] != "unsolved" or cost is None, f"unsolved, though a network costs {cost}")
    need(not optimal or None not in (cost, lower, s.get("target")), "optimal, without a cost, a bound and a target")
    if cost is not None and lower is not None:
        good = 0 <= lower <= cost and abs(s["gap"] - (cost - lower) / (cost or 1)) <= 1e-12
        aimed = s.get("target") is not None and s["status"] != "interrupted"
        good &= not aimed or optimal == (s["gap"] <= s["target"])
    need(good, f"cost {cost}, bound {lower}, gap {s['gap']} and status {s['status']} contradict each other")
    return terms["cost"][1]


def solve(directory: Path, end: float, facts: dict[str, Any]) -> None:
    _, run = listed(directory, "result.json"), Run(directory)
    cost, lower, kind = stated(run), run.stated["lower"], run.stated["certificate"]
    facts |= {"cost": float(cost), "stated": run.stated["cost"]} if run.stated["cost"] is not None else {}
    if lower is None:
        return
    least = Fraction(lower) - TOLERANCE * (cost if "cost" in facts else Fraction(lower))
    bound, how = (two_layers if "Lambda" in run.certificate and run.depth == 2 else from_data)(run, kind, least, end)
    facts |= {"bound": math.nextafter(float(bound), 0.0), "stated_bound": lower, "how": how}
    facts |= {"gap": float(1 - bound / cost)} if facts.get("cost") else {}
    need(bound >= least, f"only {float(bound):.12g} is proved, result.json states {lower}")


def check(directory: Path, limit: float) -> tuple[int, dict[str, Any]]:  # the exit code, and what was found
    started, facts, code, what = time.monotonic(), {}, 0, "cost and bound as stated, to 1e-9 of the cost"
    try:
        if (directory / "result.json").is_file():
            solve(directory, started + limit, facts)
        elif (directory / "cprank.json").is_file():
            what, s = "the verdict and both ends", listed(directory, "cprank.json")
            facts |= {"how": completely_positive(directory, s, started + limit)} | {k: s[k] for k in ("lower", "upper")}
        else:
            another = any(file.name != "origin.json" for file in directory.glob("*.json"))
            raise Stop(UNCHECKED if another else UNREAD, "this is not the run of a solve")
    except (Stop, KeyboardInterrupt) as stop:
        code, facts["why"] = stop.args or (UNCHECKED, "the check was interrupted")
    except Exception as error:  # untrusted files fail in many ways, and none of them is a proof
        code, facts["why"] = UNREAD, f"the files are damaged or incomplete ({error})"
    return code, {"verdict": VERDICTS[code].format(what), **facts, "seconds": round(time.monotonic() - started, 3)}


def main() -> None:  # a line for each thing found, or one JSON object; the exit code is the verdict
    parser = argparse.ArgumentParser(prog="covopt-check", description="Prove a stored run again, without covopt.")
    parser.add_argument("run", type=Path, help="the directory of covopt solve --out, or of covopt cprank --out")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds for the bound (600)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    code, facts = check((options := parser.parse_args()).run, options.time_limit)
    text = json.dumps(facts) if options.json else "\n".join(f"{name:<12} {value}" for name, value in facts.items())
    try:
        os.write(1, (text + "\n").encode())
    except OSError as error:  # a full disk, a closed pipe, or no output: nobody has read the verdict
        print(f"the verdict cannot be written: {error.strerror}", file=sys.stderr)
        code = UNREAD
    sys.exit(code)


if __name__ == "__main__":
    main()
