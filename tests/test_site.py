"""The built site in a real browser: no page is too long to read, or wider than its window."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from browser import Browser

ROOT = Path(__file__).parents[1]
LONGEST, WIDTHS = 6000, (1300, 400)  # pixels; the length is that at the first width
NOT_READ = "notes/", "_", "genindex", "search"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Built here, without the reference of Python objects; without Sphinx those in site/, without the examples."""
    site, but = tmp_path_factory.mktemp("build") / "site", NOT_READ
    if all(map(find_spec, ("sphinx_gallery", "myst_parser", "furo"))):
        for folder in ("docs", "examples"):
            shutil.copytree(ROOT / folder, site.parent / folder, ignore=shutil.ignore_patterns("python", "__pycache__"))
        build = ["-m", "sphinx", "-Q", "-D", "plot_gallery=0", "-D", "autosummary_generate=0", "docs", "site"]
        subprocess.run([sys.executable, *build], cwd=site.parent, check=True)
    elif (ROOT / "site").is_dir():
        site, but = ROOT / "site", (*NOT_READ, "examples/")
    else:
        pytest.skip("there is neither Sphinx nor site/")
    return sorted(page for page in site.rglob("*.html") if not page.relative_to(site).as_posix().startswith(but))


def test_formulas_have_their_font(pages: list[Path], window: Browser) -> None:
    window.open(next(page for page in pages if page.name == "two-layers.html"))
    window.driver.execute_async_script("document.fonts.ready.then(arguments[0])")
    fonts = window.run("return [...document.fonts].map(font => [font.family, font.status])")
    assert [family.strip('"') for family, status in fonts if status == "loaded"] == ["covopt math"]


def test_pictures_turn_dark_with_the_page(pages: list[Path], window: Browser) -> None:
    for dark in (False, True):
        window.open(next(page for page in pages if page.name == "quarter-hour.html"), dark=dark)
        turned = window.run("return getComputedStyle(document.querySelector('article img')).filter")
        assert turned.startswith("invert") == dark


def test_no_page_is_wider_than_its_window_or_too_long(pages: list[Path], window: Browser) -> None:
    assert len(pages) > 60
    for page in pages:
        window.open(page, WIDTHS[0])
        assert 300 < window.run("return document.documentElement.scrollHeight") <= LONGEST, page
        for width in WIDTHS:
            window.resize(width)
            wide = "return Math.max(...[...document.querySelectorAll('html, .content')].map(box => box.scrollWidth))"
            assert window.run(wide) <= width, page
