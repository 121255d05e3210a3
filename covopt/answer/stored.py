"""Results loaded from their files, with the cost recomputed; no file is trusted."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from covopt.answer.result import Result, measure
from covopt.answer.uniqueness.uniqueness import Uniqueness
from covopt.certify.proof import Proof
from covopt.certify.proofs import read_proof
from covopt.data.arrays import read_npz
from covopt.data.coding import Coding
from covopt.model.problem import Problem, make_problem
from covopt.model.scalars import read_loss
from covopt.model.weights import check_network, evaluate
from covopt.records import record
from covopt.records.record import Summary
from covopt.runtime.errors import DataError, ProblemError, RecordError, shown
from covopt.runtime.loop import Certificate, Progress, Status
from covopt.solvers.layer import Layer


def load(directory: str | os.PathLike[str]) -> Result:
    """Load a run stored by `Result.save` or `--out`; no file is trusted (no pickles).

    Args:
        directory: of the run.

    Returns:
        The result, with its cost recomputed from the stored weights.

    Raises:
        RecordError: no run there, or an incomplete or damaged one.
    """
    path, summary = Path(directory), record.read_summary(directory)
    try:
        files = (record.NETWORK, record.PROBLEM, record.CERTIFICATE)
        network, question, certificate = (read_npz(path / name) for name in files)
        return _result(summary, network, question, certificate, record.read_history(path / record.HISTORY))
    except (DataError, ProblemError) as error:
        raise record.broken(directory, error) from error


def _matrix(arrays: Mapping[str, NDArray], name: str, file: str) -> NDArray:
    """Return a matrix of real numbers, or raise a DataError."""
    if name not in arrays or arrays[name].dtype.kind not in "fiu" or arrays[name].ndim != 2:
        raise DataError(f"{file} holds no real matrix {name}; solve again.")
    return arrays[name]


def _proof(summary: Summary, problem: Problem, arrays: Mapping[str, NDArray]) -> Proof | None:
    """Return what the stored bound rests on, None without one, or raise a DataError."""
    if summary["lower"] is None:
        return None
    kind, lower = Certificate(summary["certificate"]), float(summary["lower"])
    try:
        return read_proof(kind, problem, lower, arrays)
    except ValueError as error:
        raise DataError(f"{record.CERTIFICATE} holds {error}; solve again.") from error


OPTIONS = {"loss": "U", "lam": "fiu", "depth": "iu", "bias": "fiuU", "activation": "U", "skip": "b"}
"""The kinds of the options in problem.npz."""


def _option(arrays: Mapping[str, NDArray], name: str) -> Any:
    """Return a number, a text or a truth value, or raise a DataError."""
    if name not in arrays or arrays[name].size != 1 or arrays[name].dtype.kind not in OPTIONS[name]:
        raise DataError(f"{record.PROBLEM} holds no {name}; solve again.")
    return arrays[name].item()


def problem_of(arrays: Mapping[str, NDArray]) -> Problem:
    """Return the problem in the arrays of problem.npz, or raise an error of covopt."""
    options = {key: _option(arrays, key) for key in OPTIONS}
    try:
        read_loss(options["loss"])
    except ProblemError as error:
        raise RecordError(
            f"The loss {shown(options['loss'])} of the run is none of covopt's; a run with a loss of your own can be"
            " saved, but not loaded, verified or shown as a report, because files hold no code."
        ) from error
    if options["loss"] == "interpolate":
        if options["lam"] != 1.0:  # which stands for none
            raise DataError(f"{record.PROBLEM} holds a lam, which the loss interpolate does not have; solve again.")
        options["lam"] = None
    X, Y = (torch.from_numpy(_matrix(arrays, name, record.PROBLEM)) for name in ("X", "Y"))
    problem = make_problem(X, Y, sample_weight=arrays.get("weights"), **options, free=True)
    if problem.samples < len(X):
        raise DataError(f"{record.PROBLEM} holds rows of weight 0; solve again.")
    return problem


def _result(
    s: Summary,
    network: Mapping[str, NDArray],
    question: Mapping[str, NDArray],
    certificate: Mapping[str, NDArray],
    history: list[Progress],
) -> Result:
    problem = problem_of(question)
    names = [f"W{i}" for i in range(1, problem.depth + 1)]
    weights = [torch.from_numpy(_matrix(network, name, record.NETWORK)).double() for name in names]
    check_network(problem, weights)
    coding = Coding.of_arrays(question, problem.X.shape[1], problem.Y.shape[1])
    as_stated = ("method", "certify", "seed", "data", "scale", "targets", "shuffle", "test")
    result = Result(
        problem=problem,
        weights=weights,
        status=Status(s["status"]),
        certificate=Certificate(s["certificate"]),
        attainable=Certificate(s["attainable"]),
        lower=None if s["lower"] is None else float(s["lower"]),
        target=None if s["target"] is None else float(s["target"]),
        seconds=math.nan if s["seconds"] is None else float(s["seconds"]),
        timing=dict(s["timing"]),
        history=history,
        proof=_proof(s, problem, certificate),
        layers=[Layer.from_summary(layer) for layer in s["layers"]],
        starts=[math.nan if start is None else float(start) for start in s["starts"]],
        coding=coding,
        decided=None if s["unique"] is None else Uniqueness.from_summary(s["unique"]),
        **{name: s[name] for name in as_stated},
    )
    measure(result, evaluate(problem.double(), weights))
    return result
