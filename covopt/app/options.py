"""The options that several commands share, in groups.

Annotations are evaluated at once: evaluated from texts, they would cost `covopt --help` 15 ms.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from covopt.answer.progress import progress_line
from covopt.app.common import COMMAND, INTERRUPTED, check_force, deliver, print_pairs, print_table
from covopt.app.help import advanced, common
from covopt.runtime.errors import RecordError, printable
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Status

if TYPE_CHECKING:
    from covopt.data.data import Dataset
    from covopt.records.directories import Writer
    from covopt.runtime.loop import Callback


class Method(StrEnum):
    """Ways to solve; an enumeration, because typer has no lists of Literals."""

    CONE = "cone"
    FRANK_WOLFE = "frank-wolfe"
    HIDDEN = "hidden"
    TRAIN = "train"


# Options that commands also take alone, without their group.
TimeLimit = Annotated[float, common("Stop after this time.", "SECONDS")]
Seed = Annotated[int, advanced("Seed of the random starts.", "SEED")]
Device = Annotated[str, advanced("Compute on cpu or cuda.")]


def _amount_of_bias(text: str | float) -> float | str:
    """Return a number, or the text, for which `make_problem` has the better message."""
    try:
        return float(text)
    except ValueError:
        return text


Bias = Annotated[
    Any,
    common(
        "Size of the bias input: 1 (default), 0 for no bias, or free for biases without a penalty.",
        "NUMBER",
        parser=_amount_of_bias,
        show_default=False,
    ),
]
Depth = Annotated[int, common("Number of layers of weights.")]
Skip = Annotated[bool, advanced("Add a linear function of the inputs without a penalty; needs --bias free.")]
Lam = Annotated[
    float | None,
    common("Strength of the penalty. Without it, networks fit exactly: the answer is the representation cost."),
]
Loss = Annotated[
    str | None,
    common(
        "mse (default with --lam), cross_entropy, huber, huber:D with threshold D, logistic, or interpolate"
        " (default without)."
    ),
]
Activation = Annotated[str, advanced("relu, leaky:A with -1 < A < 1, or linear.")]
Init = Annotated[Path | None, advanced("Start from a stored run.", "RUN")]
Test = Annotated[
    str | None, common("Test on these held-out data, scaled as DATA; rest: on the rows that --rows leaves.", "FILE")
]
Json = Annotated[bool, common("Print one JSON object.", name="--json")]
Resume = Annotated[bool, advanced("Continue the run in DIR of --out, and replace it.")]
Force = Annotated[bool, common("Replace FILE.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A directory written by --out.")]


@dataclass(frozen=True)
class Data:
    """A data set, and how it is read."""

    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A file (.npz with X and Y or y; .csv or .parquet with --target; .pt with tensors X, Y), or a name:"
            " digits, iris, wine, breast_cancer, diabetes, linnerud, mnist.",
        ),
    ]
    target: Annotated[list[str] | None, common("Column of a table with the targets; repeatable.", "COLUMN")] = None
    task: Annotated[
        Literal["regression", "classification"] | None,
        advanced(
            "Read targets as numbers (regression) or as classes (classification). Default: texts, booleans, and"
            " integers of at most 20 values on five times as many rows are classes."
        ),
    ] = None
    drop: Annotated[list[str] | None, advanced("Column of a table to leave out; repeatable.", "COLUMN")] = None
    one_hot: Annotated[
        list[str] | None, advanced("Column of a table whose texts become 0/1 columns; repeatable.", "COLUMN")
    ] = None
    weights: Annotated[
        str | None, advanced("Column of a table with the rows' weights; 2 is a row given twice.", "COLUMN")
    ] = None
    rows: Annotated[int | None, common("Use the first N rows, or with --shuffle N random rows.")] = None
    shuffle: Annotated[int | None, advanced("Draw the N rows of --rows at random with this seed.", "SEED")] = None
    scale: Annotated[
        Literal["none", "max", "standard"],
        common(
            "none (default); max: divide X by max|X|; standard: columns of mean 0 and deviation 1.", show_default=False
        ),
    ] = "none"
    data_dir: Annotated[
        Path | None, advanced("Directory with the mnist files. Default: fetch them from OpenML.", "DIR")
    ] = None

    def read(self, loss: str | None, share: tuple[int, int] | None = None, complement: bool = False) -> "Dataset":
        """Read the data for a loss: all rows, a process's `share`, or the `complement` of --rows."""
        from covopt.data.data import read_data

        keywords = dict(vars(self), target=self.target or (), drop=self.drop or (), one_hot=self.one_hot or ())
        return read_data(keywords.pop("data"), **keywords, loss=loss, share=share, rest=complement)


@dataclass(frozen=True)
class Question:
    """The problem to solve on the data, with the keywords of `covopt.solve`."""

    lam: Lam = None
    loss: Loss = None
    depth: Depth = 2
    bias: Bias = 1.0
    activation: Activation = "relu"


@dataclass(frozen=True)
class Solving:
    """Options of the effort, with the keywords of `covopt.solve`."""

    certify: Annotated[
        Literal["none", "fast", "full", "auto"],
        advanced(
            "Work to spend on the proof. none; fast: what the search provides; full: all the time left; auto: the"
            " time left, while it pays off."
        ),
    ] = "auto"
    gap: Annotated[float, advanced("Stop at this proved relative gap.")] = 1e-4
    time_limit: TimeLimit = 300.0
    seed: Seed = 0
    device: Device = "cpu"


@dataclass(frozen=True)
class Output:
    """The directory of the run, and the reports of progress."""

    out: Annotated[Path | None, common("Store the run and its report in this directory.", "DIR")] = None
    force: Annotated[bool, common("Replace an earlier run in DIR.")] = False
    progress: Annotated[bool, advanced("Print a progress line every 5 s, also without a terminal.")] = False
    as_json: Json = False

    def check(self, *targets: Path | None) -> None:
        """Raise a RecordError early if the answer could not be written in the end."""
        from covopt.records import storing

        check_force(self.force, *targets, self.out)
        if self.out is not None:
            storing.check_free(self.out, self.force)

    def following(self, time_limit: float | None) -> "AbstractContextManager[Callback | None]":
        """Return the block that shows progress; it shows nothing without a time limit."""
        return progress_line(0.0, False) if time_limit is None else progress_line(time_limit, self.progress or None)

    def start(self, resume: bool, init: Path | None, kind: type, what: str, barred: str = "--force") -> Any:
        """Return the stored answer that --resume or --init starts from; None without them."""
        from covopt.records import storing
        from covopt.studies import runs

        if not resume:
            self.check()
            return None if init is None else runs.load(init)
        if self.out is None or self.force or init is not None:
            raise RecordError(f"--resume continues the run in DIR of --out; give --out DIR, without {barred}.")
        storing.check_free(self.out, force=True)
        start = runs.load(self.out)
        if not isinstance(start, kind):  # the new run would replace it
            raise RecordError(f"{self.out} holds no {what} to continue; choose another directory.")
        return start

    def deliver(
        self,
        answer: Any,
        name: str,
        data: "Dataset | None",
        *writings: Callable[[], object],
        show: Callable[[], object] | None = None,
        replaces: bool = False,
    ) -> None:
        """Print an answer, which messages call `name`; write and store it; exit with 130 if Ctrl-C ended it."""
        from covopt.records import record

        def show_answer() -> None:
            if self.as_json:
                print(record.as_json(answer.summary()))
            elif show is not None:
                show()
            else:
                pairs, table = answer.overview()
                print_pairs(pairs)
                if table is not None:
                    print()
                    print_table(*table)

        target = replace(self, force=self.force or replaces)
        deliver(show_answer, *writings, lambda: target.store(answer, name, data))
        if getattr(answer, "status", None) is Status.INTERRUPTED:  # the answer of cprank has none
            raise typer.Exit(INTERRUPTED)

    def store(self, answer: Any, name: str, data: "Dataset | None" = None) -> None:
        """Store an answer with its report if --out is given, and print where."""
        if self.out is None:
            return
        from covopt.records import record
        from covopt.records.provenance import ORIGIN, write_origin

        names = (None, None) if data is None else (data.columns, data.classes)
        others: dict[str, Writer] = {ORIGIN: write_origin(COMMAND.get(), *names)}
        if not interrupted():  # after Ctrl-C there is no time to load the report's libraries
            from covopt.studies.runs import report_writer

            others[record.REPORT] = report_writer(self.out)
        answer.save(self.out, force=self.force, others=others)
        if not self.as_json:
            report = self.out / record.REPORT
            later = f"covopt show {self.out} --report FILE makes its report" if interrupted() else "it has no report"
            where = f"its report is {report}" if report.is_file() else later
            print(printable(f"{name} is stored in {self.out}; {where}."))


def flat(**defaults: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a command that takes groups of options into one that takes the options, with defaults of its own."""

    def flatten(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}

        def called(**values: Any) -> None:
            _check_early(values)
            made = {
                name: group(**{option.name: values.pop(option.name) for option in fields(group)})
                for name, group in groups.items()
            }
            command(**made, **values)

        declared = signature(command).parameters.items()
        options = [option for name, parameter in declared for option in _options(hints[name], parameter)]
        options = [option.replace(default=defaults.get(option.name, option.default)) for option in options]
        options.sort(key=lambda option: option.default is not option.empty)  # required ones come first, as in Python
        called.__signature__ = Signature(options)  # type: ignore[attr-defined]
        called.__doc__ = command.__doc__
        return called

    return flatten


def _check_early(values: dict[str, Any]) -> None:
    """Refuse wrong numbers and names of the problem before torch is loaded, which takes a second."""
    from covopt.model.scalars import READERS

    for name, value in values.items():
        if name in READERS and value is not None and (name == "lams" or not isinstance(value, list)):
            READERS[name](value)


def _options(hint: Any, parameter: Parameter) -> Iterator[Parameter]:
    """Yield a parameter of a command, or the fields of its group."""
    if not (isinstance(hint, type) and is_dataclass(hint)):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint)
        return
    hints = get_type_hints(hint, include_extras=True)
    for option in signature(hint).parameters.values():
        yield option.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[option.name])
