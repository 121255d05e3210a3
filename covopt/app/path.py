"""covopt path."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from covopt.app import options
from covopt.app.common import INTERRUPTED, check_device, deliver, interruptible, print_pairs, print_table
from covopt.runtime.errors import ProblemError, RecordError
from covopt.runtime.loop import Status

Lams = Annotated[
    list[float] | None, typer.Option("--lam", help="A strength of the penalty; repeatable.", metavar="LAM")
]
Ratio = Annotated[float, typer.Option(help="Without --lam: the smallest lam over lam_max.", metavar="R")]
Points = Annotated[int, typer.Option(help="Without --lam: how many values.", metavar="N")]
Interpolate = Annotated[
    bool, typer.Option("--interpolate", help="Also the representation cost, the end of the path at lam = 0.")
]
Folds = Annotated[int | None, typer.Option("--folds", help="Score by K folds of the data instead.", metavar="K")]
PathLoss = Annotated[
    Literal["mse", "cross_entropy"],
    typer.Option("--loss", help="mse or cross_entropy.", metavar="NAME", rich_help_panel="Question"),
]
Depth = Annotated[int, typer.Option(help="Layers of weights.", metavar="L", rich_help_panel="Question")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on from the run in DIR of --out, and replace it.", rich_help_panel="Output"),
]


@options.flat()
def path_command(
    *,
    lam: Lams = None,
    ratio: Ratio = 1e-4,
    points: Points = 50,
    interpolate: Interpolate = False,
    test: options.Test = None,
    folds: Folds = None,
    data: options.Data,
    depth: Depth = 2,
    bias: options.Bias = 1.0,
    skip: options.Skip = False,
    loss: PathLoss = "mse",
    activation: options.Activation = "relu",
    solving: options.Solving,
    resume: Resume = False,
    output: options.Output,
) -> None:
    """Find the minimum for all lam of a range: its networks, bounds at every lam, and the best lam.

    Held-out data pick the best lam. The range begins at lam_max, from which on no hidden neurons are needed.
    The time limit is for all values together.
    """
    with interruptible():
        from covopt.answer import held_out
        from covopt.records import record, storing
        from covopt.studies import runs
        from covopt.studies.path import path as study
        from covopt.studies.path import path_answer

        start = None
        if resume:
            if output.out is None or output.force:
                raise RecordError("--resume goes on from the run in DIR of --out; give --out DIR, without --force.")
            storing.check_free(output.out, force=True)
            start = runs.load(output.out)
            if not isinstance(start, path_answer.Path):  # it would be replaced
                raise RecordError(f"{output.out} holds no path to go on from; choose another directory.")
        else:
            output.check()
        check_device(solving.device)
        dataset = data.read(loss)
        if dataset.weights is not None:
            raise ProblemError("covopt path counts all rows the same; leave the weights out, or repeat rows instead.")
        held = held_out.tested(test, dataset, lambda: data.read(loss, complement=True))
        with output.following(solving.time_limit) as show:
            answer = study.path(
                dataset.X,
                dataset.Y,
                lams=lam or None,
                ratio=ratio,
                points=points,
                interpolate=interpolate,
                test=None if held is None else (held.X, held.Y),
                folds=folds,
                loss=loss,
                depth=depth,
                bias=bias,
                skip=skip,
                activation=activation,
                **vars(solving),
                init=start,
                callback=show,
            )
    answer.describe_data(dataset)

    def show_answer() -> None:
        if output.as_json:
            print(record.as_json(answer.summary()))
            return
        print_pairs(answer.describe())
        print()
        print_table(path_answer.COLUMNS, answer.rows())

    target = options.Output(output.out, output.force or resume, output.progress, output.as_json)
    deliver(show_answer, lambda: target.store(answer, "The path", dataset))
    if answer.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
