"""covopt doctor."""

from __future__ import annotations

from covopt.commands import options
from covopt.commands.common import print_pairs


def doctor_command(as_json: options.Json = False) -> None:
    """Show what covopt runs on: versions, threads and which of them a solve uses, the GPU, and missing packages."""
    import json

    from covopt.io import provenance as origin
    from covopt.linalg import threads

    found = origin.examine() | {"solving": threads.chosen()}
    if as_json:
        print(json.dumps(found))
        return
    print_pairs([(name, "none" if value is None else str(value)) for name, value in found.items()])
