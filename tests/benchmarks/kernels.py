"""Tr[K B^+] with its gradients in both factors: ours against dense pseudo-inverses, in turns within one process."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from covopt.linalg.cholesky import FullRankFactor, factorize
from tests.benchmarks.harness import Outcome, Settings, benchmark
from tests.references.hidden_loss import trace_quotient

Answer = tuple[float, Tensor, Tensor]
FULL, DEFICIENT = 10.0, 50.0  # times faster than torch's pinv, the targets
OUTPUTS = 10
MOST_SINGULAR = 2000  # rows of the pseudo-inverse by singular values, which takes minutes at 8,192


@dataclass(frozen=True)
class Case:
    """Zs (N, d) of the given rank with singular values from 1 to 1/30, and Z = Zs V (N, OUTPUTS)."""

    name: str
    N: int
    d: int
    rank: int
    target: float | None
    dtype: torch.dtype = torch.float64

    def factors(self, device: str) -> tuple[Tensor, Tensor]:
        """Z and Zs on the device."""
        generator = torch.Generator().manual_seed(0)

        def orthonormal(rows: int) -> Tensor:
            draw = torch.randn(rows, self.rank, generator=generator, dtype=torch.float64).to(device)
            return torch.linalg.qr(draw).Q

        s = torch.logspace(0.0, -1.5, self.rank, dtype=torch.float64, device=device)
        Zs = (orthonormal(self.N) * s) @ orthonormal(self.d).mT
        Z = Zs @ torch.randn(self.d, OUTPUTS, generator=generator, dtype=torch.float64).to(device)
        return Z.to(self.dtype), Zs.to(self.dtype)


@benchmark("kernels", "Tr[K B^+] with its gradients against pseudo-inverses (5 min)")
def run_kernels(settings: Settings) -> Outcome:
    """Full and deficient rank, float64 and float32; on `--device cuda` with N = 8,192 as well."""
    torch.set_num_threads(settings.threads)
    single, cuda = torch.float32, settings.device == "cuda"
    N = 300 if settings.quick else 2000
    cases = [
        Case("full rank", N, N, N, FULL),
        Case("thin, rank-deficient", N, N // 10, N // 20, DEFICIENT),
        Case("full rank, twice as many columns", N // 2, N, N // 2, None),
        Case("thin, full column rank", N // 2, N // 20, N // 20, None),
        Case("full rank, float32", N // 2, N // 2, N // 2, None, single),
        Case("thin, rank-deficient, float32", N // 2, N // 20, N // 40, None, single),
    ]
    if cuda and not settings.quick:
        cases += [Case("full rank, large", 8192, 8192, 8192, None), Case("thin, large", 8192, 800, 400, None)]
    rows = [_compare(case, settings, turns=3 if case.N <= N else 1) for case in cases]
    aimed = [(row, case.target) for row, case in zip(rows, cases, strict=True) if case.target is not None]
    return Outcome(
        target=f"with its gradients, N = 2,000, float64: {FULL:.0f} times faster than torch.linalg.pinv at full rank, "
        f"{DEFICIENT:.0f} times for a rank-deficient thin factor",
        reached="; ".join(map(_told, rows if cuda else [row for row, _ in aimed])),
        met=None if settings.quick else all(row[-2] >= target for row, target in aimed),
        columns=(
            "case",
            "N",
            "columns",
            "path",
            "ms",
            "ms pinv",
            "ms pinv, hermitian",
            "ms pinvh",
            "off",
            "x",
            "x pinvh",
        ),
        rows=rows,
    )


def _compare(case: Case, settings: Settings, turns: int) -> tuple[object, ...]:
    """The row of one case: medians in milliseconds of contenders that take turns, and how much faster ours is."""
    Z, Zs = case.factors(settings.device)
    contenders: dict[str, Callable[[], Answer]] = {
        "ours": lambda: _ours(Z, Zs),
        "hermitian": lambda: _pinv(Z, Zs, hermitian=True),
    }
    if case.N <= MOST_SINGULAR:
        contenders["pinv"] = lambda: _pinv(Z, Zs, hermitian=False)
    if settings.device == "cpu":
        contenders["pinvh"] = lambda: _pinvh(Z, Zs)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    answers: dict[str, Answer] = {"ours": _ours(Z, Zs)}  # which warms up
    for _ in range(turns):
        for name, contender in contenders.items():
            begun = now(settings.device)
            answers[name] = contender()
            times[name].append(1e3 * (now(settings.device) - begun))
    ms = {name: statistics.median(values) for name, values in times.items()}
    path = "Cholesky" if isinstance(factorize(Zs), FullRankFactor) else "singular values"
    # Single precision is held against double: the pseudo-inverse of a squared matrix keeps two digits there.
    double = replace(case, dtype=torch.float64)
    exact = answers["hermitian"] if case == double else _ours(*double.factors(settings.device))
    off = _distance(answers["ours"], exact)
    pinvh = ms.get("pinvh")
    shown = [round(ms[name], 1) if name in ms else None for name in ("ours", "pinv", "hermitian")]
    return (
        case.name,
        case.N,
        case.d,
        path,
        *shown,
        None if pinvh is None else round(pinvh, 1),
        off,
        round(min(ms.get("pinv", math.inf), ms["hermitian"]) / ms["ours"], 1),
        None if pinvh is None else round(pinvh / ms["ours"], 1),
    )


def _told(row: tuple[object, ...]) -> str:
    return f"{row[0]}, N = {row[1]}: {row[-2]:.1f} times" + (f" (scipy's pinvh: {row[-1]:.0f})" if row[-1] else "")


def _ours(Z: Tensor, Zs: Tensor) -> Answer:
    leaves = Z.clone().requires_grad_(), Zs.clone().requires_grad_()
    value = trace_quotient(*leaves)
    by_Z, by_Zs = torch.autograd.grad(value, leaves)
    return float(value.detach()), by_Z, by_Zs


def _pinv(Z: Tensor, Zs: Tensor, *, hermitian: bool) -> Answer:
    """|Z^T B^+ Z| as one writes it down, gradients by autograd."""
    leaves = Z.clone().requires_grad_(), Zs.clone().requires_grad_()
    inverse = torch.linalg.pinv(leaves[1] @ leaves[1].mT, rtol=_cut(Zs.dtype), hermitian=hermitian)
    value = (leaves[0] * (inverse @ leaves[0])).sum()
    by_Z, by_Zs = torch.autograd.grad(value, leaves)
    return float(value.detach()), by_Z, by_Zs


def _pinvh(Z: Tensor, Zs: Tensor) -> Answer:
    """The same with SciPy, gradients by hand."""
    z, zs = Z.numpy(), Zs.numpy()
    A = np.asarray(scipy.linalg.pinvh(zs @ zs.T, rtol=_cut(Zs.dtype))) @ z
    return float((z * A).sum()), torch.from_numpy(2.0 * A), torch.from_numpy(-2.0 * A @ (A.T @ zs))


def _cut(dtype: torch.dtype) -> float:
    """Eigenvalues of B are at least 1e-3 or rounding."""
    return 1e-8 if dtype == torch.float64 else 1e-5


def _distance(ours: Answer, other: Answer) -> float:
    """The largest relative distance of the value and the two gradients."""
    gaps = [abs(ours[0] - other[0]) / abs(other[0])]
    gaps += [float((a.to(b) - b).norm() / b.norm()) for a, b in zip(ours[1:], other[1:], strict=True)]
    return max(gaps)


def now(device: str) -> float:
    """Seconds of the processor, so that a busy machine treats all alike; on a GPU, of the clock."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()
