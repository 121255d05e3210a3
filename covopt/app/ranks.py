"""covopt ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from covopt.app import options
from covopt.app.common import check_device, interruptible, print_pairs, print_table
from covopt.app.help import advanced, common
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Status


@dataclass(frozen=True)
class Networks:
    """The networks and how they are trained, with the keywords of `covopt.ranks`."""

    lam: Annotated[
        list[float] | None,
        common(
            "--lam",
            help="Strength of the penalty, half of PyTorch's weight_decay; 0: none; repeatable.",
            metavar="NUMBER",
        ),
    ] = None
    batch_size: Annotated[
        list[int] | None,
        common("--batch-size", help="Samples in each step; repeatable. Default: 4, 16, 64.", metavar="N"),
    ] = None
    rate: Annotated[
        list[float] | None, common("--rate", help="Learning rate; repeatable. Default: 0.1.", metavar="NUMBER")
    ] = None
    depth: Annotated[int | None, advanced(help="Number of layers of weights. Default: 3.", metavar="N")] = None
    architecture: Annotated[
        Literal["plain", "batch_norm", "residual"],
        advanced(
            help="Train plain networks, normalised ones, or residual ones. Only plain ones have the solver's beside"
            " them."
        ),
    ] = "plain"
    width: Annotated[int | None, advanced(help="Neurons of every hidden layer. Default: 100.", metavar="N")] = None
    net: Annotated[
        Path | None,
        advanced(help="Examine this network, a state dict (.pt) or W1 ... WL (.npz), and train none.", metavar="FILE"),
    ] = None
    start: Annotated[Path | None, advanced(help="The initial weights of the network of --net.", metavar="FILE")] = None
    momentum: Annotated[
        list[float] | None,
        advanced("--momentum", help="Momentum as in PyTorch; repeatable. Default: 0.", metavar="NUMBER"),
    ] = None
    nesterov: Annotated[bool, advanced("--nesterov", help="Use Nesterov's form of the momentum.")] = False
    milestones: Annotated[
        list[float] | None,
        advanced("--milestones", help="Multiply the rate by gamma after this epoch; repeatable.", metavar="NUMBER"),
    ] = None
    gamma: Annotated[float, advanced(help="Factor of the rate at milestones.", metavar="NUMBER")] = 0.1
    kept: Annotated[
        float | None,
        advanced(help="Train until this part of the initial weights remains. Default: 1e-4.", metavar="NUMBER"),
    ] = None
    epochs: Annotated[float | None, advanced(help="Train for this number of epochs instead.", metavar="NUMBER")] = None
    steps: Annotated[
        int | None,
        advanced(
            help="Train for this number of steps instead; with --net, the number it was trained for.", metavar="N"
        ),
    ] = None
    seeds: Annotated[int | None, advanced(help="Networks of each setting. Default: 3.", metavar="N")] = None
    tolerance: Annotated[
        list[float] | None,
        advanced(
            "--tolerance",
            help="Ranks count the singular values above this part of the norm |W|; repeatable. Default: 1e-3.",
            metavar="NUMBER",
        ),
    ] = None
    loss: Annotated[
        str | None, advanced(help="mse, cross_entropy, huber, huber:D or logistic. Default: mse.", metavar="NAME")
    ] = None
    bias: options.Bias = 1.0
    activation: Annotated[
        str | None,
        advanced(help="relu, leaky:A with -1 < A < 1, or linear. Default: the network's own, or relu.", metavar="NAME"),
    ] = None
    reference: Annotated[
        float | None,
        advanced(help="Time for the solver's network. Default: a third of the limit; 0: none.", metavar="SECONDS"),
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
        from covopt.studies.ranks import ranks as study, words as rank_words

        output.check()
        check_device(networks.device)
        dataset = data.read(networks.loss)
        if dataset.weights is not None:
            raise ProblemError("covopt ranks counts all rows the same; leave the weights out, or repeat rows instead.")
        held = held_out.tested(test, dataset, lambda: data.read(networks.loss, complement=True))
        given = {name: value for name, value in vars(networks).items() if value is not None}
        if held is not None:
            given["test"] = held.X, held.Y
        with output.following(networks.time_limit) as show:
            answer = study.ranks(dataset.X, dataset.Y, **given, callback=show)
    answer.describe_data(dataset)

    def show_answer() -> None:
        summary = answer.summary()
        print_pairs(rank_words.pairs(summary, settings=False))
        print()
        print_table(*rank_words.table(summary))

    output.deliver(answer, show_answer, "The answer", dataset, ended=answer.status is Status.INTERRUPTED)
