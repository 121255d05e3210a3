"""covopt doctor."""

from __future__ import annotations

from covopt.app import options
from covopt.app.common import print_pairs


def doctor_command(as_json: options.Json = False) -> None:
    """Show what covopt runs on: versions, threads and which of them a solve uses, memory, the GPU, missing packages."""
    import torch

    from covopt.records import provenance as origin, record
    from covopt.runtime import memory, threads

    available = memory.available(torch.device("cpu"))
    text = None if available is None else f"{available / 1e9:.1f} GB left"
    facts = origin.examine() | {"solving": threads.chosen(), "memory": text}
    if as_json:
        print(record.as_json(facts))
        return
    print_pairs([(name, "none" if value is None else str(value)) for name, value in facts.items()])
