"""covopt compare."""

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
    print_table,
    store,
)
from covopt.commands.progress import progress_line
from covopt.errors import printable

Methods = Annotated[
    list[options.Method] | None, typer.Option("--method", help="A method to compare; repeatable. Default: all.")
]
Width = Annotated[int | None, typer.Option(help="Hidden neurons, for the methods that need a width.", metavar="N")]
Starts = Annotated[int | None, typer.Option(help="Random starts, for the methods that use them.", metavar="N")]


def compare_command(
    data: options.Source,
    method: Methods = None,
    width: Width = None,
    starts: Starts = None,
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
    certify: options.Proof = options.Certify.FAST,
    gap: options.Gap = 1e-4,
    time_limit: options.TimeLimit = 60.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    out: options.Out = None,
    force: options.Force = False,
    progress: options.ShowProgress = False,
    as_json: options.Json = False,
) -> None:
    """Run every method on one problem; each of them gets the time limit."""
    with interruptible():
        from covopt.io import data as sources
        from covopt.io import record, storing
        from covopt.study import compare as study

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
        chosen = {} if not method else {"methods": [each.value for each in method]}
        with progress_line(time_limit, progress) as show:
            comparison = study.compare(
                dataset.X,
                dataset.Y,
                **chosen,
                width=width,
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
                callback=None if show is None else lambda _, line: show(line),
            )
    for result in comparison.results.values():
        result.describe_data(dataset)

    def show_answer() -> None:
        if as_json:
            print(record.as_json(comparison.summary()))
            return
        print(f"{printable(record.headline(comparison.best.summary()))}\n")
        print_table(study.COLUMNS, comparison.rows())

    deliver(show_answer, lambda: store(comparison, "The comparison", out, force, as_json, dataset))
    if comparison.interrupted:
        raise typer.Exit(INTERRUPTED)
