"""The command line: a command reads its options, calls one function and prints the answer.

Standard output holds the answer alone; progress and errors go to standard error. The commands (covopt/app/) import
what they need inside their functions, so that `covopt --help` does not load torch.
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from covopt import __version__
from covopt.app.common import BAD_INPUT, CLOSED, COMMAND, NO_ROOM, complain, flush, is_memory, tell_warning, unwritten
from covopt.app.compare import compare_command
from covopt.app.cprank import cprank_command
from covopt.app.depth import depth_command
from covopt.app.doctor import doctor_command
from covopt.app.forces import forces_command
from covopt.app.path import path_command
from covopt.app.plateau import plateau_command
from covopt.app.predict import predict_command
from covopt.app.ranks import ranks_command
from covopt.app.runs import show_command, verify_command
from covopt.app.solve import solve_command
from covopt.app.streams import reader_left, standard_streams
from covopt.app.sweep import sweep_command
from covopt.app.validate import validate_command
from covopt.runtime.errors import CovoptError, ProblemError
from covopt.runtime.interrupts import ending, exit_code

app = typer.Typer(
    help="What data costs a ReLU network: the representation cost, a network that attains it, and a proved bound.",
    pretty_exceptions_enable=False,
)
app.command("solve")(solve_command)
app.command("validate")(validate_command)
app.command("cprank")(cprank_command)
app.command("compare")(compare_command)
app.command("plateau")(plateau_command)
app.command("depth")(depth_command)
app.command("path")(path_command)
app.command("ranks")(ranks_command)
app.command("sweep")(sweep_command)
app.command("predict")(predict_command)
app.command("show")(show_command)
app.command("verify")(verify_command)
app.command("forces")(forces_command)
app.command("doctor")(doctor_command)


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(__version__)
        raise typer.Exit
    return wanted


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Declare the options that need no command."""


def check_shared(command: str) -> None:
    """Raise a ProblemError if every process of torchrun would run the same command."""
    together = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
    if together and command != "solve" and not command.startswith("-"):
        raise ProblemError(f"covopt {command} is not shared by processes; start it without torchrun.")


def _meant(error: typer.TyperException) -> str:
    """Return a hint with the option that a misspelt one is closest to; "" if none is close."""
    options = {name.lstrip("-"): name for name in getattr(error, "possibilities", None) or []}
    close = difflib.get_close_matches(getattr(error, "option_name", "").lstrip("-"), options, n=1)
    return f"; did you mean {options[close[0]]}" if close else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code of its outcome.

    0: finished, 2: bad input, explained in one sentence, 130: Ctrl-C, 143: terminated, 141: the reader has closed the
    pipe; the command has still run to its end.

    Args:
        arguments: the words after the program's name; None takes those of this process.
    """
    with ending(), standard_streams():
        _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(words: list[str]) -> None:
    COMMAND.set(["covopt", *words])
    warnings.showwarning = tell_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # print an answer even if a name in it cannot be encoded
            stream.reconfigure(errors="backslashreplace")
    try:
        check_shared(words[0] if words else "-")
        code = app(words or ["--help"], prog_name="covopt", standalone_mode=False) or 0
        flush()
        sys.exit(exit_code() or code or (CLOSED if reader_left() else 0))
    except CovoptError as error:
        complain(str(error), BAD_INPUT)
    except typer.TyperException as error:
        message = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        message = message.replace("Value error, ", "").replace(". Did", "; did").rstrip(".?")
        complain(f"{message}{_meant(error)}; see covopt --help.", BAD_INPUT)
    except OSError as error:  # of standard output; files raise RecordError
        if error.errno not in NO_ROOM:
            raise
        unwritten(error)
    except (MemoryError, RuntimeError) as error:
        if not is_memory(error):
            raise
        complain("There is not memory enough for this; take fewer rows, smaller widths or fewer starts.", BAD_INPUT)
