"""The documentation: its blocks run, its links lead somewhere, public names say what they take, and the front pages."""

import ast
import re
import shlex
import sys
import tomllib
import unicodedata
from pathlib import Path

import pytest
from fences import SHOWN, Runner, fences
from markdown_it import MarkdownIt
from runs import toy_result
from typer.main import get_command

import covopt
from covopt.answer import words
from covopt.app.cli import app

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / "docs", *(ROOT / "docs" / name for name in ("commands", "figures", "math", "papers", "notes"))]
PAGES = sorted([ROOT / "README.md", *(page for folder in FOLDERS for page in folder.glob("*.md"))])


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if any(fence.runs for fence in fences(page))], ids=name_of)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = Runner(page)
    for fence in fences(page):
        runner.run(fence)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_fenced_and_of_a_known_kind(page: Path) -> None:
    for fence in fences(page):
        assert fence.is_directive or fence.kind in ("python", "pycon", "sh", "console", *SHOWN), (
            f"{page}:{fence.line}: '{fence.kind}'"
        )
        assert fence.mark != "not run" or len(fence.value) > 10


def imports_of(code: str) -> set[str]:
    """The top-level names of what a program imports."""
    nodes = list(ast.walk(ast.parse(code)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in plain | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


def test_examples_and_pages_need_no_more_than_covopt_brings() -> None:
    """Who installs `covopt`, without extras, can run them all; what example 07 asks of scikit-learn needs no pandas."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {re.split(r"[<>=]", need)[0].replace("-", "_") for need in project["dependencies"]}
    allowed = brought - {"scikit_learn"} | {"sklearn", "covopt"} | set(sys.stdlib_module_names)
    programs = {name_of(page): page.read_text() for page in sorted((ROOT / "examples").glob("*.py"))}
    for page in PAGES:
        programs |= {f"{name_of(page)}:{f.line}": f.text for f in fences(page) if f.kind == "python"}
    for name, code in programs.items():
        assert imports_of(code) <= allowed, name
        assert "as_frame" not in code, name


def slug(heading: str) -> str:
    """GitHub's, and MyST's, anchor of a heading."""
    signs = (sign for sign in heading.lower() if sign in " -_" or unicodedata.category(sign)[0] in "LN")
    return "".join(signs).replace(" ", "-")


def headings(page: Path) -> set[str]:
    tokens = MarkdownIt().parse(page.read_text())
    texts = (tokens[i + 1].children or [] for i, token in enumerate(tokens) if token.type == "heading_open")
    return {slug("".join(part.content for part in text if part.type in ("text", "code_inline"))) for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    inline = [t for token in MarkdownIt().parse(page.read_text()) for t in token.children or []]
    links = (str(t.attrs.get("href") or t.attrs["src"]) for t in inline if t.type in ("link_open", "image"))
    for link in (link for link in links if not link.startswith("https://")):  # not fetched: CI has no network
        target, _, anchor = link.partition("#")
        file = (page.parent / target) if target else page
        if page.parent == ROOT / "docs" and target.startswith("examples/"):
            name = target.removeprefix("examples/")  # pages that sphinx-gallery makes of the programs
            file = ROOT / "examples" / ("README.rst" if name == "index" else f"{name}.py")
        assert file.exists(), f"{page}: {link}"
        assert not anchor or file.suffix != ".md" or anchor in headings(file), f"{page}: {link}"


def title(page: Path) -> str:
    """The first heading of a page, or of an example's docstring."""
    text = page.read_text()
    if page.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return next(line[2:] for line in text.splitlines() if line.startswith("# "))


def test_titles_are_unique() -> None:
    """In the sidebar and in the search, a title is all that a reader sees of a page."""
    titled: dict[str, list[str]] = {}
    for page in [page for page in PAGES if page.name != "README.md"] + sorted((ROOT / "examples").glob("*.py")):
        titled.setdefault(title(page).lower(), []).append(name_of(page))
    assert {text: pages for text, pages in titled.items() if len(pages) > 1} == {}


def test_every_page_is_in_the_sidebar_and_notes_are_not() -> None:
    listed = {
        f"{entry}.md"
        for page in (ROOT / "docs" / f"{name}.md" for name in ("index", "commands", "figures", "MATH", "paper"))
        for fence in fences(page) if fence.kind == "{toctree}"
        for entry in fence.text.split("\n\n")[-1].split()
    }  # fmt: skip
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert listed == {p for p in pages if not p.startswith("notes")} - {"index.md"} | {"examples/index.md"}


@pytest.mark.parametrize("name", sorted(get_command(app).commands))
def test_every_command_is_documented_with_all_its_options(name: str) -> None:
    """The table is made from the program (docs/_extensions/commands.py); what it needs is words for each option."""
    command = get_command(app).commands[name]
    page = (ROOT / "docs" / "commands" / f"{name}.md").read_text()
    assert page.startswith(f"# covopt {name}\n\n```{{command}} {name}\n```")
    assert f"](commands/{name}.md)" in (ROOT / "docs" / "commands.md").read_text()
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"covopt {name}: {parameter.name}"


def test_each_statement_of_the_papers_has_a_test_or_is_not_evaluated() -> None:
    pages = ROOT / "docs" / "paper.md", *sorted((ROOT / "docs" / "papers").glob("*.md"))
    text = "\n".join(page.read_text() for page in pages)
    tests = re.compile(r"`(test_\w+\.py)::(\w+)`")
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("| statement", "|---"))]
    assert len(rows) >= 50
    for row in rows:
        assert tests.search(row) or "| not evaluated" in row, row
        assert all(cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1][:3]), row  # statement, words, place
    for file, test in tests.findall(text):
        assert f"\ndef {test}(" in next((ROOT / "tests").rglob(file)).read_text(), f"{file}::{test}"
    assert set(re.findall(r"`covopt\.(\w+)", text)) <= set(covopt.__all__)
    assert set(re.findall(r"`covopt (\w+)", text)) <= set(get_command(app).commands)


# ---- the front pages of the README and of the site: what covopt is, a picture, three lines, and one example
FRONT = [ROOT / "README.md", ROOT / "docs" / "index.md"]


def example(page: Path) -> list[str]:
    """The lines of the block that shows the first command and its output."""
    (shown,) = (f.text for f in fences(page) if f.kind == "text" and f.text.startswith("$ covopt solve"))
    return shown.splitlines()


@pytest.mark.parametrize("page", FRONT, ids=lambda page: page.name)
def test_what_it_is_a_picture_and_three_lines_come_first(page: Path) -> None:
    text = page.read_text()
    for name in ("minimum.png", "minimum-dark.png", "digits.png"):
        picture = ROOT / "docs" / name
        assert picture.stat().st_size < 100_000
        assert picture.read_bytes().startswith(b"\x89PNG")
    shown = next(fence.text for fence in fences(page) if fence.kind == "pycon")
    assert shown.count(">>> ") == 3
    first = text.partition("$ covopt solve digits")[0]
    assert "oracle" not in first
    places = [first.index(mark) for mark in ("representation cost", "minimum.png", shown[:20])]
    assert places == sorted(places)
    assert "ho it is for" in text[: len(text) // 2]
    assert "digits.png)" in text


def test_the_readme_is_short_and_answers_six_questions() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 120
    assert text.partition("## Which question?")[2].partition("\n\nBesides")[0].count("`covopt ") == 6
    assert "## What can I expect?" in text
    pictures = re.findall(r'\n<source media=".+: dark." srcset="(.+)">\n<img src="(.+?)" alt="', text)
    assert pictures == [("docs/minimum-dark.png", "docs/minimum.png")]  # GitHub takes what fits, PyPI the second


def test_both_pages_show_the_same_output_of_the_first_command_with_a_gap_of_two_percent() -> None:
    lines, again = (example(page) for page in FRONT)
    assert lines == again
    assert [line[:13].strip() for line in lines[1:]] == [label for label, _ in words.pairs(toy_result().summary())]
    shown = {line[:13].strip(): line[13:] for line in lines[1:]}
    cost, lower, gap = (float(shown[name].removesuffix(" %")) for name in ("cost", "lower bound", "gap"))
    assert gap == pytest.approx(100.0 * (cost - lower) / cost, rel=1e-3)
    assert gap <= 2.0


def test_the_command_shown_is_the_one_that_ci_runs() -> None:
    ran = shlex.split(next(f for f in fences(ROOT / "README.md") if f.mark == "ci").text.rpartition("&&")[2])
    asked = shlex.split(example(ROOT / "README.md")[0])[2:]
    assert ran[1 : 1 + len(asked)] == asked
