"""Processes that torchrun starts for one command, each with rows of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """This process among those that solve together.

    Attributes:
        device: where it computes.
        share: its place and the number of processes; None where it is alone.
    """

    device: str
    share: tuple[int, int] | None = None

    @property
    def tells(self) -> bool:
        """Whether this process prints and stores the answer."""
        return self.share is None or self.share[0] == 0


@contextmanager
def joined(device: str) -> Iterator[Place]:
    """Within this block, the group of processes that torchrun started this one in; elsewhere alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield Place(device)
        return
    from torch import distributed

    on_gpu = device.startswith("cuda")
    own = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else device
    if on_gpu:
        import torch

        torch.cuda.set_device(own)
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield Place(own, (distributed.get_rank(), distributed.get_world_size()))
    finally:
        distributed.destroy_process_group()
