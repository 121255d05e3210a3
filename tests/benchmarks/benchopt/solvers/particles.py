"""Conic particle gradient descent with births."""

from tests.benchmarks.rival_methods import particles
from tests.benchmarks.rival_methods.under_benchopt import RivalSolver


class Solver(RivalSolver):
    """`rival_methods.particles`."""

    name = "particles"
    requirements = ("numpy",)
    parameters = {"width": [100]}  # noqa: RUF012 - benchopt's way
    rival = staticmethod(particles.run)
