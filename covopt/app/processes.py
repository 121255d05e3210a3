"""The processes that torchrun starts for one command; each has its own rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from covopt.app.common import check_device
from covopt.runtime.errors import ProcessError


@dataclass(frozen=True)
class Place:
    """The place of this process among those that solve together.

    Attributes:
        device: where it computes.
        share: its rank and the number of processes; None if it is alone.
    """

    device: str
    share: tuple[int, int] | None = None

    @property
    def tells(self) -> bool:
        """Return True if this process prints and stores the result."""
        return self.share is None or self.share[0] == 0


@contextmanager
def joined(device: str) -> Iterator[Place]:
    """Join the group of processes that torchrun started, in this block; without torchrun, stay alone.

    Raises:
        ProblemError: there is no such device here.
        ProcessError: there is no such group.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield Place(device)
        return
    from torch import distributed

    on_gpu = device.startswith("cuda")
    own = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if on_gpu else device
    check_device(own)
    if on_gpu:
        import torch

        torch.cuda.set_device(own)
    try:
        distributed.init_process_group("nccl" if on_gpu else "gloo")
    except (ValueError, RuntimeError) as error:
        raise ProcessError(
            "This process does not find the others that torchrun started; start all of them by one torchrun, or unset"
            " TORCHELASTIC_RUN_ID."
        ) from error
    try:
        yield Place(own, (distributed.get_rank(), distributed.get_world_size()))
    finally:
        distributed.destroy_process_group()
