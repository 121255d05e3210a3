"""The cost model: seconds and memory measured against N, d, n and L, and the power laws fitted to them.

Processor time of one thread, the median of repeats. `report` prints the laws, and what they say of 10^6 and 10^7
samples (linear in N from the largest case measured), into docs/benchmarks.md.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch

from covopt.model.activation import Activation
from covopt.model.passes import Samples
from covopt.model.problem import Problem, make_problem
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle
from covopt.solvers.shallow.master import Master
from covopt.solvers.shallow.sliding import Parts
from covopt.solvers.shallow.two_layer_loss import TwoLayerLoss
from covopt.solvers.training.batch import Batch
from covopt.solvers.training.descent import BatchedLBFGS
from covopt.solvers.training.trainer import initial
from tests.benchmarks import works
from tests.benchmarks.harness import Outcome, Settings, benchmark, covopt

OUTPUTS = 10
LARGE = (60_000, 1_000_000, 10_000_000)
Sizes = tuple[int, ...]


@benchmark("costs", "seconds and memory against N, d, n and L, and the laws fitted to them (3 min)")
def run_costs(settings: Settings) -> Outcome:
    """Time: a pass of training, a master, a step of the search, a turn of a deep descent. Memory: whole solves."""
    torch.set_num_threads(settings.threads)
    few = settings.quick
    rows, laws = [], []

    def add(name: str, letters: str, cases: Sequence[Sizes], measure: Callable[..., float]) -> None:
        values = [measure(*case) for case in cases]
        factor, powers = fit(cases, values)
        law = f"{factor:.2g} " + " ".join(
            f"{letter}^{power:.2f}" for letter, power in zip(letters, powers, strict=True)
        )
        # Operations are linear in N; the fitted power of N, a little off 1, would be carried over decades.
        predicted = [values[-1] * N / cases[-1][0] for N in LARGE]
        largest = ", ".join(f"{letter} = {size}" for letter, size in zip(letters[1:], cases[-1][1:], strict=True))
        laws.append((f"{name}; {largest}", law, *predicted))
        rows.extend((name, ", ".join(map(str, case)), value) for case, value in zip(cases, values, strict=True))

    samples = (1024, 2048) if few else (4096, 8192, 16384)
    grid = list(product(samples, (100, 200) if few else (125, 250, 500), (64, 128) if few else (98, 784)))
    add("a pass over the samples, float32 (s)", "Nnd", grid, _pass)
    grid = list(product(samples, (64, 128) if few else (98, 392, 784)))
    add("a step of one ascent, 25 inner steps (s)", "Nd", grid, _ascent)
    grid = list(product(samples, (100, 200) if few else (125, 250, 500)))
    add("the master's Gram matrix (s)", "Nn", grid, _gram)
    grid = list(product((400, 800) if few else (400, 1600, 6400), (20, 40), (3, 6)))
    add("a turn of a deep descent of 8 networks, 64 inputs (s)", "NnL", grid, _turn)
    sizes = (6000, 8000) if few else (15_000, 30_000, 60_000)
    runs = [covopt(works.mixture(N), settings, time_limit=settings.limit(8.0), gap=0.0)[0] for N in sizes]
    peaks = [run.peak_mib for run in runs]
    slope, base = np.polyfit(sizes, peaks, 1)
    laws.append(
        ("memory of a solve, 784 inputs (MiB)", f"{base:.0f} + {slope:.4f} N", *(base + slope * N for N in LARGE))
    )
    rows.extend(("memory of a solve (MiB)", str(N), peak) for N, peak in zip(sizes, peaks, strict=True))
    return Outcome(
        target="measured and fitted: time and memory against N, d, n and L",
        reached="; ".join(f"{name}: {law}" for name, law, *_ in laws),
        met=None,
        columns=("law", "fitted", *(f"at N = {N:,}" for N in LARGE)),
        rows=[*laws, *[(name, sizes, value, None, None) for name, sizes, value in rows]],
        runs=runs,
    )


def fit(cases: Sequence[Sizes], values: Sequence[float]) -> tuple[float, np.ndarray]:
    """c and p of values ~ c prod_i case_i^p_i, by least squares of the logarithms."""
    A = np.column_stack([np.ones(len(cases)), np.log(np.array(cases, dtype=float))])
    solution = np.linalg.lstsq(A, np.log(values), rcond=None)[0]
    return float(np.exp(solution[0])), solution[1:]


def _seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The median of processor seconds, after one call that warms up."""
    work()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _problem(N: int, d: int, depth: int = 2) -> Problem:
    return make_problem(_random(N, d), _random(N, OUTPUTS), lam=1e-4, bias=0.0, depth=depth)


def _pass(N: int, n: int, d: int) -> float:
    """L and its gradient over all samples."""
    problem = _problem(N, d)
    loss = TwoLayerLoss(problem, Samples(problem.Xt.float(), problem.Y.float()))
    parts: Parts = _random(n, d + 1).float(), _random(n, OUTPUTS).float(), _random(OUTPUTS).float()
    return _seconds(lambda: loss.gradient(*parts))


def _ascent(N: int, d: int) -> float:
    """One convex-concave step from each of 16 starts, over 16."""
    starts, dual = _random(16, d), _random(N, OUTPUTS)
    search = ConvexConcaveOracle(
        _random(N, d), Activation(), AscentOptions(steps=1, box_steps=25, finishing=1, check=26)
    )
    return _seconds(lambda: search.ascend(dual, starts), repeats=3) / len(starts)


def _gram(N: int, n: int) -> float:
    """What a master costs before its Newton steps, which know no N."""
    Phi, Y, mu = _random(N, n), _random(N, OUTPUTS), torch.ones(N, dtype=torch.float64)
    return _seconds(lambda: Master(Phi, Y, mu, 0.0), repeats=3)


def _turn(N: int, n: int, L: int) -> float:
    """One turn of L-BFGS on 8 networks of 64 inputs and width n."""
    problem, widths = _problem(N, 64, L), [n] * (L - 1)
    batch = Batch(problem, [widths] * 8)
    descent = BatchedLBFGS(batch.evaluate, batch.pack([initial(problem, widths, seed) for seed in range(8)]))
    return _seconds(descent.iterate, repeats=15)
