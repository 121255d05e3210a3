"""An attack on the lower bounds: problems made to be hard, against networks whose cost is known."""

from __future__ import annotations

import collections
import math
import sys
import time
import warnings
from dataclasses import dataclass, field

import covopt
from covopt.certify.spectral import spectral_bound
from covopt.model.problem import make_problem
from tests.adversary import Attack, attack
from tests.benchmarks.harness import Benchmark, Outcome, Settings

INSTANCES, QUICK = 10_000, 100
ROUNDING = 1e-9  # NumPy's evaluation of the networks
SECONDS = 0.5  # of one solve
DEEP = 10  # one in so many deep problems is solved; all of them have their spectral bound taken


@dataclass
class Tally:
    """What came of one certificate's bounds.

    Attributes:
        bounds: how many there were; false: those above a network's cost, or not finite.
        loose: bound over known cost.
    """

    bounds: int = 0
    false: list[str] = field(default_factory=list)
    loose: list[float] = field(default_factory=list)

    def add(self, lower: float | None, given: Attack) -> None:
        """Judge one bound."""
        if lower is None:
            return
        self.bounds += 1
        if not math.isfinite(lower) or lower > given.upper * (1.0 + ROUNDING):
            self.false.append(f"{given.says}: {lower:.12g} above {given.upper:.12g}")
        elif given.upper > 0.0:
            self.loose.append(lower / given.upper)


def run(settings: Settings) -> Outcome:
    """All instances; what is false, and what ended in another way than an answer or a sentence."""
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    broken: list[str] = []
    refused, done, seed = 0, 0, 0
    began = time.perf_counter()
    while done < (QUICK if settings.quick else INSTANCES):
        seed += 1
        given = attack(seed)
        if given is None:
            continue
        done += 1
        try:
            _judge(given, seed, tallies)
        except covopt.InternalError as error:
            tallies["contradiction"].false.append(f"{given.says}: {error}")
        except covopt.CovoptError:
            refused += 1
        except Exception as error:
            broken.append(f"{given.says}: {type(error).__name__}: {error}")
    for line in [*broken, *(line for tally in tallies.values() for line in tally.false)]:
        print(line, file=sys.stderr)
    rows = [
        (kind, tally.bounds, len(tally.false), _median(tally.loose), max(tally.loose, default=None))
        for kind, tally in sorted(tallies.items())
    ]
    false = sum(len(tally.false) for tally in tallies.values())
    return Outcome(
        target=f"no false bound in {INSTANCES:,} instances, and no traceback",
        reached=f"{false} false bounds, {len(broken)} tracebacks and {refused} refusals in {done:,} instances,"
        f" {time.perf_counter() - began:.0f} s",
        met=false == 0 and not broken,
        columns=("certificate", "bounds", "false", "median of bound / known cost", "largest"),
        rows=rows,
        runs=[],
    )


def _judge(given: Attack, seed: int, tallies: dict[str, Tally]) -> None:
    problem = make_problem(given.X, given.Y, **given.options)  # type: ignore[arg-type]
    tallies["spectral"].add(spectral_bound(problem), given)
    if problem.depth > 2 and seed % DEEP:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = covopt.solve(
            given.X,
            given.Y,
            certify=("fast", "full")[seed % 2],
            max_iterations=1 + seed % 7,
            time_limit=SECONDS,
            seed=seed,
            **given.options,  # type: ignore[arg-type]
        )
    tallies[f"solve, {found.certificate}"].add(found.lower, given)


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


TRUTH = {"truth": Benchmark(run, "the lower bounds under attack: 10,000 problems made to be hard")}
