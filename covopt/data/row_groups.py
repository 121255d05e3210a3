"""Read Apache Parquet files: column by column, and only the row groups that are needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from covopt.data.arrays import check_unfolding
from covopt.data.cells import Column, check_inputs, floats
from covopt.runtime.errors import DataError

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table

NUMBERS = ("halffloat", "float", "double", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
"""The numeric types of columns."""


class ParquetColumns:
    """The columns of a .parquet file by their names, each read when it is asked for.

    `cuts` holds the first row of each row group, and N. A DataError says if there is no such file, if it is damaged or
    without rows, or if pyarrow is not installed.
    """

    def __init__(self, path: Path) -> None:
        try:  # only now, because it takes 30 MiB
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            missing = "Reading .parquet needs pyarrow; install it with: pip install '.[parquet]' in the checkout."
            raise DataError(missing) from error
        self.path, self._errors = path, (importlib.import_module("pyarrow").ArrowException, OSError, ValueError)
        try:
            self._file = parquet.ParquetFile(path)
            declared, self._names = self._file.metadata, self._file.schema_arrow.names
            groups = [declared.row_group(k).num_rows for k in range(declared.num_row_groups)]
        except self._errors as error:
            raise self._damaged() from error
        if len(set(self._names)) < len(self._names):
            raise DataError(f"{path} has two columns of one name; give each column a name of its own.")
        self.cuts = list(accumulate(groups, initial=0))
        if min(groups, default=0) < 0 or self.cuts[-1] != declared.num_rows:
            raise self._damaged()
        cell = 40  # bytes that a cell of a table takes while it is read
        check_unfolding(path, cell * declared.num_rows * declared.num_columns)
        if self.cuts[-1] == 0 or not self._names:
            raise DataError(f"{path} has no rows or no columns; give at least one of each.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, name: str) -> Column:
        return self.cells(self.read([name])[name])

    def cells(self, column: ChunkedArray) -> Column:
        """Return the cells of a column as Python objects."""
        try:
            return column.to_pylist()
        except self._errors as error:  # such as a time that Python cannot represent
            raise self._damaged() from error

    def read(self, names: Sequence[str], place: int | None = None) -> dict[str, ChunkedArray]:
        """Return columns of all row groups, or of one."""
        file = self._file
        try:
            table: Table = file.read(names) if place is None else file.read_row_group(place, names)
            columns = {name: table.column(name) for name in names}
        except (*self._errors, KeyError) as error:
            raise self._damaged() from error
        rows = self.cuts[-1] if place is None else self.cuts[place + 1] - self.cuts[place]
        if table.num_rows != rows:  # the file's footer declares another number
            raise self._damaged()
        return columns

    def _damaged(self) -> DataError:
        return DataError(f"{self.path} is not a .parquet file or is damaged; write it again.")


class GroupedRows:
    """Inputs (N, n_0) that stay in a .parquet file, whose row groups are read on demand, by their names in order.

    `coded` holds, for one-hot inputs, the result of `cells.codes_of` for all rows.
    """

    def __init__(
        self, columns: ParquetColumns, names: Sequence[str], coded: Mapping[str, tuple[NDArray[np.int64], list[str]]]
    ) -> None:
        self._columns, self._names, self._coded = columns, names, coded
        self._numbers = [name for name in names if name not in coded]
        self.shape = columns.cuts[-1], len(self._numbers) + sum(len(kinds) for _, kinds in coded.values())
        self._last: tuple[int, dict[str, NDArray[np.float64]]] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        places = np.arange(len(self))[rows]
        inputs = np.empty((len(places), self.shape[1]))
        for group, (start, stop) in enumerate(pairwise(self._columns.cuts)):
            marked = (places >= start) & (places < stop)
            if marked.any():
                self._fill(inputs, marked, places[marked], group)
        return inputs

    def _fill(
        self, inputs: NDArray[np.float64], marked: NDArray[np.bool_], places: NDArray[np.int64], group: int
    ) -> None:
        """Write the rows at `places`, all in one row group, into the marked rows of `inputs`."""
        numbers, column = self._group(group), 0
        for name in self._names:
            if name not in self._coded:
                inputs[marked, column] = numbers[name][places - self._columns.cuts[group]]
                column += 1
                continue
            codes, kinds = self._coded[name]
            inputs[marked, column : column + len(kinds)] = codes[places][:, None] == np.arange(len(kinds))
            column += len(kinds)

    def _group(self, group: int) -> dict[str, NDArray[np.float64]]:
        """Return the numeric columns of a row group; the last group stays in memory, as rows come in order."""
        if self._last is None or self._last[0] != group:
            self._last = None  # free its memory before the next group takes as much
            self._last = group, self._checked(group)
        return self._last[1]

    def _checked(self, group: int) -> dict[str, NDArray[np.float64]]:
        """Return the columns as numbers; those of other types are checked cell by cell."""
        read = self._columns.read(self._numbers, group) if self._numbers else {}
        plain = {name: _plain(column) for name, column in read.items()}
        unplain = {name: self._columns.cells(read[name]) for name, values in plain.items() if values is None}
        check_inputs(unplain, (), self._columns.path, lambda row: f"index {self._columns.cuts[group] + row}")
        return {name: floats(unplain[name]) if values is None else values for name, values in plain.items()}


def _plain(column: ChunkedArray) -> NDArray[np.float64] | None:
    """Return a column of finite numbers without missing values; None for any other."""
    if column.null_count or str(column.type) not in NUMBERS:
        return None
    values = column.to_numpy().astype(np.float64)
    return values if np.isfinite(values).all() else None
