"""covopt depth."""

from __future__ import annotations

from typing import Annotated

from covopt.app import options
from covopt.app.common import check_device, interruptible
from covopt.app.help import common
from covopt.runtime.errors import ProblemError, shown

DepthList = Annotated[list[str] | None, common("Depths from 2 to 8 as 2:8, or a list 2,3,5,9. Default: 2:8.", "LIST")]
Ranks = Annotated[
    list[int] | None,
    common(
        "Also find the best networks with a hidden layer of at most N neurons; repeatable. Default: 1, 2, 3"
        " and what the answers of two and three layers show; 0: none."
    ),
]


@options.flat()
def depth_command(
    *,
    depths: DepthList = None,
    rank: Ranks = None,
    lam: options.Lam = None,
    loss: options.Loss = None,
    bias: options.Bias = 1.0,
    data: options.Data,
    activation: options.Activation = "relu",
    solving: options.Solving,
    init: options.Init = None,
    resume: options.Resume = False,
    output: options.Output,
) -> None:
    """Show what depth changes: costs, proved bounds and the dimensions that pass, depth by depth.

    The time limit is for all depths together; the networks of each depth are starts for its neighbours.
    """
    chosen = depths_of(depths or ["2:8"])
    with interruptible():
        from covopt.studies.depth import depth_answer, depths as study

        start = output.start(resume, init, depth_answer.Depths, "run of depth", "--force and --init")
        if resume:
            chosen = sorted({*chosen, *start.depths})
        check_device(solving.device)
        dataset = data.read(loss)
        with output.following(solving.time_limit) as show:
            curve = study.depth(
                dataset,
                depths=chosen,
                ranks=None if not rank else [k for k in rank if k],
                lam=lam,
                loss=loss,
                bias=bias,
                activation=activation,
                **vars(solving),
                init=start,
                callback=show,
            )
    curve.describe_data(dataset)
    output.deliver(curve, "The answer", dataset, replaces=resume)


def depths_of(texts: list[str]) -> list[int]:
    """Return all depths of some texts, each a range (2:5) or a list (2,3,9); raise a ProblemError otherwise."""
    least, most = 2, 1000
    depths: set[int] = set()
    for part in ",".join(texts).split(","):
        first, colon, last = part.partition(":")
        ends = [end.strip() for end in ((first, last) if colon else (first, first))]
        if not all(end.isascii() and end.isdigit() and len(end) <= len(str(most)) for end in ends):
            raise ProblemError(f"--depths is {shown(part)}; give depths such as 2:8 or 2,3,5,9.")
        low, high = (int(end) for end in ends)
        if not least <= low <= high <= most:
            raise ProblemError(f"--depths is {shown(part)}; give depths from {least} to {most}, the smaller one first.")
        depths.update(range(low, high + 1))
    return sorted(depths)
