"""What a fresh machine relies on. `.ci/run` makes one; here are the parts that need no network."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest
from typer.main import get_command

import covopt
from covopt.app import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def readme_command(name: str) -> str:
    found = re.search(rf"<!-- ci: {name} -->\n```sh\n(.*?)\n```", README, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.parametrize("name", covopt.__all__)
def test_public_names_are_where_the_package_says(name: str) -> None:
    assert getattr(covopt, name) is not None


def test_unknown_names_are_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="no attribute 'bogus'"):
        _ = covopt.bogus  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        import_module("covopt.bogus")


def test_import_alone_is_light() -> None:
    code = "import sys, covopt; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_readme_commands_are_the_ones_that_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    for name in ("digits", "tests", "docs"):
        command = readme_command(name)
        assert command.count("\n") == 0
        assert "-c constraints.txt" in command
        assert f"readme_command {name}" in ci


def test_readme_names_every_command() -> None:
    for name in get_command(cli.app).commands:
        assert f"`covopt {name}" in README


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[><=]", requirement)[0].lower() for requirement in wanted}
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert not names - pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


def test_citation_names_this_version() -> None:
    assert f"version: {covopt.__version__}\n" in (ROOT / "CITATION.cff").read_text()
