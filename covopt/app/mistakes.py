"""Sentences about command lines that cannot be read: what is wrong, and what was probably meant."""

from __future__ import annotations

from typing import Any

import typer

from covopt.runtime.errors import close_match, listed, meant_or, shown
from covopt.runtime.names import meant

COMMANDS = {
    "report": "covopt show RUN --report FILE",
    "plot": "covopt show RUN --report FILE",
    "print": "covopt show",
    "load": "covopt show",
    "train": "covopt solve",
    "fit": "covopt solve",
    "run": "covopt solve",
    "check": "covopt verify, or the program covopt-check",
    "test": "covopt predict",
    "eval": "covopt validate",
    "evaluate": "covopt validate",
    "audit": "covopt validate",
    "width": "covopt plateau",
    "widths": "covopt plateau",
    "grid": "covopt sweep",
    "info": "covopt doctor",
    "version": "covopt --version",
    "help": "covopt --help",
}
"""Names of commands in other programs, and covopt's own."""
UNITS = {"SECONDS": "a number of seconds, such as 60", "GB": "a number of GB, such as 4", "SEED": "a whole number"}


def sentence_of(error: typer.TyperException, command: str) -> str:
    """Return what is wrong with a command line, what to do, and where its options are listed.

    `command` is the command where the error does not say in which it is.
    """
    context = getattr(error, "ctx", None)
    where = f"covopt {command}" if context is None else context.command_path
    return f"{_complaint(error, where).rstrip('.?')}; see {where} --help."


def _complaint(error: Any, where: str) -> str:
    message = str(error)
    if getattr(error, "option_name", None) is not None and "possibilities" in vars(error):
        return f"No such option: {error.option_name}{_meant(error)}"
    if message.startswith("No such command"):
        word = message.split("'")[1]
        other = COMMANDS.get(word) or message.partition("Did you mean ")[2].rstrip("?")
        return f"No such command '{word}'{meant_or(other)}"
    if message.endswith("requires an argument."):
        return f"{error.option_name} is last, without a value; give one"
    if message.startswith("Got unexpected extra argument"):
        words = message.rpartition("(")[2].rstrip(".)")
        return f"{where} has no place for '{words}'; repeat options of several values, and quote names with spaces"
    wrong = getattr(getattr(error, "__cause__", None), "errors", None)
    if isinstance(error, typer.BadParameter) and error.param is not None and wrong is not None:
        return _of_value(error.param, wrong()[0])
    return error.format_message() if isinstance(error, typer.BadParameter) else message


def _meant(error: Any) -> str:
    """Return the option that is meant by one that does not exist; "" if that is unclear."""
    options = [name for parameter in error.ctx.command.params for name in parameter.opts if name.startswith("--")]
    word = error.option_name.lstrip("-")
    names = [name.lstrip("-") for name in options]
    close = meant(word, names) or next((name for name in names if name.startswith(word) and word[2:]), None)
    if close is None and error.ctx.parent is None:
        return "; give a command first, such as covopt solve"
    return meant_or(close and f"--{close}")


def _of_value(parameter: Any, wrong: dict[str, Any]) -> str:
    """Return the sentence about a value that an option cannot take."""
    option, text = parameter.opts[0], str(wrong["input"])
    choices = parameter.type_descriptor.choices
    if choices is not None:
        names = [str(getattr(choice, "value", choice)) for choice in choices]
        close = close_match(text, names)
        return f"{option} is {shown(text)}{meant_or(close, f'use one of {listed(names)}')}"
    values = text.replace(";", ",").split(",")
    if parameter.multiple and len(values) > 1:
        return f"{option} is {shown(text)}; repeat it: {' '.join(f'{option} {value.strip()}' for value in values)}"
    number = "a whole number" if wrong["type"].startswith("int") else f"a number, such as {_probable(text)}"
    return f"{option} is {shown(text)}; give {UNITS.get(parameter.metavar, number)}"


def _probable(text: str) -> str:
    """Return the number that a text with a decimal comma or a percent sign means; 0.1 for others."""
    try:
        number = float(text.rstrip("%").replace(",", "."))
    except ValueError:
        return "0.1"
    return f"{number / 100 if text.endswith('%') else number:g}"
