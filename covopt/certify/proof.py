"""The base class of proofs: a subclass for each kind holds its arrays, its search and its check.

A new kind is one file with a class derived from `Proof`, its name in `loop.Certificate` and a line in `proofs.PROOFS`.
The fields of the class are its arrays: their names and annotations say what a file holds, and nothing else does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import NoneType
from typing import Any, ClassVar, get_args, get_type_hints

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.model.biases import Penalised
from covopt.model.loss import Interpolation
from covopt.model.problem import Problem
from covopt.oracles.oracle import Answer
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate, Stop

REFUTATION_SLACK = 0.1  # a direction refutes a dual point only if h exceeds 1 by more than this part of the gap


@dataclass(frozen=True)
class Target:
    """The bound that a solver asks for, and the time that the proof may take."""

    Lambda: Float[Tensor, "N m"] | None = None  # the solver's dual point; None where a proof needs the data alone
    cost: float = math.inf  # the cost of the best network
    gap: float = 0.0  # the relative gap that the bound should reach
    time_limit: float = math.inf  # seconds; a proof that ends early has a lower bound that is proved like any other
    starts: Float[Tensor, "S d"] | None = None  # the active neurons' directions (S, n_0 + 1)
    network: list[Tensor] | None = None  # the best network, of three layers and more
    refuted: float = math.inf  # the proof may end at a direction with a higher h: the network is not the best
    worth: float = 0.0  # end when as much time again would take less than this part off what the bound lacks; 0: never
    steps: int = 1  # the maximum number of steps of a proof that is continued
    meet: Callable[[list[Tensor]], float] = lambda _: math.inf  # gets a network met on the way; returns a known cost
    on_bound: Callable[[float, float], None] | None = None  # called with the elapsed seconds and the best bound
    stop: Stop = lambda: False  # proofs from the data alone end once it is True

    @property
    def point(self) -> Float[Tensor, "N m"]:
        """The dual point, for a kind of proof that needs one."""
        assert self.Lambda is not None
        return self.Lambda


@dataclass(frozen=True)
class Proved:
    """A proof, and the directions met on the way whose h exceeds 1 at the target's dual point."""

    proof: Proof
    violators: Answer | None = None


@dataclass(frozen=True)
class Proof(ABC):
    """A lower bound and the arrays that prove it; a subclass for each kind of proof.

    Fields besides `lower` are arrays (of torch or NumPy), numbers, or dataclasses of arrays, each None where a kind
    can do without it. Dimensions of arrays that a file may hold in any size are named `_`.
    """

    lower: float  # the bound, at least 0; exactly 0 where nothing is proved

    kind: ClassVar[Certificate]  # the name of this kind in files and reports
    biases: ClassVar[tuple[type, ...]] = (Penalised,)  # those that it can bound
    losses: ClassVar[tuple[type, ...]] = ()  # a subclass is another loss; without losses, `suits` decides
    depths: ClassVar[range] = range(0)  # those that it can bound
    # True if the kind alternates with a search, which continues from the violating directions
    alternates: ClassVar[bool] = False
    effort: ClassVar[int] = 0  # the order in which proofs from the data alone are tried
    missing: ClassVar[str] = "The certificate '{kind}' comes without its evidence; solve again."

    def settled(self, problem: Problem) -> Proof:
        """Return the proof to store, with a bound that its arrays prove when they are checked."""
        return self

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        """Return True if this kind can prove a bound of the problem."""
        loss_is_known = not cls.losses or type(problem.loss) in cls.losses
        is_known = problem.depth in cls.depths and isinstance(problem.biases, cls.biases) and loss_is_known
        return is_known and cls.suits(problem)

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True if rank, size and activation suit this kind; its depths, biases and losses are known to."""
        return True

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Search for a proof; `last` is what the same kind returned before, to continue from. None if there is none."""
        return None

    @classmethod
    def memory(cls, problem: Problem) -> float:
        """Return the bytes that `prove` needs at its peak."""
        return 0.0

    @abstractmethod
    def bound(self, problem: Problem) -> float:
        """Return the lower bound that the arrays prove, recomputed without a solver; 0 if they prove nothing.

        Raises:
            ProblemError: arrays are missing or do not fit the problem.
        """

    def proved(self, problem: Problem) -> Proved:
        """Return this proof with the bound that its arrays prove."""
        return Proved(replace(self, lower=self.bound(problem)))

    def holds(self, problem: Problem, lower: float, rounding: float) -> bool:
        """Return True if the arrays prove `lower`, and all else that the proof states, up to relative rounding."""
        return lower <= self.bound(problem) * (1.0 + rounding)

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays that a file stores besides the kind and `lower`."""
        return _arrays(self)

    @classmethod
    def read(cls, lower: float, arrays: Mapping[str, NDArray]) -> Proof:
        """Return the proof that a file holds; one that proves nothing where an array is missing.

        Raises:
            ValueError: an array is of another kind than its field: "a tree of another kind".
        """
        try:
            return cls(lower, **_values(cls, arrays))
        except KeyError:
            return Unproved(lower, cls.missing.format(kind=cls.kind))


@dataclass(frozen=True)
class DeepProof(Proof):
    """A bound from the data alone for networks of three layers and more: of exact fits, unless a kind knows others."""

    losses: ClassVar[tuple[type, ...]] = (Interpolation,)
    depths: ClassVar[range] = range(3, 1001)


@dataclass(frozen=True)
class Unproved(Proof):
    """A bound without a proof."""

    reason: str = ""  # why a file proves nothing; empty where nothing was to be proved

    kind: ClassVar[Certificate] = Certificate.NONE

    def bound(self, problem: Problem) -> float:
        """Return 0; raise a ProblemError if a file was to prove something and does not."""
        if self.reason:
            raise ProblemError(self.reason)
        return 0.0


def _arrays(owner: Any) -> dict[str, NDArray]:
    arrays: dict[str, NDArray] = {}
    for field in fields(owner):
        value = getattr(owner, field.name)
        if field.name == "lower" or value is None or isinstance(value, str):
            continue
        if is_dataclass(value):
            arrays |= _arrays(value)
        else:
            arrays[field.name] = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return arrays


def _values(owner: type, arrays: Mapping[str, NDArray]) -> dict[str, Any]:
    """Return the fields of a dataclass, read from arrays of the same names; KeyError where one is missing."""
    hints = get_type_hints(owner)
    return {
        field.name: _value(hints[field.name], field.name, arrays, field.metadata.get("finite", True))
        for field in fields(owner)
        if field.name != "lower"
    }


def _value(hint: Any, name: str, arrays: Mapping[str, NDArray], finite: bool) -> Any:
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return hint(**_values(hint, arrays))
    if NoneType in get_args(hint):
        if name not in arrays:
            return None
        hint = get_args(hint)[0]
    array = arrays[name]
    if hint is float:
        if array.size != 1 or array.dtype.kind not in "fiu":
            raise ValueError(f"no {name}")
        return float(array.item())
    # jaxtyping's annotations know their dtypes, whose first letter is NumPy's kind, and their dimensions.
    alike = array.dtype.kind == hint.dtypes[0][0] and array.ndim == len(hint.dims)
    if not alike or (finite and not np.isfinite(array).all()):
        raise ValueError(f"a {name} of another kind")
    return torch.from_numpy(array) if hint.array_type is Tensor else array
