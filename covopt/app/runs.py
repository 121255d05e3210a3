"""covopt show and covopt verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covopt.app import options
from covopt.app.common import check_force, print_pairs
from covopt.app.help import common

Page = Annotated[Path | None, common("Write the run's report, one HTML file.")]


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
    facts = {**vars(checked), "cost": record.known(checked.cost)}
    if as_json:
        print(record.as_json(facts))
    else:
        names = ", ".join(checked.unchecked)
        verdict = checked.message.removesuffix(f"; not checked: {names}.").rstrip(".")
        print_pairs(
            [("passed" if checked.passed else "failed", f"{verdict}."), ("not checked", names)][: 1 + bool(names)]
        )
    if not checked.passed:
        raise typer.Exit(1)
