"""`covopt doctor`, completion in the shell, and what a fresh machine relies on."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from itertools import chain
from pathlib import Path

import pytest
import torch
from typer.main import get_command

import covopt
from covopt.app import cli
from covopt.app.cli import main

ROOT = Path(__file__).parents[2]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    assert not ended.value.code
    return capsys.readouterr().out


def test_it_tells_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "--json"))
    assert found["covopt"] == covopt.__version__
    assert found["scikit-learn"] == metadata.version("scikit-learn")
    assert found["threads"] == torch.get_num_threads()
    assert 0.0 < float(found["memory"].removesuffix(" GB left")) < 1e6
    assert (found["gpu"] is None) == (not torch.cuda.is_available())
    assert "torch        " + metadata.version("torch") in told(capsys).splitlines()


def test_how_to_install_what_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known = metadata.version

    def version(package: str) -> str:
        if package in ("pyarrow", "dask", "distributed"):
            raise metadata.PackageNotFoundError(package)
        return known(package)

    monkeypatch.setattr(metadata, "version", version)
    found = json.loads(told(capsys, "--json"))
    assert found["pyarrow"] is None
    assert found["missing"] == "pip install '.[parquet]' in the checkout; pip install '.[sweep]' in the checkout"


def test_the_shell_completes_commands_without_loading_torch() -> None:
    asked = {"_COVOPT_COMPLETE": "complete_bash", "COMP_WORDS": "covopt swe", "COMP_CWORD": "1"}
    ended = "finally: sys.exit(5) if 'torch' in sys.modules else None"
    code = f"import sys, covopt.app.cli as c\ntry: c.main([])\n{ended}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["sweep"]


# ---- what a fresh machine relies on: `.ci/run` makes one; here are the parts that need no network
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
