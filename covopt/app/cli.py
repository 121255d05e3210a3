"""The command line: a command reads its options, calls one function and prints the answer.

Standard output holds the answer alone; progress and errors go to standard error. The commands (covopt/app/) import
what they need inside their functions, so that `covopt --help` does not load torch.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from covopt import __version__
from covopt.app.common import BAD_INPUT, CLOSED, COMMAND, NO_ROOM, complain, flush, is_memory, tell_warning, unwritten
from covopt.app.compare import compare_command
from covopt.app.cprank import cprank_command
from covopt.app.depth import depth_command
from covopt.app.doctor import doctor_command
from covopt.app.help import Command, Program, epilog_of
from covopt.app.mistakes import sentence_of
from covopt.app.path import path_command
from covopt.app.plateau import plateau_command
from covopt.app.ranks import ranks_command
from covopt.app.runs import forces_command, predict_command, show_command, verify_command
from covopt.app.solve import solve_command
from covopt.app.streams import reader_left, standard_streams
from covopt.app.sweep import sweep_command
from covopt.app.validate import validate_command
from covopt.runtime.errors import CovoptError, ProblemError
from covopt.runtime.interrupts import ending, exit_code

app = typer.Typer(
    help="Find the minimum that a ReLU network trained with weight decay can reach on a data set, and prove how much"
    " lower any network could be.",
    epilog=epilog_of("solve digits --rows 30 --scale max --lam 0.01 --out run", "solve --help"),
    pretty_exceptions_enable=False,
    cls=Program,
)
COMMANDS: tuple[tuple[str, Callable[..., None], str, str], ...] = (
    ("Answers", solve_command, "solve iris --lam 0.1", "solve table.csv --target price --scale standard --lam 0.1"),
    ("Answers", validate_command, "validate data.npz --net model.pt --lam 1e-3", "validate iris --lam 0.01"),
    ("Answers", plateau_command, "plateau iris --rows 30 --lam 0.1", "plateau data.npz --width 4 --width 8 --lam 0.1"),
    ("Answers", depth_command, "depth iris --rows 20 --lam 0.01", "depth data.npz --depths 2,3,8 --out run"),
    ("Answers", path_command, "path diabetes --scale standard", "path iris --rows 100 --shuffle 0 --test rest"),
    ("Studies", ranks_command, "ranks iris --lam 0.01 --epochs 200", "ranks iris --net model.pt --lam 0.01"),
    ("Studies", compare_command, "compare iris --lam 0.1", "compare iris --lam 0.1 --method cone --method train"),
    ("Studies", sweep_command, "sweep grid.toml --jobs 4", "sweep grid.toml --resume --csv results.csv"),
    ("Stored runs", show_command, "show run", "show run --report page.html"),
    ("Stored runs", verify_command, "verify run", "verify run --json"),
    ("Stored runs", predict_command, "predict run new.csv --out predictions.csv", "predict run iris --out iris.npz"),
    ("Stored runs", forces_command, "forces run", "forces run --layer 2 --out second.png"),
    ("Matrices", cprank_command, "cprank matrix.csv", "cprank --graph petersen --out run"),
    ("This machine", doctor_command, "doctor", "doctor --json"),
)
"""The panel of --help, the function, and two examples of each command."""
for _panel, _command, *_examples in COMMANDS:
    _name = _examples[0].split()[0]
    app.command(_name, cls=Command, rich_help_panel=_panel, epilog=epilog_of(*_examples))(_command)


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
        complain(sentence_of(error, words[0]), BAD_INPUT)
    except OSError as error:  # of standard output; files raise RecordError
        if error.errno not in NO_ROOM:
            raise
        unwritten(error)
    except (MemoryError, RuntimeError) as error:
        if not is_memory(error):
            raise
        complain("There is not memory enough for this; take fewer rows, smaller widths or fewer starts.", BAD_INPUT)
