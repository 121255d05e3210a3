"""The words of covopt: what it prints and explains is in the words of the field, not in a dialect of its own."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("covopt", "examples") for path in (ROOT / folder).rglob("*.py"))
PAGES = [*sorted(page for page in (ROOT / "docs").rglob("*.md") if "notes" not in page.parts), ROOT / "README.md"]
"""All pages but the notes, which record what was tried in the words of that day."""

DIALECT = {
    r"training on (?:gains|lowers|ends|from it|from there)|train on[.;,]|trained on with": "further training",
    r"so-manieth": "every n-th",
    r"\bdearer|\bcheap(?:er|est)\b": "of lower cost, of higher cost",
    r"\banew\b": "again; reproduced, recomputed",
    r"\bas told\b|\b(?:is|are|be) told (?!apart)|nothing (?:is )?told": "given, reported, stated",
    r"\bin turns\b": "alternating",
    r"\bends first\b": "outer layers first",
    r"\bfurther data\b": "new data",
    r"\bbounds? nothing\b": "is no bound",
    r"\bso many (?!that)": "this number of",
    r"\bfrom (?:which|a lam|then|there|now|(?:layer|depth) \d+|[\d,]+ \w+|one second) on\b": "the smallest, or more",
    r"\b(?:goes|go) on (?:from|with|along|until|without)\b": "continues",
    r"\bhand(?:s|ed|ing)? (?:on|down)\b": "passes on",
    r"left of (?:its|their|the) start|of the start (?:is|are) left|(?:kept|keep|part|much) of (?:its|their|the) start"
    r"|\bthe start(?:'s rank|'s| fades| never| alone)": "what remains of the initialisation, the retained fraction",
    r"\bas far as (?:it|they|that) (?:is|are)\b": "those that are known",
    r", which is proved\b": "(proved)",
    r"\b(?:some|no)body\b|\bwhoever\b": "a user, a caller, None",
    r"\bthe least (?!squares|likely)": "the minimum, the smallest",
    r"\b(?:another|same|its) question\b|answers? (?:the|its) question|: the question\.": "the problem",
    r"\bhad a say\b|\bof before\b|\bnothing comes of\b|\bwithout a word\b": "plain English",
    r"\bhardly\b": "barely, almost not",
    r"\bApart from the best known\b": "Not the best known",
}
"""What is written in no text, and the words of the field for it (STYLE of the project; see docs/contributing.md)."""
OPENINGS = re.compile(r"(?:What|Whether|Of|That|Where|Those|How|For|If|From|As|To) ")
"""A docstring does not begin so, but with what the object does or is."""
EXCEPTIONS = {
    "covopt/app/plateau.py": "its first line is the question that the command answers, in --help",
    "covopt/check.py": "a program of its own, which strangers audit line by line",
}
"""Files that may break a rule, each with its reason."""


def texts(source: Path) -> Iterator[tuple[int, str]]:
    """The string constants of a program with their lines, docstrings among them; parts of one f-string together."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The paragraphs, headings and cells of a page with their lines, without its blocks of code."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type == "inline":
            yield (token.map or [0])[0] + 1, token.content


def dialect(lines: Iterator[tuple[int, str]]) -> list[str]:
    """Each word of the dialect with its line and what to write in its place."""
    found = []
    for number, text in lines:
        plain = " ".join(text.split())
        for pattern, better in DIALECT.items():
            found += [f"{number}: '{match[0]}'; write {better}" for match in re.finditer(pattern, plain)]
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_programs_speak_plain_english() -> None:
    found = {name_of(path): dialect(texts(path)) for path in SOURCES if name_of(path) not in EXCEPTIONS}
    assert len(found) > 300
    assert {name: words for name, words in found.items() if words} == {}


def test_reports_speak_plain_english() -> None:
    for path in (ROOT / "covopt" / "templates").glob("*.html"):
        assert dialect(iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))) == [], path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_speak_plain_english(page: Path) -> None:
    assert dialect(prose(page)) == []


def test_docstrings_begin_with_what_a_thing_does_or_is() -> None:
    openings = []
    for path in SOURCES:
        if path.parts[-2] == "examples":
            continue  # the titles of the gallery are questions
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                openings += [f"{name_of(path)}: {text[:60]}"] if OPENINGS.match(text) else []
    assert [line for line in openings if line.split(":")[0] not in EXCEPTIONS] == []


def test_no_exception_outlives_its_reason() -> None:
    assert all((ROOT / name).exists() for name in EXCEPTIONS)
    sample = iter([(1, "The network that is dearer, and so many of them; training on gains 3 %.")])
    assert len(dialect(sample)) == 3
