"""Read arrays from files that are not trusted: nothing is unpickled, and sizes are checked first."""

from __future__ import annotations

import csv
import math
import re
import stat
import struct
import zipfile
from collections.abc import Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from covopt.runtime import files
from covopt.runtime.errors import DataError, RecordError, listed


def share_of(rows: int, parts: int) -> tuple[int, ...]:
    """Return the first row of each of `parts` about equal parts, and the number of rows.

    Libraries multiply matrices in blocks of 8, 12 or 24 rows that begin at aligned addresses, and round the remaining
    rows differently. If parts begin at multiples of all these numbers, the products of a part are the same to the last
    bit in a process that holds several parts.
    """
    unit = next((unit for unit in (48, 24) if rows >= 10 * unit), 1)
    return (*(rows * j // (parts * unit) * unit for j in range(parts)), rows)


DEFLATE_LIMIT = 1032  # the maximum number of bytes that one compressed byte can expand to, by the deflate format


def check_readable(path: Path) -> None:
    """Raise a DataError unless `path` is a file that can be opened."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{path} is a directory; give a file.")
        if not stat.S_ISREG(mode):  # a pipe or a device may never end, and cannot be read twice
            raise DataError(f"{path} is no ordinary file; copy what it gives into one.")
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"There is no file {path}; check the name.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its name and its permissions.") from error


LARGEST = 1e75  # the largest magnitude of data: fourth powers of larger numbers overflow float64


def check_unfolding(path: Path, size: int) -> None:
    """Raise a DataError if the content of a small file would take very much memory, `size` bytes."""
    if size > max(2**28, 100 * path.stat().st_size):
        raise DataError(f"{path} would unfold to {size / 2**30:.3g} GiB; store it without compression, or in parts.")


def read_npz(path: Path, mapped: bool = False) -> dict[str, NDArray]:
    """Return the arrays of a `.npz` file by name; arrays of Python objects are refused.

    `mapped` leaves uncompressed arrays in the file, and reads their rows on demand. A DataError says if there is no
    such file, or it is damaged, holds Python objects, or declares more than it can hold.
    """
    check_readable(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            check_unfolding(path, sum(m.file_size for m in members))
            read = _mapped_member if mapped else _read_member
            return {m.filename.removesuffix(".npy"): read(archive, m, path) for m in members}
    except DataError:
        raise
    # A damaged or hostile archive fails in many ways (BadZipFile, zlib.error, TokenError in a header, ...).
    except Exception as error:
        raise DataError(f"{path} is not an .npz archive or is damaged; write it again with numpy.savez.") from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> NDArray:
    """Return one array, after its declared size is checked against the size of the archive."""
    size = min(member.file_size, DEFLATE_LIMIT * (member.compress_size + 1))
    with archive.open(member) as stream:
        return _read_array(stream, size, f"The array {member.filename.removesuffix('.npy')} in {path}")


def _read_array(stream: IO[bytes] | BufferedIOBase, size: int, name: str) -> NDArray:
    """Return the array in a stream of at most `size` bytes, after its declared size is checked."""
    shape, _, dtype = _declared(stream)
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are never read; save numbers or strings.")
    if dtype.itemsize * math.prod(int(n) for n in shape) > size - stream.tell():
        raise DataError(f"{name} declares more than the file holds; write the file again.")
    stream.seek(0)
    return npy.read_array(stream, allow_pickle=False)


def _mapped_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> NDArray:
    """Return one array that stays in the file if its layout allows; else read it."""
    with archive.open(member) as stream:
        shape, fortran, dtype = _declared(stream)
        before = stream.tell()
    with path.open("rb") as file:  # last four bytes of the local header: lengths of the name and the extra field
        file.seek(member.header_offset + 26)
        before += member.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
    size = dtype.itemsize * math.prod(shape)
    plain = member.compress_type == zipfile.ZIP_STORED and not (fortran or dtype.hasobject)
    inside = 0 < size <= member.file_size == member.compress_size and before + size <= path.stat().st_size
    return np.memmap(path, dtype, "r", before, shape) if plain and inside else _read_member(archive, member, path)


def _declared(stream: IO[bytes] | BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return the declared shape, column order and type of the array that begins in the stream."""
    read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    return read(stream)


def read_matrix(path: Path, name: str = "A") -> NDArray:
    """Read a matrix of numbers from a `.npy` or `.csv` file, or the array `name` (or the only one) of a `.npz` file."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays = read_npz(path)
        if name in arrays or len(arrays) == 1:
            return arrays[name] if name in arrays else next(iter(arrays.values()))
        raise DataError(f"{path} holds {listed(sorted(arrays))}; name the matrix {name}.")
    if suffix == ".npy":
        return _read_npy(path)
    if suffix == ".csv":
        return _read_numbers(path)
    check_readable(path)
    raise DataError(f"{path} is of no known format; give a .npy, .npz or .csv file.")


def _read_npy(path: Path) -> NDArray:
    check_readable(path)
    try:
        with path.open("rb") as stream:
            return _read_array(stream, path.stat().st_size, str(path))
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} is not an .npy file or is damaged; write it again with numpy.save.") from error


def csv_rows(path: Path) -> dict[int, list[str]]:
    """Return the cells of each row of a .csv file by the line, from 1, that it begins on, without empty lines."""
    rows, line = {}, 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            for cells in reader:
                rows |= {line: cells} if cells else {}
                line = reader.line_num + 1
            return rows
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a .csv file in UTF-8; save it as one.") from error


def _read_numbers(path: Path) -> NDArray:
    """Read a .csv file of numbers without a line of names."""
    check_readable(path)
    rows = csv_rows(path).values()
    if len({len(row) for row in rows}) > 1:
        raise DataError(f"The rows of {path} have different lengths; give one number for each entry of the matrix.")
    try:
        return np.array([[float(entry) for entry in row] for row in rows])
    except ValueError as error:
        raise DataError(f"{path} holds more than numbers; give rows of numbers, without names.") from error


def check_free(path: Path, force: bool = False, names: str = "") -> None:
    """Raise a RecordError unless arrays may be written: no file exists, or `force` replaces it.

    `names` is a regular expression for the names of its arrays; a file with other arrays is not replaced.
    """
    if path.suffix.lower() != ".npz":
        raise RecordError(f"{path} is to hold arrays; give a name that ends in .npz.")
    files.check_free(path, force, lambda file: _holds_only(file, names))


def _holds_only(path: Path, names: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return all(re.fullmatch(rf"({names})\.npy", member) for member in archive.namelist())
    except Exception:  # a file that is not an archive fails in many ways
        return False


def write_npz(path: Path, arrays: Mapping[str, NDArray], force: bool = False, names: str = "") -> None:
    """Write arrays by name, the file whole or not at all; `force` and `names` as for `check_free`."""
    check_free(path, force, names)

    def write(draft: Path) -> None:
        with draft.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)

    files.write_file(path, write, force)
