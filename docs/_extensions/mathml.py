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


def _as_mathml(node: nodes.Element, as_block: bool) -> str:
    try:
        text = tex2mathml(node.astext().strip(), as_block=as_block)
    except MathError as error:
        raise SphinxError(f"{node.source}:{node.line}: no MathML for {node.astext()!r} ({error})") from error
    return BARS.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', text)


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_as_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_as_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
