"""Group lassos over sampled patterns by adelie."""

from tests.benchmarks.rival_methods import with_adelie
from tests.benchmarks.rival_methods.under_benchopt import RivalSolver


class Solver(RivalSolver):
    """`rival_methods.with_adelie`."""

    name = "adelie"
    requirements = ("adelie",)
    parameters = {"gates": [25]}  # noqa: RUF012 - benchopt's way
    rival = staticmethod(with_adelie.run)
