"""covopt show and covopt verify: what a stored run says, and whether it is true."""

from __future__ import annotations

import typer

from covopt.commands import options
from covopt.commands.common import print_summary


def show_command(run: options.Run, as_json: options.Json = False) -> None:
    """Print the summary of a stored run."""
    from covopt import record

    print_summary(record.read_summary(run), as_json)


def verify_command(run: options.Run, as_json: options.Json = False) -> None:
    """Check a stored run from its files alone: its network's cost, and that its certificate proves its bound.

    Exit code 0 where they do, 1 where they do not.
    """
    from covopt import answer, record

    checked = answer.verify(run)
    facts = {"passed": checked.passed, "message": checked.message, "cost": checked.cost, "lower": checked.lower}
    print(record.as_json(facts) if as_json else checked.message)
    if not checked.passed:
        raise typer.Exit(1)
