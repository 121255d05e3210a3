"""A helper of `cores`: a process that works on pieces for its parent, and the messages between them.

Messages are pickles that pass through standard input and output. The helper ends when its input does, even in the
middle of a piece, so no parent has to end it. It ignores Ctrl-C, which a terminal sends to both: the parent answers it.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

HERE = __file__  # tells this covopt from one that is installed elsewhere


class Outcome(NamedTuple):
    """The value of a function at a piece, or the exception that it raised."""

    value: object
    error: Exception | None = None


class _Pickler(pickle.Pickler):
    """A pickler of tensors as arrays: PyTorch's own sends whole storages and takes 1 ms each."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor) and obj.device.type == "cpu":
            return torch.from_numpy, (obj.detach().numpy(),)
        return NotImplemented


def dumped(message: object) -> memoryview:
    """Return the pickled message; raise what pickle raises."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(message)
    return buffer.getbuffer()


def send(stream: BinaryIO, message: memoryview) -> None:
    """Write one message."""
    stream.write(message)
    stream.flush()


def attempt(function: Callable, piece: object) -> Outcome:
    """Return the outcome of `function` at a piece: its value, or the exception that it raised."""
    try:
        return Outcome(function(piece))
    except Exception as error:
        return Outcome(None, error)


def serve() -> None:
    """Run a helper process: send the path of this file, then one outcome for each function and piece."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a function prints must not mix with the answers
    requests: SimpleQueue = SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    send(answers, dumped(HERE))
    while True:
        send(answers, dumped(attempt(*requests.get())))


def _listen(requests: SimpleQueue) -> None:
    try:
        while True:
            requests.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)
