"""covopt show, verify, predict and forces: the commands on a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covopt.app import options
from covopt.app.common import check_force, deliver, interruptible, print_pairs
from covopt.app.help import common
from covopt.runtime.errors import DataError, counted, printable

Page = Annotated[Path | None, common("Write the run's report, one HTML file.")]
Source = Annotated[
    str,
    typer.Argument(metavar="DATA", help="Inputs: a file as for solve, without --target, or the name of a data set."),
]
Out = Annotated[Path, common("The predictions, a .csv or .npz file.")]
DataDir = Annotated[Path | None, common("Directory with the mnist files.", "DIR")]


def show_command(
    run: options.Run, report: Page = None, force: options.Force = False, as_json: options.Json = False
) -> None:
    """Print the summary of a stored run, or write its report again."""
    from covopt.records import record
    from covopt.studies import runs

    check_force(force, report)
    kind, summary = runs.find(run)
    if report is not None:
        runs.write_report(run, report, force=force)
    if as_json:
        print(record.as_json(summary))
        return
    print_pairs(runs.pairs_of(kind, summary))
    if report is not None:
        print(f"The report is {report}.")


def verify_command(run: options.Run, as_json: options.Json = False) -> None:
    """Check a stored run from its files alone: its network's cost, its bound, and its other statements.

    The exit code is 0 if the files prove the run, 1 if they do not. The answer names what is not checked.
    """
    from covopt.records import record
    from covopt.studies import runs

    checked = runs.verify(run)
    if as_json:
        print(record.as_json({**vars(checked), "cost": record.known(checked.cost)}))
    else:
        names = ", ".join(checked.unchecked)
        verdict = checked.message.removesuffix(f"; not checked: {names}.").rstrip(".")
        pairs = [("passed" if checked.passed else "failed", f"{verdict}.")]
        print_pairs([*pairs, ("not checked", names)] if names else pairs)
    if not checked.passed:
        raise typer.Exit(1)


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


def forces_command(
    run: options.Run,
    out: Annotated[Path, common("The picture, a .png file.")] = Path("forces.png"),
    layer: Annotated[int, common("Hidden layer, from 1.")] = 1,
    tikhonov: Annotated[
        float | None,
        common(
            "Use (Ks + t I)^-1 in place of the pseudo-inverse of Ks; 0: the pseudo-inverse. Default: 0, or 1e-4"
            " of the largest eigenvalue if a nonzero singular value is below 1e-3 of the largest."
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Draw samples and neurons of a hidden layer of a stored run, with the forces on them."""
    from covopt.answer import drawing as figures, stored
    from covopt.answer.forces import draw_forces
    from covopt.runtime import files

    if out.suffix.lower() != ".png":
        raise DataError(f"{out} is no .png file; choose a name that ends in .png.")
    files.check_free(out, force, figures.is_picture)
    picture = stored.load(run).forces_picture(layer, tikhonov)

    def draw() -> None:
        files.write_file(out, lambda draft: draw_forces(picture, draft), force, figures.is_picture)
        print(printable(f"The picture is {out}."))

    deliver(lambda: print(f"{printable(picture.title)}."), draw)
