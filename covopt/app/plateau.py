"""covopt plateau."""

from __future__ import annotations

from typing import Annotated

import typer

from covopt.app import options
from covopt.app.common import INTERRUPTED, check_device, deliver, interruptible, print_pairs, print_table
from covopt.runtime.loop import Status

Layer = Annotated[int | None, typer.Option(help="Vary only this hidden layer, not all of them.", metavar="l")]
Widths = Annotated[list[int] | None, typer.Option("--width", help="A width to examine; repeatable.", metavar="N")]
Starts = Annotated[int, typer.Option(help="Random starts for each width.", metavar="N")]


@options.flat()
def plateau_command(
    *,
    layer: Layer = None,
    width: Widths = None,
    starts: Starts = 16,
    data: options.Data,
    question: options.Question,
    solving: options.Solving,
    init: options.Init = None,
    output: options.Output,
) -> None:
    """How wide must a network be? The lowest cost for each width, and where it stops falling.

    The start of the plateau, the fewest neurons within 10 %, 1 % and 0.1 % of the minimum, is an interval with proved
    ends, printed next to what the best known networks suggest.
    """
    with interruptible():
        from covopt.answer import stored
        from covopt.records import record
        from covopt.studies.width import plateau as study

        output.check()
        check_device(solving.device)
        dataset = data.read(question.loss)
        with output.following(solving.time_limit) as show:
            answer = study.plateau(
                dataset.X,
                dataset.Y,
                sample_weight=dataset.weights,
                layer=layer,
                widths=width or None,
                starts=starts,
                **vars(question),
                **vars(solving),
                init=None if init is None else stored.load(init),
                callback=show,
            )
    answer.result.describe_data(dataset)

    def show_answer() -> None:
        if output.as_json:
            print(record.as_json(answer.summary()))
            return
        print_pairs(answer.describe())
        print()
        print_table(("width", "cost", "above the level"), answer.rows())

    deliver(show_answer, lambda: output.store(answer, "The plateau", dataset))
    if answer.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
