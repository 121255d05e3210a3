"""covopt solve."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from covopt.answer.progress import telling_needs
from covopt.app import options
from covopt.app.common import check_device, interruptible
from covopt.app.help import advanced
from covopt.runtime.errors import ProcessError, RecordError
from covopt.runtime.loop import Certificate, Status


@dataclass(frozen=True)
class Place:
    """The device of this process, and its rank and the number of processes that solve together; None if it is alone."""

    device: str
    share: tuple[int, int] | None = None

    @property
    def tells(self) -> bool:
        """Return True if this process prints and stores the result."""
        return self.share is None or self.share[0] == 0


@contextmanager
def joined(device: str) -> Iterator[Place]:
    """Join the group of processes that torchrun started, in this block; without torchrun, stay alone."""
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


How = Annotated[
    options.Method,
    advanced(
        "cone: Frank-Wolfe over covariances for two layers, beyond that descent from many starts and"
        " Frank-Wolfe layer by layer; hidden: descent on representations; train: ordinary training."
    ),
]


@dataclass(frozen=True)
class Searching:
    """Options of the methods, with the keywords of `covopt.solve`."""

    width: Annotated[int | None, advanced("Width of every hidden layer, for hidden and train.")] = None
    max_width: Annotated[int | None, advanced("Largest width of a hidden layer, for cone at depth >= 3.")] = None
    starts: Annotated[int | None, advanced("Number of random starts.")] = None
    tol: Annotated[
        float | None,
        advanced("End cone once rounds gain less than this part of the cost; default: when they gain nothing."),
    ] = None


@dataclass(frozen=True)
class Keeping:
    """Options of checkpoints and memory, with the keywords of `covopt.solve`."""

    checkpoint: Annotated[
        float | None,
        advanced(
            "Store the state of the search in DIR.checkpoint.npz, beside DIR of --out, at this interval.", "SECONDS"
        ),
    ] = None
    resume: Annotated[bool, advanced("Continue from the state that --checkpoint stored.")] = False
    memory_limit: Annotated[
        float | None,
        advanced("Memory of each process in GB; the solve omits steps that need more, or is refused.", "GB"),
    ] = None

    def keywords(self, output: options.Output, tells: bool) -> dict[str, Any]:
        """Return the keywords of `covopt.solve`; --force deletes an earlier state."""
        from covopt.solvers.checkpoint import is_state

        if self.checkpoint is None and not self.resume:
            return {"memory_limit": self.memory_limit}
        if output.out is None:
            raise RecordError(
                "The state of a solve is stored beside its run; give --out DIR with --checkpoint or --resume."
            )
        path = output.out.with_name(f"{output.out.name}.checkpoint.npz")
        if output.force and tells and not self.resume and is_state(path):
            path.unlink()
        every = {} if self.checkpoint is None else {"checkpoint_every": self.checkpoint}
        return {**vars(self), "checkpoint": path, **every}


@options.flat()
def solve_command(
    *,
    question: options.Question,
    data: options.Data,
    test: options.Test = None,
    skip: options.Skip = False,
    method: How = options.Method.CONE,
    solving: options.Solving,
    init: options.Init = None,
    searching: Searching,
    keeping: Keeping,
    only_plan: Annotated[
        bool, advanced("Print the stages of the solve, their time and memory; solve nothing.", name="--plan")
    ] = False,
    output: options.Output,
) -> None:
    """Find the minimum over networks of depth L: the best network, and a proved lower bound.

    With --lam this is the minimum of the loss with weight decay; without it, the smallest squared norm of the weights
    of a network that fits exactly. Processes that torchrun starts share the rows.
    """
    with interruptible(), joined(solving.device) as place:
        from covopt.answer import held_out, plan as planning, solve as answer, stored
        from covopt.records import record

        if not only_plan:
            output.check()
        state = keeping.keywords(output, place.tells and not only_plan)
        check_device(place.device)
        began = time.perf_counter()
        dataset = data.read(question.loss, place.share)
        tested = held_out.tested(test, dataset, lambda: data.read(question.loss, complement=True))
        start = None if init is None else stored.load(init)
        reading = time.perf_counter() - began
        with (
            output.following(solving.time_limit if place.tells else None) as callback,
            telling_needs(callback is not None),
        ):
            result = (answer.plan if only_plan else answer.solve)(
                dataset,
                **vars(question),
                skip=skip,
                **{**vars(solving), "device": place.device},
                method=method.value,
                init=start,
                **vars(searching),
                callback=callback,
                spread=place.share is not None,
                **state,
            )
        if isinstance(result, planning.SolvePlan):
            text = record.as_json(result.summary()) if output.as_json else str(result)  # all processes take part
            if place.tells:
                print(text)
            return
    if not place.tells:
        return
    if place.share is not None and output.out is not None:  # `verify` proves stored results from all their data
        dataset = data.read(question.loss)
        result = answer.on_all_rows(result, dataset.X, dataset.Y)
    result.describe_data(dataset)
    if tested is not None:
        result.test = held_out.score(result, tested)
    result.timing = {"reading": reading, **result.timing}
    if result.certificate is Certificate.EXACT and result.status is not Status.INTERRUPTED:
        result.decided = result.unique
    output.deliver(result, "The run", dataset)
