"""The help texts: two panels of options, and examples."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

METAVARS = {int: "N", float: "NUMBER", Path: "FILE"}
"""The name of the value of an option of this type in --help, unless the option says otherwise; NAME for other types."""


def _option(panel: str, text: str, metavar: str | None = None, *, name: str | None = None, **settings: Any) -> Any:
    """Return an option in a panel of --help, with its text; `name` if it is not that of the argument, as --json."""
    names = () if name is None else (name,)
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel, **settings)


common, advanced = partial(_option, "Common"), partial(_option, "Advanced")
"""An option in one of the two panels of --help: at most 12 are common, so that they fit on one screen."""


class _Labelled:
    """A command whose parameters have labels that say something."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters without the labels <bool>, <str> and <path>, and with names of the options' values."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]
            elif parameter.is_flag:
                parameter.metavar = ""
            elif parameter.metavar is None:
                kind = parameter.type_descriptor.annotation
                parameter.metavar = METAVARS.get(next(iter(get_args(kind)), kind), "NAME")
        return parameters


class Command(_Labelled, TyperCommand):
    """A command whose help leaves out what its reader knows: the types of flags and files, and --help itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            parameter.secondary_opts = []  # --no-force and the like
        paragraphs = (self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)  # folded by the terminal alone

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; refuse an option with two values, of which typer would take the last."""
        order: list[Any] = self.make_parser(ctx).parse_args(list(args))[2]
        for option in order:
            if order.count(option) > 1 and not (option.multiple or option.is_flag):
                ctx.fail(f"{option.opts[0]} is given {order.count(option)} times; give it once")
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, which is not listed."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.hidden = True
        return option


class Program(_Labelled, TyperGroup):
    """The program itself."""


def epilog_of(*examples: str) -> str:
    """Return the end of a help text that shows these command lines."""
    return "\n".join(["Examples:", *(f"$ covopt {example}" for example in examples)])
