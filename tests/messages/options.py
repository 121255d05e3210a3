"""Wrong values of each option, and the public functions that take it; tried without the tests' checks of types."""

import json
from collections.abc import Callable

import numpy as np
import torch

import covopt

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(8, 2)), RNG.normal(size=8)
EYE = np.eye(3)
W = [RNG.normal(size=(3, 3)), RNG.normal(size=(1, 4))]
NAN, RAGGED, SPARSE = float("nan"), [[1.0], [1.0, 2.0]], torch.eye(3).to_sparse()

FLAGS, WHOLES = ["no", 1], ["1", True, 1.5, NAN]
POSITIVE = ["1", True, -1.0, NAN]
LIMIT, SEED = [*POSITIVE, 0, None], [*WHOLES, -1, None]
COUNT = [*WHOLES, 0]
WRONG: dict[str, list[object]] = {
    **dict.fromkeys("max_iterations batch_size seeds rows every rank n_lams max_iter".split(), COUNT),
    **{name: [*COUNT, 10**9] for name in ("width", "max_width", "points")},
    **{name: [*WHOLES, -1] for name in ("starts", "shuffle")},
    **dict.fromkeys("memory_limit checkpoint_every lease tolerance tikhonov".split(), POSITIVE),
    **{name: [*POSITIVE, 2] for name in ("tol", "ratio", "eps", "gamma")},
    **{name: ["x", 3, None] for name in ("certify", "method", "architecture", "decay")},
    **{name: ["x", 3] for name in ("task", "callback", "other", "scale")},
    **{name: [*FLAGS, None] for name in ("spread", "resume", "interpolate", "nesterov", "rest", "force")},
    "lam": [*POSITIVE, np.inf, [0.1]],
    "loss": [3, "hinge", "huber:", "huber:nan"],
    "depth": ["2", True, 1, 2.5, 10**9],
    "bias": [*POSITIVE, np.inf, None],
    "activation": ["leaky:", "leaky:nan", "tanh", 3],
    "gap": [*POSITIVE, 2, None],
    "time_limit": LIMIT,
    "seed": SEED,
    "device": ["tpu", 3.5],
    "sample_weight": ["x", 3, [1.0], [-1.0] * 8, [NAN] * 8],
    "skip": FLAGS,
    "init": [3, "x", [1], [np.ones(3)]],
    "checkpoint": [3, True],
    "layer": [*COUNT, 9],
    "widths": [3, "12", [0], [1.5], [True], []],
    "depths": [3, "12", [1], [2.5], [True], []],
    "ranks": [3, "12", [0], [1.5], [True]],
    "lams": ["12", [0], ["1"], [True], [NAN], []],
    "milestones": [*POSITIVE, 0, [2.0, 1.0]],
    "test": [3, "x", (X,), (X, Y, Y), (X[:, :1], Y)],
    "folds": [*COUNT, 99],
    "at": [3, "x", X[:, :1]],
    "rate": [*POSITIVE, 0],
    "momentum": [*POSITIVE, 1.0],
    "scalings": [3],
    "methods": [3, "cone", [], ["x"], [3]],
    "jobs": [*COUNT, -7],
    "scheduler": [3],
    "drop": [3, [3]],
    "lower": ["1", True, NAN],
    "steps": [*WHOLES, 1],
    "random_state": ["x", 1.5],
    "X": [3, "x", None, RAGGED, SPARSE, X + 1j, X * NAN, np.zeros((2, 2, 2)), np.array(["a"] * 8)],
    "Y": [3, None, RAGGED, SPARSE, Y[:3], Y + 1j, Y * NAN, np.zeros((2, 2, 2))],
    "matrix": [3, "x", None, RAGGED, SPARSE, np.ones((2, 3)), np.eye(3) * NAN, np.eye(3) + 1j],
    "network": [3, "x", None, [1], [np.ones(3)], [RAGGED, RAGGED], [SPARSE, SPARSE], [W[0] * NAN, W[1]], [W[0]]],
    "hidden": ["1", True, 1.5, None, 0, 9],
    "path": [3, None],
}
SOLVED = covopt.solve(X, Y, lam=0.1, max_iterations=1, certify="none")
QUESTION = "X Y lam loss bias activation device sample_weight callback task certify gap time_limit seed"
PROBLEM = "X Y lam loss bias activation sample_weight"


def fitted(kind: Callable[..., object]) -> Callable[..., object]:
    return lambda X=X, Y=Y, **options: kind(**options).fit(X, Y)  # type: ignore[attr-defined]


def data(function: Callable[..., object]) -> Callable[..., object]:
    """A function of X and Y with keywords for these."""
    return lambda X=X, Y=Y, **options: function(X, Y, **options)


CONE = "matrix bias activation tolerance time_limit seed"
FITTED = "loss depth bias skip activation time_limit max_iter device random_state"
FUNCTIONS: dict[str, tuple[Callable[..., object], str]] = {
    "solve": (data(covopt.solve), f"{QUESTION} depth skip max_iterations method tol init width max_width starts"
              " checkpoint checkpoint_every memory_limit spread resume"),
    "plateau": (data(covopt.plateau), f"{QUESTION} depth layer widths starts init"),
    "depth": (data(covopt.depth), f"{QUESTION} depths ranks init"),
    "path": (data(covopt.path), "X Y loss bias activation device callback task certify gap time_limit seed depth skip"
             " lams ratio points interpolate test folds max_iterations"),
    "ranks": (data(covopt.ranks), "X Y loss bias activation device callback task time_limit seed nesterov batch_size"
              " rate momentum seeds depth width tolerance test architecture milestones gamma"),
    "validate": (lambda X=X, Y=Y, **o: covopt.validate(W, X, Y, **o), f"{QUESTION} decay at scalings"),
    "compare": (data(covopt.compare), f"{QUESTION} depth skip methods width"),
    "sweep": (lambda **o: covopt.sweep({"data": "iris"}, "s", **o), "resume jobs scheduler lease callback"),
    "read_data": (lambda **o: covopt.read_data("iris", **o), "task rows shuffle scale drop rest"),
    "Monitor": (data(covopt.Monitor), "X Y lam loss bias sample_weight decay every rows lower tolerance seed device"),
    "forces": (lambda network=W, X=X, **o: covopt.forces(network, X=X, **o), "network X layer bias activation"
               " tikhonov"),
    "cp_rank": (lambda matrix=EYE, **o: covopt.cp_rank(matrix, **o), "matrix rank tolerance time_limit seed"),
    "copositivity": (lambda matrix=EYE, **o: covopt.copositivity(matrix, **o), "matrix time_limit"),
    "sigma_rank": (lambda matrix=EYE, **o: covopt.sigma_rank(matrix, np.eye(3), **o), CONE),
    "in_cone": (lambda matrix=EYE, **o: covopt.in_cone(np.eye(3), matrix, **o), CONE),
    "loss_of_weights": (
        lambda network=W, X=X, Y=Y, **o: covopt.loss_of_weights(network, X, Y, **o), f"{PROBLEM} network"),
    "loss_of_representations": (lambda X=X, Y=Y, **o: covopt.loss_of_representations([X, X[:, :1]], X, Y, **o),
                                "Y lam loss bias activation sample_weight"),
    "loss_of_covariances": (lambda X=X, Y=Y, **o: covopt.loss_of_covariances([(np.eye(8), np.eye(8))], Y, X, Y, **o),
                            f"{PROBLEM} tikhonov"),
    "jacobians": (lambda network=W, X=X: covopt.jacobians(network, X), "network X"),
    "Result.predict": (SOLVED.predict, "X"),
    "Result.representations": (lambda hidden: SOLVED.representations(hidden), "hidden"),
    "Result.covariances": (lambda hidden: SOLVED.covariances(hidden), "hidden"),
    "Result.forces": (lambda hidden: SOLVED.forces(hidden), "hidden"),
    "Result.optima": (SOLVED.optima, "other steps"),
    "Result.save": (lambda path: SOLVED.save(path), "path"),
    "load": (lambda path: covopt.load(path), "path"),
    "verify": (lambda path: covopt.verify(path), "path"),
    "write_report": (lambda path: covopt.write_report(path), "path"),
    "CovoptRegressor": (fitted(covopt.CovoptRegressor),
                        f"lam {FITTED} method certify gap tol width max_width starts"),
    "CovoptClassifierCV": (
        lambda **o: covopt.CovoptClassifierCV(cv=2, **o).fit(X, Y > 0), f"lams n_lams eps {FITTED}"),
}  # fmt: skip
OTHERWISE: dict[str, dict[str, object]] = {
    **{name: {"lam": 0.1} for name in ("plateau", "validate", "compare", "Monitor")},
    **{f"loss_of_{name}": {"lam": 0.1} for name in ("weights", "representations", "covariances")},
    "solve": {"lam": 0.1, "time_limit": 0.1},
    "depth": {"lam": 0.1, "depths": [2]},
    "path": {"lams": [0.1]},
    "ranks": {"lam": 0.1, "epochs": 1},
    "read_data": {"rows": 9},
}
"""Options of a function that are right, where it needs some."""


def wrong(name: str) -> list[str]:
    """What a function does with wrong options but refusing each in one sentence."""
    (function, options), found = FUNCTIONS[name], []
    for option in options.split():
        for value in WRONG[option]:
            if name == "Result.predict" and isinstance(value, np.ndarray) and value.dtype == np.float64:
                continue  # outputs at NaN are NaN
            try:
                function(**OTHERWISE.get(name, {}) | {option: value})
                found.append(f"{option}={value!r} is taken")
            except covopt.CovoptError as error:
                if not str(error).endswith("."):
                    found.append(f"{option}={value!r} is told {error}")
            except Exception as error:
                found.append(f"{option}={value!r} raises {error!r}")
    return found


def numbers_of_numpy() -> list[str]:
    """What goes wrong with NumPy's numbers as options."""
    n, quick = np.int64, {"certify": "none", "time_limit": np.float32(2.0)}
    try:
        covopt.solve(X, Y, lam=np.float64(0.1), method="train", width=n(2), starts=n(2), max_iterations=n(1),
            seed=n(0), depth=n(2), skip=np.False_, **quick)  # fmt: skip
        covopt.path(X, Y, points=n(2), folds=n(2), seed=n(0), max_iterations=n(1), **quick)
        covopt.plateau(X, Y, lam=1.0, layer=n(1), widths=[n(1)], starts=n(1), seed=n(0), **quick)
        covopt.forces(W, n(1), X=X)
        SOLVED.representations(n(1))
    except Exception as error:
        return [repr(error)]
    return []


if __name__ == "__main__":
    print(json.dumps({name: wrong(name) for name in FUNCTIONS} | {"numbers of NumPy": numbers_of_numpy()}))
