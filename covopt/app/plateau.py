"""covopt plateau."""

from dataclasses import dataclass
from typing import Annotated

from covopt.app import options
from covopt.app.common import check_device, interruptible
from covopt.app.help import advanced, common


@dataclass(frozen=True)
class Widths:
    """The networks to examine, with the keywords of `covopt.plateau`."""

    widths: Annotated[
        list[int] | None, common("Examine networks with N hidden neurons; repeatable.", name="--width")
    ] = None
    layer: Annotated[int | None, advanced("Vary only hidden layer N, counted from 1, not all of them.")] = None
    starts: Annotated[int, advanced("Random starts for each width.")] = 16


@options.flat()
def plateau_command(
    *,
    widths: Widths,
    question: options.Question,
    data: options.Data,
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
        from covopt.studies.width import plateau as study

        output.check()
        check_device(solving.device)
        dataset = data.read(question.loss)
        with output.following(solving.time_limit) as show:
            answer = study.plateau(
                dataset,
                **vars(widths),
                **vars(question),
                **vars(solving),
                init=None if init is None else stored.load(init),
                callback=show,
            )
    answer.result.describe_data(dataset)
    output.deliver(answer, "The plateau", dataset)
