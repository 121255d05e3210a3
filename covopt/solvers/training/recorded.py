"""Steps on a GPU that are recorded once and replayed.

A step of training is dozens of small kernels. Python starts them one by one, which takes several times as long as the
GPU takes to run them. A CUDA graph starts them all at once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist


class Recorded:
    """A step that runs as it is at first, and is recorded after `before` calls, and replayed after that.

    A short training is not worth a recording. The step draws from the generators `draws`.
    """

    def __init__(self, draws: Sequence[torch.Generator], before: int = 20) -> None:
        self._draws, self._before = draws, before
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, step: Callable[[], None]) -> None:
        """Take the step, which works in place on the same tensors each time, and asks the GPU for no number."""
        if self._graph is not None:
            self._graph.replay()
            return
        step()
        self._before -= 1
        if self._before == 0:
            self._graph = self._record(step)

    def _record(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """Return the step as a graph, without running it.

        None if it asks for a number, as a user's loss may, and where processes solve together.
        """
        if dist.is_available() and dist.is_initialized():
            return None
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        states = [generator.get_state() for generator in self._draws]
        for generator in self._draws:
            graph.register_generator_state(generator)
        stream.wait_stream(torch.cuda.current_stream())
        collects = gc.isenabled()
        gc.disable()  # memory that is freed meanwhile would end the recording
        try:
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    step()
                finally:
                    graph.capture_end()
        except RuntimeError:
            graph = None
            # A generator of a recording that failed refuses to draw until its state is another one.
            for generator, state in zip(self._draws, states, strict=True):
                fresh = torch.Generator(device=generator.device)
                fresh.set_state(state)
                generator.graphsafe_set_state(fresh)
        finally:
            if collects:
                gc.enable()
        torch.cuda.current_stream().wait_stream(stream)
        return graph
