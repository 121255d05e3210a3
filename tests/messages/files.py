"""Messages about files: data, tables, tensors, MNIST, trained networks, stored runs."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from hostile import (
    IMAGES,
    LABELS,
    Code,
    archive,
    bomb,
    claiming,
    header,
    idx,
    pickled,
    repickled,
    shaped,
    stored,
    unfolding,
    zipped,
)
from pyarrow import parquet

import covopt
from covopt.data.networks import as_network
from messages import Given, Row

X, Y = np.arange(8.0).reshape(4, 2), np.arange(4.0)[:, None]
SOLVE, TABLE = "solve HERE/a.npz", "solve HERE/a.csv --target y"
PARQUET, TENSORS = "solve HERE/a.parquet --target y", "solve HERE/a.pt"
MNIST, VERIFY = "solve mnist --data-dir HERE", "verify HERE/run"
NET, WEIGHTS = "validate HERE/a.npz --net HERE/net.pt --lam 1", "validate HERE/a.npz --net HERE/net.npz --lam 1"
Linear, ReLU = torch.nn.Linear, torch.nn.ReLU


class Squared(torch.nn.Module):
    """No network of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Linear(2, 3), Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).square())


def npz(**arrays: object) -> dict[str, Given]:
    return {"a.npz": archive(**arrays)}


def table(text: str) -> dict[str, Given]:
    return {"a.csv": text.encode()}


def columns(**values: object) -> dict[str, Given]:
    return {"a.parquet": lambda path: parquet.write_table(pa.table(values), path)}


def tensors(content: object) -> dict[str, Given]:
    return {"a.pt": stored(content)}


def net(state: object) -> dict[str, Given]:
    return {"net.pt": stored(state), **npz(X=X, Y=Y)}


def weights(**arrays: object) -> dict[str, Given]:
    return {"net.npz": archive(**arrays), **npz(X=X, Y=Y)}


def zeros(*shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """A state dict of weights."""
    return {f"{i}.weight": torch.zeros(shape) for i, shape in enumerate(shapes)}


def without_pyarrow(here: Path) -> object:
    with patch.dict(sys.modules, {"pyarrow.parquet": None}):
        return covopt.read_data(here / "a.parquet", target="y")


def without_openml(_: Path) -> object:
    with patch("covopt.data.mnist.datasets.fetch_openml", side_effect=OSError):
        return covopt.read_data("mnist")


ROWS = [
    # Which data.
    Row("There is no file or data set named 'digitz'; did you mean digits.", "solve digitz"),
    Row(
        "There is no file or data set named 'nothing-like-it'; give a file, or one of breast_cancer, diabetes, digits, iris, linnerud, wine, mnist.",
        "solve nothing-like-it",
    ),
    Row("There is no file HERE/none.npz; check the name.", "solve HERE/none.npz"),
    Row(
        "HERE/....npz cannot be read (File name too long); check its name and its permissions.",
        f"solve HERE/{'n' * 300}.npz",
    ),
    Row("HERE/a.npz is a directory; give a file.", "solve HERE/a.npz", {"a.npz": Path.mkdir}),
    Row(
        "HERE/a.csv is no ordinary file; copy what it gives into one.",
        "solve HERE/a.csv",
        {"a.csv": lambda path: path.symlink_to("/dev/zero")},
    ),
    Row(
        "HERE/a.xls is of no known format; give a .npz, .csv, .parquet or .pt file.", "solve HERE/a.xls", {"a.xls": b""}
    ),
    Row(
        "A column of weights is for .csv and .parquet files; leave --weights out for iris, and put an array weights into a .npz or .pt file.",
        "solve iris --weights w",
    ),
    Row(
        "weights in HERE/a.npz hold 2 numbers; give one for each of the 4 rows of X.",
        "solve HERE/a.npz",
        npz(X=X, Y=Y, weights=np.ones(2)),
    ),
    Row(
        "weights in HERE/a.npz have -1 at row 3; give weights of at least 0.",
        "solve HERE/a.npz",
        npz(X=X, Y=Y, weights=np.array([1, 1, 1, -1.0])),
    ),
    Row(
        "weights in HERE/a.npz are all 0; give at least one row a positive weight.",
        "solve HERE/a.npz",
        npz(X=X, Y=Y, weights=np.zeros(4)),
    ),
    Row(
        "All rows of HERE/a.npz that are taken have weight 0; take more of them.",
        "solve HERE/a.npz --rows 2",
        npz(X=X, Y=Y, weights=np.arange(4) // 2),
    ),
    Row("A target column is for .csv and .parquet files; leave --target out for iris.", "solve iris --target y"),
    Row("rows is 151, but iris has 150 rows; give a number from 1 to 150.", "solve iris --rows 151"),
    Row(
        "The task 'rank' is unknown; use regression or classification.", lambda _: covopt.read_data("iris", task="rank")
    ),
    Row("A directory of data is for mnist; leave --data-dir out for iris.", "solve iris --data-dir HERE"),
    Row(
        "Columns have names in .csv and .parquet files; leave --drop and --one-hot out for iris.", "solve iris --drop a"
    ),
    Row(
        "Shuffling draws the rows that --rows takes; give --rows too, or leave --shuffle out.", "solve iris --shuffle 1"
    ),
    Row("The seed of the shuffle is -1; give a whole number, at least 0.", "solve iris --rows 9 --shuffle -1"),
    Row(
        "Y in linnerud has 3 columns; give one column of classes, or leave the task out.",
        "solve linnerud --task classification",
    ),
    Row(
        "All rows of iris are taken, and no rest is left to test on; take fewer with --rows.",
        "solve iris --lam 1 --rows 150 --test rest",
    ),
    Row(
        "All rows of iris are taken, and no rest is left to test on; take fewer with --rows.",
        "path iris --test rest",
    ),
    Row("rows is 1.5; give a whole number.", lambda _: covopt.read_data("iris", rows=1.5)),  # type: ignore[arg-type]
    Row("The scale 'log' is unknown; use one of none, max, standard.", lambda _: covopt.read_data("iris", scale="log")),
    # Archives.
    Row("HERE/a.npz is not an .npz archive or is damaged; write it again with numpy.savez.", SOLVE, {"a.npz": b"text"}),
    Row(
        "The array X in HERE/a.npz holds Python objects, never read; save numbers or strings.",
        SOLVE,
        {"a.npz": pickled},
    ),
    Row("HERE/a.npz would unfold to 0.266 GiB; store it without compression, or in parts.", SOLVE, {"a.npz": bomb}),
    Row(
        "The array X in HERE/a.npz declares more than the file holds; write the file again.",
        SOLVE,
        {"a.npz": zipped(X=header(shaped("(1000000000, 3)")))},
    ),
    Row("HERE/a.npz has no X (it holds A); name the inputs X and the targets Y.", SOLVE, npz(A=X)),
    Row("HERE/a.npz has no Y or y (it holds X); name the inputs X and the targets Y.", SOLVE, npz(X=X)),
    Row("In HERE/a.npz X has 4 rows and Y has 3; give one row of targets for each input.", SOLVE, npz(X=X, Y=Y[:3])),
    Row(
        "X in HERE/a.npz does not hold real numbers (its type is <U32); give numbers.", SOLVE, npz(X=X.astype(str), Y=Y)
    ),
    Row(
        "X in HERE/a.npz has 3 dimensions; give a matrix with one row for each sample.",
        SOLVE,
        npz(X=X[:, :, None], Y=Y),
    ),
    Row("X in HERE/a.npz is empty (shape (4, 0)); give at least one row and one column.", SOLVE, npz(X=X[:, :0], Y=Y)),
    Row(
        "X in HERE/a.npz is empty (shape (0, 2)); give at least one row and one column.",
        SOLVE,
        npz(X=X[:0], Y=np.arange(0)),
    ),
    Row(
        "X in HERE/a.npz has NaN or infinite entries (first at row 2, column 0); remove or impute them.",
        SOLVE,
        npz(X=np.where(X > 3, np.nan, X), Y=Y),
    ),
    Row("X in HERE/a.npz has entries beyond 1e+75; divide it by its largest entry.", SOLVE, npz(X=X * 1e80, Y=Y)),
    Row(
        "Y in HERE/a.npz has 2000 classes on 2000 rows; give fewer classes, or numbers and the task regression.",
        SOLVE,
        npz(X=np.zeros((2000, 1)), Y=np.arange(2000).astype(str)),
    ),
    # Tables.
    Row(
        "HERE/a.csv is a table, so say which column holds the targets: --target with one of a, y.",
        "solve HERE/a.csv",
        table("a,y\n1,2\n"),
    ),
    Row("HERE/a.csv has no column 'z'; give one of a, y.", "solve HERE/a.csv --target z", table("a,y\n1,2\n")),
    Row("HERE/a.csv has no column beside the target 'y'; give at least one input.", TABLE, table("y\n1\n")),
    Row("HERE/a.csv is not a .csv file in UTF-8; save it as one.", TABLE, {"a.csv": b"\xff\xfe\x00"}),
    Row("HERE/a.csv is empty; give a first line with the names of the columns, and rows.", TABLE, table("")),
    Row(
        "The first line of HERE/a.csv must give each column a name of its own; add or repair it.",
        TABLE,
        table("1,2\n3,4\n"),
    ),
    Row("HERE/a.csv has no rows below the names of its columns; give at least one.", TABLE, table("a,y\n")),
    Row("Row 1 of HERE/a.csv has 1 cell for 2 columns; repair the row.", TABLE, table("a,y\n1,2\n3\n")),
    Row(
        "Column 'a' of HERE/a.csv has a missing value in row 0; impute what is missing, or leave out with --drop.",
        TABLE,
        table("a,y\n,2\n"),
    ),
    Row(
        "Columns 'a', 'b' of HERE/a.csv have missing values (first in row 0 of 'a'); impute what is missing, or leave out with --drop.",
        TABLE,
        table("a,b,y\n,1,2\n1,nan,2\n"),
    ),
    Row(
        "Columns 'a', 'b' of HERE/a.csv are not numeric (row 0 of 'a' holds 'red'); correct the cells, encode with --one-hot, or leave out with --drop.",
        TABLE,
        table("a,b,y\nred,1_000,2\n"),
    ),
    Row(
        "In HERE/a.csv 'a', 'b' are not numeric and 'c' has missing values; encode with --one-hot, impute, or leave out with --drop.",
        TABLE,
        table("a,b,c,y\nred,+-3,,2\n"),
    ),
    Row(
        "Column 'a' of HERE/a.csv has a missing value in row 1; impute what is missing, or leave out with --drop.",
        f"{TABLE} --one-hot a",
        table("a,y\nred,1\n,2\n"),
    ),
    Row(
        "Column 'a' of HERE/a.csv holds 1001 texts, too many for --one-hot; drop it.",
        f"{TABLE} --one-hot a",
        table("a,y\n" + "".join(f"t{i},2\n" for i in range(1001))),
    ),
    Row("HERE/a.csv has no column 'heigth'; did you mean height.", f"{TABLE} --drop heigth", table("height,y\n1,2\n")),
    Row(
        "Column 'a' of HERE/a.csv is asked for in two ways; make it target, weights, dropped or one-hot.",
        f"{TABLE} --drop a --one-hot a",
        table("a,b,y\n1,2,2\n"),
    ),
    Row(
        "Column 'a' of HERE/a.csv is not numeric (row 0 holds 'red'); correct the cells, encode with --one-hot, or leave out with --drop.",
        TABLE,
        table("a,y\nred,2\n"),
    ),
    Row(
        "The target 'y' of HERE/a.csv holds numbers, but row 1 holds '+-3'; correct the cell, or choose --task classification.",
        TABLE,
        table("a,y\n1,2\n2,+-3\n"),
    ),
    Row(
        "The target 'y' of HERE/a.csv is not finite (row 0 holds '1e400'); correct it.", TABLE, table("a,y\n1,1e400\n")
    ),
    Row(
        "Y in HERE/a.csv holds texts, not numbers; give numbers, or the task classification.",
        f"{TABLE} --task regression",
        table("a,y\n1,red\n"),
    ),
    Row("The target 'y' of HERE/a.csv has missing values; remove those rows.", TABLE, table("a,y\n1,\n")),
    Row(
        "Reading .parquet needs pyarrow; install it with: pip install '.[parquet]' in the checkout.",
        without_pyarrow,
        {"a.parquet": b""},
    ),
    Row("HERE/a.parquet is not a .parquet file or is damaged; write it again.", PARQUET, {"a.parquet": b"text"}),
    Row(
        "HERE/a.parquet would unfold to 0.596 GiB; store it without compression, or in parts.",
        PARQUET,
        {"a.parquet": unfolding},
    ),
    Row(
        "HERE/a.parquet has no rows or no columns; give at least one of each.",
        PARQUET,
        columns(a=pa.array([], pa.float64()), y=pa.array([], pa.float64())),
    ),
    Row(
        "HERE/a.parquet has two columns of one name; give each column a name of its own.",
        PARQUET,
        {"a.parquet": lambda path: parquet.write_table(pa.table([[1.0], [2.0], [3.0]], ["a", "a", "y"]), path)},
    ),
    Row(
        "The target 'y' of HERE/a.parquet holds neither numbers nor classes; give one of the two.",
        PARQUET,
        columns(a=[1.0], y=[b"\xff"]),
    ),
    Row(
        "Column 'a' of HERE/a.parquet is not numeric (row 0 holds a list); correct the cells, encode with --one-hot, or leave out with --drop.",
        PARQUET,
        columns(a=[[1.0]], y=[1.0]),
    ),
    # Tensors.
    Row(
        "HERE/a.pt is not a file of torch.save or is damaged; save the tensors with torch.save({'X': X, 'Y': Y}, file).",
        TENSORS,
        {"a.pt": b"text"},
    ),
    Row(
        "HERE/a.pt holds more than tensors (a pickled module, say), which is never loaded; save the tensors with torch.save({'X': X, 'Y': Y}, file).",
        TENSORS,
        {"a.pt": lambda path: torch.save({"X": Code(path)}, path)},
    ),
    Row(
        "HERE/a.pt is not a file of torch.save or is damaged; save the tensors with torch.save({'X': X, 'Y': Y}, file).",
        TENSORS,
        {"a.pt": lambda path: repickled(path, b"\x80\x02}(")},
    ),
    Row(
        "HERE/a.pt holds more than tensors (a pickled module, say), which is never loaded; save the tensors with torch.save({'X': X, 'Y': Y}, file).",
        TENSORS,
        {"a.pt": lambda path: repickled(path, b"\x80\x02}K\x01K\x02a.")},
    ),
    Row(
        "HERE/a.pt declares more than the file holds; save the tensors with torch.save({'X': X, 'Y': Y}, file).",
        TENSORS,
        {"a.pt": bomb},
    ),
    Row(
        "HERE/a.pt holds a list, not a dictionary with X and Y; save the tensors with torch.save({'X': X, 'Y': Y}, file).",
        TENSORS,
        tensors([1, 2]),
    ),
    Row(
        "X in HERE/a.pt is not a dense tensor; save X.to_dense().",
        TENSORS,
        tensors({"X": torch.eye(3).to_sparse(), "Y": torch.zeros(3)}),
    ),
    Row(
        "X in HERE/a.pt declares more than it stores; save X.contiguous().",
        TENSORS,
        tensors({"X": torch.zeros(1).expand(9, 3), "Y": torch.zeros(9)}),
    ),
    Row(
        "HERE/a.pt is not a file of torch.save or is damaged; save the tensors with torch.save({'X': X, 'Y': Y}, file).",
        TENSORS,
        {"a.pt": claiming},
    ),
    # MNIST.
    Row(
        "MNIST could not be fetched from OpenML; put train-images-idx3-ubyte and train-labels-idx1-ubyte (or .gz) into a directory and give it with --data-dir.",
        without_openml,
    ),
    Row(
        "There is no train-images-idx3-ubyte (or train-images-idx3-ubyte.gz) in HERE; put the files of MNIST there.",
        MNIST,
    ),
    Row(
        "HERE/train-images-idx3-ubyte is not an idx file of bytes or is damaged; fetch it again.",
        MNIST,
        {IMAGES: b"text"},
    ),
    Row(
        "The files in HERE are not images and labels of MNIST; fetch them again.",
        MNIST,
        {IMAGES: idx(8, 9), LABELS: idx(8, 9)},
    ),
    Row(
        "HERE/train-images-idx3-ubyte.gz would unfold to 0.251 GiB; store it without compression, or in parts.",
        MNIST,
        {f"{IMAGES}.gz": gzip.compress(idx(8, 3000, 300, 300), 1)},
    ),
    # Trained networks.
    Row("There is no file HERE/none.net; check the name.", "validate HERE/a.npz --net HERE/none.net", npz(X=X, Y=Y)),
    Row(
        "HERE/net.h5 is of no known format; give a .pt file with a state dict, or a .npz file with W1 ... WL.",
        "validate HERE/a.npz --net HERE/net.h5",
        {"net.h5": b"", **npz(X=X, Y=Y)},
    ),
    Row(
        "HERE/net.pt holds a list, not a state dict; save the state dict of Linear layers with torch.save(model.state_dict(), file).",
        NET,
        net([1]),
    ),
    Row(
        "'0.weight' in HERE/net.pt is no weight or bias of a Linear layer; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.",
        NET,
        net({"0.weight": 1.0}),
    ),
    Row(
        "'0' in HERE/net.pt has a bias and no weight; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.",
        NET,
        net({"0.bias": torch.zeros(3)}),
    ),
    Row(
        "'0' in HERE/net.pt has 3 neurons and a bias of 4; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.",
        NET,
        net({"0.weight": torch.zeros(3, 2), "0.bias": torch.zeros(4)}),
    ),
    Row(
        "'0.weight' in HERE/net.pt has 3 dimensions (a convolution, say), not 2; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.",
        NET,
        net(zeros((3, 2, 2), (1, 3))),
    ),
    Row(
        "'0.weight' in HERE/net.pt does not hold real numbers (its type is complex64); give numbers.",
        NET,
        net({"0.weight": torch.zeros(3, 2, dtype=torch.complex64)}),
    ),
    Row(
        "'0.weight' in HERE/net.pt has a NaN or infinite entry at (0, 0); train the network again.",
        NET,
        net({"0.weight": torch.full((3, 2), torch.nan)}),
    ),
    Row("HERE/net.pt has 1 layer of weights; give at least two.", NET, net(zeros((3, 2)))),
    Row(
        "In HERE/net.pt '0.weight' has 3 rows, but '1.weight' takes 4 inputs; give layers that fit on each other, in their order.",
        NET,
        net(zeros((3, 2), (1, 4))),
    ),
    Row(
        "'0.bias' in HERE/net.pt is not zero, but the bias is 0; give the bias that it was trained with.",
        f"{NET} --bias 0",
        net({"0.weight": torch.zeros(3, 2), "0.bias": torch.ones(3)}),
    ),
    Row(
        "HERE/net.npz holds A; name the weights W1 ... WL, the bias column last in each, and no more.",
        WEIGHTS,
        weights(A=X),
    ),
    Row(
        "The last column of W1 in HERE/net.npz is not zero, but the bias is 0; give the bias that it was trained with.",
        f"{WEIGHTS} --bias 0",
        weights(W1=np.ones((3, 3)), W2=np.zeros((1, 4))),
    ),
    Row(
        "The network is none; give an nn.Sequential, a state dict, or arrays W_1 ... W_L.", lambda _: as_network(5, 1.0)
    ),
    Row("the network has 1 layer of weights; give at least two.", lambda _: as_network(Linear(2, 1), 1.0)),
    Row(
        "The network is a Squared that does not answer as its Linear layers with one activation between them do; give them as an nn.Sequential, without anything that changes its inputs or outputs.",
        lambda _: as_network(Squared(), 1.0),
    ),
    Row(
        "The network holds a BatchNorm1d; fold it into the Linear layer before it with torch.nn.utils.fusion.fuse_linear_bn_eval.",
        lambda _: as_network(torch.nn.Sequential(Linear(2, 3), torch.nn.BatchNorm1d(3), ReLU(), Linear(3, 1)), 1.0),
    ),
    Row(
        "'1.running_mean' in HERE/net.pt is no weight or bias of a Linear layer but BatchNorm's; fold it into the Linear layer before it with torch.nn.utils.fusion.fuse_linear_bn_eval.",
        NET,
        net({"0.weight": torch.ones(3, 2), "1.weight": torch.ones(3), "1.running_mean": torch.zeros(3)}),
    ),
    Row(
        "HERE/better.txt is to hold a network; give a name that ends in .pt (a state dict) or .npz.",
        f"{NET} --escape HERE/better.txt",
        net({}),
    ),
    Row(
        "The network holds a Tanh where it cannot be; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.",
        lambda _: as_network(torch.nn.Sequential(Linear(2, 3), torch.nn.Tanh(), Linear(3, 1)), 1.0),
    ),
    Row(
        "The network has 1 Linear layer; give at least two.",
        lambda _: as_network(torch.nn.Sequential(Linear(2, 1)), 1.0),
    ),
    Row(
        "The network's activations differ, or stand after its last layer; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.",
        lambda _: as_network(torch.nn.Sequential(Linear(2, 3), Linear(3, 1), ReLU()), 1.0),
    ),
]
