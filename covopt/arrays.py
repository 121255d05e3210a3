"""Archives of arrays from people we do not know: nothing is unpickled, and sizes are checked before memory is given."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

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
    except DataError:
        raise
    # A damaged or hostile archive fails in many ways (BadZipFile, zlib.error, TokenError in a header, ...).
    except Exception as error:
        raise DataError(f"{path} is not an .npz archive or is damaged; write it again with numpy.savez.") from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> NDArray:
    """One array, its declared size held against what the archive can hold."""
    name = member.filename.removesuffix(".npy")
    shape, dtype = _header(archive, member)
    if dtype.hasobject:
        raise DataError(f"The array {name} in {path} holds Python objects, never read; save numbers or strings.")
    declared = dtype.itemsize * math.prod(int(n) for n in shape)
    if declared > member.file_size or member.file_size > DEFLATE_LIMIT * (member.compress_size + 1):
        raise DataError(f"The array {name} in {path} declares more than the file holds; write the file again.")
    with archive.open(member) as stream:
        return npy.read_array(stream, allow_pickle=False)


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type that a member declares."""
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
    return shape, dtype
