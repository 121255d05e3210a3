"""covopt validate."""

from __future__ import annotations

from functools import partial
from pathlib import Path
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
    store,
)
from covopt.commands.progress import progress_line
from covopt.errors import printable

Net = Annotated[
    Path | None,
    typer.Option(help="A state dict (.pt) or W1 ... WL (.npz); without it, covopt trains networks.", metavar="FILE"),
]
Depth = Annotated[int | None, typer.Option(help="Layers of weights; default: those of the network, or 2.", metavar="L")]
ActivationName = Annotated[
    str, typer.Option(help="Activation of the network: relu, leaky:A with -1 < A < 1, or linear.", metavar="NAME")
]
Width = Annotated[int | None, typer.Option(help="Hidden neurons of the networks trained without --net.", metavar="N")]
Starts = Annotated[int | None, typer.Option(help="Number of networks trained without --net.", metavar="N")]
Better = Annotated[
    Path | None,
    typer.Option(
        help="Write the better network, if one is found: a state dict (.pt) or W1 ... WL (.npz).", metavar="FILE"
    ),
]
Replace = Annotated[bool, typer.Option("--force", help="Replace FILE, and an earlier run in DIR.")]


def validate_command(
    data: options.Source,
    net: Net = None,
    target: options.Target = None,
    task: options.TaskName = None,
    drop: options.Drop = None,
    one_hot: options.OneHot = None,
    rows: options.Rows = None,
    shuffle: options.Shuffle = None,
    scale: options.Scaling = options.Scale.NONE,
    data_dir: options.DataDir = None,
    depth: Depth = None,
    bias: options.Bias = 1.0,
    lam: options.Lam = None,
    loss: options.LossName = None,
    activation: ActivationName = "relu",
    width: Width = None,
    starts: Starts = None,
    certify: options.Proof = options.Certify.AUTO,
    gap: options.Gap = 1e-4,
    time_limit: options.TimeLimit = 60.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    escape: Better = None,
    out: options.Out = None,
    force: Replace = False,
    progress: options.ShowProgress = False,
    as_json: options.Json = False,
) -> None:
    """Is a trained network at the minimum, and if not, what does it lack?

    Compare its loss with the solver's, examine its layers one by one, and look for a better network.
    """
    with interruptible("Interrupted before there was anything to say; nothing is written."):
        from covopt.io import data as sources
        from covopt.io import files, networks, record, storing
        from covopt.study import audit as study

        check_force(force, escape, out)
        if escape is not None:
            networks.check_free(escape, force)
            if net is not None:
                files.check_apart(escape, net)
        if out is not None:
            storing.check_free(out, force)
        check_device(device)
        read = partial(
            sources.read_data,
            data,
            target=target,
            task=None if task is None else task.value,
            drop=drop or (),
            one_hot=one_hot or (),
            rows=rows,
            shuffle=shuffle,
            data_dir=data_dir,
        )
        dataset = read(scale=scale.value)
        with progress_line(time_limit, progress) as callback:
            audit = study.validate(
                net,
                dataset.X,
                dataset.Y,
                lam=lam,
                loss=None if loss is None else loss.value,
                depth=depth,
                bias=bias,
                activation=activation,
                width=width,
                starts=starts,
                certify=certify.value,
                gap=gap,
                time_limit=time_limit,
                seed=seed,
                device=device,
                callback=callback,
                scalings=lambda: {other: read(scale=other).X for other in sources.SCALES if other != scale.value},
            )
    audit.reference.describe_data(dataset)

    def show_answer() -> None:
        if as_json:
            print(record.as_json(audit.summary()))
        else:
            print_pairs(audit.describe())

    def store_escape() -> None:
        if escape is None:
            return
        written = audit.save_escape(escape, force=force)
        if not as_json:
            said = f"{escape} holds the better network." if written else "No better network is written: none found."
            print(printable(said))

    deliver(show_answer, store_escape, lambda: store(audit, "The audit", out, force, as_json, dataset))
    if audit.interrupted:
        raise typer.Exit(INTERRUPTED)
