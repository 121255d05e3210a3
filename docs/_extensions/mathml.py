"""Formulas as MathML, which browsers draw themselves: no script, no network. docutils translates the LaTeX."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.writers.html5 import HTML5Translator

BARS = re.compile(r'<mo(?: stretchy="false")?>([‖|⟨⟩])</mo>')
"""The bars of norms and products, which TeX draws at the size of a letter, without space around them."""

APPLICATION = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*(?:<mrow>\s*)?<mo\b)")
"""The place after the name of a function without parentheses, as in log x, where TeX leaves a thin space."""
FUNCTION = re.compile(r"((?:</m(?!o>)\w+>|\)</mo>)\s*)(<mi[^>]*>\w\w+</mi>\s*<m(?:o>&Apply|space))")
"""A letter, a number or a parenthesis before the name of a function, as in p log p, where TeX leaves a thin space."""
THIN = '<mspace width="0.17em"></mspace>'
RELATION = re.compile(r"(?<=\n)  <mo>(=|≤|≥|≈|∈|&lt;|&gt;)</mo>\n")
"""A relation outside all groups, the only place where TeX breaks a formula within a line."""
LONG = 28  # characters; on a phone a line has about 40


def _as_mathml(node: nodes.Element, as_block: bool) -> str:
    try:
        text = tex2mathml(node.astext().strip(), as_block=as_block)
    except MathError as error:
        raise SphinxError(f"{node.source}:{node.line}: no MathML for {node.astext()!r} ({error})") from error
    text = BARS.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', text)
    return FUNCTION.sub(rf"\1{THIN}\2", APPLICATION.sub(THIN, text))


def _with_breaks(text: str) -> str:
    """Return a long formula as several, each of which ends at a relation, so that lines may end there."""
    if len(re.sub(r"<[^>]*>|\s", "", text)) < LONG:
        return text
    start = text[: text.index(">") + 1]
    return RELATION.sub(rf'  <mo form="infix">\1</mo>\n</math>{start}\n', text)


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_with_breaks(_as_mathml(node, as_block=False)))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_as_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
