"""Messages about the three faces of the loss, modules that compute something else, and arguments of wrong types."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

import covopt
from messages import X, Y, rows

W = [np.ones((4, 3)), np.ones((1, 5))]
Z = [np.asarray(z) for z in covopt.preactivations(X, W)]
RANDOM = [np.random.default_rng(0).normal(size=A.shape) for A in W]
FLAT = [np.asarray(z) for z in covopt.preactivations(1e-9 * X, RANDOM)]
PAIR = covopt.covariances_of(Z[0])
I6 = np.eye(6)
MANY = covopt.covariances_of(np.random.default_rng(0).standard_normal((8, 30)))


def by_Z(Z: object, **options: object) -> object:
    return covopt.loss_of_representations(X, Y, Z, **({"lam": 0.1} | options))  # type: ignore[arg-type]


def by_K(K: object, Z_L: object = Z[1], **options: object) -> object:
    return covopt.loss_of_covariances(X, Y, K, Z_L, **({"lam": 0.1} | options))  # type: ignore[arg-type]


def net(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 4), *(between or (nn.ReLU(),)), nn.Linear(4, 1)).double()


class Cube(nn.ReLU):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input**3


def hooked() -> nn.Module:
    module = net()
    module[0].register_forward_hook(lambda module, inputs, output: 2.0 * output)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    module[2].weight = module[0].weight
    return module


def audit(make: Callable[[], nn.Module]) -> Callable[[object], object]:
    return lambda here: covopt.validate(make(), X, Y, lam=0.1)


SOLVED = covopt.solve(X, Y, lam=0.1, certify="none", max_iterations=1)
NAMED = covopt.solve(pd.DataFrame(X, columns=["a", "b"]), Y, lam=0.1, certify="none", max_iterations=1)
TWINS = covopt.solve(
    pd.DataFrame(np.hstack([X, Y]), columns=["a", "a", "b"]), Y, lam=0.1, certify="none", max_iterations=1
)


def met_another(here: Path) -> object:
    others = {"later.txt": lambda file: (file.touch(), (here / "run" / "theirs").mkdir(parents=True))}
    return SOLVED.save(here / "run", others=others)


def of_audit(here: Path) -> object:
    network = [np.ones((2, X.shape[1] + 1)), np.ones((Y.shape[1], 3))]
    covopt.validate(network, X, Y, lam=0.1, time_limit=1.0).save(here / "audit")
    return covopt.load(here / "audit")


def emptied_study(here: Path) -> object:
    covopt.compare(X, Y, lam=0.1, methods=["train"], starts=1, max_iterations=1).save(here / "study")
    (here / "study" / "train" / "result.json").unlink()
    return covopt.load(here / "study")


ROWS = rows(globals())
