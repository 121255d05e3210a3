"""`covopt doctor`, and completion in the shell."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

import covopt
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


def test_it_says_how_to_install_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
