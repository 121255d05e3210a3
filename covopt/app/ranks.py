"""covopt ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from covopt.app import options
from covopt.app.common import check_device, interruptible
from covopt.app.help import advanced, common


@dataclass(frozen=True)
class Networks:
    """The networks and how they are trained, with the keywords of `covopt.ranks`."""

    lam: Annotated[
        list[float] | None, common("Strength of the penalty, half of PyTorch's weight_decay; 0: none; repeatable.")
    ] = None
    batch_size: Annotated[list[int] | None, common("Samples in each step; repeatable. Default: 4, 16, 64.")] = None
    rate: Annotated[list[float] | None, common("Learning rate; repeatable. Default: 0.1.")] = None
    depth: Annotated[int | None, advanced("Number of layers of weights. Default: 3.")] = None
    architecture: Annotated[
        Literal["plain", "batch_norm", "residual"],
        advanced("plain, batch_norm or residual networks; only plain ones are compared with the solver's network."),
    ] = "plain"
    width: Annotated[int | None, advanced("Neurons of every hidden layer. Default: 100.")] = None
    net: Annotated[
        Path | None, advanced("Examine this network, a state dict (.pt) or W1 ... WL (.npz), and train none.")
    ] = None
    start: Annotated[Path | None, advanced("The initial weights of the network of --net.")] = None
    momentum: Annotated[list[float] | None, advanced("Momentum as in PyTorch; repeatable. Default: 0.")] = None
    nesterov: Annotated[bool, advanced("Use Nesterov's form of the momentum.")] = False
    milestones: Annotated[list[float] | None, advanced("Multiply the rate by gamma after this epoch; repeatable.")] = (
        None
    )
    gamma: Annotated[float, advanced("Factor of the rate at milestones.")] = 0.1
    kept: Annotated[float | None, advanced("Train until this part of the initial weights remains. Default: 1e-4.")] = (
        None
    )
    epochs: Annotated[float | None, advanced("Train for this number of epochs instead.")] = None
    steps: Annotated[
        int | None, advanced("Train for this number of steps instead; with --net, the number it was trained for.")
    ] = None
    seeds: Annotated[int | None, advanced("Networks of each setting. Default: 3.")] = None
    tolerance: Annotated[
        list[float] | None,
        advanced("Ranks count the singular values above this part of the norm |W|; repeatable. Default: 1e-3."),
    ] = None
    loss: Annotated[str | None, advanced("mse, cross_entropy, huber, huber:D or logistic. Default: mse.")] = None
    bias: options.Bias = 1.0
    activation: Annotated[
        str | None, advanced("relu, leaky:A with -1 < A < 1, or linear. Default: the network's own, or relu.")
    ] = None
    reference: Annotated[
        float | None, advanced("Time for the solver's network. Default: a third of the limit; 0: none.", "SECONDS")
    ] = None
    time_limit: options.TimeLimit = 300.0
    seed: options.Seed = 0
    device: options.Device = "cpu"


@options.flat()
def ranks_command(*, networks: Networks, data: options.Data, test: options.Test = None, output: options.Output) -> None:
    """Find the rank that SGD ends with, what explains it, and the rank of the solver's network.

    Trains a network for each combination of the repeated options until little remains of its initial weights, and
    audits it; or audits the network of --net.
    """
    with interruptible():
        from covopt.answer import held_out
        from covopt.studies.ranks import ranks as study

        output.check()
        check_device(networks.device)
        dataset = data.read(networks.loss)
        held = held_out.tested(test, dataset, lambda: data.read(networks.loss, complement=True))
        given = {name: value for name, value in vars(networks).items() if value is not None}
        if held is not None:
            given["test"] = held.X, held.Y
        with output.following(networks.time_limit) as show:
            answer = study.ranks(dataset, **given, callback=show)
    answer.describe_data(dataset)
    output.deliver(answer, "The answer", dataset)
