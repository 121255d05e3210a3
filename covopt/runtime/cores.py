"""Independent pieces of work on several cores: this process and helpers, one core each.

PyTorch's threads share one operation; for batches of small matrices they gain nothing, and on a busy machine they cost
much, because they spin while they wait. Python's threads wait for its lock between small operations: two were 1.18
times as fast as one. So the helpers are processes.

Each helper is a new Python process: PyTorch's threads do not survive a fork, and `multiprocessing` would run a user's
script again if it has no guard. Loading PyTorch takes seconds, so helpers start only after pieces have taken a while,
and get pieces only once they are ready. If they cannot start, or end, this process does all the work. The results are
the same, because the caller alone decides what the pieces are.

Messages are pickles that pass through a helper's standard input and output. It ends when its input does, even in the
middle of a piece, so no parent has to end it. It ignores Ctrl-C, which a terminal sends to both: the parent answers it.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from covopt.runtime.interrupts import interrupted
from covopt.runtime.threads import usable

Piece = TypeVar("Piece")
Done = TypeVar("Done")

WORTH_HELP = 2.0  # seconds of work on pieces before helpers are started
STARTING = "import sys; sys.path[:] = eval(sys.argv[1]); from covopt.runtime.cores import serve; serve()"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
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


class _Gone(Exception):
    """A helper has ended, or was ended."""


class _Helper:
    """One helper process."""

    def __init__(self) -> None:
        environment = os.environ | dict.fromkeys(THREADS, "1")
        path = [entry for entry in sys.path if isinstance(entry, str)]  # imports skip other entries too
        command = [sys.executable, "-c", STARTING, repr(path)]
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment)
        self.ready = False

    def greet(self) -> None:
        """Wait until the process is ready; it never is if it loaded covopt from elsewhere."""
        with suppress(_Gone):
            self.ready = self._receive() == HERE

    def ask(self, function: Callable, piece: object) -> Outcome:
        """Send a function and a piece to the process, and return its outcome."""
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, dumped((function, piece)))  # type: ignore[arg-type]
        except Exception as error:  # pickle raises many kinds
            self.ready = False
            raise _Gone from error
        return cast(Outcome, self._receive())

    def _receive(self) -> object:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except Exception as error:  # half a message can raise anything
            self.ready = False
            raise _Gone from error

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close its pipes once they are no longer read."""
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


class _Job(Generic[Piece, Done]):
    """A function and its pieces; each process that is free takes the next one."""

    def __init__(self, function: Callable[[Piece], Done], pieces: Sequence[Piece]) -> None:
        self._function, self._pieces = function, pieces
        self._outcomes: list[Outcome] = [Outcome(None)] * len(pieces)
        self.pending = deque(range(len(pieces)))

    def work(self, ask: Callable[[Callable, object], Outcome] = attempt) -> None:
        """Work on pieces until none is pending; a piece that a helper lost is pending again."""
        with suppress(IndexError):
            while True:
                place = self.pending.popleft()
                try:
                    self._outcomes[place] = ask(self._function, self._pieces[place])
                except _Gone:
                    self.pending.append(place)
                    return

    def results(self) -> list[Done]:
        """Return the values of the function in the order of the pieces; raise its first exception."""
        for outcome in self._outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [cast(Done, outcome.value) for outcome in self._outcomes]


class Crew:
    """The helpers of a thread, started when there is enough to do."""

    def __init__(self) -> None:
        self._helpers: list[_Helper] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._worked = 0.0

    def map(self, function: Callable[[Piece], Done], pieces: Iterable[Piece], cores: int) -> list[Done]:
        """Return `function` of each piece, as `Cores.map` does."""
        job, started = _Job(function, list(pieces)), time.perf_counter()
        under_way: list[Future[None]] = []
        if cores > 1 and len(job.pending) > 1:
            if self._helpers is None and self._worked > WORTH_HELP:
                self._start(cores - 1)
            for helper in self._helpers or ():
                under_way += self._handed(job.work, helper.ask) if helper.ready else []
        try:
            while job.pending or under_way:
                job.work()
                done, still = wait(under_way, timeout=0.05)  # seconds between two checks for Ctrl-C
                under_way = list(still)
                for future in done:
                    future.result()
                if interrupted() and under_way:  # helpers ignore Ctrl-C
                    self._end()
        finally:
            job.pending.clear()
        self._worked += time.perf_counter() - started
        return job.results()

    def _start(self, count: int) -> None:
        self._helpers = []
        with suppress(OSError, TypeError, RuntimeError, NotImplementedError):  # none can be started here
            for _ in range(count):
                self._helpers.append(_Helper())
        self._pool = ThreadPoolExecutor(max(1, count), "covopt")
        for helper in self._helpers:
            self._handed(helper.greet)

    def _handed(self, work: Callable[..., None], *arguments: object) -> list[Future[None]]:
        """Submit the work to the pool and return its future; none while Python shuts down."""
        assert self._pool is not None
        try:
            return [self._pool.submit(work, *arguments)]
        except RuntimeError:
            return []

    def _end(self) -> None:
        for helper in self._helpers or ():
            helper.end()

    def dismiss(self) -> None:
        """End all helpers."""
        self._end()
        if self._pool is not None:
            self._pool.shutdown()
        for helper in self._helpers or ():
            helper.close()
        self._helpers = self._pool = None


class _Local(threading.local):
    crew: Crew | None = None


_local = _Local()


@contextmanager
def crew() -> Iterator[Crew]:
    """Provide helper processes that stay until the end of this block, or of the outermost one."""
    if _local.crew is not None:
        yield _local.crew
        return
    _local.crew = Crew()
    try:
        yield _local.crew
    finally:
        hired, _local.crew = _local.crew, None
        if hired is not None:
            hired.dismiss()


def _forget() -> None:
    """Drop the crew in the child of a fork: it has no copy of the threads that ask the helpers."""
    _local.crew = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@dataclass(frozen=True)
class Cores:
    """The cores of a computation, which work on at most `count` pieces at the same time."""

    count: int = 1
    _crew: Crew | None = None

    def map(self, function: Callable[[Piece], Done], pieces: Iterable[Piece]) -> list[Done]:
        """Return `function` of each piece, in their order; raise what it raises.

        pickle must accept both, and the function must have no side effects.
        """
        return list(map(function, pieces)) if self._crew is None else self._crew.map(function, pieces, self.count)


@contextmanager
def cores(device: torch.device) -> Iterator[Cores]:
    """Provide as many cores as PyTorch has threads, 8 at most; PyTorch has one thread meanwhile.

    `torch.set_num_threads` or OMP_NUM_THREADS set that number. Work on another device gets one core, and PyTorch keeps
    its threads.
    """
    count, before = usable(), torch.get_num_threads()
    if count == 1 or device.type != "cpu":
        yield Cores()
        return
    torch.set_num_threads(1)
    try:
        with crew() as helpers:
            yield Cores(min(count, 8), helpers)
    finally:
        torch.set_num_threads(before)
