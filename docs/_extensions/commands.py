"""The directive `command NAME`: a command's own words, its examples, arguments and options, from the program."""

from typing import Any

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from covopt.app.cli import app as program

COLUMNS = (("option", 34), ("default", 12), ("", 54))


class Command(SphinxDirective):
    """The command's own words, its examples, and tables of its arguments and options, the common ones first."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        command = typer.main.get_command(program).commands[self.arguments[0]]
        context = typer.Context(command)
        described = [nodes.paragraph("", " ".join(part.split())) for part in (command.help or "").split("\n\n")]
        examples = (command.epilog or "").partition("\n")[2].replace("$ ", "")
        described.append(nodes.literal_block(examples, examples, language="sh"))
        advanced = [p for p in command.params if getattr(p, "rich_help_panel", None) == "Advanced"]
        described.append(
            _table([_row(parameter, context) for parameter in command.params if parameter not in advanced])
        )
        if advanced:
            described.append(nodes.paragraph("", "Advanced options:"))
            described.append(_table([_row(parameter, context) for parameter in advanced]))
        return described


def _row(parameter: Any, context: typer.Context) -> tuple[str, str, str]:
    """How to write it, its default, and what it does."""
    text = parameter.help or ""
    if parameter.param_type_name == "argument":
        return parameter.metavar, "", text
    names, default = ", ".join(parameter.opts), parameter.default
    if parameter.is_flag:
        return names, "", text
    value = (parameter.metavar or parameter.display_type(context)).strip("<>")
    return f"{names} {value}", "" if default is None or callable(default) else str(default), text


def _table(rows: list[tuple[str, str, str]]) -> nodes.table:
    def cell(text: str, code: bool) -> nodes.entry:
        return nodes.entry("", nodes.paragraph("", "", nodes.literal("", text) if code and text else nodes.Text(text)))

    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for _, width in COLUMNS), cols=len(COLUMNS))
    group += nodes.thead("", nodes.row("", *(cell(name, False) for name, _ in COLUMNS)))
    group += nodes.tbody("", *(nodes.row("", *(cell(text, i < 2) for i, text in enumerate(row))) for row in rows))
    return nodes.table("", group)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command", Command)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
