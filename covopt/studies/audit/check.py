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
from covopt.answer.verify import evaluated, same, weights_of
from covopt.data.arrays import read_npz
from covopt.data.networks import FoundWeights
from covopt.model.problem import Problem
from covopt.model.weights import Cost, evaluate
from covopt.records import record
from covopt.records.record import KIND, Summary
from covopt.records.storing import FILES
from covopt.runtime.errors import RecordError
from covopt.runtime.loop import Certificate, Status
from covopt.solvers.deep.layers import relative_gap, report
from covopt.solvers.deep.pruning import mergeable
from covopt.studies.audit.audited import AT, BETTER, DESCENDED, ORBITS, Audit
from covopt.studies.audit.batches import Batches, batches_of
from covopt.studies.audit.examination import LayerAudit, dead, unbalanced
from covopt.studies.audit.function import checked_inputs, function_of

Sentences = Iterator[str]

NOISE = 1e-12
"""Rounding of the singular values of one list, relative to the largest of them, and of differences of numbers, relative
to these numbers or to 1."""
DIFFERENCES = ("distance", "R1_lower", "nonlinearity", "orbit_collapse", "sum", "at_most", "smaller", "larger")


def load(directory: Path) -> Never:
    """Refuse, and name the solve that can be loaded: the examination of a network is not stored as a whole."""
    raise RecordError(f"{directory} holds an audit, which cannot be loaded; load {directory / record.SOLUTION}.")


def verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    """Check the solver's run in it as a solve, and the rest against the stored networks."""
    solution = directory / record.SOLUTION
    solves = runs.inside(directory, [record.SOLUTION], rounding)
    complaints = _complaints(s, directory, record.read_summary(solution), load_run(solution), rounding)
    return checks.of_study(directory, record.AUDIT, s, solves, complaints, _unchecked(s))


def _unchecked(s: Summary) -> list[str]:
    """Return the names of the entries that nothing in the files of an audit proves."""
    names = ["status", "residuals", "inert", "trained", "hint", "descended.finished", "descended.residuals"]
    names += [] if s["function"] else ["function"]
    names += [] if s["rounded"] is None else ["rounded.residuals"]
    searched = ("stationarity", "direction", "output", "cut")
    losses = ("loss_with_neuron", "loss_trained_with_neuron", "loss_with_block")
    names += [f"layers.{name}" for name in searched + losses]
    names += ["layers.gap", "layers.gap_certificate"] if s["solver"]["depth"] > 2 else []
    names += [] if s["training"] is None else ["training"]
    return [*names, *([] if _worded(s) else ["verdict", "layers.verdict"])]


def _complaints(s: Summary, directory: Path, solution: Summary, result: Result, rounding: float) -> Sentences:
    """Check the networks' losses, and all that follows from the networks and from the stated losses."""
    problem, weights = result.problem.double(), weights_of(read_npz(directory / record.NETWORK))
    cost = evaluated(problem, weights)
    for name, value in (("loss", cost.total), ("fit", cost.fit), ("norm", cost.norm)):
        if not abs(s[name] - value) <= rounding * abs(cost.total):
            yield f"The audited network has {name} {value:.12g}, but audit.json states {s[name]}."
    others = {BETTER: ("better network", s["escape"])}
    others[DESCENDED] = ("network after further training", s["descended"]["loss"])
    for file, (name, loss) in others.items():
        if (directory / file).is_file():
            other = evaluated(problem, weights_of(read_npz(directory / file)))
            if loss is None or not (same(other.total, loss, rounding) and problem.allows(other.residual)):
                yield f"The {name} costs {other.total:.12g}, but audit.json states {loss}."
    yield from _noise(s, problem, weights)
    yield from _function(s, problem, weights, directory, rounding)
    reference = replace(result, cost=math.nan if solution["cost"] is None else solution["cost"])
    audit = _audit(s, reference, weights, directory)
    yield from checks.crossed({"a network of the audit": audit.best}, {"its solution": solution["lower"]}, rounding)
    solver = {key: value for key, value in solution.items() if key not in (KIND, FILES)}
    apart = {"solver": solver, "function": s["function"], **({} if _worded(s) else {"verdict": s["verdict"]})}
    yield from checks.differences(record.AUDIT, s, audit.summary() | apart, rounding)


def _audit(s: Summary, reference: Result, weights: list[Tensor], directory: Path) -> Audit:
    """Return the audit with the stated losses and reports of searches, and the rest from the networks."""
    problem = reference.problem.double()
    files = directory / DESCENDED, directory / BETTER
    end, better = (weights_of(read_npz(file)) if file.is_file() else [] for file in files)
    stored, slope = getattr(torch, s["stored"]), problem.activation.slope
    rounded = None
    if stored is not torch.float64:
        coarse = [W.to(stored).double() for W in end or weights]
        rounded = evaluate(problem, coarse).total, s["rounded"]["residuals"]
    batches = Batches.from_summary(s)
    audit = Audit(
        problem=problem,
        weights=weights,
        cost=Cost(s["fit"], s["norm"], s["loss"], 0.0),
        reference=reference,
        descended=end,
        descended_loss=s["descended"]["loss"] if end else s["loss"],
        finished=s["descended"]["finished"],
        inert=s["inert"],
        residuals=s["residuals"],
        left=s["descended"]["residuals"],
        stored=stored,
        rounded=rounded,
        hint=s["hint"] or "",
        escape=FoundWeights(better, problem.beta, slope) if better else None,
        escape_cost=s["escape"] if better else None,
        batches=None if batches is None else replace(batches, kept=batches.training.kept(problem.lam)),
        interrupted=s["status"] == Status.INTERRUPTED,
    )
    if s["trained"] is not None:
        audit.trained = replace(reference, starts=[math.nan if cost is None else cost for cost in s["trained"]])
    for number, layer in zip(range(1, problem.depth), s["layers"], strict=True):
        audit.layers.append(_layer(audit, LayerAudit.from_summary(layer), number, worded=_worded(s)))
    return audit


def _layer(audit: Audit, stated: LayerAudit, number: int, worded: bool) -> LayerAudit:
    """Return a layer's examination: what searches found as it is stated, the rest from the networks."""
    problem, weights, facts = audit.problem, audit.weights, stated.facts
    computed = report(problem, weights, number, None, Certificate.NONE, facts.stationarity)
    gap, kind = facts.gap, facts.gap_certificate
    if problem.depth == 2:  # its only block is the network, so its bound is the solver's
        gap = relative_gap(problem, audit.descended or weights, 1, audit.reference.lower)
        kind = Certificate.NONE if gap is None else audit.reference.certificate
    layer = replace(
        stated,
        facts=replace(computed, gap=gap, gap_certificate=kind),
        dead=dead(problem, weights, number),
        merging=mergeable(weights, number),
        **dict(zip(("unbalanced", "unbalanced_neuron"), unbalanced(problem, weights, number), strict=True)),
    )
    layer = replace(layer, missing=audit.lacks_neuron(layer))
    return replace(layer, verdict=audit.of_layer(layer)) if worded else layer


def _noise(s: Summary, problem: Problem, weights: list[Tensor]) -> Sentences:
    """Check the effects of the batches against the network and the reported training."""
    batches = Batches.from_summary(s)
    computed = [] if batches is None else batches_of(problem, weights, batches.training).noise
    stated = [] if batches is None else batches.noise
    if len(computed) != len(stated) or not all(map(_same_noise, computed, stated)):
        yield "audit.json states another noise of the batches than the network has."


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
    for name in {**computed, **stated}:
        if not _agrees(name, stated.get(name, ...), computed.get(name, ...), rounding, max(1.0, s["norm"])):
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
        noise = NOISE * max((abs(value) for value in computed if isinstance(value, float)), default=0.0)
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


def _worded(s: Summary) -> bool:
    """Return True if this version wrote the audit, so that it uses the same sentences."""
    return s["solver"]["version"] == __version__
