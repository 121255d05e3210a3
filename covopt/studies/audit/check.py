"""Check the summary of an audit against its networks and the solver's run in it.

Numbers come from the stored networks; the finding, the missing neurons and the sentences come from these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Never

import torch
from torch import Tensor

from covopt import __version__
from covopt.answer import check as runs, verify as checks
from covopt.answer.result import Result
from covopt.answer.stored import load as load_run
from covopt.answer.verify import equal, evaluated, same, weights_of
from covopt.data.arrays import read_npz
from covopt.model.passes import has_many
from covopt.model.problem import Problem
from covopt.model.weights import evaluate
from covopt.records import record
from covopt.records.record import KIND, Summary
from covopt.records.storing import FILES
from covopt.runtime.errors import RecordError
from covopt.runtime.loop import Certificate
from covopt.solvers.deep.layers import relative_gap, report
from covopt.solvers.deep.pruning import mergeable
from covopt.studies.audit.audited import AT, BETTER, DESCENDED, ORBITS
from covopt.studies.audit.batches import Batches, batches_of
from covopt.studies.audit.examination import LayerAudit, dead, is_constant, unbalanced
from covopt.studies.audit.function import checked_inputs, function_of
from covopt.studies.audit.verdicts import Judge

Sentences = Iterator[str]

NOISE = 1e-12
"""Rounding of the singular values of one list, relative to the largest of them, and of differences of numbers, relative
to these numbers or to 1."""
DIFFERENCES = ("distance", "R1_lower", "nonlinearity", "orbit_collapse", "sum", "at_most", "smaller", "larger")


def load(directory: Path) -> Never:
    """Refuse: the examination of a network is not stored as a whole.

    Raises:
        RecordError: always; it names the solve that can be loaded.
    """
    raise RecordError(f"{directory} holds an audit, which cannot be loaded; load {directory / record.SOLUTION}.")


def verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    """Check the solver's run in it as a solve, and the rest against the stored networks."""
    solution = directory / record.SOLUTION
    solves = runs.inside(directory, [record.SOLUTION], rounding)
    complaints = _complaints(s, directory, record.read_summary(solution), load_run(solution), rounding)
    return checks.of_study(directory, record.AUDIT, s, solves, complaints, _unchecked(s))


def _unchecked(s: Summary) -> list[str]:
    """Return the names of the entries that nothing in the files of an audit proves."""
    names = ["residuals", "inert", "trained", "hint", "descended.finished", "descended.residuals"]
    names += [] if s["function"] else ["function"]
    names += [] if s["rounded"] is None else ["rounded.residuals"]
    reports = ("stationarity", "direction", "output", "loss_with_neuron", "loss_trained_with_neuron", "loss_with_block")
    names += [f"layers.{name}" for name in reports]
    names += ["layers.gap", "layers.gap_certificate"] if s["solver"]["depth"] > 2 else []
    names += [] if s["training"] is None else ["training"]
    return [*names, *([] if _worded(s) else ["verdict", "layers.verdict"])]


def _complaints(s: Summary, directory: Path, solution: Summary, result: Result, rounding: float) -> Sentences:
    """Check the losses and layers against the networks, and the rest against the solver's run."""
    if not equal(s["solver"], {key: value for key, value in solution.items() if key not in (KIND, FILES)}):
        yield "audit.json and its solution state different things of the solver."
    for name in ("lower", "certificate"):
        if s[name] != solution[name]:
            yield f"audit.json and its solution state different values of {name}."
    problem = result.problem.double()
    weights = weights_of(read_npz(directory / record.NETWORK))
    cost = evaluated(problem, weights)
    for name, value in (("loss", cost.total), ("fit", cost.fit), ("norm", cost.norm)):
        if not abs(s[name] - value) <= rounding * abs(cost.total):
            yield f"The audited network has {name} {value:.12g}, but audit.json states {s[name]}."
    if not equal(s["widths"], [len(W) for W in weights[:-1]]):
        yield "audit.json states other widths than those of the audited network."
    yield from _network(problem, directory / BETTER, "better network", s["escape"], rounding)
    end = weights_of(read_npz(directory / DESCENDED)) if (directory / DESCENDED).is_file() else weights
    yield from _descended(s, problem, end, directory / DESCENDED, rounding)
    if not equal(s["constant"], is_constant(problem, weights)):
        yield "audit.json states wrongly whether the network is constant."
    if s["in_passes"] is not has_many(problem, weights):
        yield "audit.json states wrongly whether further training was by mini-batches."
    losses = (s["loss"], solution["cost"], s["escape"], s["descended"]["loss"])
    best = min(value for value in losses if value is not None)
    yield from checks.crossed({"a network of the audit": best}, {"its solution": solution["lower"]}, rounding)
    excess = (s["loss"] - best) / best if best > 0.0 else 0.0
    if not (equal(s["best"], best) and equal(s["excess"], excess)):
        yield "audit.json states another best cost than the lowest of its networks, or another excess."
    if not equal([layer["layer"] for layer in s["layers"]], list(range(1, problem.depth))):
        yield "audit.json does not list the hidden layers one by one."
        return
    for layer in s["layers"]:
        yield from _layer(layer, problem, weights)
        if problem.depth == 2:  # its only block is the network, so its bound is the solver's
            gap, stated = relative_gap(problem, end, 1, result.lower), layer["gap"]
            agrees = stated is None if gap is None else stated is not None and abs(stated - gap) <= rounding
            if not agrees or layer["gap_certificate"] != (Certificate.NONE if gap is None else result.certificate):
                yield "audit.json states another gap of layer 1 than the network and the solver's bound give."
    yield from _batches(s, problem, weights)
    yield from _function(s, problem, weights, directory, rounding)
    yield from _finding(s, solution, result)


def _network(problem: Problem, file: Path, name: str, stated: float | None, rounding: float) -> Sentences:
    """Check that a network beside the audited one has the stated cost, and fits if it must."""
    if file.is_file() != (stated is not None):
        yield f"audit.json states a {name} that is not stored, or none that is."
    elif stated is not None:
        cost = evaluated(problem, weights_of(read_npz(file)))
        if not (same(cost.total, stated, rounding) and problem.allows(cost.residual)):
            yield f"The {name} costs {cost.total:.12g}, but audit.json states {stated}."


def _descended(s: Summary, problem: Problem, end: list[Tensor], file: Path, rounding: float) -> Sentences:
    """Check the end of further training: its loss, its gain, and its loss after rounding."""
    descended = s["descended"]
    if file.is_file():
        yield from _network(problem, file, "network after further training", descended["loss"], rounding)
    elif descended["loss"] != s["loss"]:
        yield "audit.json states that further training changed the cost, but does not store its last network."
        return
    gain = (s["loss"] - descended["loss"]) / s["loss"] if s["loss"] > 0.0 else 0.0
    if not equal(descended["gain"], gain):
        yield f"Further training gains {gain:.6g}, but audit.json states {descended['gain']}."
    stored = getattr(torch, s["stored"], None)
    if not isinstance(stored, torch.dtype) or not stored.is_floating_point:
        yield "audit.json states no kind of number for the weights."
    elif (s["rounded"] is None) != (stored is torch.float64):
        yield "audit.json states a rounding for weights in float64, or none for others."
    elif s["rounded"] is not None:
        loss, value = s["rounded"]["loss"], evaluate(problem, [W.to(stored).double() for W in end]).total
        if not (same(value, loss, rounding) if math.isfinite(value) and loss is not None else loss is None):
            yield f"After further training and rounding the network costs {value:.12g}, but audit.json states {loss}."


def _layer(layer: Summary, problem: Problem, weights: list[Tensor]) -> Sentences:
    """Check a layer's ranks, and its dead, mergeable and unbalanced neurons."""
    k = layer["layer"]
    facts = report(problem, weights, k, None, Certificate.NONE, None)
    for name in ("width", "rank_K", "rank_Ks", "mergeable"):
        if not equal(layer[name], getattr(facts, name)):
            yield f"Layer {k} has {name} {getattr(facts, name)}, but audit.json states {layer[name]}."
    if not equal(layer["dead"], dead(problem, weights, k)):
        yield f"audit.json states another number of dead neurons of layer {k} than the network has."
    if not equal(layer["merging"], mergeable(weights, k)):
        yield f"audit.json states other neurons of layer {k} that could be one than the network has."
    rounding = 1e-12  # of parts of at most 1: another order of summing squares changes them by less
    for name, part in zip(("unbalanced", "unbalanced_neuron"), unbalanced(problem, weights, k), strict=True):
        stated = layer[name]
        if not (stated is None if record.known(part) is None else abs(stated - part) <= rounding):
            yield f"Layer {k} is {name} by {part:.6g}, but audit.json states {stated}."


def _batches(s: Summary, problem: Problem, weights: list[Tensor]) -> Sentences:
    """Check the effects of the batches against the network and the reported training."""
    batches = Batches.from_summary(s)
    if batches is None:
        if s["kept"] is not None or s["noise"] is not None:
            yield "audit.json states the noise of batches, but no training that has any."
        return
    computed = batches_of(problem, weights, batches.training)
    if not equal(computed.kept, batches.kept):
        yield f"The retained fraction is {computed.kept}, but audit.json states {batches.kept}."
    if len(computed.noise) != len(batches.noise):
        yield "audit.json states the noise of another number of layers than the network has."
        return
    for layer, (ours, stated) in enumerate(zip(computed.noise, batches.noise, strict=True), start=1):
        if not _same_noise(ours, stated):
            yield f"audit.json states another noise of the batches in layer {layer} than the network has."


def _same_noise(ours: Summary | None, stated: Summary | None) -> bool:
    """Return True if sums over the samples agree up to their order: a gradient of 0 is only small beside the rms."""
    if ours is None or stated is None or ours.keys() != stated.keys():
        return ours is None and stated is None
    pairs = [(ours[name], stated[name]) for name in ours]
    return all(a is b if a is None or b is None else abs(a - b) <= 1e-8 * max(abs(a), ours["rms"]) for a, b in pairs)


def _function(s: Summary, problem: Problem, weights: list[Tensor], directory: Path, rounding: float) -> Sentences:
    """Check every entry of `function`, if there is one, against the network."""
    stated = s["function"]
    if stated is None:
        return
    if not isinstance(stated, Mapping):
        yield "audit.json states nothing of the network as a function."
        return
    arrays = (read_npz(file)["X"] if file.is_file() else None for file in (directory / AT, directory / ORBITS))
    at, orbits = checked_inputs(problem, *arrays)
    computed = function_of(problem, weights, at=at, orbits=orbits).summary()
    size = max(1.0, s["norm"])
    for name in {**computed, **stated}:
        if not _agrees(name, stated.get(name, ...), computed.get(name, ...), rounding, size):
            yield f"audit.json states another {name} of the network as a function than the network has."


def _agrees(name: str, stated: object, computed: object, rounding: float, size: float) -> bool:
    """Return True if two entries are equal up to rounding; `size` is the network's |W|^2."""
    if isinstance(computed, dict):
        if not isinstance(stated, Mapping) or stated.keys() != computed.keys():
            return False
        return all(_agrees(key, stated[key], value, rounding, size) for key, value in computed.items())
    if isinstance(computed, list):
        if not isinstance(stated, list) or len(stated) != len(computed):
            return False
        numbers = [abs(value) for value in computed if isinstance(value, float)]
        noise = NOISE * max(numbers, default=0.0)
        return all(
            _close(a, b, rounding, noise) if isinstance(b, float) else _agrees(name, a, b, rounding, size)
            for a, b in zip(stated, computed, strict=True)
        )
    if isinstance(computed, float):
        return _close(stated, computed, rounding, NOISE * size if name in DIFFERENCES else 0.0)
    return type(stated) is type(computed) and stated == computed


def _close(stated: object, computed: float, rounding: float, noise: float) -> bool:
    if not isinstance(stated, float) or not math.isfinite(stated) or stated < 0.0 <= computed:
        return False
    return abs(stated - computed) <= rounding * abs(computed) + noise


def _finding(s: Summary, solution: Summary, result: Result) -> Sentences:
    """Check missing neurons, the finding and the sentences against the stated numbers."""
    descended = s["descended"]
    judge = Judge(
        loss=s["loss"],
        descended=descended["loss"],
        finished=descended["finished"],
        best=s["best"],
        reached=s["escape"],
        lower=s["lower"],
        batches=Batches.from_summary(s),
        in_passes=s["in_passes"],
        depth=s["solver"]["depth"],
    )
    layers = [LayerAudit.from_summary(layer) for layer in s["layers"]]
    for layer in layers:
        if layer.missing is not judge.lacks_neuron(layer):
            yield f"audit.json states wrongly whether a neuron is missing in layer {layer.facts.layer}."
    finding = judge.finding(layers)
    if s["finding"] != finding or s["stationary"] is not judge.is_stationary(layers):
        yield f"By its numbers the network's finding is {finding}, but audit.json states another."
    if not _worded(s):
        return
    solver = replace(result, cost=math.nan if solution["cost"] is None else solution["cost"])
    if s["verdict"] != judge.of_network(layers, solver, constant=s["constant"], hint=s["hint"] or ""):
        yield "audit.json states another verdict than its numbers give."
    for layer in layers:
        if layer.verdict != judge.of_layer(layer):
            yield f"audit.json states another verdict on layer {layer.facts.layer} than its numbers give."


def _worded(s: Summary) -> bool:
    """Return True if this version wrote the audit, so that it uses the same sentences."""
    return s["solver"]["version"] == __version__
