"""The front pages of the README and of the site: what covopt is, a picture, three lines, and one example."""

import shlex
from pathlib import Path

import pytest
from fences import fences
from runs import toy_result

from covopt.answer import words

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md"]
LARGEST = 100_000


def example(page: Path) -> list[str]:
    """The lines of the block that shows the first command and its output."""
    shown = [fence.text for fence in fences(page) if fence.kind == "text" and fence.text.startswith("$ covopt solve")]
    assert len(shown) == 1
    return shown[0].splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_it_is_a_picture_and_three_lines_come_first(page: Path) -> None:
    text = page.read_text()
    place = "docs/" if page.name == "README.md" else ""
    for name in ("minimum.png", "digits.png"):
        picture = (page.parent / place / name).resolve()
        assert picture.stat().st_size < LARGEST
        assert picture.read_bytes().startswith(b"\x89PNG")
    shown = next(fence.text for fence in fences(page) if fence.kind == "pycon")
    assert shown.count(">>> ") == 3
    first = text.partition("$ covopt solve digits")[0]
    assert "oracle" not in first
    places = [first.index(mark) for mark in ("representation cost", f"({place}minimum.png)", shown[:20])]
    assert places == sorted(places)
    assert "ho it is for" in text[: len(text) // 2]
    assert "digits.png)" in text


def test_the_readme_is_short_and_answers_six_questions() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 120
    table = text.partition("## Which question?")[2].partition("\n\nBesides")[0]
    assert table.count("`covopt ") == 6
    assert "## What can I expect?" in text


def test_both_pages_show_the_same_output_of_the_first_command_with_a_gap_of_two_percent() -> None:
    lines, again = (example(page) for page in PAGES)
    assert lines == again
    labels = [label for label, _ in words.pairs(toy_result().summary())]
    assert [line[:13].strip() for line in lines[1:]] == labels
    shown = {line[:13].strip(): line[13:] for line in lines[1:]}
    cost, lower, gap = (float(shown[name].removesuffix(" %")) for name in ("cost", "lower bound", "gap"))
    assert gap == pytest.approx(100.0 * (cost - lower) / cost, rel=1e-3)
    assert gap <= 2.0


def test_the_command_shown_is_the_one_that_ci_runs() -> None:
    first = next(fence for fence in fences(ROOT / "README.md") if fence.mark == "ci").text
    ran = shlex.split(first.rpartition("&&")[2])
    asked = shlex.split(example(ROOT / "README.md")[0])[2:]
    assert ran[1 : 1 + len(asked)] == asked
