"""Numbers, matrices, weights and devices from users, checked: one sentence says what is wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.data.arrays import LARGEST
from covopt.model.scalars import SMALLEST
from covopt.runtime.errors import ProblemError, counted, shown


def parse_device(device: str | torch.device) -> torch.device:
    """Return the CPU or an available CUDA device; raise a ProblemError for any other."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ProblemError(f"The device {shown(device)} is unknown; use cpu or cuda.") from error
    if chosen.type not in ("cpu", "cuda"):
        raise ProblemError(f"covopt does not compute on {chosen.type}; use cpu or cuda.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ProblemError(f"There is no CUDA device ({chosen}) here that torch can use; use cpu.")
    return chosen


def as_numbers(values: object, name: str) -> Tensor:
    """Return a dense tensor of real floating numbers; float32 and float64 tensors keep their type and share memory.

    So do large float64 arrays (`is_shared`).
    """
    if isinstance(values, Tensor):
        tensor = values.detach()
        if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise ProblemError(f"{name} is a sparse, nested, quantized or meta tensor; give a dense one.")
    else:
        try:
            _check_real(values, name)
            array = np.asarray(values, dtype=np.float64, order="C")
            # A copy of torch's own: products of what begins at other addresses may differ in the last bit.
            tensor = torch.from_numpy(array) if is_shared(array) else torch.tensor(array)
        except (TypeError, ValueError, OverflowError) as error:
            frame: Any = values
            for column in getattr(frame, "columns", ()):
                entries = np.asarray(frame[column])  # of a nullable column: NaN where a number is missing
                if entries.dtype.kind in "OUS" or (entries.dtype.kind == "f" and np.isnan(entries).any()):
                    problem = f"Column '{column}' of {name} holds texts or missing values"
                    raise ProblemError(f"{problem}; encode, impute or drop it.") from error
            raise ProblemError(f"{name} is {shown(values)}, not an array of numbers; give a numeric matrix.") from error
    if tensor.is_complex():
        raise ProblemError(f"{name} holds complex numbers; give real ones.")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float64)
    return tensor


def is_shared(values: object) -> bool:
    """Return True for arrays of float64, and floating tensors, of 2^22 numbers and more in C order: none is copied."""
    if isinstance(values, Tensor):
        return values.is_floating_point() and values.is_contiguous() and values.numel() >= 2**22
    if not (isinstance(values, np.ndarray) and values.dtype == np.float64 and values.flags.c_contiguous):
        return False
    return values.size >= 2**22 and values.flags.writeable  # torch warns of arrays that are read-only


def as_matrix(values: object, name: str, device: torch.device | None) -> Tensor:
    """Return a finite, non-empty floating (N, n) tensor; a vector becomes a column, and float32 stays float32."""
    tensor = as_numbers(values, name)
    if device is not None:
        tensor = tensor.to(device)
    if tensor.ndim == 1:
        tensor = tensor[:, None]
    if tensor.ndim != 2:
        raise ProblemError(f"{name} has {tensor.ndim} dimensions; give a matrix with one row for each sample.")
    if tensor.numel() == 0:
        raise ProblemError(f"{name} is empty (shape {tuple(tensor.shape)}); give at least one row and one column.")
    least, most = (float(end) for end in tensor.aminmax())  # NaN where there is one
    if not (math.isfinite(least) and math.isfinite(most)):
        row, column = (int(i) for i in (~torch.isfinite(tensor)).nonzero()[0])
        raise ProblemError(
            f"{name} has NaN or infinite entries (first at row {row}, column {column}, counted from 0); remove"
            " or impute them."
        )
    size = max(most, -least)
    if size > LARGEST:
        raise ProblemError(f"{name} has entries beyond {LARGEST:g}; divide it by its largest entry.")
    if 0.0 < size < SMALLEST:
        raise ProblemError(f"{name} has no entries above {SMALLEST:g}; divide it by its largest entry.")
    return tensor.clone() if isinstance(values, Tensor) and not is_shared(values) else tensor


def _check_real(values: object, name: str) -> None:
    """Refuse values from which NumPy would drop a part: masks, imaginary parts, texts, times."""
    for part in values if isinstance(values, (list, tuple)) else [values]:
        if np.ma.is_masked(part):
            raise ProblemError(f"{name} has masked entries; fill them, or remove their rows.")
    kind = np.asarray(values).dtype.kind
    if kind == "c":
        raise ProblemError(f"{name} holds complex numbers; give real ones.")
    if kind in "mMSU":
        raise ProblemError(f"{name} holds texts or times, not an array of numbers; give a numeric matrix.")


def as_weights(values: object, like: Tensor) -> Float[Tensor, " N"] | None:
    """Return the weights s_i >= 0, one for each row of `like`, not all zero."""
    if values is None:
        return None
    matrix = as_matrix(values, "sample_weight", like.device).to(like.dtype)
    if matrix.shape != (len(like), 1):
        raise ProblemError(
            f"sample_weight holds {matrix.numel()} numbers; give one number for each of the"
            f" {counted(len(like), 'row')} of X."
        )
    weight = matrix[:, 0]
    if float(weight.min()) < 0.0:
        row = int(weight.argmin())
        raise ProblemError(f"sample_weight is {float(weight[row]):g} at index {row}; give weights of at least 0.")
    if not bool(weight.any()):
        raise ProblemError("sample_weight is 0 for all rows; give at least one row a positive weight.")
    least = float(weight[weight > 0].min())
    lightest = 1e-12  # of the largest: below, the loss of a sample is lost in the rounding of C
    if least < lightest * float(weight.max()):
        raise ProblemError(
            f"sample_weight has {least:g} beside {float(weight.max()):g}; give positive weights of at least"
            f" {lightest:g} of the largest, or 0 to leave a row out."
        )
    return weight


def of_mean_one(weight: Float[Tensor, " N"]) -> Float[Tensor, " N"] | None:
    """Return positive weights times a number, so that their mean is 1; None for equal ones.

    Weights whose mean is 1 already stay as they are, to the last digit: stored ones are read again.
    """
    if bool((weight == weight[0]).all()):
        return None
    mean = float((weight / weight.max()).mean()) * float(weight.max())
    return weight if abs(mean - 1.0) <= 64 * torch.finfo(weight.dtype).eps else weight / mean
