"""A GPU that is none: tensors on the processor that say they are on "cuda", and do not mix with others.

On a machine without a GPU it finds what CUDA would refuse: an operation on tensors of two devices, a random draw by a
generator of another device, an array made of a tensor that is not on the processor, and drivers that only LAPACK has.
It says nothing about speed and rounding. It found the three errors that an H100 had found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from covopt.solvers.training.recorded import Recorded

FREE = {Tensor.to, Tensor.copy_, Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_}
"""May take tensors of both devices, the last three as indices."""
ARRAYS = {Tensor.numpy, Tensor.__array__}
GENERATOR = torch.Generator
"""The class, which `Generator` replaces."""
_there = set[torch.Generator]()


class _Making(type):
    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        made = GENERATOR()
        if torch.device(device).type == "cuda":
            _there.add(made)
        return made

    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, GENERATOR)


class Generator(metaclass=_Making):
    """Makes generators of torch, and remembers which ones are to be on that GPU."""


class OnGPU(Tensor):
    """A tensor on that GPU."""

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return called(func, args, kwargs or {})


class Everywhere(TorchFunctionMode):
    """Sees the functions that take no tensor, too."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return called(func, args, kwargs or {})


@contextmanager
def fake_gpu() -> Iterator[None]:
    """There is one CUDA device, which is the processor."""
    answers = {"is_available": True, "device_count": 1, "mem_get_info": (2**34, 2**34), "memory_allocated": 0}
    answers |= {"get_device_name": "none", "synchronize": None}
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, answer=answer: answer))
        stack.enter_context(mock.patch.object(torch, "Generator", Generator))
        stack.enter_context(mock.patch.object(Recorded, "_record", return_value=None))
        stack.enter_context(Everywhere())
        yield
    _there.clear()


def called(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Call a function of torch; refuse what CUDA refuses."""
    with torch._C.DisableTorchFunction():
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        is_there = any(isinstance(each, OnGPU) for each in tensors)
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return torch.device("cuda", 0) if is_there else torch.device("cpu")
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return is_there
        if func is torch.device:
            return func(*args, **kwargs)
        if func in ARRAYS and is_there:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        args, kwargs, goes_there = placed(func, args, kwargs, is_there)
        refuse(func, tensors, kwargs, goes_there)
        result = func(*args, **kwargs)
        return tree_map(lambda each: marked(each, goes_there) if isinstance(each, Tensor) else each, result)


def placed(func: Callable, args: tuple, kwargs: dict, is_there: bool) -> tuple[tuple, dict, bool]:
    """Return arguments that do not name that GPU, and whether the result is on it."""
    if func in (Tensor.cpu, Tensor.cuda):
        return (args[0].clone(),), {}, func is Tensor.cuda
    if func is Tensor.to and len(args) > 1 and isinstance(args[1], Tensor):
        return (args[0], args[1].dtype, *args[2:]), kwargs, isinstance(args[1], OnGPU)
    every = (*args, *kwargs.values())
    named = [each for each in every if isinstance(each, torch.device)]
    if func is Tensor.to or "device" in kwargs:
        named += [torch.device(each) for each in every if isinstance(each, str)]
    if named:
        is_there = named[0].type == "cuda" or kwargs.get("generator") in _there  # whose device is said to be the CPU
    return tuple(map(without_gpu, args)), {name: without_gpu(each) for name, each in kwargs.items()}, is_there


def without_gpu(value: Any) -> Any:
    """Return the processor in place of that GPU."""
    is_gpu = value == "cuda" if isinstance(value, str) else isinstance(value, torch.device)
    return torch.device("cpu") if is_gpu else value


def refuse(func: Callable, tensors: list[Tensor], kwargs: dict, goes_there: bool) -> None:
    """Raise what CUDA raises."""
    if func not in FREE and len({isinstance(each, OnGPU) for each in tensors if each.ndim > 0}) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, in {func.__name__}")
    if kwargs.get("generator") is not None and (kwargs["generator"] in _there) != goes_there:
        raise RuntimeError("Expected a generator of the same device")
    if goes_there and kwargs.get("driver") not in (None, "gels"):
        raise RuntimeError("`driver` other than `gels` is not supported on CUDA")


def marked(tensor: Tensor, is_there: bool) -> Tensor:
    """Return the tensor, on that GPU or on the processor."""
    return tensor if isinstance(tensor, OnGPU) == is_there else tensor.as_subclass(OnGPU if is_there else Tensor)
