"""Adam on parts of the rows, which meet."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_spread import group
from torch import Tensor

from covopt.model.spread import ALONE, Together
from covopt.solvers.training.cycles import MEETING, LocalAdam
from covopt.solvers.training.descent import Adam, AdamOptions

STEPS = 2 * MEETING + 3
OPTIONS = AdamOptions(steps=STEPS, rate=0.1)
START = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
CENTRES = torch.tensor([[3.0, 0.0, 1.0], [0.0, 5.0, 1.0]], dtype=torch.float64)


def _towards(centres: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """|x - c|^2 and its gradient, in each row."""
    return (x - centres).square().sum(dim=1), 2.0 * (x - centres)


def test_alone_it_is_adam() -> None:
    ours = LocalAdam(lambda x: _towards(CENTRES[:1], x), START, OPTIONS, ALONE)
    adam = Adam(lambda x: _towards(CENTRES[:1], x), START[None], OPTIONS)
    for _ in range(STEPS):
        ours.iterate()
        adam.iterate()
        assert ours.met
    assert torch.equal(ours.x, adam.x)


@pytest.mark.parametrize("parts", [1, 2])
def test_parts_go_alone_between_meetings(tmp_path: Path, parts: int) -> None:
    """After each meeting all points and memories are the means of those that Adam makes of each part."""
    with group(0, 1, str(tmp_path / "meeting")):
        spread = replace(Together.of(4), cuts=(0, 4)).in_parts(parts)
        centres = CENTRES[:parts]
        ours = LocalAdam(lambda x: _towards(centres, x), START, OPTIONS, spread)
        alone = [Adam(lambda x, c=c: _towards(c[None], x), START[None], OPTIONS) for c in centres]
        for step in range(1, STEPS + 1):
            ours.iterate()
            for each in alone:
                each.iterate()
            if step in (MEETING, 2 * MEETING, STEPS):
                found = [each.memory() for each in alone]
                means = {name: sum(one[name] for one in found) / parts for name in ("x", "first", "second")}
                for each in alone:
                    each.recall({name: mean.clone() for name, mean in means.items()} | {"steps": found[0]["steps"]})
                assert ours.met
                assert all(torch.allclose(ours.memory()[name], mean, rtol=1e-14) for name, mean in means.items())
            assert ours.met == (parts == 1 or step in (MEETING, 2 * MEETING, STEPS))
            assert torch.allclose(ours.x, torch.cat([each.x for each in alone]), rtol=1e-14)


def test_goes_on_from_a_meeting(tmp_path: Path) -> None:
    with group(0, 1, str(tmp_path / "meeting")):
        spread = replace(Together.of(4), cuts=(0, 4)).in_parts(2)
        whole, again = (LocalAdam(lambda x: _towards(CENTRES, x), START, OPTIONS, spread) for _ in range(2))
        for _ in range(MEETING):
            whole.iterate()
        again.recall({name: each.clone() for name, each in whole.memory().items()})
        for _ in range(STEPS - MEETING):
            whole.iterate()
            again.iterate()
        assert torch.equal(whole.x, again.x)
