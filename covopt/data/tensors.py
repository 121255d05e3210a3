"""Files of torch.save that are not trusted: only tensors are loaded, and sizes are checked first."""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path
from pickle import UnpicklingError

import torch
from numpy.typing import NDArray
from torch.nn.parameter import is_lazy

from covopt.data.arrays import check_readable
from covopt.runtime.errors import DataError

# The names in a file of tensors. The restricted unpickler accepts more, such as bytearray, which can take any memory.
NAMED = ("collections OrderedDict", "torch Size", "torch.serialization _get_layout")


def write_torch(path: Path, tensors: object) -> None:
    """Write with torch.save, but raise an OSError if the disk is full, as other writers do."""
    whole = io.BytesIO()
    torch.save(tensors, whole)
    path.write_bytes(whole.getbuffer())


def read_torch(path: Path, remedy: str) -> object:
    """Return what torch.save stored, if it is plain tensors in lists and dictionaries; else raise a DataError.

    `remedy` is the end of its message, which says what to do.
    """
    check_readable(path)
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not a file of torch.save or is damaged; {remedy}.")
    _check_members(path, remedy)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise _more_than_tensors(path, remedy) from error
    # A damaged file makes the restricted unpickler raise in many ways.
    except Exception as error:
        raise DataError(f"{path} is not a file of torch.save or is damaged; {remedy}.") from error


def as_array(tensor: torch.Tensor, name: str, path: object) -> NDArray:
    """Return a dense tensor as an array, floating numbers as float64.

    A DataError refuses a tensor that is sparse or quantised, belongs to a lazy module that was never called, or
    declares more entries than it stores.
    """
    if is_lazy(tensor):
        raise DataError(f"{name} in {path} has no numbers yet; call the network once with inputs.")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise DataError(f"{name} in {path} is not a dense tensor; save {name}.to_dense().")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise DataError(f"{name} in {path} declares more than it stores; save {name}.contiguous().")
    plain = tensor.detach().cpu()
    return (plain.double() if plain.is_floating_point() else plain).numpy()


def _check_members(path: Path, remedy: str) -> None:
    """Check that a file of torch.save holds tensors alone, none larger than the file."""
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(member.file_size > size for member in members):
                raise DataError(f"{path} declares more than the file holds; {remedy}.")
            pickles = [archive.read(m) for m in members if m.filename.rpartition("/")[2] == "data.pkl"]
        named = [
            str(name) if operation.name == "GLOBAL" else operation.name
            for pickle in pickles
            for operation, name, _ in pickletools.genops(pickle)
            if operation.name in ("GLOBAL", "STACK_GLOBAL", "INST")
        ]
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} is not a file of torch.save or is damaged; {remedy}.") from error
    if not all(_is_of_tensors(name) for name in named):
        raise _more_than_tensors(path, remedy)


def _is_of_tensors(name: str) -> bool:
    storage = name.startswith("torch ") and name.endswith("Storage")
    return name in NAMED or storage or name.startswith("torch._utils _rebuild_")


def _more_than_tensors(path: Path, remedy: str) -> DataError:
    return DataError(f"{path} holds more than tensors (a pickled module, say), which is never loaded; {remedy}.")
