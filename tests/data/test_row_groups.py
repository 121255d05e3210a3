"""A .parquet file read by several processes: the rows of each are those of reading it whole, and no others are read."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from covopt.data import coding
from covopt.data.data import read_data
from covopt.data.row_groups import ParquetColumns
from covopt.runtime.errors import DataError

ROWS, GROUP = 50, 8
RNG = np.random.default_rng(0)
COLUMNS = {
    "a": RNG.standard_normal(ROWS) * 3.0,
    "n": RNG.integers(-5, 5, ROWS),
    "f": RNG.standard_normal(ROWS).astype(np.float32),
    "flag": RNG.integers(0, 2, ROWS).astype(bool),
    "text": [f"{value:.3f}" for value in RNG.standard_normal(ROWS)],  # numbers that are written as texts
    "town": RNG.choice(["Ulm", "Bonn", "Jena"], ROWS).tolist(),
    "fixed": np.full(ROWS, 0.1),
    "w": np.where(np.arange(ROWS) % 7 == 3, 0.0, RNG.uniform(0.5, 2.0, ROWS)),
    "label": [f"c{k}" for k in np.arange(ROWS) % 9 // 2],
    "y": RNG.standard_normal(ROWS),
}


def written(path: Path, columns: dict[str, object], group: int = GROUP) -> Path:
    """A file with so many rows in a row group."""
    parquet.write_table(pa.table(columns), path, row_group_size=group)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "data.parquet", COLUMNS)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are read one by one, in turn."""
    places: list[int] = []

    def noting(self: ParquetColumns, names: list[str], place: int | None = None, real=ParquetColumns.read) -> object:
        places.extend([] if place is None else [place])
        return real(self, names, place)

    monkeypatch.setattr(ParquetColumns, "read", noting)
    return places


OPTIONS: dict[str, dict[str, object]] = {
    "numbers": {"target": "y", "drop": ["label", "w", "town"]},
    "classes": {"target": "label", "drop": ["w", "town"]},
    "one-hot": {"target": "label", "one_hot": ["town", "flag"], "drop": ["w"]},
    "weights": {"target": "y", "weights": "w", "drop": ["label", "town"]},
    "only texts": {"target": "label", "one_hot": ["town"], "drop": [k for k in COLUMNS if k not in ("town", "label")]},
    "some rows": {"target": "label", "rows": 37, "drop": ["w", "town"]},
    "drawn rows": {"target": "label", "rows": 37, "shuffle": 5, "drop": ["w", "town"]},
}


@pytest.mark.parametrize("chunk", [coding.CHUNK, 11])
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_parts_are_whole(file: Path, name: str, processes: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, whatever is measured on all rows: scales, classes, the texts of a column, weights."""
    monkeypatch.setattr(coding, "CHUNK", chunk)
    for scale in ("none", "max", "standard"):
        given = OPTIONS[name] | {"scale": scale}
        whole = read_data(file, **given)  # type: ignore[arg-type]
        parts = [read_data(file, **given, share=(k, processes)) for k in range(processes)]  # type: ignore[arg-type]
        assert np.array_equal(np.vstack([part.X for part in parts]), whole.X)
        assert np.array_equal(np.vstack([part.Y for part in parts]), whole.Y)
        for part in parts:
            assert (part.columns, part.classes) == (whole.columns, whole.classes)
        weights = [part.weights for part in parts if part.weights is not None]
        if whole.weights is not None:
            assert np.array_equal(np.concatenate(weights), whole.weights)


@pytest.mark.parametrize("processes", [2, 3])
def test_no_process_reads_the_row_groups_of_others(file: Path, processes: int, groups: list[int]) -> None:
    """50 rows in groups of 8; each process reads the columns of numbers of those groups that hold its rows, once."""
    for k in range(processes):
        groups.clear()
        read_data(file, target="label", one_hot=["town"], drop=["w"], share=(k, processes))
        first, last = ROWS * k // processes, ROWS * (k + 1) // processes - 1
        assert groups == list(range(first // GROUP, last // GROUP + 1))
    groups.clear()
    read_data(file, target="y", rows=4, drop=["label", "w", "town"], share=(1, 2))
    assert groups == [0]


def test_a_scale_reads_one_row_group_after_the_other(file: Path, groups: list[int]) -> None:
    """For the largest entry all groups in turn, then those of the own rows, of which the last may still be there."""
    read_data(file, target="y", drop=["label", "w", "town"], scale="max", share=(0, 2))
    assert groups == [0, 1, 2, 3, *range(7)]


def test_a_bad_cell_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    """Also where the process did not read the rows before; a process without that row does not see it."""
    for column, message, share in (
        ([None if k == 41 else float(k) for k in range(ROWS)], "has a missing value at index 41", (2, 3)),
        (np.where(np.arange(ROWS) == 44, np.inf, 1.0), r"Column 'a' .* \(index 44 holds inf\)", (1, 2)),
        (["oops" if k == 44 else str(k) for k in range(ROWS)], r"Column 'a' .* \(index 44 holds 'oops'\)", (1, 2)),
    ):
        path = written(tmp_path / "data.parquet", {"a": column, "y": COLUMNS["y"]})
        with pytest.raises(DataError, match=message):
            read_data(path, target="y", share=share)
    assert len(read_data(path, target="y", share=(0, 2)).X) == 25


def test_a_group_that_is_damaged_is_reported_by_who_reads_it(tmp_path: Path) -> None:
    path = written(tmp_path / "data.parquet", {"a": COLUMNS["a"], "y": COLUMNS["y"]})
    place = parquet.read_metadata(path).row_group(6).column(0)
    with path.open("r+b") as stream:
        stream.seek(min(each for each in (place.data_page_offset, place.dictionary_page_offset) if each))
        stream.write(os.urandom(24))
    assert len(read_data(path, target="y", share=(0, 2)).X) == 25
    with pytest.raises(DataError, match="is damaged; write it again"):
        read_data(path, target="y", share=(1, 2))


def test_changed_bytes_are_read_or_refused(tmp_path: Path) -> None:
    """Of the foot, which says how many rows there are, above all; never a traceback."""
    path = written(tmp_path / "data.parquet", {name: COLUMNS[name] for name in ("a", "n", "town", "y")})
    good, rng, refused = path.read_bytes(), np.random.default_rng(1), 0
    for _ in range(150):
        content = bytearray(good)
        content[len(good) - 1 - int(rng.integers(1000))] = int(rng.integers(256))
        path.write_bytes(content)
        try:
            read_data(path, target="y", one_hot=["town"], share=(1, 3))
        except DataError:
            refused += 1
    assert refused > 30
