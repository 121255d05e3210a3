"""Rows spread over processes: every sum over samples of a solve of two layers.

Each process of a `torch.distributed` group holds rows of its own, and all of them run the same solve. What has a row
for each sample (features, outputs, dual points, multipliers) stays with its rows. What the solve decides by is a sum
over samples or a largest value, or follows from these, and `Together` makes each of them that of all rows: so all
processes take the same steps and end with the same network. `ALONE` is the process that holds all rows.

Descents amplify rounding: data that change by 1e-15 change the cost after three rounds by 3e-4 (digits, 200 rows). So
sums are taken over the same PARTS of the rows, in the same order, by 1, 2, 3 or 6 processes, and their answers agree to
the last bit where the libraries do; for other numbers of processes up to the search's own freedom.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from covopt.data.arrays import share_of
from covopt.runtime.errors import ProblemError, ProcessError, counted

PARTS = 6  # parts of the rows, summed one by one if the number of processes divides their number
CHUNK = 1024  # rows that are condensed at once

Answer = TypeVar("Answer")
Made = Callable[..., tuple[Tensor, ...]]  # makes rows of matrices from rows of others
Choice = Callable[[int, int], Int[Tensor, " k"]]  # chooses about k of n rows and returns their places


class Alone:
    """One process holds all rows."""

    processes: int = 1  # the number of processes that solve together
    place: int = 0  # the rank of this process among them, from 0

    @property
    def parts(self) -> int:
        """Return the number of parts, over all processes, whose sums are taken one by one."""
        return 1

    def samples(self, rows: int) -> int:
        """Return the number of rows of all processes, of which this one holds `rows`."""
        return rows

    def sums(self, part: Callable[..., tuple[Tensor, ...]], *rows: Tensor) -> tuple[Tensor, ...]:
        """Return `part`, tensors that are sums over rows (N, ...), for the rows of all processes."""
        return part(*rows)

    def sum(self, part: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """Return `sums` of one tensor."""
        return self.sums(lambda *chunks: (part(*chunks),), *rows)[0]

    def added(self, term: Tensor) -> Tensor:
        """Return the sum over processes of one tensor each, in the order of the library that adds."""
        return term

    def cheapest(self, cost: float, weights: list[Tensor]) -> list[Tensor]:
        """Return the matrices of the process with the smallest cost; each brings equally many."""
        return weights

    def shares(self, *rows: Tensor) -> list[tuple[Tensor, ...]]:
        """Return, of rows (N, ...), those of each part that this process holds."""
        return [rows]

    def averaged(self, points: Float[Tensor, "B P"]) -> Float[Tensor, "B P"]:
        """Return, row by row, the mean over the parts of all processes; each part has one entry."""
        return points

    def mapped(self, part: Callable[[Tensor], Tensor], rows: Float[Tensor, "N _"]) -> Float[Tensor, "N _"]:
        """Return `part` of the rows of this process, called with as many at once as by `sums`."""
        return part(rows)

    def norm(self, rows: Float[Tensor, "N _"]) -> float:
        """Return |A|_F of the rows of all processes."""
        return float(rows.norm())

    def largest(self, value: float) -> float:
        """Return the largest of a number over processes."""
        return value

    def stacked(self, rows: Float[Tensor, "k _"]) -> Float[Tensor, "N _"]:
        """Return the rows of all processes, in their order."""
        return rows

    def own(self, rows: Shaped[Tensor, "N _"], held: int) -> Shaped[Tensor, "k _"]:
        """Return, of the rows of all processes, the `held` ones of this one."""
        return rows

    def condensed(self, *blocks: Float[Tensor, "N _"], made: Made | None = None) -> tuple[Float[Tensor, "k _"], ...]:
        """Return matrices of few rows with the same products A^T B as these blocks, with a row for each sample.

        `made` is applied to their rows first, a chunk at a time.
        """
        return blocks if made is None else made(*blocks)

    def some(self, choose: Choice, held: int, count: int) -> tuple[Int[Tensor, " k"], Alone]:
        """Return places of about `count` of all samples here, and their spread; `held` are here."""
        return choose(held, count), self

    def in_parts(self, parts: int) -> Alone:
        """Return the same rows, whose sums are taken over this number of parts."""
        return self


ALONE = Alone()


@dataclass(frozen=True)
class Together(Alone):
    """Processes of the default group of `torch.distributed`, each with its own rows and as many parts.

    `cuts` holds the rows where the parts of all rows begin, and N.
    """

    cuts: tuple[int, ...]
    processes: int
    place: int

    @staticmethod
    def of(rows: int) -> Together:
        """Return the group, of which this process holds `rows`; raise a ProblemError if there is none."""
        if not (dist.is_available() and dist.is_initialized()):
            raise ProblemError(
                "There is no group of processes to spread the rows over; call torch.distributed.init_process_group"
                " first, or leave spread out."
            )
        size, rank = dist.get_world_size(), dist.get_rank()
        counts = torch.zeros(size, dtype=torch.float64, device=_device())
        counts[rank] = rows
        _collective(lambda: dist.all_reduce(counts))
        return Together(tuple(int(count) for count in [0, *counts.cumsum(0)]), size, rank).in_parts(PARTS)

    def in_parts(self, parts: int) -> Together:
        """Return the same rows with sums over this number of parts, if all processes hold equally many."""
        even = share_of(self.cuts[-1], self.processes)
        if self.cuts[:: len(self._mine())] != even or parts % self.processes or parts > self.cuts[-1]:
            return self
        return replace(self, cuts=share_of(self.cuts[-1], parts))

    @property
    def parts(self) -> int:
        return len(self.cuts) - 1

    def samples(self, rows: int) -> int:
        return self.cuts[-1]

    def sums(self, part: Callable[..., tuple[Tensor, ...]], *rows: Tensor) -> tuple[Tensor, ...]:
        results = [part(*chunks) for chunks in self.shares(*rows)]
        flat = torch.stack([torch.cat([tensor.flatten() for tensor in tensors]) for tensors in results])
        pieces = self._total(flat).split([tensor.numel() for tensor in results[0]])
        return tuple(piece.view(A.shape).to(A.dtype) for piece, A in zip(pieces, results[0], strict=True))

    def added(self, term: Tensor) -> Tensor:
        total = term.clone()
        _collective(lambda: dist.all_reduce(total))
        return total

    def cheapest(self, cost: float, weights: list[Tensor]) -> list[Tensor]:
        costs = torch.zeros(self.processes, dtype=torch.float64, device=_device())
        costs[self.place] = cost
        mine = int(self.added(costs).argmin()) == self.place
        sizes = torch.tensor([W.shape for W in weights], device=_device())
        shapes = [(rows, columns) for rows, columns in self.added(sizes if mine else torch.zeros_like(sizes)).tolist()]
        flat = torch.cat([W.flatten() for W in weights])
        every = flat if mine else flat.new_zeros(sum(rows * columns for rows, columns in shapes))
        pieces = self.added(every).split([rows * columns for rows, columns in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def shares(self, *rows: Tensor) -> list[tuple[Tensor, ...]]:
        first = self.cuts[self._mine().start]
        return [tuple(A[self.cuts[j] - first : self.cuts[j + 1] - first] for A in rows) for j in self._mine()]

    def averaged(self, points: Tensor) -> Tensor:
        return (self._total(points.clone()) / self.parts).expand_as(points).clone()

    def mapped(self, part: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        return torch.cat([part(chunk) for (chunk,) in self.shares(rows)])

    def norm(self, rows: Tensor) -> float:
        return math.sqrt(float(self.sum(lambda A: A.square().sum(), rows)))

    def largest(self, value: float) -> float:
        number = torch.tensor([value], dtype=torch.float64, device=_device())
        _collective(lambda: dist.all_reduce(number, op=dist.ReduceOp.MAX))
        return float(number)

    def stacked(self, rows: Tensor) -> Tensor:
        first = self.cuts[self._mine().start]
        every = rows.new_zeros(self.cuts[-1], *rows.shape[1:])
        every[first : first + len(rows)] = rows
        _collective(lambda: dist.all_reduce(every))
        return every

    def own(self, rows: Tensor, held: int) -> Tensor:
        first = self.cuts[self._mine().start]
        return rows[first : first + held]

    def condensed(self, *blocks: Tensor, made: Made | None = None) -> tuple[Tensor, ...]:
        """Return the triangular QR factor of the parts' own triangular factors, stacked."""
        made = made or (lambda *unchanged: unchanged)
        columns = [block.shape[1] for block in made(*(block[:1] for block in blocks))]
        width, factors = sum(columns), []
        for part in self.shares(*blocks):
            R = blocks[0].new_zeros(width, width)
            for chunk in zip(*(block.split(CHUNK) for block in part), strict=True):
                R = torch.linalg.qr(torch.cat([R, torch.cat(made(*chunk), dim=1)]), mode="r").R
            factors.append(R.contiguous())
        R = blocks[0].new_zeros(width, width)
        for part in range(self.parts):  # one by one, for the memory of one
            holder, place = divmod(part, len(factors))
            factor = factors[place] if holder == self.place else R.new_empty(width, width)
            if self.processes > 1:
                _collective(lambda factor=factor, holder=holder: dist.broadcast(factor, holder))
            R = torch.linalg.qr(torch.cat([R, factor]), mode="r").R
        return R.split(columns, dim=1)

    def some(self, choose: Choice, held: int, count: int) -> tuple[Tensor, Together]:
        """Choose about equally many samples of each part, the same in each process."""
        chosen = [choose(b - a, max(1, count // self.parts)) + a for a, b in pairwise(self.cuts)]
        cuts = [0]
        for places in chosen:
            cuts.append(cuts[-1] + len(places))
        mine = self._mine()
        places = torch.cat([chosen[j] for j in mine]) - self.cuts[mine.start]
        return places, replace(self, cuts=tuple(cuts))

    def _mine(self) -> range:
        """Return the parts of this process."""
        count = self.parts // self.processes
        return range(self.place * count, (self.place + 1) * count)

    def _total(self, terms: Float[Tensor, "j k"]) -> Float[Tensor, " k"]:
        """Return the sum over all parts, in an order that does not depend on the processes."""
        if self.processes == 1:
            return terms.sum(dim=0)
        if len(terms) == 1:
            _collective(lambda: dist.all_reduce(terms))
            return terms[0]
        every = [torch.empty_like(terms) for _ in range(self.processes)]
        _collective(lambda: dist.all_gather(every, terms))
        return torch.cat(every).sum(dim=0)


def rank_here() -> int:
    """Return the rank of this process in the default group; 0 where there is no group."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def check_alike(columns: tuple[int, ...], spread: Alone) -> None:
    """Raise a ProblemError unless all processes hold rows of the same columns."""
    for count in columns:
        most, least = spread.largest(count), -spread.largest(-count)
        if most != least:
            raise ProblemError(
                f"The rows of one process have {counted(int(least), 'column')} and those of another {int(most)}; give"
                " all processes rows of the same data."
            )


def _device() -> torch.device:
    """Return the device on which the group's operations take their tensors."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _collective(operation: Callable[[], Answer]) -> Answer:
    """Return the result of an operation of all processes; raise one sentence where another process has ended."""
    try:
        return operation()
    except (RuntimeError, ValueError) as error:
        raise ProcessError(
            "Another process of this solve has ended, and this one cannot continue without its rows; start all of them"
            " again."
        ) from error
