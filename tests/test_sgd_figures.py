"""The figures of ranks under SGD with normalised networks, by their quick versions on few images."""

from pathlib import Path

import numpy as np
import pytest
import sgd_grid
import sgd_layers
import sgd_networks
from figure_design import Arrays, Asked, Design, Numbers

from covopt.runtime.loop import Budget


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sgd_networks, "SAMPLES", 128)
    monkeypatch.setattr(sgd_networks, "WIDTH", 8)


def quickly(design: Design, path: Path) -> tuple[Arrays, Numbers]:
    """The arrays and the numbers of the quick version, which has a picture and a table."""
    arrays = design.make(Asked(quick=True, budget=Budget(600.0))).arrays
    numbers = design.numbers(arrays)
    design.picture(arrays, numbers).savefig(path / "figure.png")
    assert all(len(row) == len(design.columns) for row in design.rows(numbers))
    assert design.claims(numbers)
    return arrays, numbers


def test_the_grid_varies_one_option_at_a_time(tmp_path: Path) -> None:
    """Of each row what is left of the start is the product over its steps, and nothing of a rank is lost so soon."""
    arrays, numbers = quickly(sgd_grid.DESIGN, tmp_path)
    batch, rate, lam = sgd_grid.BASE
    for name, axes in numbers.items():
        assert len(arrays[name]) == 10
        for option, rows in axes.items():
            assert [row[0] for row in rows] == list(sgd_grid.VARIED[option])
            for value, kept, rank, start, *right in rows:
                own = {"batch size": batch, "rate": rate, "lam": lam} | {option: value}
                steps = 128 // int(own["batch size"])
                rates = [own["rate"] * 0.2 ** ((t >= steps * 0.5) + (t >= steps * 0.75)) for t in range(steps)]
                assert kept == pytest.approx(np.prod([1.0 - 2.0 * mu * own["lam"] for mu in rates]), rel=1e-6)
                assert 0.8 * start <= rank <= (5 * 8 + 9) / 6
                assert all(0.0 <= share <= 1.0 for share in right)


def test_ranks_of_layers(tmp_path: Path) -> None:
    _, numbers = quickly(sgd_layers.DESIGN, tmp_path)
    for networks in numbers.values():
        assert [network["batch"] for network in networks] == list(sgd_layers.BATCHES)
        assert all(len(network["ranks"]) == 10 and max(network["ranks"]) <= 10 for network in networks)


def test_claims_follow_the_ranks() -> None:
    def seen(ranks: list[list[float]]) -> list[bool]:
        networks = [{"ranks": each} for each in ranks]
        return [claim.seen for claim in sgd_layers._claims({"residual": networks})]

    assert seen([[9.0, 5, 4, 2, 1, 9], [9.0, 8, 8, 8, 8, 9]]) == [True, True]
    assert seen([[9.0, 1, 2, 4, 8, 9], [9.0, 8, 8, 8, 8, 9]]) == [False, False]
