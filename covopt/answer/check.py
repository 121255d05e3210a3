"""Load a stored solve, and check it against its weights, its data and its proof.

Each check yields sentences that say what does not follow. Cheap checks come first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.answer.stored import load
from covopt.answer.uniqueness.decide import decide
from covopt.answer.verify import Verification, differences, loose, unbound
from covopt.data.arrays import read_npz
from covopt.data.networks import read_network
from covopt.model.affine import skip_as_neurons
from covopt.model.weights import evaluate
from covopt.records import record
from covopt.records.record import CERTIFICATE, SUMMARY, Summary
from covopt.runtime.errors import CovoptError, ProblemError
from covopt.runtime.loop import Certificate, Status
from covopt.solvers.deep.layers import report
from covopt.solvers.options import METHODS

NETWORK_PT = "network.pt"
NEVER = (
    *("data", "scale", "weighted", "targets", "shuffle", "method", "certify", "attainable", "target", "starts"),
    *("seconds", "timing", "seed", "version", "test"),
)
"""Entries of result.json that nothing in its files tells."""
# Two numbers that come from one another by a single operation differ by no more than this, relative.
SAME = 1e-12
# A singular value that depends on the number of threads in its last digits.
INDEPENDENCE = 1e-6
# The data in the state dict went through a product with beta and a division by it.
STATE = 1e-14

Sentences = Iterator[str]


def inside(directory: Path, names: Sequence[str], rounding: float) -> dict[str, Verification]:
    """Run `verify` for the solves in a run of another kind."""
    return {name: verify(directory / name, record.read_summary(directory / name), rounding) for name in names}


def verify(directory: Path, stated: Summary, rounding: float) -> Verification:
    """Check what the files of a solve prove; `stated` is its summary."""
    result = load(directory)

    def refused(message: str, proved: float | None = None) -> Verification:
        return Verification(False, message, result.cost, proved)

    for message in chain(numbers(result, stated, rounding), facts(result, stated, rounding)):
        return refused(message)
    proved = None if result.lower is None else 0.0
    try:
        if result.lower is not None and result.proof is not None:
            proved = result.proof.bound(result.problem.double())
    except ProblemError as error:
        return refused(f"The bound is not proved: {error}")
    complaints = chain(
        bound(result, proved, rounding),
        copies(stated, read_npz(directory / CERTIFICATE)),
        gap(stated),
        history(result, stated),
        layers(result, stated),
        state_dict(result, directory),
        uniqueness(result),
        unbound(directory, SUMMARY, stated),
    )
    for message in complaints:
        return refused(message, proved)
    unchecked = list(NEVER)
    if result.problem.depth > 2:
        unchecked.append("stationarity and gap of the layers")
    if any(line.gaps for line in result.history):
        unchecked.append("the gaps in history.csv")
    if stated["unique"] is None:
        unchecked.append("unique")
    if stated["status"] != Status.OPTIMAL:
        unchecked.append("why the search ended")
    unchecked += loose(directory, SUMMARY, stated)
    text = "The cost is what the stored network costs"
    if stated["cost"] is None:
        text = "The stored network does not fit exactly, as is stated"
    text += ", and the stored certificate proves the bound" if proved is not None else ", and no bound is stated"
    return Verification(True, f"{text}; not checked: {', '.join(unchecked)}.", result.cost, proved, unchecked)


def numbers(result: Result, stated: Summary, rounding: float) -> Sentences:
    """Check the cost against the stored weights, and that nothing is negative."""
    cost, fits = stated["cost"], not math.isnan(result.cost)
    if cost is None:
        if fits:
            yield f"The stored network costs {result.cost:.12g}, but result.json states no cost."
        return
    if not fits:
        misses = evaluate(result.problem.double(), result.weights).residual
        yield f"The stored network misses the targets by {misses:.3g}, which is no fit."
    elif not abs(result.cost - cost) <= rounding * abs(result.cost):
        yield f"The stored network costs {result.cost:.12g}, but result.json states {cost}."
    if min(stated[name] or 0.0 for name in ("fit", "norm", "residual")) < 0.0:
        yield "result.json states a negative fit, norm or residual."


def facts(result: Result, stated: Summary, rounding: float) -> Sentences:
    """Check all entries that follow from the problem and the weights; `load` takes the others from the summary."""
    recomputed = result.summary() | {"gap": stated["gap"]}  # which follows from the stated cost and bound
    largest = max(1e-300, float(result.problem.Y.abs().max()))
    sizes = {"cost": result.cost, "fit": result.cost, "norm": result.cost, "residual": largest}
    for name, size in sizes.items():  # parts may be small beside the cost, which has their rounding
        own, value = recomputed[name], stated[name]
        if isinstance(own, float) and isinstance(value, float) and abs(own - value) <= rounding * size:
            recomputed[name] = value
    yield from differences(SUMMARY, stated, recomputed)
    if stated["method"] not in METHODS:
        yield "result.json states a method that covopt does not have."


def bound(result: Result, proved: float | None, rounding: float) -> Sentences:
    """Check the lower bound against what the stored certificate proves."""
    lower, kind = result.lower, result.certificate
    if (lower is None) != (kind is Certificate.NONE):
        yield "result.json states a bound without a certificate, or a certificate without a bound."
    if lower is None or proved is None:
        return
    if not (math.isfinite(lower) and lower >= 0.0):
        yield f"result.json states a bound of {lower}, which is none."
    if not (math.isfinite(proved) and lower <= proved * (1.0 + rounding)):
        yield f"The stored certificate proves a bound of {proved:.12g} only, but result.json states {lower:.12g}."


def copies(stated: Summary, certificate: Summary) -> Sentences:
    """Check the copies of facts in certificate.npz."""
    for name in ("lower", "certificate"):
        if name in certificate and (certificate[name].size != 1 or certificate[name].item() != stated[name]):
            yield f"certificate.npz and result.json state different values of {name}."


def gap(stated: Summary) -> Sentences:
    """Check the gap against cost and bound, and the status against the gap."""
    cost, lower, part, status = stated["cost"], stated["lower"], stated["gap"], stated["status"]
    if status == Status.UNSOLVED and cost is not None:
        yield f"result.json states that the run is unsolved, but a cost of {cost}."
    if cost is None or lower is None:
        if part is not None:
            yield "result.json states a gap without a cost or without a bound."
        if status == Status.OPTIMAL and cost != 0.0:  # nothing costs less than nothing
            yield "result.json states that the run is optimal, but no gap."
        return
    expected = (cost - lower) / cost if cost > 0.0 else 0.0
    if lower > cost:
        yield f"result.json states a bound of {lower} above the cost of {cost}."
    if part is None or not math.isclose(part, expected, rel_tol=SAME, abs_tol=SAME):
        yield f"The gap between cost and bound is {expected:.6g}, but result.json states {part}."
    target = stated["target"]
    if target is None or status == Status.INTERRUPTED:
        return
    if (status == Status.OPTIMAL) != (expected <= target):
        yield f"The gap is {expected:.6g} and its target {target:g}, which does not fit the status {status}."


def history(result: Result, stated: Summary) -> Sentences:
    """Check that the search ends where result.json states, and never goes back in time."""
    lines = result.history
    if not lines:
        yield "history.csv is empty."
        return
    last = lines[-1]
    ends = (record.known(last.cost), record.known(last.lower), last.width)
    if ends != (stated["cost"], stated["lower"], max(stated["widths"], default=0)):
        yield "history.csv does not end at the cost, the bound and the width that result.json states."
    times = [line.seconds for line in lines]
    if not (all(math.isfinite(t) and t >= 0.0 for t in times) and all(a <= b for a, b in pairwise(times))):
        yield "history.csv goes back in time."
    if stated["seconds"] is not None and times[-1] > stated["seconds"]:
        yield "history.csv continues after the seconds that result.json states."
    if not all(a.iteration <= b.iteration for a, b in pairwise(lines)):
        yield "history.csv counts its rounds backwards."
    bounds = [line.lower for line in lines if line.lower is not None]
    if not all(a <= b for a, b in pairwise(bounds)) or any(math.isnan(b) for b in bounds):
        yield "history.csv holds a bound that falls, though a proved bound stays proved."


def layers(result: Result, stated: Summary) -> Sentences:
    """Check each hidden layer's width, ranks and merging neurons against the weights."""
    stated_layers = stated["layers"]
    if stated_layers and [layer["layer"] for layer in stated_layers] != list(range(1, result.problem.depth)):
        yield "result.json does not list the hidden layers one by one."
        return
    problem, weights = result.problem.double(), [W.double() for W in result.weights]
    for layer in stated_layers:
        actual = report(problem, weights, layer["layer"], None, Certificate.NONE, None)
        for name in ("width", "rank_K", "rank_Ks", "mergeable"):
            if layer[name] != getattr(actual, name):
                yield f"Layer {actual.layer} has {name} {getattr(actual, name)}, but result.json states {layer[name]}."
        if (layer["gap"] is None) != (layer["gap_certificate"] == Certificate.NONE) or (layer["gap"] or 0.0) < 0.0:
            yield f"result.json states a gap of layer {actual.layer} that is none."


def uniqueness(result: Result) -> Sentences:
    """Decide again, from stored weights and data, whether the optimum is the only one."""
    if result.decided is None:
        return
    decided = decide(result.problem.double(), [W.double() for W in result.weights])
    stated, recomputed = ({"unique": verdict.summary()} for verdict in (result.decided, decided))
    if any(differences(SUMMARY, stated, recomputed, INDEPENDENCE)):
        yield "The stored data and network do not prove what result.json states of the set of all optima."


def state_dict(result: Result, directory: Path) -> Sentences:
    """Check that network.pt holds the weights of network.npz."""
    beta = result.problem.beta
    if not (directory / NETWORK_PT).is_file():
        yield f"{NETWORK_PT} is missing."
        return
    if min(result.widths, default=0) == 0:
        return  # a state dict does not determine a layer without neurons
    try:
        exported = read_network(directory / NETWORK_PT, beta).weights
    except CovoptError as error:
        yield f"{NETWORK_PT} is not the stored network: {error}"
        return
    stored = skip_as_neurons(result.problem.double(), [W.double() for W in result.weights])
    if len(exported) != len(stored) or any(
        not _alike(torch.from_numpy(a), W, beta) for a, W in zip(exported, stored, strict=True)
    ):
        yield f"{NETWORK_PT} and network.npz hold different weights."


def _alike(exported: Tensor, W: Tensor, beta: float) -> bool:
    if exported.shape != W.shape:
        return False
    columns = slice(None) if beta else slice(0, -1)
    a, b = exported[:, columns], W[:, columns]
    return bool(((a - b).abs() <= STATE * b.abs()).all())
