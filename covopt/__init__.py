"""The representation cost of ReLU networks, the width that data need, and proofs of both.

Public names are loaded when they are first used, so `import covopt` alone loads no torch. It makes the
threads of PyTorch sleep while they wait (`linalg.waiting`), which they do where covopt is imported first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from covopt.runtime.interrupts import loading
from covopt.runtime.waiting import wait_passively

wait_passively()

__version__ = "0.1.0"

if TYPE_CHECKING:  # `X as X` hands the name on to type checkers
    from covopt.answer.plan import SolvePlan as SolvePlan
    from covopt.answer.predictor import forces as forces
    from covopt.answer.result import Result as Result
    from covopt.answer.solve import plan as plan, solve as solve
    from covopt.completely_positive.answer import CPRank as CPRank
    from covopt.completely_positive.completely_positive import cp_rank as cp_rank
    from covopt.completely_positive.cone import (
        Membership as Membership,
        in_cone as in_cone,
        representations_of as representations_of,
    )
    from covopt.completely_positive.edge_gram import data_of_graph as data_of_graph, gram_of_graph as gram_of_graph
    from covopt.completely_positive.sigma_rank import SigmaRank as SigmaRank, sigma_rank as sigma_rank
    from covopt.completely_positive.supports import Copositivity as Copositivity, copositivity as copositivity
    from covopt.data.data import Dataset as Dataset, read_data as read_data
    from covopt.estimators import CovoptClassifier as CovoptClassifier, CovoptRegressor as CovoptRegressor
    from covopt.estimators_cv import CovoptClassifierCV as CovoptClassifierCV, CovoptRegressorCV as CovoptRegressorCV
    from covopt.model.faces.covariances import (
        covariances_of as covariances_of,
        loss_of_covariances as loss_of_covariances,
    )
    from covopt.model.faces.representations import (
        loss_of_representations as loss_of_representations,
        project_to_range as project_to_range,
        weights_of as weights_of,
    )
    from covopt.model.faces.setting import LossValue as LossValue
    from covopt.model.faces.weights import loss_of_weights as loss_of_weights, preactivations as preactivations
    from covopt.model.forces import Forces as Forces
    from covopt.runtime.errors import (
        CovoptError as CovoptError,
        CovoptWarning as CovoptWarning,
        DataError as DataError,
        InfeasibleError as InfeasibleError,
        InternalError as InternalError,
        ProblemError as ProblemError,
        ProcessError as ProcessError,
        RecordError as RecordError,
    )
    from covopt.runtime.loop import Certificate as Certificate, Progress as Progress, Status as Status
    from covopt.studies.audit.audit import Audit as Audit, validate as validate
    from covopt.studies.audit.jacobians import (
        Spectra as Spectra,
        jacobians as jacobians,
        ntk as ntk,
        spectra as spectra,
    )
    from covopt.studies.compare.compare import Comparison as Comparison, compare as compare
    from covopt.studies.depth.depth_answer import Depths as Depths
    from covopt.studies.depth.depths import depth as depth
    from covopt.studies.monitor.monitor import Monitor as Monitor, Reading as Reading
    from covopt.studies.path.path import path as path
    from covopt.studies.path.path_answer import Path as Path
    from covopt.studies.ranks.rank_answer import Ranks as Ranks
    from covopt.studies.ranks.ranks import ranks as ranks
    from covopt.studies.runs import load as load, verify as verify, write_report as write_report
    from covopt.studies.sweep.sweep import Sweep as Sweep, sweep as sweep
    from covopt.studies.width.plateau import Plateau as Plateau, plateau as plateau

_NAMES = {
    "answer.plan": "SolvePlan",
    "answer.predictor": "forces",
    "answer.result": "Result",
    "answer.solve": "plan solve",
    "completely_positive.answer": "CPRank",
    "completely_positive.completely_positive": "cp_rank",
    "completely_positive.cone": "in_cone Membership representations_of",
    "completely_positive.edge_gram": "data_of_graph gram_of_graph",
    "completely_positive.sigma_rank": "sigma_rank SigmaRank",
    "completely_positive.supports": "Copositivity copositivity",
    "data.data": "Dataset read_data",
    "estimators": "CovoptClassifier CovoptRegressor",
    "estimators_cv": "CovoptClassifierCV CovoptRegressorCV",
    "model.faces.covariances": "covariances_of loss_of_covariances",
    "model.faces.representations": "loss_of_representations project_to_range weights_of",
    "model.faces.setting": "LossValue",
    "model.faces.weights": "loss_of_weights preactivations",
    "model.forces": "Forces",
    "runtime.errors": "CovoptError CovoptWarning DataError InfeasibleError InternalError ProblemError ProcessError"
    " RecordError",
    "runtime.loop": "Certificate Progress Status",
    "studies.audit.audit": "Audit validate",
    "studies.audit.jacobians": "jacobians ntk Spectra spectra",
    "studies.compare.compare": "compare Comparison",
    "studies.depth.depth_answer": "Depths",
    "studies.depth.depths": "depth",
    "studies.monitor.monitor": "Monitor Reading",
    "studies.path.path": "path",
    "studies.path.path_answer": "Path",
    "studies.ranks.rank_answer": "Ranks",
    "studies.ranks.ranks": "ranks",
    "studies.runs": "load verify write_report",
    "studies.sweep.sweep": "Sweep sweep",
    "studies.width.plateau": "plateau Plateau",
}
"""The public names of each module."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOMES), "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Load a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'covopt' has no attribute '{name}'")
    with loading():
        value = getattr(import_module(f"covopt.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
