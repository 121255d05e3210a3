"""The command line, for `python -m covopt` and the script `covopt`; it answers Ctrl-C."""

from covopt.runtime.interrupts import ending, ignore

with ending():
    import atexit
    import os
    import sys
    import threading
    from contextlib import suppress

    from covopt.app.cli import main as command_line


def main() -> None:
    """Run the command line, for the script `covopt`."""
    try:
        command_line()
    except SystemExit as end:
        if isinstance(end.code, int):
            _leave(end.code)
        raise
    finally:
        ignore()


def _leave(code: int) -> None:
    """End the process as Python does, without the second that freeing torch takes.

    Threads that Python waits for, such as those of a sweep's processes, are left to Python's own end. It must not meet
    the thread of an abandoned solver (`leavable`), which it would stop within C++: that aborts the process.
    """
    ignore()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, full or None: what had to be said was said
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
