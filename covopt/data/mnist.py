"""Read the training set of MNIST from OpenML or from idx files, which are not trusted."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from covopt.data.arrays import DEFLATE_LIMIT, check_unfolding
from covopt.runtime.errors import DataError
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from sklearn import datasets
else:
    datasets = lazy("sklearn.datasets")

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


def fetch_mnist() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Fetch images (60000, 784) and labels of the training set from OpenML."""
    try:
        X, Y = datasets.fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False, parser="liac-arff")
    except (OSError, ValueError) as error:
        raise DataError(
            f"MNIST could not be fetched from OpenML; put {' and '.join(MNIST_FILES)} (or .gz) into a directory and"
            " give it with --data-dir."
        ) from error
    rows = 60_000  # the training set comes first
    return np.asarray(X[:rows], dtype=np.uint8), np.asarray(Y[:rows]).astype(np.int64)


def read_mnist(directory: Path, mapped: bool = False) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read images and labels of MNIST from a directory; `mapped` leaves uncompressed images in their file."""
    images, labels = (_read_idx(_find_idx(directory, name), mapped) for name in MNIST_FILES)
    if images.ndim != 3 or labels.ndim != 1:
        raise DataError(f"The files in {directory} are not images and labels of MNIST; fetch them again.")
    return images.reshape(len(images), math.prod(images.shape[1:])), labels


def _find_idx(directory: Path, name: str) -> Path:
    for candidate in (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz"):
        if (directory / candidate).is_file():
            return directory / candidate
    raise DataError(f"There is no {name} (or {name}.gz) in {directory}; put the files of MNIST there.")


def _read_idx(path: Path, mapped: bool = False) -> NDArray[np.uint8]:
    """Read an idx file of bytes; `mapped` leaves uncompressed bytes in the file.

    It holds 0, 0, 8 (unsigned bytes), the number of dimensions, each dimension in 4 bytes, and the bytes.
    """
    compressed = path.suffix == ".gz"
    size = path.stat().st_size * (DEFLATE_LIMIT if compressed else 1)
    damaged = DataError(f"{path} is not an idx file of bytes or is damaged; fetch it again.")
    try:
        with gzip.open(path) if compressed else path.open("rb") as stream:
            head = stream.read(4)
            if len(head) < 4 or head[:3] != b"\x00\x00\x08" or not 1 <= head[3] <= 3:
                raise damaged
            shape = np.frombuffer(stream.read(4 * head[3]), dtype=">u4").astype(object)
            expected = int(np.prod(shape))
            if len(shape) != head[3] or expected > size:
                raise damaged
            check_unfolding(path, expected)
            if mapped and not compressed and size == stream.tell() + expected:
                return np.memmap(path, np.uint8, "r", stream.tell(), tuple(int(n) for n in shape))
            body = stream.read(expected + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise damaged from error
    if len(body) != expected:
        raise damaged
    return np.frombuffer(body, dtype=np.uint8).reshape([int(n) for n in shape])
