"""Gauss-Newton with variable projection."""

from tests.benchmarks.rival_methods import projection
from tests.benchmarks.rival_methods.under_benchopt import RivalSolver


class Solver(RivalSolver):
    """`rival_methods.projection`."""

    name = "varpro"
    requirements = ("numpy",)
    parameters = {"width": [60]}  # noqa: RUF012 - benchopt's way
    rival = staticmethod(projection.run)
