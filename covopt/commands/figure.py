"""covopt figure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from covopt.commands import options
from covopt.commands.common import INTERRUPTED, check_device, deliver, interruptible, print_pairs, print_table
from covopt.loop import Status


class Name(StrEnum):
    """The figures."""

    WIDTH = "width"
    COUNTEREXAMPLE = "counterexample"
    TRIPOINTS = "tripoints"
    DENOISING = "denoising"
    RANK_RECOVERY = "rank-recovery"
    DEPTH_RANK = "depth-rank"
    SYMMETRY = "symmetry"


Which = Annotated[Name, typer.Argument(metavar="NAME", help=f"{', '.join(Name)}.")]
Paper = Annotated[bool, typer.Option("--paper", help="The sizes that the paper prints, which may take long.")]
Limit = Annotated[
    float | None,
    typer.Option(help="Time limit; default: 60 or less, and 15 times as long with --paper.", metavar="SECONDS"),
]


@options.flat()
def figure_command(
    *,
    name: Which,
    paper: Paper = False,
    time_limit: Limit = None,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    output: options.Output,
) -> None:
    """A figure of the papers, made anew on data of its own: what a reader should see in it, and whether it is there."""
    with interruptible():
        from covopt.io import record
        from covopt.kinds import figure as kind
        from covopt.study.figures import paper_figure as study

        output.check()
        check_device(device)
        limit = study.default_limit(name.value, paper) if time_limit is None else time_limit
        with output.following(limit) as show:
            found = study.figure(name.value, paper=paper, seed=seed, time_limit=limit, device=device, callback=show)

    def show_answer() -> None:
        if output.as_json:
            print(record.as_json(found.summary()))
        elif isinstance(found, study.PaperFigure):
            print_pairs(kind.pairs(found.summary()))
            print()
            print_table(found.design.columns, found.rows())
        else:
            print_table(("lam", "width", "train loss", "test loss"), found.rows())

    deliver(show_answer, lambda: output.store(found, "The figure"))
    if found.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
