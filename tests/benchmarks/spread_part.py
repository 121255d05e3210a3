"""One process of a spread solve, which prints its report: `python -m tests.benchmarks.spread_part DATA ROUNDS SECONDS`.

It imports covopt alone, so that the memory it tells is that of a solve.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed

import covopt
from covopt.data.data import read_data
from tests.benchmarks.job import peak_mib

LAM = 1e-4
ASKED: dict[str, dict[str, Any]] = {
    "digits": {"lam": 1e-3},
    "mixture": {"lam": 1e-4, "bias": 0.0},
    "many": {"lam": LAM},
}


@dataclass(frozen=True)
class Part:
    """What one process reports of its part of a solve.

    Attributes:
        rounds: seconds from the first line of its history to the last before the answer is tidied.
        wall, processor: seconds in all.
    """

    cost: float
    width: int
    rounds: float
    wall: float
    processor: float
    mib: float


def main() -> None:
    """One process of a solve: its report, as JSON."""
    path, rounds, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    share = torch.distributed.get_rank(), torch.distributed.get_world_size()
    data = read_data(path, share=share)
    wall, processor = time.perf_counter(), time.process_time()
    timed: dict[str, Any] = {"max_iterations": rounds} if limit >= 1e5 else {}
    asked = ASKED[Path(path).stem] | timed
    lines: list[float] = []
    asked |= {"callback": lambda line: lines.append(line.seconds)}
    result = covopt.solve(data.X, data.Y, certify="none", time_limit=limit, spread=True, **asked)
    told = Part(
        result.cost,
        result.widths[0],
        lines[-1] - lines[0],
        time.perf_counter() - wall,
        time.process_time() - processor,
        peak_mib(),
    )
    print(json.dumps(told.__dict__))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
