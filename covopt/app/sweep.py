"""covopt sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from covopt.app import options
from covopt.app.common import check_force, deliver, interruptible
from covopt.app.help import common
from covopt.runtime.errors import printable

if TYPE_CHECKING:
    from covopt.studies.sweep.store import Counts

File = Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file with options of solve; lists are varied.")]
Database = Annotated[Path | None, common("SQLite file of the results; default: SPEC's name with .sqlite.")]
Resume = Annotated[bool, common("Continue with an existing file; cells already in it are skipped.")]
Jobs = Annotated[int, common("Worker processes here; -1: all cores.")]
Scheduler = Annotated[str | None, common("Use the workers of a dask scheduler.", "ADDRESS")]
Csv = Annotated[Path | None, common("Write the table of results as CSV.")]
Parquet = Annotated[Path | None, common("Write the table of results as Parquet.")]
Force = Annotated[bool, common("Replace the files of --csv and --parquet.")]


def sweep_command(
    spec: File,
    database: Database = None,
    resume: Resume = False,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    csv: Csv = None,
    parquet: Parquet = None,
    force: Force = False,
    as_json: options.Json = False,
) -> None:
    """Solve every combination of the values in SPEC, and store each as soon as it is done.

    A stopped sweep continues with --resume, whatever stopped it. Several processes may share one sweep.
    """
    file = database or spec.with_suffix(".sqlite")
    with interruptible(f"Interrupted; continue with --resume: finished cells are stored in {file}."):
        from covopt.records import record
        from covopt.runtime import files
        from covopt.studies.sweep import sweep as study

        check_force(force, csv, parquet)
        if csv is not None:
            files.check_free(csv, force, study.is_csv)
        if parquet is not None:
            study.check_parquet()
            files.check_free(parquet, force, study.is_parquet)
        with _progress() as callback:
            answer = study.sweep(spec, file, resume=resume, jobs=jobs, scheduler=scheduler, callback=callback)

    def show_answer() -> None:
        if as_json:
            print(record.as_json({**vars(answer.counts), "database": str(file), "rows": answer.rows}))
            return
        counts = answer.counts
        print(f"{counts.cells} cells: {counts.cells - counts.refused - counts.failed} solved", end="")
        print(printable(f", {counts.refused} refused, {counts.failed} failed. The results are in {file}."))
        reasons = dict.fromkeys(str(row["error"]) for row in answer.rows if row["error"] is not None)
        for reason in list(reasons)[:5]:
            print(f"  {printable(reason)}")

    deliver(
        show_answer,
        lambda: None if csv is None else answer.to_csv(csv, force=force),
        lambda: None if parquet is None else answer.to_parquet(parquet, force=force),
    )


@contextmanager
def _progress() -> Iterator[Callable[[Counts], None] | None]:
    """Show on a terminal how many cells are done, and an estimate of the remaining time."""
    from rich import progress as shown

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield None
        return
    done = shown.BarColumn(), shown.MofNCompleteColumn(), shown.TextColumn("cells"), shown.TimeElapsedColumn()
    remaining = shown.TextColumn("left"), shown.TimeRemainingColumn()
    with shown.Progress(*done, *remaining, console=console, speed_estimate_period=600.0) as bar:
        task = bar.add_task("sweep", total=None)
        yield lambda counts: bar.update(task, completed=counts.finished, total=counts.cells)
