"""The representation cost of ReLU networks, the width that data need, and proofs of both.

Public names are loaded when they are first used, so `import covopt` alone loads no torch. It makes the
threads of PyTorch sleep while they wait (`linalg.waiting`), which they do where covopt is imported first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from covopt.runtime.waiting import wait_passively

wait_passively()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from covopt.answer.plan import SolvePlan
    from covopt.answer.predictor import forces
    from covopt.answer.result import Result
    from covopt.answer.solve import plan, solve
    from covopt.completely_positive.answer import CPRank
    from covopt.completely_positive.completely_positive import cp_rank
    from covopt.completely_positive.cone import Membership, in_cone, representations_of
    from covopt.completely_positive.edge_gram import data_of_graph, gram_of_graph
    from covopt.completely_positive.sigma_rank import SigmaRank, sigma_rank
    from covopt.completely_positive.supports import Copositivity, copositivity
    from covopt.data.data import Dataset, read_data
    from covopt.estimators import CovoptClassifier, CovoptRegressor
    from covopt.estimators_cv import CovoptClassifierCV, CovoptRegressorCV
    from covopt.model.faces.covariances import covariances_of, loss_of_covariances
    from covopt.model.faces.representations import loss_of_representations, project_to_range, weights_of
    from covopt.model.faces.setting import LossValue
    from covopt.model.faces.weights import loss_of_weights, preactivations
    from covopt.model.forces import Forces
    from covopt.runtime.errors import (
        CovoptError,
        CovoptWarning,
        DataError,
        InfeasibleError,
        InternalError,
        ProblemError,
        ProcessError,
        RecordError,
    )
    from covopt.runtime.loop import Certificate, Progress, Status
    from covopt.studies.audit.audit import Audit, validate
    from covopt.studies.audit.jacobians import Spectra, jacobians, ntk, spectra
    from covopt.studies.compare.compare import Comparison, compare
    from covopt.studies.depth.depth_answer import Depths
    from covopt.studies.depth.depths import depth
    from covopt.studies.monitor.monitor import Monitor, Reading
    from covopt.studies.path.path import path
    from covopt.studies.path.path_answer import Path
    from covopt.studies.ranks.rank_answer import Ranks
    from covopt.studies.ranks.ranks import ranks
    from covopt.studies.runs import load, verify, write_report
    from covopt.studies.sweep.sweep import Sweep, sweep
    from covopt.studies.width.plateau import Plateau, plateau

_HOMES = {
    "solve": "answer.solve",
    "plan": "answer.solve",
    "SolvePlan": "answer.plan",
    "Audit": "studies.audit.audit",
    "validate": "studies.audit.audit",
    "compare": "studies.compare.compare",
    "Monitor": "studies.monitor.monitor",
    "Reading": "studies.monitor.monitor",
    "Spectra": "studies.audit.jacobians",
    "jacobians": "studies.audit.jacobians",
    "ntk": "studies.audit.jacobians",
    "spectra": "studies.audit.jacobians",
    "Ranks": "studies.ranks.rank_answer",
    "ranks": "studies.ranks.ranks",
    "Sweep": "studies.sweep.sweep",
    "sweep": "studies.sweep.sweep",
    "Comparison": "studies.compare.compare",
    "Depths": "studies.depth.depth_answer",
    "depth": "studies.depth.depths",
    "Path": "studies.path.path_answer",
    "path": "studies.path.path",
    "plateau": "studies.width.plateau",
    "Plateau": "studies.width.plateau",
    "verify": "studies.runs",
    "CPRank": "completely_positive.answer",
    "cp_rank": "completely_positive.completely_positive",
    "SigmaRank": "completely_positive.sigma_rank",
    "data_of_graph": "completely_positive.edge_gram",
    "gram_of_graph": "completely_positive.edge_gram",
    "sigma_rank": "completely_positive.sigma_rank",
    "Copositivity": "completely_positive.supports",
    "copositivity": "completely_positive.supports",
    "Dataset": "data.data",
    "read_data": "data.data",
    "CovoptClassifier": "estimators",
    "CovoptRegressor": "estimators",
    "CovoptClassifierCV": "estimators_cv",
    "CovoptRegressorCV": "estimators_cv",
    "CovoptError": "runtime.errors",
    "DataError": "runtime.errors",
    "InfeasibleError": "runtime.errors",
    "InternalError": "runtime.errors",
    "ProcessError": "runtime.errors",
    "CovoptWarning": "runtime.errors",
    "ProblemError": "runtime.errors",
    "RecordError": "runtime.errors",
    "Certificate": "runtime.loop",
    "Progress": "runtime.loop",
    "Status": "runtime.loop",
    "write_report": "studies.runs",
    "LossValue": "model.faces.setting",
    "loss_of_weights": "model.faces.weights",
    "preactivations": "model.faces.weights",
    "loss_of_representations": "model.faces.representations",
    "weights_of": "model.faces.representations",
    "project_to_range": "model.faces.representations",
    "loss_of_covariances": "model.faces.covariances",
    "covariances_of": "model.faces.covariances",
    "in_cone": "completely_positive.cone",
    "representations_of": "completely_positive.cone",
    "Membership": "completely_positive.cone",
    "Forces": "model.forces",
    "Result": "answer.result",
    "forces": "answer.predictor",
    "load": "studies.runs",
}

__all__ = [
    "Audit",
    "CPRank",
    "Certificate",
    "Comparison",
    "Copositivity",
    "CovoptClassifier",
    "CovoptClassifierCV",
    "CovoptError",
    "CovoptRegressor",
    "CovoptRegressorCV",
    "CovoptWarning",
    "DataError",
    "Dataset",
    "Depths",
    "Forces",
    "InfeasibleError",
    "InternalError",
    "LossValue",
    "Membership",
    "Monitor",
    "Path",
    "Plateau",
    "ProblemError",
    "ProcessError",
    "Progress",
    "Ranks",
    "Reading",
    "RecordError",
    "Result",
    "SigmaRank",
    "SolvePlan",
    "Spectra",
    "Status",
    "Sweep",
    "__version__",
    "compare",
    "copositivity",
    "covariances_of",
    "cp_rank",
    "data_of_graph",
    "depth",
    "forces",
    "gram_of_graph",
    "in_cone",
    "jacobians",
    "load",
    "loss_of_covariances",
    "loss_of_representations",
    "loss_of_weights",
    "ntk",
    "path",
    "plan",
    "plateau",
    "preactivations",
    "project_to_range",
    "ranks",
    "read_data",
    "representations_of",
    "sigma_rank",
    "solve",
    "spectra",
    "sweep",
    "validate",
    "verify",
    "weights_of",
    "write_report",
]


def __getattr__(name: str) -> object:
    """Load a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'covopt' has no attribute '{name}'")
    value = getattr(import_module(f"covopt.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
