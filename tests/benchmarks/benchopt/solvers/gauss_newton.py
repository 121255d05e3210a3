"""The structure-guided Gauss-Newton method."""

from tests.benchmarks.rival_methods import gauss_newton
from tests.benchmarks.rival_methods.under_benchopt import RivalSolver


class Solver(RivalSolver):
    """`rival_methods.gauss_newton`."""

    name = "gauss-newton"
    requirements = ("numpy",)
    parameters = {"width": [60]}  # noqa: RUF012 - benchopt's way
    rival = staticmethod(gauss_newton.run)
