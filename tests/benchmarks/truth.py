"""An attack on everything that is proved: problems made to be hard, against what is known of them without covopt."""

import collections
import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import covopt
from tests import claims
from tests.benchmarks.harness import Outcome, Settings, benchmark
from tests.claims import Claim, Claims
from tests.claims_of_sets import of_copositivity, of_cp_rank, of_uniqueness

INSTANCES, QUICK = 10_000, 100
ROUNDING = 1e-9  # NumPy's evaluation of the networks
LONGEST = 5400.0  # seconds after which no further instance begins
SHARES: dict[Callable[[int], Claims], int] = {
    claims.of_solve: 7,
    claims.of_relaxation: 2,
    claims.of_deep: 3,
    claims.of_widths: 2,
    claims.of_path: 1,
    claims.of_lam_max: 1,
    claims.of_limit: 1,
    of_uniqueness: 1,
    of_cp_rank: 1,
    of_copositivity: 1,
}
"""Each attack, and how many of every 20 instances are its."""


@dataclass
class Tally:
    """What came of one kind of claim.

    Attributes:
        claims: how many there were; false: those that do not hold, or are not finite.
        loose: the claimed number over the known one.
    """

    claims: int = 0
    false: list[str] = field(default_factory=list)
    loose: list[float] = field(default_factory=list)

    def add(self, claim: Claim) -> None:
        """Judge one claim."""
        self.claims += 1
        if not math.isfinite(claim.low) or not claim.low <= claim.high * (1.0 + ROUNDING):
            self.false.append(f"{claim.says}: {claim.kind}, {claim.low:.12g} above {claim.high:.12g}")
        elif claim.high > 0.0:
            self.loose.append(claim.low / claim.high)


@benchmark("truth", "all that is proved under attack: 10,000 problems made to be hard")
def run(settings: Settings) -> Outcome:
    """All instances; what is false, and what ended in another way than an answer or a sentence."""
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    broken: list[str] = []
    refused, done, wanted = 0, 0, QUICK if settings.quick else INSTANCES
    began = time.perf_counter()
    for attack, seed in _turns():
        if done == wanted or time.perf_counter() - began > LONGEST:
            break
        told = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for told, claim in enumerate(attack(seed), start=1):  # noqa: B007
                    tallies[claim.kind].add(claim)
        except covopt.InternalError as error:
            tallies["contradiction"].false.append(f"{attack.__name__}, seed {seed}: {error}")
        except covopt.CovoptError:
            refused += 1
        except Exception as error:
            broken.append(f"{attack.__name__}, seed {seed}: {type(error).__name__}: {error}")
        else:
            done += told > 0  # else the draw gave no problem
            continue
        done += 1
    for line in [*broken, *(line for tally in tallies.values() for line in tally.false)]:
        print(line, file=sys.stderr)
    rows: list[Sequence[object]] = [
        (kind, tally.claims, len(tally.false), _median(tally.loose), max(tally.loose, default=None))
        for kind, tally in sorted(tallies.items())
    ]
    false = sum(len(tally.false) for tally in tallies.values())
    return Outcome(
        target=f"nothing false in {INSTANCES:,} instances, and no traceback",
        reached=f"{false} false claims, {len(broken)} tracebacks and {refused} refusals in {done:,} instances,"
        f" {time.perf_counter() - began:.0f} s",
        met=false == 0 and not broken and (done >= INSTANCES or settings.quick),
        columns=("what is claimed", "claims", "false", "median of claimed / known", "largest"),
        rows=rows,
    )


def _turns() -> Iterator[tuple[Callable[[int], Claims], int]]:
    """Which attack is next, and its seed."""
    order = [attack for attack, share in SHARES.items() for _ in range(share)]
    for seed in itertools.count():
        yield order[seed % len(order)], seed


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
