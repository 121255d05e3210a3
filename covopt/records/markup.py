"""HTML from templates that escape every inserted text, because names in data may be hostile."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=PackageLoader("covopt"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def render(template: str, **values: object) -> str:
    """Return a template of covopt/templates filled with values, which are escaped."""
    return _TEMPLATES.get_template(template).render(**values)


def summary(sentence: str, pairs: list[tuple[str, str]], image: str | None) -> str:
    """Return a result for a notebook: a sentence, a picture by its address, and labels with their texts."""
    return render("summary.html", sentence=sentence, pairs=pairs, image=image)
