"""What would be published: an archive and a wheel that work once installed; and the checks of shapes in the tests."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import jaxtyping
import pytest
import typecheck
from jaxtyping import Float, TypeCheckError
from torch import Tensor, ones

ROOT = Path(__file__).parents[1]


def ran(*command: str | Path, **options: object) -> str:
    """What a command prints; it has to end with 0."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)  # type: ignore
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive of the sources and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_the_wheel_holds_every_file_of_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    stored = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("covopt/")}
    tracked = ran("git", "ls-files", "covopt", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    needed = tracked or [str(path.relative_to(ROOT)) for path in (ROOT / "covopt").rglob("*.py")]
    assert set(needed) <= stored
    assert {"covopt/py.typed", "covopt/__main__.py"} <= stored
    assert any(name.endswith(".html") for name in stored)


def test_the_archive_holds_license_and_tests(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"LICENSE", "README.md", "CITATION.cff", "pyproject.toml", "tests/test_package.py"} <= names


def test_its_description_is_valid(built: Path) -> None:
    assert ran(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()).count("PASSED") == 2


def test_the_wheel_works_where_it_is_installed(built: Path, tmp_path: Path) -> None:
    """In a folder of its own beside the same dependencies: a solve with its report, and a check."""
    (wheel,) = built.glob("*.whl")
    place = tmp_path / "installed"
    ran(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", place, wheel)
    environment = {**os.environ, "PYTHONPATH": str(place)}
    where = ran(sys.executable, "-c", "import covopt; print(covopt.__file__)", cwd=tmp_path, env=environment)
    assert Path(where.strip()).is_relative_to(place)
    (tmp_path / "data.csv").write_text("x,y\n0,1\n1,0\n2,1\n3,0.5\n")
    solved = ["solve", "data.csv", "--target", "y", "--lam", "0.01", "--time-limit", "20", "--out", "run"]
    ran(sys.executable, "-m", "covopt", *solved, cwd=tmp_path, env=environment)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "optimal"
    report = (tmp_path / "run" / "report.html").read_text()
    assert "<svg" in report or "data:image" in report
    assert ran(place / "bin" / "covopt", "verify", "run", cwd=tmp_path, env=environment).startswith("passed")
    ran(place / "bin" / "covopt-check", "run", cwd=tmp_path, env=environment)


# ---- the checks of shapes in the tests: they find a wrong shape, in functions within functions too
def _added() -> Callable[[Tensor, Tensor], Tensor]:
    """Define a function anew, as a function that holds it does at each call."""

    def add(a: Float[Tensor, "n m"], b: Float[Tensor, "n m"]) -> Tensor:
        return a[:1] + b[:1]

    return jaxtyping.jaxtyped(add, typechecker=typecheck.check)


def test_calls_of_a_function_defined_anew_are_counted_together() -> None:
    for number in range(2 * typecheck.EVERY_WITHIN):
        if number < typecheck.FIRST or number % typecheck.EVERY_WITHIN == 0:
            with pytest.raises(TypeCheckError):
                _added()(ones(2, 1), ones(3, 1))
        else:
            _added()(ones(2, 1), ones(3, 1))
