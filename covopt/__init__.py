"""The representation cost of ReLU networks: what data costs, how wide a network must be, and proofs of both.

Only the public names are handed on, each when it is first asked for: `import covopt` alone loads no torch. It asks the
threads of PyTorch to sleep while they wait (`linalg.waiting`), which they do where covopt is imported first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from covopt.linalg.waiting import wait_passively

wait_passively()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from covopt.answer import solve
    from covopt.errors import (
        CovoptError,
        CovoptWarning,
        DataError,
        InfeasibleError,
        InternalError,
        ProblemError,
        ProcessError,
        RecordError,
    )
    from covopt.estimators import CovoptClassifier, CovoptRegressor
    from covopt.estimators_cv import CovoptClassifierCV, CovoptRegressorCV
    from covopt.io.data import Dataset, read_data
    from covopt.kinds.runs import load, verify, write_report
    from covopt.loop import Certificate, Progress, Status
    from covopt.matrices.answer import CPRank
    from covopt.matrices.completely_positive import cp_rank
    from covopt.matrices.cone import Membership, in_cone, representations_of
    from covopt.matrices.sigma_rank import SigmaRank, sigma_rank
    from covopt.matrices.supports import Copositivity, copositivity
    from covopt.model.faces.covariances import covariances_of, loss_of_covariances
    from covopt.model.faces.representations import loss_of_representations, project_to_range, weights_of
    from covopt.model.faces.setting import LossValue
    from covopt.model.faces.weights import loss_of_weights, preactivations
    from covopt.model.forces import Forces
    from covopt.result import Result, forces
    from covopt.study.audit import Audit, validate
    from covopt.study.compare import Comparison, compare
    from covopt.study.depth_answer import Depths
    from covopt.study.depths import depth
    from covopt.study.jacobians import Spectra, jacobians, ntk, spectra
    from covopt.study.monitor import Monitor, Reading
    from covopt.study.path import path
    from covopt.study.path_answer import Path
    from covopt.study.plateau import Plateau, plateau
    from covopt.study.rank_answer import Ranks
    from covopt.study.ranks import ranks
    from covopt.study.sweep import Sweep, sweep

_HOMES = {
    "solve": "answer",
    "Audit": "study.audit",
    "validate": "study.audit",
    "compare": "study.compare",
    "Monitor": "study.monitor",
    "Reading": "study.monitor",
    "Spectra": "study.jacobians",
    "jacobians": "study.jacobians",
    "ntk": "study.jacobians",
    "spectra": "study.jacobians",
    "Ranks": "study.rank_answer",
    "ranks": "study.ranks",
    "Sweep": "study.sweep",
    "sweep": "study.sweep",
    "Comparison": "study.compare",
    "Depths": "study.depth_answer",
    "depth": "study.depths",
    "Path": "study.path_answer",
    "path": "study.path",
    "plateau": "study.plateau",
    "Plateau": "study.plateau",
    "verify": "kinds.runs",
    "CPRank": "matrices.answer",
    "cp_rank": "matrices.completely_positive",
    "SigmaRank": "matrices.sigma_rank",
    "sigma_rank": "matrices.sigma_rank",
    "Copositivity": "matrices.supports",
    "copositivity": "matrices.supports",
    "Dataset": "io.data",
    "read_data": "io.data",
    "CovoptClassifier": "estimators",
    "CovoptRegressor": "estimators",
    "CovoptClassifierCV": "estimators_cv",
    "CovoptRegressorCV": "estimators_cv",
    "CovoptError": "errors",
    "DataError": "errors",
    "InfeasibleError": "errors",
    "InternalError": "errors",
    "ProcessError": "errors",
    "CovoptWarning": "errors",
    "ProblemError": "errors",
    "RecordError": "errors",
    "Certificate": "loop",
    "Progress": "loop",
    "Status": "loop",
    "write_report": "kinds.runs",
    "LossValue": "model.faces.setting",
    "loss_of_weights": "model.faces.weights",
    "preactivations": "model.faces.weights",
    "loss_of_representations": "model.faces.representations",
    "weights_of": "model.faces.representations",
    "project_to_range": "model.faces.representations",
    "loss_of_covariances": "model.faces.covariances",
    "covariances_of": "model.faces.covariances",
    "in_cone": "matrices.cone",
    "representations_of": "matrices.cone",
    "Membership": "matrices.cone",
    "Forces": "model.forces",
    "Result": "result",
    "forces": "result",
    "load": "kinds.runs",
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
    "Spectra",
    "Status",
    "Sweep",
    "__version__",
    "compare",
    "copositivity",
    "covariances_of",
    "cp_rank",
    "depth",
    "forces",
    "in_cone",
    "jacobians",
    "load",
    "loss_of_covariances",
    "loss_of_representations",
    "loss_of_weights",
    "ntk",
    "path",
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
