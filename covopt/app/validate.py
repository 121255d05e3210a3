"""covopt validate."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from covopt.app import options
from covopt.app.common import check_device, interruptible
from covopt.app.help import advanced, common
from covopt.records.numerals import percent
from covopt.runtime.errors import printable

Net = Annotated[
    Path | None, common("The network: a state dict (.pt) or W1 ... WL (.npz). Without it, covopt trains some.")
]
Better = Annotated[Path | None, common("Write a better network here, if one is found (.pt or .npz).")]
Function = Annotated[bool, advanced("Also describe its function: Jacobians, bottleneck, NTK.")]
At = Annotated[
    Path | None,
    advanced(
        "Inputs for --function (implied), instead of DATA's: .npz (X), .npy, or .csv of numbers; --scale does"
        " not change them."
    ),
]
Orbits = Annotated[
    Path | None,
    advanced("The inputs after a transformation, row by row, to measure how far each layer identifies the two."),
]


@dataclass(frozen=True)
class Training:
    """The networks to train if --net is missing; or how SGD at a constant rate trained that of --net."""

    width: Annotated[int | None, advanced("Hidden neurons of the networks trained without --net.")] = None
    starts: Annotated[int | None, advanced("Number of networks trained without --net.")] = None
    batch_size: Annotated[
        int | None, advanced("Samples in a batch; shows whether only the noise of SGD still moves the network.")
    ] = None
    rate: Annotated[float | None, advanced("Learning rate; with --batch-size.")] = None
    steps: Annotated[int | None, advanced("Steps of the training; with --batch-size.")] = None
    momentum: Annotated[float, advanced("Momentum; with --batch-size.")] = 0.0


@dataclass(frozen=True)
class Question(options.Question):
    """The problem that the network was trained on; depth and activation are its own."""

    depth: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        int | None, advanced("Number of layers of weights. Default: those of the network, or 2.")
    ] = None
    decay: Annotated[
        Literal["all", "weights"], common("What weight decay acted on: all, or weights (as --bias free).")
    ] = "all"
    activation: Annotated[str, advanced("Activation of the network: relu, leaky:A with -1 < A < 1, or linear.")] = (
        "relu"
    )


@dataclass(frozen=True)
class Output(options.Output):
    """The directory of the run; --force also replaces the file of the better network."""

    force: Annotated[bool, advanced("Replace FILE of --escape, and an earlier run in DIR.")] = False


@options.flat(time_limit=60.0)
def validate_command(
    *,
    net: Net = None,
    escape: Better = None,
    question: Question,
    data: options.Data,
    training: Training,
    solving: options.Solving,
    function: Function = False,
    at: At = None,
    orbits: Orbits = None,
    output: Output,
) -> None:
    """Is a trained network at the minimum, and if not, what does it lack?

    Compare its cost with the solver's, examine its layers one by one, and look for a better network.
    """
    with interruptible("Interrupted before there was anything to say; nothing is written."):
        from covopt.data import arrays, networks
        from covopt.data.coding import SCALES
        from covopt.runtime import files
        from covopt.studies.audit import audit as study

        if escape is not None:
            networks.check_free(escape, output.force)
            for source in (net, at, orbits):
                if source is not None:
                    files.check_apart(escape, source)
        output.check(escape)
        check_device(solving.device)
        elsewhere, transformed = (None if file is None else arrays.read_matrix(file, "X") for file in (at, orbits))
        dataset = data.read(question.loss)
        with output.following(solving.time_limit) as callback:
            audit = study.validate(
                net,
                dataset,
                **vars(question),
                **vars(solving),
                **vars(training),
                callback=callback,
                function=function,
                at=elsewhere,
                orbits=transformed,
                scalings=lambda: {
                    other: replace(data, scale=other).read(question.loss).X for other in SCALES if other != data.scale
                },
            )
    audit.reference.describe_data(dataset)

    def store_escape() -> None:
        if escape is None:
            return
        written = audit.save_escape(escape, force=output.force)
        if not output.as_json:
            reached = audit.loss if audit.escape_cost is None else audit.escape_cost
            lower = percent((audit.loss - reached) / audit.loss if audit.loss > 0.0 else 0.0)
            better = f"{escape} holds the better network; its cost is {lower} lower."
            print(printable(better if written else "No better network is written: none found."))

    output.deliver(audit, "The audit", dataset, store_escape)
