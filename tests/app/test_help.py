"""The help texts: groups, one screen of common options, examples that can be typed; and what is refused at once."""

import shlex
import subprocess
import sys

import pytest
import typer
from runs import Run
from typer.main import get_command

from covopt.app.cli import app

COMMANDS = get_command(app).commands  # type: ignore[attr-defined]
SCREEN, WIDTH = 45, 80


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def test_commands_stand_in_groups(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    titles = [line.strip("╭╮─ ") for line in out.splitlines() if line.startswith("╭")]
    assert titles == ["Options", "Answers", "Studies", "Stored runs", "Matrices", "This machine"]
    assert all(out.count(f"│ {name} ") == 1 for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_common_fits_on_one_screen(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    lines = out.splitlines()
    assert code == 0
    titles = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    assert [title for title in titles if title != "Arguments"] in (["Common"], ["Common", "Advanced"])
    first = out.partition("─ Advanced")[0].splitlines()
    assert len(first) <= SCREEN
    assert sum(line.startswith(("│ --", "│ *  --", "│    --")) for line in first) <= 12
    assert all(len(line) <= WIDTH for line in lines)
    assert not any(label in out for label in ("<bool", "<str", "<path", "<int", "<float", "<list", "list["))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_two_examples_that_it_understands(name: str) -> None:
    title, *examples = (COMMANDS[name].epilog or "").splitlines()
    assert (title, len(examples)) == ("Examples:", 2)
    for example in examples:
        assert len(example) <= WIDTH - 2
        sign, program, command, *words = shlex.split(example)
        assert (sign, program, command) == ("$", "covopt", name)
        with typer.Context(get_command(app)) as parent:  # type: ignore[arg-type]
            COMMANDS[name].make_context(name, words, parent=parent)


def test_two_default_time_limits() -> None:
    limits = {p.default for command in COMMANDS.values() for p in command.params if p.name == "time_limit"}
    assert limits == {60.0, 300.0}


def test_wrong_numbers_are_refused_before_torch_is_loaded() -> None:
    wrong = "--lam -1,--lam 0,--lam nan,--bias none,--bias -1,--depth 1,--loss MSE,--activation tanh,--gap 2,--tol 1"
    code = f"""import sys
from covopt.app.cli import main
for command in ("solve", "compare", "plateau"):
    for option in "{wrong},--time-limit 0,--seed -1".split(","):
        try:
            main([command, "iris", *option.split()])
        except SystemExit as ended:
            assert ended.code == 2, option
print("torch" in sys.modules)"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"
    assert process.stderr.count("\n") == 36
