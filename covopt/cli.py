"""The command line: reads options, calls one function, prints.

Standard output holds the answer alone; progress and errors go to standard error. The commands import what they need,
so that `covopt --help` answers before torch is loaded.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from covopt import __version__
from covopt.errors import CovoptError, ProblemError
from covopt.loop import Callback, Progress, Status

if TYPE_CHECKING:
    from covopt.result import Result

BAD_INPUT, INTERRUPTED = 2, 130

app = typer.Typer(
    help="What data costs a ReLU network: the representation cost, a network that attains it, and a proved bound.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Loss(StrEnum):
    """Names of the losses."""

    MSE = "mse"
    CROSS_ENTROPY = "cross_entropy"
    INTERPOLATE = "interpolate"


class Scale(StrEnum):
    """Ways to scale the inputs."""

    NONE = "none"
    MAX = "max"
    STANDARD = "standard"


class Method(StrEnum):
    """Ways to solve."""

    CONE = "cone"


class Certify(StrEnum):
    """How much work to spend on the proof."""

    NONE = "none"
    FAST = "fast"
    FULL = "full"


# The options that several commands share, in the four panels of --help.
_DATA, _QUESTION, _SOLVING, _OUTPUT = "Data", "Question", "Solving", "Output"
Source = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.npz with X and Y or y; .csv or .parquet with --target; .pt with tensors X, Y), or a name:"
        " digits, iris, wine, breast_cancer, diabetes, linnerud, mnist.",
    ),
]
Target = Annotated[
    str | None, typer.Option(help="Column of a table with the targets.", metavar="COLUMN", rich_help_panel=_DATA)
]
Rows = Annotated[int | None, typer.Option(help="Take the first N rows.", metavar="N", rich_help_panel=_DATA)]
Scaling = Annotated[
    Scale, typer.Option(help="max divides X by max|X|; standard: mean 0, deviation 1.", rich_help_panel=_DATA)
]
DataDir = Annotated[
    Path | None, typer.Option(help="Where the files of mnist lie (else OpenML).", metavar="DIR", rich_help_panel=_DATA)
]
Depth = Annotated[int, typer.Option(help="Layers of weights.", metavar="L", rich_help_panel=_QUESTION)]
Bias = Annotated[float, typer.Option(help="Amount of bias; 0: none.", metavar="BETA", rich_help_panel=_QUESTION)]
Lam = Annotated[
    float | None,
    typer.Option(
        help="Strength of the penalty; without it: the representation cost.", metavar="LAM", rich_help_panel=_QUESTION
    ),
]
LossName = Annotated[
    Loss | None, typer.Option(help="With --lam: mse; without: interpolate.", rich_help_panel=_QUESTION)
]
ActivationName = Annotated[
    str, typer.Option(help="relu, leaky:A with -1 < A < 1, or linear.", metavar="NAME", rich_help_panel=_QUESTION)
]
MethodName = Annotated[Method, typer.Option(rich_help_panel=_SOLVING)]
Proof = Annotated[Certify, typer.Option(help="Work to spend on the proof.", rich_help_panel=_SOLVING)]
Gap = Annotated[float, typer.Option(help="Stop at this proved relative gap.", metavar="GAP", rich_help_panel=_SOLVING)]
TimeLimit = Annotated[
    float, typer.Option(help="Then the best network so far is the answer.", metavar="SECONDS", rich_help_panel=_SOLVING)
]
Seed = Annotated[int, typer.Option(help="Of the random starts.", metavar="SEED", rich_help_panel=_SOLVING)]
Device = Annotated[str, typer.Option(help="cpu or cuda.", metavar="NAME", rich_help_panel=_SOLVING)]
Init = Annotated[Path | None, typer.Option(help="Start from a stored run.", metavar="RUN", rich_help_panel=_SOLVING)]
Out = Annotated[
    Path | None, typer.Option(help="Write the run into a new directory.", metavar="DIR", rich_help_panel=_OUTPUT)
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in DIR.", rich_help_panel=_OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)]


@app.command("solve")
def solve_command(
    data: Source,
    target: Target = None,
    rows: Rows = None,
    scale: Scaling = Scale.NONE,
    data_dir: DataDir = None,
    depth: Depth = 2,
    bias: Bias = 1.0,
    lam: Lam = None,
    loss: LossName = None,
    activation: ActivationName = "relu",
    method: MethodName = Method.CONE,
    certify: Proof = Certify.FAST,
    gap: Gap = 1e-4,
    time_limit: TimeLimit = 300.0,
    seed: Seed = 0,
    device: Device = "cpu",
    init: Init = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """The minimum over two-layer networks: the best network, and a proved lower bound.

    Without --lam the answer is the representation cost: the least squared norm of a network that fits exactly.
    With --lam it is the minimum of the regularised loss.
    """
    with _interruptible():
        from covopt import answer, record
        from covopt import data as sources
        from covopt import result as results

        if out is not None:
            record.check_free(out, force)
        _check_device(device)
        dataset = sources.read_data(data, target=target, rows=rows, scale=scale.value, data_dir=data_dir)
        start = None if init is None else results.load(init)
        with _progress_line(time_limit) as callback:
            result = answer.solve(
                dataset.X,
                dataset.Y,
                lam=lam,
                loss=None if loss is None else loss.value,
                depth=depth,
                bias=bias,
                activation=activation,
                method=method.value,
                certify=certify.value,
                gap=gap,
                time_limit=time_limit,
                seed=seed,
                device=device,
                init=start,
                callback=callback,
            )
    result.data, result.scale = dataset.name, dataset.scale
    _deliver(result, out, force, as_json)


@app.command("show")
def show_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A directory that --out wrote.")], as_json: Json = False
) -> None:
    """Print the summary of a stored run."""
    from covopt import record

    _print_summary(record.read_summary(run), as_json)


@app.command("verify")
def verify_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A directory that --out wrote.")], as_json: Json = False
) -> None:
    """Check a stored run from its files alone: its network's cost, and that its certificate proves its bound.

    Exit code 0 where they do, 1 where they do not.
    """
    from covopt import answer, record

    checked = answer.verify(run)
    facts = {"passed": checked.passed, "message": checked.message, "cost": checked.cost, "lower": checked.lower}
    print(record.as_json(facts) if as_json else checked.message)
    if not checked.passed:
        raise typer.Exit(1)


def _print_version(asked: bool) -> bool:
    if asked:
        print(__version__)
        raise typer.Exit
    return asked


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Declare the options that need no command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 finished, 2 bad input in one sentence, 130 interrupted.

    Args:
        arguments: what follows the program's name; None reads it from the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.exit(app(given or ["--help"], prog_name="covopt", standalone_mode=False) or 0)
    except CovoptError as error:
        _complain(str(error), BAD_INPUT)
    except typer.TyperException as error:
        message = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        message = message.replace("Value error, ", "").rstrip(".")
        _complain(f"{message}; see covopt --help.", BAD_INPUT)


def _deliver(result: Result, out: Path | None, force: bool, as_json: bool) -> None:
    """Store and print an answer, whatever ended the solve; a second Ctrl-C does not stop that."""
    with _ignoring_interrupts():
        if out is not None:
            result.save(out, force=force)
        _print_summary(result.summary(), as_json)
        if out is not None and not as_json:
            print(f"The run is stored in {out}.")
    if result.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)


def _print_summary(summary: dict[str, object], as_json: bool) -> None:
    from covopt import record

    if as_json:
        print(record.as_json(summary))
        return
    console, pairs = Console(highlight=False, markup=False), record.describe(summary)
    if not console.is_terminal:  # one line for each entry, whatever its length
        print("\n".join(f"{label:<13}{text}" for label, text in pairs))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in pairs:
        table.add_row(label, text)
    console.print(table)


def _check_device(device: str) -> None:
    import torch

    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ProblemError(f"The device '{device}' is unknown; use cpu or cuda.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ProblemError("There is no CUDA device here that torch can use; use --device cpu.")


@contextmanager
def _progress_line(time_limit: float) -> Iterator[Callback | None]:
    """A line on a terminal's standard error that follows the solve; nothing in a pipe."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield None
        return
    with console.status("reading the problem ...") as status:
        yield lambda line: status.update(progress_text(line, time_limit))


def progress_text(line: Progress, time_limit: float) -> str:
    """Cost, bound, width and time of the best network so far."""
    bound = "none yet" if line.lower is None else f"{line.lower:.6g}"
    return f"cost {line.cost:.6g}   bound {bound}   width {line.width}   {line.seconds:.0f} of {time_limit:g} s"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Say so when Ctrl-C comes before the solver has taken over (which then answers it with its best network)."""
    try:
        yield
    except KeyboardInterrupt:
        _complain("Interrupted before there was a network; nothing is written.", INTERRUPTED)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _complain(message: str, code: int) -> None:
    print(f"covopt: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
