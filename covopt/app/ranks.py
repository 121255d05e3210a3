"""covopt ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covopt.app import options
from covopt.app.common import INTERRUPTED, check_device, deliver, interruptible, print_pairs, print_table
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Status

Net = Annotated[
    Path | None,
    typer.Option(help="Audit this network, a state dict (.pt) or W1 ... WL (.npz), and train none.", metavar="FILE"),
]
Start = Annotated[Path | None, typer.Option(help="The first weights of the network of --net.", metavar="FILE")]
Lam = Annotated[
    list[float] | None,
    typer.Option("--lam", help="Strength of the penalty, half of PyTorch's weight_decay; 0: none; repeatable."),
]
Batches = Annotated[
    list[int] | None,
    typer.Option("--batch-size", help="Samples in each step; repeatable. Default: 4, 16, 64.", metavar="B"),
]
Rates = Annotated[
    list[float] | None, typer.Option("--rate", help="Learning rate; repeatable. Default: 0.1.", metavar="MU")
]
Momenta = Annotated[
    list[float] | None, typer.Option("--momentum", help="As PyTorch's; repeatable. Default: 0.", metavar="M")
]
Nesterov = Annotated[bool, typer.Option("--nesterov", help="Nesterov's form of the momentum.")]
Kept = Annotated[
    float | None, typer.Option(help="Train until this part of the start is left. Default: 1e-4.", metavar="PART")
]
Epochs = Annotated[float | None, typer.Option(help="Train for so many epochs instead.", metavar="E")]
Steps = Annotated[
    int | None, typer.Option(help="Train for so many steps instead; of --net, how many it took.", metavar="T")
]
Depth = Annotated[int | None, typer.Option(help="Layers of weights. Default: 3.", metavar="L")]
Width = Annotated[int | None, typer.Option(help="Neurons of every hidden layer. Default: 100.", metavar="N")]
Seeds = Annotated[int | None, typer.Option(help="Networks of each setting. Default: 3.", metavar="N")]
Tolerances = Annotated[
    list[float] | None,
    typer.Option("--tolerance", help="Ranks count s_i > TAU |W|; repeatable. Default: 1e-3.", metavar="TAU"),
]
Reference = Annotated[
    float | None,
    typer.Option(help="Time for the solver's answer. Default: a third of the limit; 0: none.", metavar="SECONDS"),
]
Loss = Annotated[
    str | None, typer.Option(help="mse, cross_entropy, huber, huber:D or logistic. Default: mse.", metavar="NAME")
]
Activation = Annotated[
    str | None,
    typer.Option(help="relu, leaky:A with -1 < A < 1, or linear. Default: the network's own, or relu.", metavar="NAME"),
]


@options.flat()
def ranks_command(
    *,
    data: options.Data,
    net: Net = None,
    start: Start = None,
    lam: Lam = None,
    batch_size: Batches = None,
    rate: Rates = None,
    momentum: Momenta = None,
    nesterov: Nesterov = False,
    kept: Kept = None,
    epochs: Epochs = None,
    steps: Steps = None,
    depth: Depth = None,
    width: Width = None,
    seeds: Seeds = None,
    tolerance: Tolerances = None,
    loss: Loss = None,
    bias: options.Bias = 1.0,
    activation: Activation = None,
    reference: Reference = None,
    time_limit: options.TimeLimit = 300.0,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    output: options.Output,
) -> None:
    """Find the rank that SGD ends with, what explains it, and the rank of the solver's network.

    Trains every combination of the repeated options until little is left of the start, and audits each network; or
    audits the network of --net.
    """
    with interruptible():
        from covopt.records import record
        from covopt.studies.ranks import ranks as study
        from covopt.studies.ranks import words as rank_words

        output.check()
        check_device(device)
        dataset = data.read(loss)
        if dataset.weights is not None:
            raise ProblemError("covopt ranks counts all rows the same; leave the weights out, or repeat rows instead.")
        with output.following(time_limit) as show:
            answer = study.ranks(
                dataset.X,
                dataset.Y,
                lam=lam or None,
                batch_size=batch_size or None,
                rate=rate or None,
                momentum=momentum or 0.0,
                nesterov=nesterov,
                kept=kept,
                epochs=epochs,
                steps=steps,
                net=net,
                start=start,
                loss=loss,
                depth=depth,
                width=width,
                bias=bias,
                activation=activation,
                tolerance=tolerance or study.TOLERANCE,
                reference=reference,
                seeds=seeds,
                time_limit=time_limit,
                seed=seed,
                device=device,
                callback=show,
            )
    answer.describe_data(dataset)

    def show_answer() -> None:
        summary = answer.summary()
        if output.as_json:
            print(record.as_json(summary))
            return
        print_pairs(rank_words.pairs(summary, settings=False))
        print()
        print_table(*rank_words.table(summary))

    deliver(show_answer, lambda: output.store(answer, "The answer", dataset))
    if answer.status is Status.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
