"""Modules of the forms in tests/module_forms.py: `validate` takes those that compute what their weights tell."""

import warnings
from collections.abc import Callable

import torch
from module_forms import OTHERS, PLAIN, X
from torch import nn

from covopt.data.networks import as_network
from covopt.runtime.errors import CovoptError
from tests.benchmarks.harness import Outcome, Settings, benchmark


@benchmark("modules", "modules given to validate: only plain networks are taken as such (10 s)")
def run_modules(settings: Settings) -> Outcome:
    """Give each form to what `validate` reads networks with."""
    rows = [("the plain network", name, *_verdict(PLAIN[name])) for name in PLAIN]
    rows += [("another function", name, *_verdict(OTHERS[name])) for name in OTHERS]
    taken = [row for row in rows if row[0] == "another function" and row[2] != "refused"]
    lost = [row for row in rows if row[0] == "the plain network" and row[2] != "accepted"]
    return Outcome(
        target="of at least 40 forms that compute another function than the plain network 0 accepted, of at least 10"
        " that compute it 0 refused",
        reached=f"{len(taken)} of {len(OTHERS)} accepted, {len(lost)} of {len(PLAIN)} refused"
        + "".join(f"; {row[2]}: {row[1]}" for row in [*taken, *lost][:5]),
        met=not taken and not lost and len(OTHERS) >= 40 and len(PLAIN) >= 10,
        columns=("computes", "form", "verdict", "why"),
        rows=list(rows),
    )


def _verdict(make: Callable[[], nn.Module]) -> tuple[str, str | None]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = make()
        try:
            as_network(net, 1.0, torch.from_numpy(X))
        except CovoptError as error:
            return "refused", str(error)
    return "accepted", None
