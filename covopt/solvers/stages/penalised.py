"""The stages of a solve with penalised biases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from covopt.certify.deep.one_input import OneInput
from covopt.certify.paths.paths import PathNorm
from covopt.certify.shares.shares import Shares
from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.solvers.deep.state import DeepOptions
from covopt.solvers.deep.stream import suits_batches
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.plain import PlainRounds
from covopt.solvers.shallow.solver import AfterBatches
from covopt.solvers.shallow.stream_options import StreamOptions, suits_streaming
from covopt.solvers.stages.more_layers import (
    DRAWS,
    Batches,
    Cases,
    DeepSearch,
    ExamineLayers,
    HiddenDescents,
    Improvement,
    LayersInTurn,
    OneInputNetwork,
    PathBound,
)
from covopt.solvers.stages.stage import DataBound, Stage
from covopt.solvers.stages.training import Train
from covopt.solvers.stages.two_layers import MiniBatches, Rounds

BRIEFLY = 0.2  # seconds for the bound before the first network


def penalised_stages(problem: Problem, options: SolveOptions) -> Sequence[Stage]:
    """Return what `solve` does with penalised biases, one stage after the other."""
    if options.method == "frank-wolfe" and problem.depth == 2:
        return [Rounds(search=PlainRounds)]
    if options.method == "cone" and problem.depth == 2:
        return _two_layers(problem, options)
    proving = options.certify != "none"
    examining = proving and problem.depth > 2
    until = 0.85 if examining else 1.0  # the rest of the time is for the examination of the layers
    alone, one_input = problem.spread is ALONE, OneInput.applies(problem)
    cases = [OneInputNetwork(until)] if one_input else [Cases(0.7 * until)] if Shares.applies(problem) else []
    cases = cases if alone else []
    has_paths = options.certify in ("auto", "full") and PathNorm.applies(problem) and alone
    paths = [PathBound(until)] if has_paths and not cases else []
    # The search improves the bound later. Processes that share rows have no common clock for that.
    bound = [DataBound(until, BRIEFLY if alone and options.method == "cone" else math.inf)] if proving else []
    if options.method == "cone":
        searching = until * ((0.3 if options.certify == "full" else 0.8) if paths else 1.0)
        stages = [*bound, *cases, *_more_layers(problem, options, searching), *paths]
    else:
        rivals = {"hidden": HiddenDescents, "frank-wolfe": LayersInTurn, "train": Train}
        closing = [Cases(until)] if cases and proving and not one_input else paths
        stages = [rivals[options.method](0.5 * until if closing else until), *bound, *closing]
    return [*stages, ExamineLayers()] if examining else stages


def _two_layers(problem: Problem, options: SolveOptions) -> Sequence[Stage]:
    """Batches where the samples are too many for rounds; rounds."""
    alone, saved, seconds = options.thrift.batches_alone, options.saved, options.budget.time_limit
    streams = alone or (options.init is None and suits_streaming(problem, seconds))
    if saved is not None:
        streams = saved.stage == MiniBatches.name
    if not streams:
        return [Rounds()]
    return [MiniBatches()] if alone else [MiniBatches(), Rounds(neurons=StreamOptions().neurons, search=AfterBatches)]


def _more_layers(problem: Problem, options: SolveOptions, until: float) -> Sequence[Stage]:
    """Return training on batches where samples are many, or processes share them; a search on all."""
    starts, together = options.starts or DRAWS, problem.spread is not ALONE
    effort = DeepOptions(starts=starts, batch=options.thrift.draws, tol=options.tol)
    if together:
        return [Batches(until, effort)]
    if options.init is None and suits_batches(problem, options.budget.time_limit, options.max_width):
        return [Batches(until, effort), Improvement(until, replace(effort, starts=0))]
    return [DeepSearch(until, effort)]
