"""The search along a family, with a toy family whose networks are numbers; and how its time is divided."""

import math

import pytest

from covopt.runtime.loop import Budget, Progress, Status
from covopt.studies.continuation import Continuation


class Passing(Continuation[int, float]):
    """Keys whose cost can fall to that of a neighbour, one key a round."""

    least = -math.inf
    rounds = 0

    def round(self, budget: Budget) -> bool:
        self.rounds += 1
        for key, cost in self.best.items():
            for other in self.neighbours(key):
                if other is not None and self.best[other] < cost:
                    self.best[key] = self.best[other]
                    return True
        return False

    def is_optimal(self) -> bool:
        return max(self.best.values()) <= self.least


def test_rounds_go_on_until_nothing_gains() -> None:
    search = Passing(Budget(60.0), earlier={1: 4.0, 2: 3.0, 5: 1.0, 9: 2.0})
    assert search.improve(search.budget, patience=3) is Status.CONVERGED
    assert set(search.best.values()) == {1.0}
    assert search.rounds >= 3 + 3  # each of three keys gains at least once; then three rounds gain nothing


def test_rounds_end_with_the_time_or_a_proof() -> None:
    search = Passing(Budget(0.0), earlier={1: 4.0, 2: 3.0})
    assert search.improve(search.budget) is Status.TIME_LIMIT
    assert search.best == {1: 4.0, 2: 3.0}
    search.least = 3.0
    assert search.improve(Budget(60.0)) is Status.OPTIMAL
    assert search.status(Status.OPTIMAL) is Status.OPTIMAL
    search.best[2] = 5.0  # a later solve lost its proof
    assert search.status(Status.OPTIMAL) is Status.CONVERGED
    assert search.status(Status.TIME_LIMIT) is Status.TIME_LIMIT


def test_neighbours_are_the_next_keys_that_have_a_network() -> None:
    search = Passing(Budget(), earlier={9: 2.0, 1: 4.0, 5: 1.0})
    assert [search.neighbours(key) for key in (0, 1, 4, 5, 10)] == [(None, 1), (None, 5), (1, 5), (1, 9), (9, None)]


def test_a_network_is_new_once_for_each_taker_and_use() -> None:
    search, network, same = Passing(Budget()), [1.0], [1.0]
    assert search.is_new(network, 1, 2, "start")
    assert not search.is_new(network, 1, 2, "start")
    assert search.is_new(network, 1, 2, "offer")
    assert search.is_new(network, 2, 1, "start")
    assert search.is_new(same, 1, 2, "start")  # equal, but another network


def test_progress_has_the_clock_of_the_search() -> None:
    lines: list[Progress] = []
    Passing(Budget(), lines.append).report(Progress(0, 1e6, 1.0, None, 3))
    assert lines[0].cost == 1.0
    assert lines[0].seconds < 1e3


def test_each_turn_gets_an_equal_part_of_what_is_left() -> None:
    turns = Budget(1e6).part(0.5).turns("abcd")
    assert [next(turns)[1].remaining() for _ in range(4)] == pytest.approx([1.25e5, 5e5 / 3, 2.5e5, 5e5], rel=1e-4)


def test_many_turns_get_the_least_part_each_until_the_time_is_over() -> None:
    turns = Budget(1e6).turns(range(1_000_000), least=0.05)
    assert [next(turns)[1].remaining() for _ in range(3)] == pytest.approx([5e4] * 3, rel=1e-4)
    assert all(turn.spent() for _, turn in Budget(0.0).turns(range(3), least=0.05))
