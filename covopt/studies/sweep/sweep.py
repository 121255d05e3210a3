"""`sweep`: many solves or trainings on one machine or a cluster, each stored once done.

One process of each sweep distributes the cells and is the only one that writes (store.py); its workers only compute.
Several processes may work on one file: each claims the cells that it is about to solve. A killed process loses only its
cells in flight.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from covopt.records.record import table
from covopt.runtime.errors import ProblemError, RecordError, shown
from covopt.runtime.files import columns_of, write_file
from covopt.runtime.loop import Status
from covopt.runtime.options import checked
from covopt.studies.sweep.grid import SOLVE, TESTED, WORK, Grid, do_cell, make_grid, read_grid
from covopt.studies.sweep.store import LEASE, Counts, Options, Store, renewing

try:
    import pyarrow
    from pyarrow import parquet
except ImportError:  # the extra `parquet` is not installed; `Sweep.to_parquet` says so
    pyarrow, parquet = None, None


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep.

    Attributes:
        database: its file.
        counts: numbers of cells by their state.
        rows: options and result of each finished cell; unknown or unproved values are None.
        task: solve or ranks.
    """

    database: Path
    counts: Counts
    rows: list[Options]
    task: str = SOLVE

    @property
    def columns(self) -> list[str]:
        """The options in the order of the grid, then the results of the task."""
        results = WORK[self.task].results
        names = dict.fromkeys(name for row in self.rows for name in row if name not in results)
        return [*(n for n in names if n not in TESTED), *results, *(n for n in TESTED if n in names)]

    def to_csv(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the rows as .csv, whole or not at all; None becomes an empty field.

        Args:
            path: of the file.
            force: replace an earlier file.

        Raises:
            RecordError: the file exists, or cannot be written.
        """
        names = self.columns
        lines = table(lambda: [names, *([row.get(name) for name in names] for row in self.rows)])
        write_file(Path(path), lines, force, is_csv)

    def to_parquet(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the rows as .parquet, whole or not at all.

        Args:
            path: of the file.
            force: replace an earlier file.

        Raises:
            RecordError: as `to_csv`, or pyarrow is missing.
        """
        check_parquet()
        columns = {name: [row.get(name) for row in self.rows] for name in self.columns}

        def write(draft: Path) -> None:
            parquet.write_table(pyarrow.table(columns), draft)  # type: ignore[union-attr]

        write_file(Path(path), write, force, is_parquet)


@checked
def sweep(
    spec: str | os.PathLike[str] | dict[str, object],
    database: str | os.PathLike[str],
    *,
    resume: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    lease: float = LEASE,
    callback: Callable[[Counts], None] | None = None,
) -> Sweep:
    """Solve every cell of a grid that has no result yet.

    >>> table = covopt.sweep({"data": "iris", "lam": [0.1, 1.0], "time_limit": 1, "certify": "none"}, "sweep.sqlite")
    >>> table.counts
    Counts(cells=2, finished=2, refused=0, failed=0)
    >>> table.to_csv("sweep.csv")

    Args:
        spec: a TOML file, or the table in it: options of `covopt.solve` and `covopt.read_data`, each a value or a list;
            with task = "ranks" those of `covopt.ranks`, one network for each cell.
        database: the SQLite file of the results.
        resume: continue with an existing file; the grid may have grown.
        jobs: worker processes on this machine; -1 takes all cores.
        scheduler: address of a dask scheduler, whose workers then solve the cells.
        lease: seconds after which the claims of a silent process expire.
        callback: gets the counts at the start and after each cell.

    Returns:
        All results, including those of other processes and earlier runs.

    Raises:
        DataError, ProblemError: the grid or its data are wrong.
        RecordError: the file is wrong; results stored before stay in it.
        KeyboardInterrupt: Ctrl-C; the claims are given back.
    """
    if jobs < -1 or jobs == 0:
        raise ProblemError(f"jobs is {jobs}; give 1 or more, or -1 for all cores.")
    if scheduler is not None and not isinstance(scheduler, str):
        raise ProblemError(f"scheduler is {shown(scheduler)}; give the address of a dask scheduler.")
    grid = make_grid(spec) if isinstance(spec, dict) else read_grid(spec)
    tell = callback or (lambda counts: None)
    with Store(database, grid.cells, resume=resume, lease=lease) as store, renewing(store):
        try:
            with _backend(scheduler):
                tell(store.counts())
                while not _round(store, grid, jobs, tell):
                    time.sleep(0.5)  # the cells that are left are those of other processes
        except TerminatedWorkerError as error:
            raise RecordError(
                f"A worker died, possibly out of memory; {store.counts().finished} cells are stored:"
                " continue with --resume and fewer --jobs."
            ) from error
        except TimeoutError as error:
            raise ProblemError(f"The scheduler at {scheduler} has no workers; start some, or use --jobs.") from error
        finally:
            with suppress(RecordError):  # a claim that stays expires by itself
                store.release()
        return Sweep(Path(database), store.counts(), store.rows(), grid.task)


def _round(store: Store, grid: Grid, jobs: int, tell: Callable[[Counts], None]) -> bool:
    """Solve all free cells; return True if every cell has a result."""
    store.release_dead()
    trouble: list[RecordError] = []
    ended = False

    def claims() -> Iterator[object]:
        while not (ended or trouble):
            try:
                claimed = store.claim()
            except RecordError as error:  # joblib asks from another thread, where an error would be lost
                trouble.append(error)
                return
            if claimed is None:
                return
            key, options = claimed
            yield joblib.delayed(do_cell)(grid.task, key, *grid.problem(options))

    pool = joblib.Parallel(jobs, batch_size=1, pre_dispatch="n_jobs", return_as="generator_unordered")  # type: ignore[arg-type]
    outcomes: Any = pool(claims())
    try:
        for key, outcome in outcomes:
            if outcome["status"] == Status.INTERRUPTED:
                raise KeyboardInterrupt
            store.finish(key, outcome)
            tell(store.counts())
    finally:
        ended = True  # no further claims
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib warns of cells in flight, which --resume solves
            outcomes.close()
    if trouble:
        raise trouble[0]
    counts = store.counts()
    tell(counts)
    return counts.finished == counts.cells


def check_parquet() -> None:
    """Raise a RecordError if pyarrow is missing."""
    if parquet is None:
        raise RecordError("Writing .parquet needs pyarrow; pip install '.[parquet]' in the checkout, or write .csv.")


def is_csv(path: Path) -> bool:
    """Return True if a file is a table of a sweep as .csv."""
    return _is_table(columns_of(path))


def is_parquet(path: Path) -> bool:
    """Return True if a file is a table of a sweep as .parquet."""
    try:
        return _is_table(parquet.read_schema(path).names)  # type: ignore[union-attr]
    except (OSError, ValueError, pyarrow.ArrowException):  # type: ignore[union-attr]
        return False


def _is_table(names: Iterable[str]) -> bool:
    """Return True if these are the columns of a table of some task."""
    return any(set(task.results) <= set(names) for task in WORK.values())


def _backend(scheduler: str | None) -> AbstractContextManager[object]:
    """Return the joblib backend: worker processes here, or a dask cluster."""
    if scheduler is None:
        return nullcontext()
    if find_spec("distributed") is None:
        raise ProblemError("--scheduler needs dask; pip install '.[sweep]' in the checkout.")
    try:
        return joblib.parallel_config(backend="dask", scheduler_host=scheduler)
    except (OSError, ValueError) as error:
        raise ProblemError(f"No dask scheduler answers at {scheduler}; start one, or correct the address.") from error
