"""covopt path."""

from dataclasses import dataclass
from typing import Annotated, Literal

from covopt.app import options
from covopt.app.common import check_device, interruptible
from covopt.app.help import advanced, common


@dataclass(frozen=True)
class Range:
    """The values of lam, with the keywords of `covopt.path`."""

    lams: Annotated[
        list[float] | None,
        common("A strength of the penalty; repeatable. Default: a range from lam_max down.", name="--lam"),
    ] = None
    ratio: Annotated[float | None, advanced("Without --lam: the smallest lam over lam_max. Default: 1e-4.")] = None
    points: Annotated[int | None, advanced("Without --lam: the number of values. Default: 50.")] = None
    interpolate: Annotated[bool, advanced("Add the representation cost, the end of the path at lam = 0.")] = False


Folds = Annotated[int | None, advanced("Score by cross-validation with N folds instead of --test.")]


@dataclass(frozen=True)
class Question:
    """The problem at each lam, with the keywords of `covopt.path`."""

    loss: Annotated[Literal["mse", "cross_entropy"], common("mse or cross_entropy.")] = "mse"
    depth: options.Depth = 2
    bias: options.Bias = 1.0
    skip: options.Skip = False
    activation: options.Activation = "relu"


@options.flat()
def path_command(
    *,
    values: Range,
    question: Question,
    data: options.Data,
    test: options.Test = None,
    folds: Folds = None,
    solving: options.Solving,
    resume: options.Resume = False,
    output: options.Output,
) -> None:
    """Find the minimum for all lam of a range: its networks, bounds at every lam, and the best lam.

    The best lam is chosen on held-out data. The range begins at lam_max, above which no hidden neurons are needed.
    The time limit is for all values together.
    """
    with interruptible():
        from covopt.answer import held_out
        from covopt.studies.path import path as study, path_answer

        start = output.start(resume, None, path_answer.Path, "path")
        check_device(solving.device)
        dataset = data.read(question.loss)
        held = held_out.tested(test, dataset, lambda: data.read(question.loss, complement=True))
        with output.following(solving.time_limit) as show:
            answer = study.path(
                dataset,
                **vars(values),
                test=None if held is None else (held.X, held.Y),
                folds=folds,
                **vars(question),
                **vars(solving),
                init=start,
                callback=show,
            )
    answer.describe_data(dataset)
    output.deliver(answer, "The path", dataset, replaces=resume)
