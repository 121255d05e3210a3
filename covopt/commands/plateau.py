"""covopt plateau."""

from __future__ import annotations

from typing import Annotated

import typer

from covopt.commands import options
from covopt.commands.common import (
    INTERRUPTED,
    check_device,
    check_force,
    deliver,
    interruptible,
    print_pairs,
    print_table,
    store,
)
from covopt.commands.progress import progress_line
from covopt.loop import Status

Layer = Annotated[int | None, typer.Option(help="Vary only this hidden layer, not all of them.", metavar="l")]
Widths = Annotated[list[int] | None, typer.Option("--width", help="A width to examine; repeatable.", metavar="N")]
Starts = Annotated[int, typer.Option(help="Random starts for each width.", metavar="N")]


def plateau_command(
    data: options.Source,
    layer: Layer = None,
    width: Widths = None,
    starts: Starts = 16,
    target: options.Target = None,
    task: options.TaskName = None,
    drop: options.Drop = None,
    one_hot: options.OneHot = None,
    rows: options.Rows = None,
    shuffle: options.Shuffle = None,
    scale: options.Scaling = options.Scale.NONE,
    data_dir: options.DataDir = None,
    depth: options.Depth = 2,
    bias: options.Bias = 1.0,
    lam: options.Lam = None,
    loss: options.LossName = None,
    activation: options.ActivationName = "relu",
    certify: options.Proof = options.Certify.AUTO,
    gap: options.Gap = 1e-4,
    time_limit: options.TimeLimit = 300.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    init: options.Init = None,
    out: options.Out = None,
    force: options.Force = False,
    progress: options.ShowProgress = False,
    as_json: options.Json = False,
) -> None:
    """How wide must a network be? The lowest cost for each width, and where it stops falling.

    The start of the plateau, the fewest neurons within 10 %, 1 % and 0.1 % of the minimum, is an interval with proved
    ends, printed next to what the best known networks suggest.
    """
    with interruptible():
        from covopt.io import data as sources
        from covopt.io import record, storing
        from covopt.study import plateau as study
        from covopt.verification import stored

        check_force(force, out)
        if out is not None:
            storing.check_free(out, force)
        check_device(device)
        dataset = sources.read_data(
            data,
            target=target,
            task=None if task is None else task.value,
            drop=drop or (),
            one_hot=one_hot or (),
            rows=rows,
            shuffle=shuffle,
            scale=scale.value,
            data_dir=data_dir,
        )
        with progress_line(time_limit, progress) as show:
            found = study.plateau(
                dataset.X,
                dataset.Y,
                layer=layer,
                widths=width or None,
                starts=starts,
                lam=lam,
                loss=None if loss is None else loss.value,
                depth=depth,
                bias=bias,
                activation=activation,
                certify=certify.value,
                gap=gap,
                time_limit=time_limit,
                seed=seed,
                device=device,
                init=None if init is None else stored.load(init),
                callback=show,
            )
    found.result.describe_data(dataset)

    def show_answer() -> None:
        if as_json:
            print(record.as_json(found.summary()))
            return
        print_pairs(found.describe())
        print()
        print_table(("width", "cost", "above the level"), found.rows())

    deliver(show_answer, lambda: store(found, "The plateau", out, force, as_json, dataset))
    if found.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
