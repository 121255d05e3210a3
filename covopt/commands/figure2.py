"""covopt figure2."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from covopt.commands import options
from covopt.commands.common import (
    INTERRUPTED,
    check_device,
    deliver,
    interruptible,
    print_table,
)
from covopt.loop import Status


class Panel(StrEnum):
    """The two experiments."""

    DIGITS = "digits"
    TEACHER = "teacher"


Which = Annotated[Panel, typer.Argument(metavar="PANEL", help="digits or teacher.")]
Strengths = Annotated[list[float] | None, typer.Option("--lam", help="Strength of the penalty; repeatable.")]
Widths = Annotated[list[int] | None, typer.Option("--width", help="A width; repeatable.", metavar="N")]
Trials = Annotated[int, typer.Option(help="Networks for each width.", metavar="N")]
Images = Annotated[
    Path | None, typer.Option(help="Directory with the mnist files; default: scikit-learn's digits.", metavar="DIR")
]


@options.flat()
def figure2_command(
    *,
    panel: Which,
    lam: Strengths = None,
    width: Widths = None,
    trials: Trials = 3,
    time_limit: options.TimeLimit = 900.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    data_dir: Images = None,
    output: options.Output,
) -> None:
    """Figure 2 of the paper: train and test loss against the width, 20 widths and three trials of each.

    digits: cross-entropy on 1,000 images; teacher: a depth-3 teacher, mean squared error.
    """
    with interruptible():
        from covopt.io import record
        from covopt.study import figure2 as study

        output.check()
        check_device(device)
        with output.following(time_limit) as show:
            found = study.figure2(
                panel.value,
                strengths=lam or None,
                widths=width or None,
                trials=trials,
                time_limit=time_limit,
                seed=seed,
                device=device,
                data_dir=data_dir,
                callback=show,
            )

    def show_answer() -> None:
        if output.as_json:
            print(record.as_json(found.summary()))
        else:
            print_table(("lam", "width", "train loss", "test loss"), found.rows())

    deliver(show_answer, lambda: output.store(found, "The figure"))
    if found.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
