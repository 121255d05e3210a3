"""Steps on a GPU that are recorded once and replayed.

A step of training is dozens of small kernels. Python starts them one by one, which takes several times as long as the
GPU takes to run them. A CUDA graph starts them all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class Recorded:
    """A step that runs as it is at first, and is recorded and replayed from then on.

    Args:
        step: works in place on the same tensors each time, and asks the GPU for no number.
        draws: the generators that it draws from.
        before: calls before it is recorded; a short training is not worth it.
    """

    def __init__(self, step: Callable[[], None], draws: Sequence[torch.Generator], before: int = 20) -> None:
        self._step, self._draws, self._before = step, draws, before
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Take the step."""
        if self._graph is not None:
            self._graph.replay()
            return
        self._step()
        self._before -= 1
        if self._before == 0:
            self._graph = self._record()

    def _record(self) -> torch.cuda.CUDAGraph | None:
        """Return the step as a graph, without running it; None if it asks for a number, as a user's loss may."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        for generator in self._draws:
            graph.register_generator_state(generator)
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self._step()
                finally:
                    graph.capture_end()
        except RuntimeError:
            graph = None
        torch.cuda.current_stream().wait_stream(stream)
        return graph
