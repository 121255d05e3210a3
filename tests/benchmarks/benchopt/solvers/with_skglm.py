"""Group lassos over sampled patterns by skglm."""

from tests.benchmarks.rival_methods import with_skglm
from tests.benchmarks.rival_methods.under_benchopt import RivalSolver


class Solver(RivalSolver):
    """`rival_methods.with_skglm`."""

    name = "skglm"
    requirements = ("skglm",)
    parameters = {"gates": [25]}  # noqa: RUF012 - benchopt's way
    rival = staticmethod(with_skglm.run)
