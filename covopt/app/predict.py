"""covopt predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covopt.app import options
from covopt.app.common import deliver, interruptible
from covopt.app.help import common
from covopt.runtime.errors import counted, printable

Source = Annotated[
    str,
    typer.Argument(metavar="DATA", help="Inputs: a file as for solve, without --target, or the name of a data set."),
]
Out = Annotated[Path, common("The predictions, a .csv or .npz file.")]
DataDir = Annotated[Path | None, common("Directory with the mnist files.", "DIR")]


def predict_command(
    run: options.Run, data: Source, out: Out, force: options.Force = False, data_dir: DataDir = None
) -> None:
    """Apply the network of a stored solve to new inputs, scaled as its own data were."""
    with interruptible():
        from covopt.answer import held_out, stored
        from covopt.runtime import files

        suffix = held_out.format_of(out)
        files.check_free(out, force, held_out.is_predictions)
        if Path(data).is_file():
            files.check_apart(out, Path(data))
        result = stored.load(run)
        predictions = held_out.predictions(result, held_out.further(result, data, targets=False, data_dir=data_dir).X)

    def write() -> None:
        files.write_file(out, lambda draft: predictions.write(draft, suffix), force, held_out.is_predictions)
        print(printable(f"The predictions for {counted(len(predictions.outputs), 'row')} are in {out}."))

    deliver(lambda: None, write)
