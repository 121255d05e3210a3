"""Ctrl-C at random times over all commands, each in a process of its own: what it leaves, and how soon it ends."""

import random
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.harness import Outcome, Settings, benchmark
from tests.signalling import COMMANDS, Ended, interrupt, write_inputs

SIGNALS, QUICK = 60, 4
EARLIEST, LATEST = 0.5, 14.0  # CPU seconds after which the signal comes; loading takes the first two
TWICE = 0.2  # the part that gets a second signal at once
SECONDS = 2.0


@benchmark("signals", "60 signals at random times over all commands (15 min)")
def run_signals(settings: Settings) -> Outcome:
    """One command after the other, in a random order, from `--seed` on."""
    drawn = random.Random(settings.seed)
    commands = list(COMMANDS)
    drawn.shuffle(commands)
    rows = []
    for count in range(QUICK if settings.quick else SIGNALS):
        name = commands[count % len(commands)]
        after, presses = drawn.uniform(EARLIEST, LATEST), 2 if drawn.random() < TWICE else 1
        with tempfile.TemporaryDirectory() as place:
            write_inputs(Path(place))
            ended = interrupt(COMMANDS[name], Path(place), after, presses)
        rows.append(_row(name, after, presses, ended))
        print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    faults, late = sum(row[-1] != "" for row in rows), sum(row[5] > SECONDS for row in rows)
    return Outcome(
        target=f"of {SIGNALS} signals at random times, nothing half-written and no end later than {SECONDS:g} s",
        reached=f"{len(rows)} signals: {faults} left something wrong, {late} ended later",
        met=faults == 0 and late == 0,
        columns=(
            "command",
            "CPU seconds before",
            "signals",
            "exit code",
            "CPU seconds after",
            "seconds after",
            "faults",
        ),
        rows=rows,
    )


def _row(name: str, after: float, presses: int, ended: Ended) -> tuple[str, float, int, int, float, float, str]:
    seconds = round(ended.seconds, 2)
    return name, round(after, 1), presses, ended.code, round(ended.cpu_seconds, 2), seconds, "; ".join(ended.faults)
