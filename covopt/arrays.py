"""Archives of arrays from people we do not know: nothing is unpickled, and sizes are checked before memory is given."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from covopt.errors import DataError

DEFLATE_LIMIT = 1032
"""The most bytes that one compressed byte can unfold to (the limit of the deflate format)."""


def check_readable(path: Path) -> None:
    """Raise a DataError unless `path` is a file that can be opened."""
    if path.is_dir():
        raise DataError(f"{path} is a directory; give a file.")
    try:
        path.open("rb").close()
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}; check the name.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error


def read_npz(path: Path) -> dict[str, NDArray]:
    """The arrays of a `.npz` file by name, object arrays refused.

    Raises:
        DataError: no such file, not a zip archive, damaged, an array of Python objects, or a header that declares
            more than the archive can hold.
    """
    check_readable(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            return {m.filename.removesuffix(".npy"): _read_member(archive, m, path) for m in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path} is not an .npz archive or is damaged; write it again with numpy.savez.") from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> NDArray:
    """One array, its declared size held against what the archive can hold."""
    name = member.filename.removesuffix(".npy")
    try:
        with archive.open(member) as stream:
            shape, dtype = _header(stream)
            if dtype.hasobject:
                raise DataError(
                    f"The array {name} in {path} holds Python objects, which are not read; save numbers or strings."
                )
            declared = dtype.itemsize * int(np.prod([int(n) for n in shape], dtype=object))
            if declared > member.file_size or member.file_size > DEFLATE_LIMIT * (member.compress_size + 1):
                raise DataError(f"The array {name} in {path} declares more than the file holds; write the file again.")
        with archive.open(member) as stream:
            return npy.read_array(stream, allow_pickle=False)
    except ValueError as error:
        raise DataError(f"The array {name} in {path} cannot be read; write the file again with numpy.savez.") from error


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type that a member declares."""
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype
