"""Checks that the runs of a study solve the same problem on the same data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from covopt.answer.stored import load
from covopt.model.problem import Problem


def difference(one: Problem, other: Problem, varying: Collection[str] = ()) -> str | None:
    """Name the first difference of two problems, or None if they are the same.

    Args:
        one, other: the problems.
        varying: names of what may differ: lam along a path, depth in a study of depths.
    """
    data = {"X": (one.X, other.X), "Y": (one.Y, other.Y), "sample weights": (one.shares, other.shares)}
    same = {name: torch.equal(*(part.cpu().double() for part in pair)) for name, pair in data.items()}
    stated = other.stated()
    same |= {name: option == stated[name] for name, option in one.stated().items()}
    return next((name for name in same if not same[name] and name not in varying), None)


def others(questions: Mapping[str, Problem], varying: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence for each problem, by its name, that differs from the first one."""
    names = list(questions)
    for name in names[1:]:
        if (differing := difference(questions[names[0]], questions[name], varying)) is not None:
            yield f"The run {name} in it solves another problem than {names[0]}: they differ in {differing}."


def asked(directory: Path, names: Sequence[str]) -> dict[str, Problem]:
    """Return the problems of the stored solves in a study, by their directories."""
    return {name: load(directory / name).problem for name in names}


def crossed(costs: Mapping[str, float], bounds: Mapping[str, float | None], rounding: float) -> Iterator[str]:
    """Yield a sentence if a lower bound of one problem is above the cost of its network."""
    for by, lower in bounds.items():
        for name, cost in costs.items():
            if lower is not None and lower > cost * (1.0 + rounding):
                yield f"The bound {lower:.12g} of {by} is above {cost:.12g}, which {name} costs."
