"""covopt compare."""

from __future__ import annotations

from typing import Annotated

from covopt.app import options
from covopt.app.common import check_device, interruptible, print_table
from covopt.app.help import advanced
from covopt.runtime.errors import printable

Methods = Annotated[list[options.Method] | None, advanced("Compare this method; repeatable. Default: all of them.")]
Width = Annotated[int | None, advanced("Hidden neurons, for the methods that need a width.")]
Starts = Annotated[int | None, advanced("Random starts, for the methods that use them.")]


@options.flat(time_limit=60.0)
def compare_command(
    *,
    question: options.Question,
    data: options.Data,
    test: options.Test = None,
    method: Methods = None,
    width: Width = None,
    starts: Starts = None,
    skip: options.Skip = False,
    solving: options.Solving,
    output: options.Output,
) -> None:
    """Run every method on one problem; each of them gets the time limit."""
    with interruptible():
        from covopt.answer import held_out, words
        from covopt.records import record
        from covopt.studies.compare import compare as study

        output.check()
        check_device(solving.device)
        dataset = data.read(question.loss)
        tested = held_out.tested(test, dataset, lambda: data.read(question.loss, complement=True))
        chosen = {} if not method else {"methods": [choice.value for choice in method]}
        with output.following(solving.time_limit) as show:
            comparison = study.compare(
                dataset,
                **chosen,
                width=width,
                starts=starts,
                **vars(question),
                skip=skip,
                **vars(solving),
                callback=None if show is None else lambda _, line: show(line),
            )
    for result in comparison.results.values():
        result.describe_data(dataset)
        if tested is not None:
            result.test = held_out.score(result, tested)

    def show_answer() -> None:
        print(f"{printable(record.headline(comparison.best.summary()))}\n")
        print_table(study.COLUMNS, comparison.rows())
        if tested is not None:
            scores = ((name, words.tested(result.summary())) for name, result in comparison.results.items())
            print("\n" + "\n".join(printable(f"{name} on held-out data: {text}") for name, text in scores))

    output.deliver(comparison, "The comparison", dataset, show=show_answer)
