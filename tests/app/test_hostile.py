"""Malformed and hostile files: one sentence and exit code 2 each, no traceback, no code run, memory bounded."""

import resource
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from hostile import KINDS, RAN, Case
from messages import command
from runs import covopt_process

from covopt.app import cli

MEMORY = 2**29
"""What reading a malformed file may take, in bytes beyond what the process has already."""
LENGTH = 400
"""The longest sentence, paths left out."""


def memory(name: str) -> int:
    """A figure of this process, in bytes: VmHWM, the peak since it was reset, VmRSS or VmSize."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise LookupError(name)


@pytest.fixture
def bounded() -> Iterator[None]:
    """No allocation of several gigabytes succeeds, touched or not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + 2**31, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def words(case: Case, path: Path) -> list[str]:
    return [w.replace("FILE", str(path)).replace("HERE", str(path.parent)) for w in case.command.split()]


def faults(code: object, out: str, err: str, here: Path) -> list[str]:
    """What is wrong with the refusal."""
    sentence = err.removesuffix("\n")
    wrong = {
        f"exit code {code}": code != 2,
        "standard output": out != "",
        "not one line": err != sentence + "\n" or "\n" in sentence,
        "not covopt's words": not sentence.startswith("covopt: ") or "--help" in sentence,
        "no full stop": not sentence.endswith("."),
        "control characters": not sentence.isprintable(),
        "too long": len(sentence.replace(str(here), "")) > LENGTH,
        "traceback": "Traceback" in err,
        "code was run": any(here.rglob(RAN)),
        "a file is left": any(here.rglob("*.part")),
    }
    return [name for name, present in wrong.items() if present]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("bounded")
def test_malformed_files_are_refused_in_a_sentence(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "app", typer.main.get_command(cli.app))  # built once, not for each case
    told: list[str] = []
    for number, case in enumerate(KINDS[kind]()):
        here = tmp_path / str(number)
        here.mkdir()
        monkeypatch.chdir(here)
        case.make(here / case.file)
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                code, out, err = command(cli.main, words(case, here / case.file))
            except Exception as error:
                code, out, err = repr(error), "", ""
        found = faults(code, out, err, here) + [f"a warning: {each.message}" for each in warned]
        taken = memory("VmHWM") - before
        if taken > MEMORY:
            found.append(f"{taken / 2**20:.0f} MiB")
        if found:
            told.append(f"{case.name}: {', '.join(found)}; {err[-300:]!r} {out[-200:]!r}")
    assert not told, "\n".join(told)


def test_there_are_enough_of_them() -> None:
    cases = [case for kind in KINDS.values() for case in kind()]
    assert len({case.name for case in cases}) == len(cases) >= 200


@pytest.mark.parametrize("name", ["code by name", "an array with 10^9 rows"])
def test_a_process_of_its_own_says_the_same(name: str, tmp_path: Path) -> None:
    case = next(case for kind in KINDS.values() for case in kind() if case.name == name)
    case.make(tmp_path / case.file)
    ended = covopt_process(*words(case, tmp_path / case.file), cwd=tmp_path)
    assert not faults(ended.returncode, ended.stdout, ended.stderr, tmp_path), ended.stderr
