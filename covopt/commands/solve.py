"""covopt solve."""

from __future__ import annotations

import time

import typer

from covopt.commands import options
from covopt.commands.common import (
    INTERRUPTED,
    check_device,
    check_force,
    deliver,
    interruptible,
    print_summary,
    store,
)
from covopt.commands.progress import progress_line
from covopt.loop import Status


def solve_command(
    data: options.Source,
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
    method: options.MethodName = options.Method.CONE,
    certify: options.Proof = options.Certify.AUTO,
    gap: options.Gap = 1e-4,
    time_limit: options.TimeLimit = 300.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    init: options.Init = None,
    width: options.Width = None,
    max_width: options.MaxWidth = None,
    starts: options.Starts = None,
    out: options.Out = None,
    force: options.Force = False,
    progress: options.ShowProgress = False,
    as_json: options.Json = False,
) -> None:
    """The minimum over networks of depth L: the best network, and a proved lower bound.

    Without --lam the answer is the representation cost: the least squared norm of a network that fits exactly.
    With --lam it is the minimum of the regularised loss.
    """
    with interruptible():
        from covopt import answer
        from covopt.io import data as sources
        from covopt.io import storing
        from covopt.verification import stored

        check_force(force, out)
        if out is not None:
            storing.check_free(out, force)
        check_device(device)
        began = time.perf_counter()
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
        start = None if init is None else stored.load(init)
        reading = time.perf_counter() - began
        with progress_line(time_limit, progress) as callback:
            result = answer.solve(
                dataset.X,
                dataset.Y,
                lam=lam,
                loss=None if loss is None else loss.value,
                depth=depth,
                bias=bias,
                activation=activation,
                method=method.value,
                certify=certify.value,
                gap=gap,
                time_limit=time_limit,
                seed=seed,
                device=device,
                init=start,
                width=width,
                max_width=max_width,
                starts=starts,
                callback=callback,
            )
    result.describe_data(dataset)
    result.timing = {"reading": reading, **result.timing}
    deliver(
        lambda: print_summary(result.summary(), as_json),
        lambda: store(result, "The run", out, force, as_json, dataset),
    )
    if result.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
