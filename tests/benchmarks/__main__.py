"""`python -m tests.benchmarks [NAME ...]`: run benchmarks and store their results; without a name, list them."""

import argparse
import sys

from tests.benchmarks import gpu, machine
from tests.benchmarks.harness import BENCHMARKS, Settings, benchmarks, table, write
from tests.benchmarks.report import regenerate


def main() -> None:
    """Read the options, run what is named."""
    benchmarks()
    options = _options()
    device = options.device or ("cuda" if options.names == ["gpu"] else "cpu")
    if options.names == ["report"]:
        print(regenerate())
        return
    if not options.names:
        width = max(map(len, BENCHMARKS))
        print("\n".join(f"{name:<{width}}  {benchmark.says}" for name, benchmark in BENCHMARKS.items()))
        print(f"{'gpu':<{width}}  all that needs a GPU, in slices of at most nine minutes; goes on where it stopped")
        print(f"{'report':<{width}}  the tables on the pages of docs/, from the stored results")
        return
    settings = Settings(
        quick=options.quick,
        repeats=options.repeats,
        threads=options.threads,
        reference=options.reference,
        device=device,
        rows=options.rows,
        seconds=options.seconds,
        number=tuple(options.number),
        seed=options.seed,
        limits=tuple(options.limits),
    )
    if options.names == ["gpu"]:
        print(gpu.run_slices(settings, options.minutes))
        return
    for name in options.names:
        print(f"{name}: {BENCHMARKS[name].says}", file=sys.stderr)
        before = machine.describe(settings.threads) | gpu.named(settings.device)
        outcome = BENCHMARKS[name].run(settings)
        path = write(name, outcome, settings, before)
        met = {True: "met", False: "not met", None: "undecided"}[outcome.met]
        print(f"\n{name}\n{table(outcome.columns, outcome.rows)}\n")
        print(f"to reach: {outcome.target}\nreached:  {outcome.reached} ({met})")
        print(f"stored:   {path.relative_to(machine.ROOT)}\n", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    names = [*BENCHMARKS, "gpu", "report"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="time limits of 4 s: shows that it runs, measures nothing")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each contender, with seeds 0, 1, ... (1)")
    parser.add_argument("--threads", type=int, default=machine.usable_cores(), help="of each contender (all cores)")
    parser.add_argument("--reference", type=float, help="growth: longer runs beside, of so many seconds (none)")
    on_device = "kernels, soon, growth, rivals-... and sign-trees-..."
    parser.add_argument("--device", choices=("cpu", "cuda"), help=f"of {on_device} (cpu; of gpu: cuda)")
    parser.add_argument("--minutes", type=float, default=gpu.MINUTES, help="of one call of gpu (9)")
    parser.add_argument("--rows", type=int, default=60_000, help="samples of soon, spread and audit-many (60000)")
    parser.add_argument("--seconds", type=float, help="at most, of each contender (as the benchmark has them)")
    parser.add_argument(
        "--number", type=int, nargs="+", default=[330, 140, 30], help="of scales, one for each limit (330 140 30)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first problem of scales and rivals-drawn (0)")
    parser.add_argument("--limits", type=float, nargs="+", default=[0.5, 4.0, 30.0], help="of scales (0.5 4 30)")
    options = parser.parse_args()
    alone = {"report", "gpu"} if len(options.names) > 1 else set()
    wrong = [name for name in options.names if name not in names or name in alone]
    if wrong:
        parser.error(f"'{wrong[0]}' cannot be run so; give names of {', '.join(BENCHMARKS)}.")
    if options.repeats < 1 or options.threads < 1:
        parser.error("--repeats and --threads must be at least 1.")
    return options


if __name__ == "__main__":
    main()
