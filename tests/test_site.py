"""The built site in a real browser: no page is too long to read, or wider than its window."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import browser as chromium
import pytest
from browser import Browser

ROOT = Path(__file__).parents[1]
LONGEST = 6000
"""Pixels at a width of 1300."""
WIDTHS = 1300, 800, 400
NOT_READ = "notes/", "_", "genindex", "search"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pages of the site, built without the pictures of the examples and the reference of Python objects."""
    for name in ("sphinx_gallery", "myst_parser", "furo"):
        pytest.importorskip(name)
    place = tmp_path_factory.mktemp("site")
    made = shutil.ignore_patterns("python", "__pycache__")
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, place / folder, ignore=made)
    build = ["-m", "sphinx", "-Q", "-D", "plot_gallery=0", "-D", "autosummary_generate=0", "docs", "site"]
    subprocess.run([sys.executable, *build], cwd=place, check=True)
    names = {page: page.relative_to(place / "site").as_posix() for page in (place / "site").rglob("*.html")}
    return sorted(page for page, name in names.items() if not name.startswith(NOT_READ))


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    if not (chromium.CHROMIUM and chromium.DRIVER):
        pytest.skip(chromium.MISSING)
    with chromium.browser() as opened:
        yield opened


def test_formulas_have_their_font(pages: list[Path], window: Browser) -> None:
    window.open(next(page for page in pages if page.name == "two-layers.html"))
    window.driver.execute_async_script("document.fonts.ready.then(arguments[0])")
    fonts = window.run("return [...document.fonts].map(font => [font.family, font.status])")
    assert [family.strip('"') for family, status in fonts if status == "loaded"] == ["covopt math"]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window_or_too_long(pages: list[Path], window: Browser, width: int) -> None:
    assert len(pages) > 60
    for page in pages:
        window.open(page, width)
        assert window.run("return document.documentElement.scrollWidth") <= width, page
        height = window.run("return document.documentElement.scrollHeight")
        assert height > 300
        assert height <= LONGEST or width != WIDTHS[0], page
