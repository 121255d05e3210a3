"""covopt's docstrings are plain text with `code`; in reStructuredText |W|, * and cost_ would mean something else."""

import re

from sphinx.application import Sphinx

import covopt

CODE = re.compile(r"(`[^`]+`)")
EXAMPLE = re.compile(r"(^ *>>> .*(?:\n *\S.*)*)", re.MULTILINE)
PUBLIC = re.compile(rf"`(covopt\.)?({'|'.join(covopt.__all__)})(\.\w+)?`")
MATH = re.compile(r"MATH\.md,? section (\d+)")
PAGES = {4: "math/two-layers", 5: "math/deep", 8: "math/functions", 9: "math/sgd", 10: "math/path"}
"""The pages of sections of MATH.md; the others are on its own."""
SIGNS = re.compile(r"(?<=\w)_(?!\w)|(?m:(?<!^)(?<!^ {4})(?<!^ {8})\*)|[|\\]")
ENTRY = re.compile(r"^( *\w+(?:\\_, \w+)*)\\(?=_: )", re.MULTILINE)
"""Attributes at the head of their entry, whose last _ napoleon escapes itself."""
OBJECT = re.compile(r"<(?:factory|[\w.]+ object[^>]*|function [^>]*)>")

ARRAY = re.compile(r"jaxtyping\.\w+\[ndarray, '[^']*'\]|numpy\.ndarray\[.*?numpy\.dtype\[numpy\.\w+\]\]")
"""Array types, which name shapes and numbers; the text beside them has these in words."""
DOTTED = re.compile(r"(?<![\w.])[a-z]\w*(?:\.\w+)+")


def as_rest(text: str) -> str:
    """A docstring with its signs escaped, bullets kept; code that names something public becomes a link."""
    parts = CODE.split(text)
    parts[::2] = [SIGNS.sub(lambda sign: "\\" + sign[0], part) for part in parts[::2]]
    parts[1::2] = [code if PUBLIC.fullmatch(code) else f"`{code}`" for code in parts[1::2]]
    return MATH.sub(_link, ENTRY.sub(r"\1", "".join(parts)))


def _link(section: re.Match[str]) -> str:
    return f":doc:`section {section[1]} </{PAGES.get(int(section[1]), 'MATH')}>` of the mathematics"


def escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    parts = EXAMPLE.split("\n".join(lines))
    parts[::2] = [as_rest(part) for part in parts[::2]]  # examples stay as they are
    lines[:] = "".join(parts).split("\n")


def short_types(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Show the types that napoleon writes below attributes by their last names; they still lead to their pages."""
    for place, line in enumerate(lines):
        if line.lstrip().startswith(":type: "):
            lines[place] = DOTTED.sub(r"~\g<0>", ARRAY.sub("numpy.ndarray", line))


def shorten(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write ... for a default such as <factory>, with which Sphinx could not read the signature."""
    return signature and OBJECT.sub("...", signature), returns


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon reads the sections
    app.connect("autodoc-process-docstring", short_types, priority=600)  # after it
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
