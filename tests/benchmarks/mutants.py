"""Mutants of proof code: plausible slips that would make a bound false or a check vacuous; the tests must notice each.

Each mutant of `mutations.py` is applied to a copy of the package, and the tests that it names run on that copy. A
mutant is killed if one of them fails. One that passes, or takes more than a minute of processor time, is alive: a false
bound could come in the same way.

A result is stored after every mutant, and is taken from there as long as the mutated file, the mutant and the tests
that it names are the same. So the benchmark can be stopped at any time and goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import machine
from tests.benchmarks.harness import Outcome, Settings, benchmark, write
from tests.benchmarks.mutations import MUTANTS, Mutant

NAME = "mutants"
MINUTE = 60  # processor seconds that the tests of one mutant may take, on a busy machine as on a quiet one
PATIENCE = 900  # seconds after which they hang
COLUMNS = ("mutant", "file", "tests", "verdict", "seconds", "fingerprint")
KILLED, ALIVE, BROKEN, LATE = "killed", "ALIVE", "BROKEN", "TOO LATE"
LEFT_OUT = ("results", "__pycache__", ".hypothesis")


@dataclass(frozen=True)
class Copy:
    """A copy of the package and its tests, in which one file at a time is changed."""

    root: Path

    @staticmethod
    def under(directory: Path) -> Copy:
        """Copy the package, the tests and the settings of pytest."""
        for name in ("covopt", "tests", "docs", "examples"):
            shutil.copytree(machine.ROOT / name, directory / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(machine.ROOT / name, directory / name)
        return Copy(directory)

    def verdict(self, mutant: Mutant) -> tuple[str, float]:
        """Run the tests of a mutant; its verdict, and the seconds that they took."""
        place = self.root / mutant.file
        text = place.read_text(encoding="utf-8")
        _write(place, mutant.applied(text))
        try:
            return self.run(mutant.tests)
        finally:
            _write(place, text)

    def run(self, tests: str) -> tuple[str, float]:
        """Run tests on the copy as it is: killed if one fails, alive if all pass."""
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
        environment = os.environ | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": ""}
        before = _processor_seconds()
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (MINUTE, MINUTE)),
            )
        except subprocess.TimeoutExpired:
            return LATE, float(PATIENCE)
        seconds = round(_processor_seconds() - before, 1)
        verdict = {0: ALIVE, 1: KILLED}.get(done.returncode, LATE if done.returncode < 0 else BROKEN)
        if verdict != KILLED or os.environ.get("COVOPT_MUTANTS_SHOW"):
            print(done.stdout[-1500:], done.stderr[-1500:], file=sys.stderr)
        return verdict, seconds


def _write(place: Path, text: str) -> None:
    """Write a module, and remove what was compiled of it: both may be of one size and second."""
    place.write_text(text, encoding="utf-8")
    for compiled in place.parent.glob(f"__pycache__/{place.stem}.*"):
        compiled.unlink()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fingerprint(mutant: Mutant) -> str:
    """A digest of the mutated file, of the mutant, and of the tests that it names."""
    digest = hashlib.sha256(repr(mutant).encode())
    for name in (mutant.file, *(test.partition("::")[0] for test in mutant.tests.split())):
        digest.update((machine.ROOT / name).read_bytes())
    return digest.hexdigest()[:16]


@benchmark(NAME, "slips in proof code, each of which ordinary tests must notice (hours)")
def run_mutants(settings: Settings) -> Outcome:
    """Apply every mutant whose result is not stored, and run the tests that it names."""
    for mutant in MUTANTS:
        mutant.applied((machine.ROOT / mutant.file).read_text(encoding="utf-8"))
    known = _stored(settings.directory / f"{NAME}.json")
    before = machine.describe(settings.threads)
    with tempfile.TemporaryDirectory() as directory:
        copy = Copy.under(Path(directory))
        for mutant in _in_turns(MUTANTS):
            key = fingerprint(mutant)
            if key in known:
                continue
            verdict, seconds = copy.verdict(mutant)
            known[key] = (mutant.slip, mutant.file, mutant.tests, verdict, seconds, key)
            print(f"  {verdict} in {seconds:.0f} s: {mutant.file}, {mutant.slip}", file=sys.stderr, flush=True)
            write(NAME, _outcome(known), settings, before)
        return _outcome(known)


def _in_turns(mutants: Sequence[Mutant]) -> list[Mutant]:
    """The first mutant of every file, then the second of every file, and so on."""
    turns = Counter[str]()
    numbered = []
    for mutant in mutants:
        numbered.append((turns[mutant.file], mutant))
        turns[mutant.file] += 1
    return [mutant for _, mutant in sorted(numbered, key=lambda pair: pair[0])]


def _stored(path: Path) -> dict[str, tuple[object, ...]]:
    """The stored rows by their fingerprint; those that are not killed are run again."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return {row[-1]: tuple(row) for row in rows if row[3] == KILLED}


def _outcome(known: dict[str, tuple[object, ...]]) -> Outcome:
    rows = [known[key] for mutant in MUTANTS if (key := fingerprint(mutant)) in known]
    others = [row for row in rows if row[3] != KILLED]
    slowest = max((float(str(row[4])) for row in rows), default=0.0)
    files = len({row[1] for row in rows})
    return Outcome(
        target="every mutant of at least 60 is killed by ordinary tests, each in under a minute of processor time",
        reached=f"{len(rows) - len(others)} of {len(MUTANTS)} killed, in {files} files; {len(others)} alive; the"
        f" slowest takes {slowest:.0f} s" + "".join(f"; {row[3]}: {row[1]}, {row[0]}" for row in others[:5]),
        met=not others if len(rows) == len(MUTANTS) >= 60 else None,
        columns=COLUMNS,
        rows=rows,
    )
