"""Malformed and hostile files: what each is called, how to make it, and the command that is given it."""

import atexit
import gzip
import io
import os
import pickle
import shutil
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from editing import holds, states
from pyarrow import parquet
from runs import toy_result

from covopt.studies.sweep.grid import read_grid
from covopt.studies.sweep.store import Store

RAN = "ran"
"""What the code in a hostile file would make, beside the file, if it were run."""

Make = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """A file that is to be refused.

    Attributes:
        name: what is wrong with it.
        file: its name in an empty directory.
        make: writes it, given its path.
        command: the words of a command line; FILE stands for the path, HERE for its directory.
    """

    name: str
    file: str
    make: Make
    command: str


SOLVE = "solve FILE --lam 0.1 --certify none --time-limit 1"
X = np.random.default_rng(0).standard_normal((20, 3))
Y = np.random.default_rng(1).standard_normal((20, 2))


class Code:
    """Pickles as a call that makes a file beside the pickle."""

    def __init__(self, beside: Path) -> None:
        self.beside = beside

    def __reduce__(self) -> tuple:
        return Path.touch, (self.beside.parent / RAN,)


def write(content: bytes) -> Make:
    return lambda path: path.write_bytes(content)


def cut(content: bytes, pieces: int) -> Iterator[tuple[int, bytes]]:
    """The content, cut off after ever more bytes."""
    for size in np.linspace(0, len(content) - 1, pieces).astype(int):
        yield int(size), content[:size]


def flipped(content: bytes, places: int, seed: int = 0) -> Iterator[tuple[int, bytes]]:
    """The content with 16 bytes of noise somewhere."""
    rng = np.random.default_rng(seed)
    for place in rng.integers(0, len(content) - 16, places):
        yield int(place), content[:place] + rng.bytes(16) + content[place + 16 :]


def archive(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def header(text: str, version: tuple[int, int] = (1, 0), body: bytes = b"\0" * 64, size: int | None = None) -> bytes:
    """A .npy file with a header of our own making."""
    encoded = text.encode("latin-1")
    count = len(encoded) if size is None else size
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", count) + encoded + body


def shaped(shape: str, descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


HEADERS = {
    "10^9 rows": header(shaped("(1000000000, 3)")),
    "10^18 rows": header(shaped("(1000000000000000000, 3)")),
    "2^64 entries": header(shaped("(4294967296, 4294967296)")),
    "more than any integer": header(shaped(f"(1{'0' * 60},)")),
    "negative rows": header(shaped("(-3, 3)")),
    "two negative sizes": header(shaped("(-1000000, -1000000)")),
    "rows that are text": header(shaped("('a', 3)")),
    "a truth value as shape": header(shaped("(True, 3)")),
    "items of 2 GB": header(shaped("(1,)", "'|V2000000000'")),
    "objects": header(shaped("(3, 3)", "'|O'")),
    "an unknown type": header(shaped("(3, 3)", "'<z8'")),
    "code": header("__import__('pathlib').Path('ran').touch()\n"),
    "deep brackets": header("(" * 9000),
    "very deep brackets": header("(" * 60000),
    "no dictionary": header("5\n"),
    "further keys": header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'more': 1}\n"),
    "a header of 4 GB": header(shaped("(3, 3)"), (2, 0), size=2**32 - 1),
    "version 9": header(shaped("(3, 3)"), (9, 0)),
    "a header that is no text": header("\xff\xfe\x00\x01"),
    "too little data": header(shaped("(3, 3)"), body=b"\0" * 71),
}


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name + ".npy", content)
    return stream.getvalue()


def array_bytes(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def bomb(path: Path) -> None:
    """285 MB of zeros in 1 MB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        with file.open("X.npy", "w") as stream:
            stream.write(header(shaped("(285212672, 1)", "'|i1'"), body=b""))
            for _ in range(17):
                stream.write(bytes(2**24))
        file.writestr("y.npy", array_bytes(np.zeros(9)))


def overlapping(path: Path) -> None:
    """A thousand entries of the table of contents, all of which are one member of 32 MB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("X.npy", header(shaped("(4194304,)"), body=bytes(2**25)))
        member = file.infolist()[0]
        file.infolist().extend(member for _ in range(1000))
        file.filelist = [member] * 1000


def pickled(path: Path, name: str = "X") -> None:
    held = np.empty(3, dtype=object)
    held[0] = Code(path)
    np.savez(path, **{"X": X, "y": np.arange(20), name: held}, allow_pickle=True)  # type: ignore[arg-type]


WRONG_ARRAYS: dict[str, dict[str, object]] = {
    "X as bytes": {"X": X.astype("S"), "y": Y},
    "X complex": {"X": X + 1j, "y": Y},
    "X with fields": {"X": np.zeros(20, dtype=[("a", "<f8"), ("b", "<i4")]), "y": Y},
    "X of dates": {"X": np.zeros((20, 3), dtype="datetime64[s]"), "y": Y},
    "Y of durations": {"X": X, "y": np.zeros(20, dtype="timedelta64[s]")},
    "X raw": {"X": np.zeros(20, dtype="V8"), "y": Y},
    "Y with NaN": {"X": X, "y": np.where(Y > 1, np.nan, Y)},
    "X infinite": {"X": np.where(X > 1, -np.inf, X), "y": Y},
    "X beyond float64": {"X": X.astype(np.longdouble) * np.longdouble(10) ** 4000, "y": Y},
    "Y whose squares overflow": {"X": X, "y": Y * 1e200},
    "0 rows of classes": {"X": X[:0], "y": np.arange(0)},
    "0 targets": {"X": X, "Y": Y[:, :0]},
    "X a number": {"X": 1.0, "y": Y},
    "Y of 3 dimensions": {"X": X, "Y": Y[:, :, None]},
    "nothing": {},
    "names with control characters": {"\x1b[31mX\n\r\x07": X},
    "a thousand names": {f"array{i}": np.zeros(0) for i in range(1000)},
}


def npz_cases() -> Iterator[Case]:
    good = archive(X=X, y=Y)
    for size, content in cut(good, 16):
        yield Case(f"an archive cut after {size} bytes", "a.npz", write(content), SOLVE)
    for place, content in flipped(archive(X=np.ones((400, 3)), y=np.ones(400)), 6):
        yield Case(f"an archive with noise at {place}", "a.npz", write(content), SOLVE)
    for name, content in HEADERS.items():
        yield Case(f"an array with {name}", "a.npz", write(zipped(X=content, y=array_bytes(Y))), SOLVE)
    for name, arrays in WRONG_ARRAYS.items():
        yield Case(name, "a.npz", write(archive(**arrays)), SOLVE)
    many = archive(X=np.zeros((10**6, 1), dtype=np.int8), y=np.arange(10**6))
    yield Case("a million classes", "a.npz", write(many), f"{SOLVE} --task classification")
    yield Case("pickled X", "a.npz", pickled, SOLVE)
    yield Case("pickled Y", "a.npz", lambda path: pickled(path, "y"), SOLVE)
    yield Case("another pickled array", "a.npz", lambda path: pickled(path, "other"), SOLVE)
    yield Case("a bomb", "a.npz", bomb, SOLVE)
    yield Case("overlapping members", "a.npz", overlapping, SOLVE)
    yield Case("an array, no archive", "a.npz", write(array_bytes(X)), SOLVE)
    yield Case("a pickle", "a.npz", lambda path: path.write_bytes(pickle.dumps(Code(path))), SOLVE)
    yield Case("members that are text", "a.npz", write(zipped(X=b"1 2 3\n", y=b"")), SOLVE)
    yield Case("a pipe", "a.npz", os.mkfifo, SOLVE)
    yield Case("a link to itself", "a.npz", lambda path: path.symlink_to(path), SOLVE)
    yield Case("a name with control characters", "\x1b]0;x\x07\n.npz", write(b""), SOLVE)
    yield Case("a name longer than any", "a", write(b""), f"solve {'a' * 300}.npz")


CSV: dict[str, bytes] = {
    "nothing": b"",
    "blank lines": b"\n\n\n",
    "only names": b"a,y\n",
    "no names": b"1,2\n3,4\n",
    "text among the numbers": b"a,b,y\n1,red,2\n",
    "ragged rows": b"a,b,y\n1,2,3\n1,2\n",
    "long rows": b"a,y\n1,2,3\n",
    "bytes": bytes(range(256)) * 8,
    "NUL bytes": b"a,y\n1,\x002\n\x00,3\n",
    "NUL bytes alone": bytes(1000),
    "UTF-16": "a,y\n1,2\n".encode("utf-16"),
    "a name twice": b"a,a,y\n1,2,3\n",
    "a huge field": b"a,y\n" + b"1" * 200_000 + b",2\n",
    "an open quote": b'a,y\n"1,2\n' + b"3,4\n" * 50_000,
    "a missing value": b"a,y\n1,2\n,3\n",
    "NaN": b"a,y\nnan,2\n1,3\n",
    "infinity": b"a,y\n1e999,2\n1,3\n",
    "no inputs": b"y\n1\n2\n",
    "no such target": b"a,b\n1,2\n",
    "control characters": b"a,y\n\x1b[2J\x07,2\n",
    "10,000 columns": ",".join(f"c{i}" for i in range(10_000)).encode() + b"\n" + b"1," * 9_999 + b"1\n",
    "a long name": b"a" * 100_000 + b",y\nx,2\n",
    "one digit too many": b"a,y\n" + b"9" * 5000 + b",2\n",
}


def table_cases() -> Iterator[Case]:
    command = f"{SOLVE} --target y"
    for name, content in CSV.items():
        yield Case(f"a table of {name}", "a.csv", write(content), command)
    stream = io.BytesIO()
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0]}), stream)
    good = stream.getvalue()
    for size, content in cut(good, 8):
        yield Case(f"parquet cut after {size} bytes", "a.parquet", write(content), command)
    yield Case("parquet with a damaged foot", "a.parquet", write(good[:-40] + b"\xff" * 32 + good[-8:]), command)
    yield Case("parquet with a huge foot", "a.parquet", write(good[:-8] + b"\xff\xff\xff\x7fPAR1"), command)
    yield Case("text called parquet", "a.parquet", write(b"a,y\n1,2\n"), command)
    tables = {
        "lists": pa.table({"a": [[1.0], [2.0]], "y": [1.0, 2.0]}),
        "text": pa.table({"a": ["red", "blue"], "y": [1.0, 2.0]}),
        "nothing there": pa.table({"a": [1.0, None], "y": [1.0, 2.0]}),
        "no rows": pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}),
        "no columns": pa.table({}),
        "bytes as target": pa.table({"a": [1.0, 2.0], "y": [b"\x00", b"\xff"]}),
        "a name twice": pa.table([[1.0], [2.0], [3.0]], names=["a", "a", "y"]),
        "dates": pa.table({"a": pa.array([0, 1], pa.timestamp("s")), "y": [1.0, 2.0]}),
    }
    for name, table in tables.items():
        yield Case(f"parquet of {name}", "a.parquet", lambda path, t=table: parquet.write_table(t, path), command)
    yield Case("parquet that unfolds", "a.parquet", unfolding, command)


def unfolding(path: Path) -> None:
    """8 million rows, which are one number in fact."""
    table = pa.table({"a": np.zeros(10**6, dtype=np.int8), "y": np.zeros(10**6, dtype=np.int8)})
    with parquet.ParquetWriter(path, table.schema) as writer:
        for _ in range(8):
            writer.write_table(table)


def stored(content: object) -> Make:
    return lambda path: torch.save(content, path)


def torch_bytes(content: object) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def repickled(path: Path, code: bytes, **others: bytes) -> None:
    """A file of torch.save whose pickle is `code`."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", code)
        file.writestr("archive/version", "3\n")
        file.writestr("archive/byteorder", "little")
        for name, content in others.items():
            file.writestr(f"archive/data/{name.lstrip('_')}", content)


def claiming(path: Path) -> None:
    """A tensor of 10^9 rows on a storage that the file does not hold."""
    good = torch_bytes({"X": torch.zeros(1000, 3, dtype=torch.float64)})
    with zipfile.ZipFile(io.BytesIO(good)) as file:
        code = next(file.read(name) for name in file.namelist() if name.endswith("data.pkl"))
    repickled(path, code.replace(struct.pack("<BH", ord("M"), 3000), b"J\x00\x5e\xd0\xb2"), _0=bytes(8))


TENSORS: dict[str, object] = {
    "a tensor": torch.zeros(3),
    "a number": 5,
    "other names": {"x": torch.zeros(3, 3), "z": torch.zeros(3)},
    "no targets": {"X": torch.zeros(3, 3)},
    "a tensor that repeats one number": {"X": torch.zeros(1).expand(10**9, 3), "Y": torch.zeros(1).expand(10**9)},
    "no rows": {"X": torch.zeros(0, 3), "Y": torch.zeros(0, 1)},
    "NaN": {"X": torch.full((3, 3), torch.nan), "Y": torch.zeros(3)},
    "a module": {"X": torch.nn.Linear(2, 2), "Y": torch.zeros(3)},
    "brain floats, infinite": {"X": torch.full((3, 3), torch.inf, dtype=torch.bfloat16), "Y": torch.zeros(3)},
}


def torch_cases() -> Iterator[Case]:
    good = torch_bytes({"X": torch.from_numpy(X), "Y": torch.from_numpy(Y)})
    for size, content in cut(good, 6):
        yield Case(f"tensors cut after {size} bytes", "a.pt", write(content), SOLVE)
    for name, content in TENSORS.items():
        yield Case(f"tensors: {name}", "a.pt", stored(content), SOLVE)
    yield Case("code among the tensors", "a.pt", lambda path: torch.save({"X": Code(path)}, path), SOLVE)
    yield Case("code without an archive", "a.pt", lambda path: path.write_bytes(pickle.dumps(Code(path))), SOLVE)
    yield Case("code of the old format", "a.pt", old_format, SOLVE)
    yield Case("code by name", "a.pt", lambda path: repickled(path, by_name(path)), SOLVE)
    for name, code in PICKLES.items():
        yield Case(f"a pickle {name}", "a.pt", lambda path, c=code: repickled(path, c), SOLVE)
    yield Case("tensors that claim 10^9 rows", "a.pt", claiming, SOLVE)


PICKLES = {
    "of 2 GB of zeros": b"\x80\x02c__builtin__\nbytearray\n(J\0\0\0\x7ftR.",
    "that ends early": b"\x80\x02}(",
    "of noise": bytes(range(256)),
    "of a deep tuple": b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b".",
}


def old_format(path: Path) -> None:
    torch.save({"X": Code(path)}, path, _use_new_zipfile_serialization=False)


def by_name(path: Path) -> bytes:
    """A pickle, protocol 0, that calls os.mkdir."""
    return f"cos\nmkdir\n(V{path.parent / RAN}\ntR.".encode()


STATES: dict[str, object] = {
    "a module": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)),
    "sparse weights": {"0.weight": torch.eye(4, 3).to_sparse(), "1.weight": torch.zeros(2, 4)},
    "weights that repeat one number": {"0.weight": torch.zeros(1).expand(10**9, 3), "1.weight": torch.zeros(2, 4)},
    "keys that are numbers": {0: torch.zeros(4, 3), 1: torch.zeros(2, 4)},
    "keys with control characters": {"\x1b[31m": torch.zeros(4, 3)},
    "nothing": {},
    "a network of other data": torch.nn.Sequential(torch.nn.Linear(7, 4), torch.nn.Linear(4, 2)).state_dict(),
}
WEIGHTS: dict[str, dict[str, object]] = {
    "a gap in the names": {"W1": np.zeros((4, 4)), "W3": np.zeros((2, 5))},
    "text": {"W1": np.full((4, 4), "a"), "W2": np.zeros((2, 5))},
    "vectors": {"W1": np.zeros(4), "W2": np.zeros(5)},
    "infinite weights": {"W1": np.full((4, 4), np.inf), "W2": np.zeros((2, 5))},
    "weights whose squares overflow": {"W1": np.full((4, 4), 1e200), "W2": np.full((2, 5), 1e200)},
}


def network_cases() -> Iterator[Case]:
    command = "validate HERE/data.npz --net FILE --lam 0.1 --certify none --time-limit 1"

    def beside(make: Make) -> Make:
        def both(path: Path) -> None:
            np.savez(path.parent / "data.npz", X=X, Y=Y)
            make(path)

        return both

    for name, state in STATES.items():
        yield Case(f"a network: {name}", "net.pt", beside(stored(state)), command)
    for name, arrays in WEIGHTS.items():
        yield Case(f"weights: {name}", "net.npz", beside(write(archive(**arrays))), command)
    yield Case("a network that is code", "net.pt", beside(lambda path: torch.save(Code(path), path)), command)
    yield Case("a network that is text", "net.pt", beside(write(b"weights")), command)
    yield Case("weights that are pickles", "net.npz", beside(lambda path: pickled(path, "W1")), command)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(code: int, *shape: int, body: bytes | None = None) -> bytes:
    sizes = b"".join(struct.pack(">I", n) for n in shape)
    return b"\0\0" + bytes([code, len(shape)]) + sizes + (bytes(int(np.prod(shape))) if body is None else body)


def idx_cases() -> Iterator[Case]:
    images, labels = idx(8, 10, 4, 4), idx(8, 10)
    command = "solve mnist --data-dir HERE --lam 0.1 --certify none --time-limit 1"

    def pair(first: bytes, second: bytes = labels, suffix: str = "") -> Make:
        def make(path: Path) -> None:
            path.write_bytes(first)
            (path.parent / (LABELS + suffix)).write_bytes(second)

        return make

    for size, content in cut(gzip.compress(images), 8):
        yield Case(f"images cut after {size} bytes", f"{IMAGES}.gz", pair(content), command)
    lies = {
        "10^9 images": idx(8, 10**9, 28, 28, body=bytes(1000)),
        "2^96 pixels": idx(8, 2**32 - 1, 2**32 - 1, 2**32 - 1, body=bytes(1000)),
        "too few pixels": images[:-1],
        "too many pixels": images + b"\0",
        "pixels that are no bytes": idx(13, 10, 4, 4),
        "9 dimensions": b"\0\0\x08\x09" + bytes(36),
        "no images": idx(8, 0, 4, 4),
        "images without pixels": idx(8, 10, 0, 0),
        "labels for images": labels,
    }
    for name, content in lies.items():
        yield Case(f"an idx file of {name}", IMAGES, pair(content), command)
        yield Case(f"a packed idx file of {name}", f"{IMAGES}.gz", pair(gzip.compress(content)), command)
    yield Case("images that unfold", f"{IMAGES}.gz", pair(packed_zeros(60_000, 100, 100)), command)
    yield Case("images for labels", IMAGES, pair(images, images), command)
    yield Case("labels alone", LABELS, write(labels), command)


def packed_zeros(*shape: int) -> bytes:
    """An idx file of zeros, packed in parts."""
    parts, rest = divmod(int(np.prod(shape)), 10**7)
    return gzip.compress(idx(8, *shape, body=bytes(rest))) + gzip.compress(bytes(10**7), 1) * parts


VERIFY, SHOW, INIT = "verify HERE/run", "show HERE/run", "solve iris --lam 0.1 --init HERE/run --time-limit 1"
SUMMARIES: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "no entries": b"{}",
    "bytes": bytes(range(256)),
    "UTF-16": "{}".encode("utf-16"),
    "brackets": b"[" * 200_000,
    "a huge number": b'{"cost": ' + b"9" * 100_000 + b"}",
}
ENTRIES: dict[str, object] = {
    "widths": 5,
    "layers": [1, 2],
    "status": "excellent",
    "certificate": ["exact"],
    "lower": {"a": 1},
    "rows": ...,
    "depth": "deep",
    "seconds": "slow",
    "seed": 1.5,
    "data": ["\x1b[31m"],
    "loss": 7,
    "weighted": "yes",
    "skip": "yes",
}


@cache
def stored_run() -> Path:
    """A run, stored once."""
    path = Path(tempfile.mkdtemp()) / "run"
    toy_result(X=X, Y=Y).save(path)
    atexit.register(shutil.rmtree, path.parent)
    return path


def run_with(change: Callable[[Path], object]) -> Make:
    """A stored run, one of whose files is then changed."""

    def make(path: Path) -> None:
        shutil.copytree(stored_run(), path)
        change(path)

    return make


PARTS: dict[str, dict[str, object]] = {
    "network.npz": {"W1": np.zeros((4, 9)), "W2": None},
    "problem.npz": {
        "X": np.full((20, 3), np.nan),
        "Y": None,
        "loss": np.array("magic"),
        "lam": np.array(-1.0),
        "depth": np.array(10**9),
        "bias": np.array([1.0, 2.0]),
        "activation": np.array(7),
    },
    "certificate.npz": {"maximum": None, "Lambda": np.full((20, 2), "a")},
}
HISTORIES: dict[str, bytes] = {
    "nothing": b"",
    "text": b"iteration,seconds,cost,lower,width\n1,now,2,3,4\n",
    "other columns": b"a,b\n1,2\n",
    "NUL bytes": b"iteration,seconds,cost,lower,width\n\x00,1,2,3,4\n",
    "a huge field": b"iteration,seconds,cost,lower,width\n" + b"1" * 200_000,
    "bytes": bytes(range(256)),
}


def run_cases() -> Iterator[Case]:
    for name, content in SUMMARIES.items():
        change = run_with(lambda path, c=content: (path / "result.json").write_bytes(c))
        yield Case(f"result.json: {name}", "run", change, SHOW)
    for name, value in ENTRIES.items():
        yield Case(f"result.json: wrong {name}", "run", run_with(states("result.json", **{name: value})), SHOW)
    for file, parts in PARTS.items():
        yield Case(f"no {file}", "run", run_with(lambda path, f=file: (path / f).unlink()), VERIFY)
        yield Case(f"{file} of bytes", "run", run_with(lambda path, f=file: (path / f).write_bytes(b"PK" * 99)), INIT)
        yield Case(f"{file} with code", "run", run_with(lambda path, f=file: pickled_in(path / f)), VERIFY)
        for name, array in parts.items():
            yield Case(f"{file}: wrong {name}", "run", run_with(holds(file, **{name: array})), VERIFY)
    for file, name in {"network.npz": "W1", "problem.npz": "X", "certificate.npz": "Lambda"}.items():
        shape = {"W1": (4, 4), "X": (20, 3), "Lambda": (20, 2)}[name]
        array = np.full(shape, 1j)
        yield Case(f"{file}: complex {name}", "run", run_with(holds(file, **{name: array})), VERIFY)
    yield Case("network.npz: NaN", "run", run_with(holds("network.npz", W1=np.full((4, 4), np.nan))), INIT)
    for name, content in HISTORIES.items():
        change = run_with(lambda path, c=content: (path / "history.csv").write_bytes(c))
        yield Case(f"history.csv: {name}", "run", change, VERIFY)
    yield Case("a run of other data", "run", run_with(lambda path: None), INIT)
    yield Case("forces of a broken run", "run", run_with(holds("network.npz", W2=None)), "forces HERE/run")
    broken = run_with(holds("network.npz", W1=None))
    yield Case("a plateau from a broken run", "run", broken, INIT.replace("solve", "plateau"))
    yield Case("a file as a run", "run", write(b"{}"), SHOW)
    yield Case("a directory for a result", "run", lambda path: (path / "result.json").mkdir(parents=True), SHOW)


def pickled_in(path: Path) -> None:
    held = np.empty(3, dtype=object)
    held[0] = Code(path.parent)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **(arrays | {"W1": held}), allow_pickle=True)  # type: ignore[arg-type]


MANY = list(range(1, 1001))
SPECS: dict[str, bytes] = {
    "nothing": b"",
    "text": b"solve everything please",
    "bytes": bytes(range(256)),
    "NUL bytes": b'data = "iris"\0\n',
    "tables": b'[data]\nname = "iris"\n',
    "a key twice": b'data = "iris"\ndata = "wine"\n',
    "NaN": b'data = "iris"\nlam = [nan, nan]\n',
    "a file that is not there": b'data = "none.npz"\n',
    "a name with a NUL": b'data = "a\\u0000.npz"\n',
    "a name with control characters": b'data = "\\u001b[31m.npz"\n',
    "a key with control characters": b'"\\u001b[31m" = 1\n',
    "10^9 cells": f'data = "iris"\nseed = {MANY}\nwidth = {MANY}\nstarts = {MANY}\n'.encode(),
    "100,000 digits": b'data = "iris"\nseed = ' + b"9" * 100_000,
}
SWEPT = b'data = "linnerud"\nrows = 6\nlam = [0.1, 0.2]\nmax_iterations = 1\n'


def sweep_cases() -> Iterator[Case]:
    for name, content in SPECS.items():
        yield Case(f"a spec of {name}", "s.toml", write(content), "sweep FILE")
    databases: dict[str, Make] = {
        "the head of one": write(b"SQLite format 3\0" + bytes(84)),
        "bytes": write(b"SQLite format 3\0" + bytes(range(256)) * 64),
        "cells that are no JSON": swept("UPDATE cells SET options = '{'"),
        "results that are no JSON": swept("UPDATE cells SET outcome = '{', status = 'optimal'"),
        "results that are lists": swept("UPDATE cells SET outcome = '[1]', status = 'optimal'"),
        "other columns": swept("ALTER TABLE cells DROP COLUMN owner"),
        "half of a file": lambda path: (swept("SELECT 1")(path), path.write_bytes(path.read_bytes()[:5000])),
        "a directory": Path.mkdir,
    }
    for name, make in databases.items():
        yield Case(f"a database of {name}", "s.sqlite", with_spec(make), "sweep HERE/s.toml --resume")


def with_spec(make: Make) -> Make:
    return lambda path: ((path.parent / "s.toml").write_bytes(SWEPT), make(path))


def swept(statement: str) -> Make:
    """The file of the sweep before any cell is solved, spoilt by a statement."""

    def make(path: Path) -> None:
        with Store(path, read_grid(path.parent / "s.toml").cells):
            pass
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()

    return make


MATRICES: dict[str, np.ndarray] = {
    "text": np.full((3, 3), "a"),
    "fields": np.zeros((3, 3), dtype=[("a", "<f8")]),
    "infinity": np.full((3, 3), np.inf),
    "3 dimensions": np.zeros((3, 3, 3)),
    "a number": np.array(1.0),
    "dates": np.zeros((3, 3), dtype="datetime64[s]"),
}


def matrix_cases() -> Iterator[Case]:
    command = "cprank FILE --time-limit 1"
    for name, array in MATRICES.items():
        yield Case(f"a matrix of {name}", "a.npy", lambda path, a=array: np.save(path, a), command)
    for name, content in HEADERS.items():
        yield Case(f"a matrix with {name}", "a.npy", write(content), command)
    for size, content in cut(array_bytes(np.eye(9)), 8):
        yield Case(f"a matrix cut after {size} bytes", "a.npy", write(content), command)
    yield Case("a pickled matrix", "a.npy", pickled_matrix, command)
    yield Case("several matrices", "a.npz", write(archive(B=np.eye(2), C=np.eye(2))), command)
    for name, content in CSV.items():
        yield Case(f"a matrix that is a table of {name}", "a.csv", write(content), command)


def pickled_matrix(path: Path) -> None:
    held = np.empty((1, 1), dtype=object)
    held[0, 0] = Code(path)
    np.save(path, held, allow_pickle=True)


KINDS: dict[str, Callable[[], Iterator[Case]]] = {
    "npz": npz_cases,
    "table": table_cases,
    "torch": torch_cases,
    "network": network_cases,
    "idx": idx_cases,
    "run": run_cases,
    "sweep": sweep_cases,
    "matrix": matrix_cases,
}
