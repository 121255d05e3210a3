"""L-BFGS and AdamW of torch.optim."""

from tests.benchmarks.rival_methods import descents
from tests.benchmarks.rival_methods.under_benchopt import RivalSolver


class Solver(RivalSolver):
    """`rival_methods.descents`."""

    name = "torch"
    requirements = ("pytorch",)
    parameters = {"method": ["lbfgs", "adamw"], "width": [150]}  # noqa: RUF012 - benchopt's way
    rival = staticmethod(descents.run)
