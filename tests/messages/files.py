"""Messages about files: data, tables, tensors, MNIST, trained networks, stored runs."""

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
from messages import Given, rows

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


ROWS = rows(
    globals(),
    r"""
    # Which data.
    $ solve digitz  ->  There is no file or data set named 'digitz'; did you mean digits.
    $ solve nothing-like-it
    There is no file or data set named 'nothing-like-it'; give a file, or one of breast_cancer, diabetes, digits, iris, linnerud, wine, mnist.
    $ solve HERE/none.npz  ->  There is no file HERE/none.npz; check the name.
    $ solve HERE/LONG.npz  ->  HERE/....npz cannot be read (File name too long); check its name and its permissions.
    $ solve HERE/a.npz  with {"a.npz": Path.mkdir}  ->  HERE/a.npz is a directory; give a file.
    $ solve HERE/a.csv  with {"a.csv": lambda path: path.symlink_to("/dev/zero")}
    HERE/a.csv is no ordinary file; copy what it gives into one.
    $ solve HERE/a.xls  with {"a.xls": b""}
    HERE/a.xls is of no known format; give a .npz, .csv, .parquet or .pt file.
    $ solve iris --weights w
    A column of weights is for .csv and .parquet files; leave --weights out for iris, and put an array weights into a .npz or .pt file.
    $ solve HERE/a.npz  with npz(X=X, Y=Y, weights=np.ones(2))
    weights in HERE/a.npz hold 2 numbers; give one for each of the 4 rows of X.
    $ solve HERE/a.npz  with npz(X=X, Y=Y, weights=np.array([1, 1, 1, -1.0]))
    weights in HERE/a.npz have -1 at row 3; give weights of at least 0.
    $ solve HERE/a.npz  with npz(X=X, Y=Y, weights=np.zeros(4))
    weights in HERE/a.npz are all 0; give at least one row a positive weight.
    $ solve HERE/a.npz --rows 2  with npz(X=X, Y=Y, weights=np.arange(4) // 2)
    All rows of HERE/a.npz that are taken have weight 0; take more of them.
    $ solve iris --target y  ->  A target column is for .csv and .parquet files; leave --target out for iris.
    $ solve iris --rows 151  ->  rows is 151, but iris has 150 rows; give a number from 1 to 150.
    > covopt.read_data("iris", task="rank")  ->  The task 'rank' is unknown; use regression or classification.
    $ solve iris --data-dir HERE  ->  A directory of data is for mnist; leave --data-dir out for iris.
    $ solve iris --drop a  ->  Columns have names in .csv and .parquet files; leave --drop and --one-hot out for iris.
    $ solve iris --shuffle 1  ->  Shuffling draws the rows that --rows takes; give --rows too, or leave --shuffle out.
    $ solve iris --rows 9 --shuffle -1  ->  The seed of the shuffle is -1; give a whole number, at least 0.
    $ solve linnerud --task classification
    Y in linnerud has 3 columns; give one column of classes, or leave the task out.
    $ solve iris --lam 1 --rows 150 --test rest
    All rows of iris are taken, and no rest is left to test on; take fewer with --rows.
    $ path iris --test rest  ->  All rows of iris are taken, and no rest is left to test on; take fewer with --rows.
    > covopt.read_data("iris", rows=1.5)  ->  rows is 1.5; give a whole number.
    > covopt.read_data("iris", scale="log")  ->  The scale 'log' is unknown; use one of none, max, standard.
    # Archives.
    $ solve HERE/a.npz  with {"a.npz": b"text"}
    HERE/a.npz is not an .npz archive or is damaged; write it again with numpy.savez.
    $ solve HERE/a.npz  with {"a.npz": pickled}
    The array X in HERE/a.npz holds Python objects, never read; save numbers or strings.
    $ solve HERE/a.npz  with {"a.npz": bomb}
    HERE/a.npz would unfold to 0.266 GiB; store it without compression, or in parts.
    $ solve HERE/a.npz  with {"a.npz": zipped(X=header(shaped("(1000000000, 3)")))}
    The array X in HERE/a.npz declares more than the file holds; write the file again.
    $ solve HERE/a.npz  with npz(A=X)  ->  HERE/a.npz has no X (it holds A); name the inputs X and the targets Y.
    $ solve HERE/a.npz  with npz(X=X)  ->  HERE/a.npz has no Y or y (it holds X); name the inputs X and the targets Y.
    $ solve HERE/a.npz  with npz(X=X, Y=Y[:3])
    In HERE/a.npz X has 4 rows and Y has 3; give one row of targets for each input.
    $ solve HERE/a.npz  with npz(X=X.astype(str), Y=Y)
    X in HERE/a.npz does not hold real numbers (its type is <U32); give numbers.
    $ solve HERE/a.npz  with npz(X=X[:, :, None], Y=Y)
    X in HERE/a.npz has 3 dimensions; give a matrix with one row for each sample.
    $ solve HERE/a.npz  with npz(X=X[:, :0], Y=Y)
    X in HERE/a.npz is empty (shape (4, 0)); give at least one row and one column.
    $ solve HERE/a.npz  with npz(X=X[:0], Y=np.arange(0))
    X in HERE/a.npz is empty (shape (0, 2)); give at least one row and one column.
    $ solve HERE/a.npz  with npz(X=np.where(X > 3, np.nan, X), Y=Y)
    X in HERE/a.npz has NaN or infinite entries (first at row 2, column 0); remove or impute them.
    $ solve HERE/a.npz  with npz(X=X * 1e80, Y=Y)
    X in HERE/a.npz has entries beyond 1e+75; divide it by its largest entry.
    $ solve HERE/a.npz  with npz(X=np.zeros((2000, 1)), Y=np.arange(2000).astype(str))
    Y in HERE/a.npz has 2000 classes on 2000 rows; give fewer classes, or numbers and the task regression.
    # Tables.
    $ solve HERE/a.csv  with table("a,y\n1,2\n")
    HERE/a.csv is a table, so say which column holds the targets: --target with one of a, y.
    $ solve HERE/a.csv --target z  with table("a,y\n1,2\n")  ->  HERE/a.csv has no column 'z'; give one of a, y.
    $ solve HERE/a.csv --target y  with table("y\n1\n")
    HERE/a.csv has no column beside the target 'y'; give at least one input.
    $ solve HERE/a.csv --target y  with {"a.csv": b"\xff\xfe\x00"}
    HERE/a.csv is not a .csv file in UTF-8; save it as one.
    $ solve HERE/a.csv --target y  with table("")
    HERE/a.csv is empty; give a first line with the names of the columns, and rows.
    $ solve HERE/a.csv --target y  with table("1,2\n3,4\n")
    The first line of HERE/a.csv must give each column a name of its own; add or repair it.
    $ solve HERE/a.csv --target y  with table("a,y\n")
    HERE/a.csv has no rows below the names of its columns; give at least one.
    $ solve HERE/a.csv --target y  with table("a,y\n1,2\n3\n")
    Row 1 of HERE/a.csv has 1 cell for 2 columns; repair the row.
    $ solve HERE/a.csv --target y  with table("a,y\n,2\n")
    Column 'a' of HERE/a.csv has a missing value in row 0; impute what is missing, or leave out with --drop.
    $ solve HERE/a.csv --target y  with table("a,b,y\n,1,2\n1,nan,2\n")
    Columns 'a', 'b' of HERE/a.csv have missing values (first in row 0 of 'a'); impute what is missing, or leave out with --drop.
    $ solve HERE/a.csv --target y  with table("a,b,y\nred,1_000,2\n")
    Columns 'a', 'b' of HERE/a.csv are not numeric (row 0 of 'a' holds 'red'); correct the cells, encode with --one-hot, or leave out with --drop.
    $ solve HERE/a.csv --target y  with table("a,b,c,y\nred,+-3,,2\n")
    In HERE/a.csv 'a', 'b' are not numeric and 'c' has missing values; encode with --one-hot, impute, or leave out with --drop.
    $ solve HERE/a.csv --target y --one-hot a  with table("a,y\nred,1\n,2\n")
    Column 'a' of HERE/a.csv has a missing value in row 1; impute what is missing, or leave out with --drop.
    $ solve HERE/a.csv --target y --one-hot a  with table("a,y\n" + "".join(f"t{i},2\n" for i in range(1001)))
    Column 'a' of HERE/a.csv holds 1001 texts, too many for --one-hot; drop it.
    $ solve HERE/a.csv --target y --drop heigth  with table("height,y\n1,2\n")
    HERE/a.csv has no column 'heigth'; did you mean height.
    $ solve HERE/a.csv --target y --drop a --one-hot a  with table("a,b,y\n1,2,2\n")
    Column 'a' of HERE/a.csv is asked for in two ways; make it target, weights, dropped or one-hot.
    $ solve HERE/a.csv --target y  with table("a,y\nred,2\n")
    Column 'a' of HERE/a.csv is not numeric (row 0 holds 'red'); correct the cells, encode with --one-hot, or leave out with --drop.
    $ solve HERE/a.csv --target y  with table("a,y\n1,2\n2,+-3\n")
    The target 'y' of HERE/a.csv holds numbers, but row 1 holds '+-3'; correct the cell, or choose --task classification.
    $ solve HERE/a.csv --target y  with table("a,y\n1,1e400\n")
    The target 'y' of HERE/a.csv is not finite (row 0 holds '1e400'); correct it.
    $ solve HERE/a.csv --target y --task regression  with table("a,y\n1,red\n")
    Y in HERE/a.csv holds texts, not numbers; give numbers, or the task classification.
    $ solve HERE/a.csv --target y  with table("a,y\n1,\n")
    The target 'y' of HERE/a.csv has missing values; remove those rows.
    > without_pyarrow(here)  with {"a.parquet": b""}
    Reading .parquet needs pyarrow; install it with: pip install '.[parquet]' in the checkout.
    $ solve HERE/a.parquet --target y  with {"a.parquet": b"text"}
    HERE/a.parquet is not a .parquet file or is damaged; write it again.
    $ solve HERE/a.parquet --target y  with {"a.parquet": unfolding}
    HERE/a.parquet would unfold to 0.596 GiB; store it without compression, or in parts.
    $ solve HERE/a.parquet --target y  with columns(a=pa.array([], pa.float64()), y=pa.array([], pa.float64()))
    HERE/a.parquet has no rows or no columns; give at least one of each.
    $ solve HERE/a.parquet --target y
        with {"a.parquet": lambda path: parquet.write_table(pa.table([[1.0], [2.0], [3.0]], ["a", "a", "y"]), path)}
    HERE/a.parquet has two columns of one name; give each column a name of its own.
    $ solve HERE/a.parquet --target y  with columns(a=[1.0], y=[b"\xff"])
    The target 'y' of HERE/a.parquet holds neither numbers nor classes; give one of the two.
    $ solve HERE/a.parquet --target y  with columns(a=[[1.0]], y=[1.0])
    Column 'a' of HERE/a.parquet is not numeric (row 0 holds a list); correct the cells, encode with --one-hot, or leave out with --drop.
    # Tensors.
    $ solve HERE/a.pt  with {"a.pt": b"text"}
    HERE/a.pt is not a file of torch.save or is damaged; save the tensors with torch.save({'X': X, 'Y': Y}, file).
    $ solve HERE/a.pt  with {"a.pt": lambda path: torch.save({"X": Code(path)}, path)}
    HERE/a.pt holds more than tensors (a pickled module, say), which is never loaded; save the tensors with torch.save({'X': X, 'Y': Y}, file).
    $ solve HERE/a.pt  with {"a.pt": lambda path: repickled(path, b"\x80\x02}(")}
    HERE/a.pt is not a file of torch.save or is damaged; save the tensors with torch.save({'X': X, 'Y': Y}, file).
    $ solve HERE/a.pt  with {"a.pt": lambda path: repickled(path, b"\x80\x02}K\x01K\x02a.")}
    HERE/a.pt holds more than tensors (a pickled module, say), which is never loaded; save the tensors with torch.save({'X': X, 'Y': Y}, file).
    $ solve HERE/a.pt  with {"a.pt": bomb}
    HERE/a.pt declares more than the file holds; save the tensors with torch.save({'X': X, 'Y': Y}, file).
    $ solve HERE/a.pt  with tensors([1, 2])
    HERE/a.pt holds a list, not a dictionary with X and Y; save the tensors with torch.save({'X': X, 'Y': Y}, file).
    $ solve HERE/a.pt  with tensors({"X": torch.eye(3).to_sparse(), "Y": torch.zeros(3)})
    X in HERE/a.pt is not a dense tensor; save X.to_dense().
    $ solve HERE/a.pt  with tensors({"X": torch.zeros(1).expand(9, 3), "Y": torch.zeros(9)})
    X in HERE/a.pt declares more than it stores; save X.contiguous().
    $ solve HERE/a.pt  with {"a.pt": claiming}
    HERE/a.pt is not a file of torch.save or is damaged; save the tensors with torch.save({'X': X, 'Y': Y}, file).
    # MNIST.
    > without_openml(here)
    MNIST could not be fetched from OpenML; put train-images-idx3-ubyte and train-labels-idx1-ubyte (or .gz) into a directory and give it with --data-dir.
    $ solve mnist --data-dir HERE
    There is no train-images-idx3-ubyte (or train-images-idx3-ubyte.gz) in HERE; put the files of MNIST there.
    $ solve mnist --data-dir HERE  with {IMAGES: b"text"}
    HERE/train-images-idx3-ubyte is not an idx file of bytes or is damaged; fetch it again.
    $ solve mnist --data-dir HERE  with {IMAGES: idx(8, 9), LABELS: idx(8, 9)}
    The files in HERE are not images and labels of MNIST; fetch them again.
    $ solve mnist --data-dir HERE  with {f"{IMAGES}.gz": gzip.compress(idx(8, 3000, 300, 300), 1)}
    HERE/train-images-idx3-ubyte.gz would unfold to 0.251 GiB; store it without compression, or in parts.
    # Trained networks.
    $ validate HERE/a.npz --net HERE/none.net  with npz(X=X, Y=Y)  ->  There is no file HERE/none.net; check the name.
    $ validate HERE/a.npz --net HERE/net.h5  with {"net.h5": b"", **npz(X=X, Y=Y)}
    HERE/net.h5 is of no known format; give a .pt file with a state dict, or a .npz file with W1 ... WL.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net([1])
    HERE/net.pt holds a list, not a state dict; save the state dict of Linear layers with torch.save(model.state_dict(), file).
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net({"0.weight": 1.0})
    '0.weight' in HERE/net.pt is no weight or bias of a Linear layer; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net({"0.bias": torch.zeros(3)})
    '0' in HERE/net.pt has a bias and no weight; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net({"0.weight": torch.zeros(3, 2), "0.bias": torch.zeros(4)})
    '0' in HERE/net.pt has 3 neurons and a bias of 4; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net(zeros((3, 2, 2), (1, 3)))
    '0.weight' in HERE/net.pt has 3 dimensions (a convolution, say), not 2; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net({"0.weight": torch.zeros(3, 2, dtype=torch.complex64)})
    '0.weight' in HERE/net.pt does not hold real numbers (its type is complex64); give numbers.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net({"0.weight": torch.full((3, 2), torch.nan)})
    '0.weight' in HERE/net.pt has a NaN or infinite entry at (0, 0); train the network again.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net(zeros((3, 2)))
    HERE/net.pt has 1 layer of weights; give at least two.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1  with net(zeros((3, 2), (1, 4)))
    In HERE/net.pt '0.weight' has 3 rows, but '1.weight' takes 4 inputs; give layers that fit on each other, in their order.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1 --bias 0
        with net({"0.weight": torch.zeros(3, 2), "0.bias": torch.ones(3)})
    '0.bias' in HERE/net.pt is not zero, but the bias is 0; give the bias that it was trained with.
    $ validate HERE/a.npz --net HERE/net.npz --lam 1  with weights(A=X)
    HERE/net.npz holds A; name the weights W1 ... WL, the bias column last in each, and no more.
    $ validate HERE/a.npz --net HERE/net.npz --lam 1 --bias 0  with weights(W1=np.ones((3, 3)), W2=np.zeros((1, 4)))
    The last column of W1 in HERE/net.npz is not zero, but the bias is 0; give the bias that it was trained with.
    > as_network(5, 1.0)  ->  The network is none; give an nn.Sequential, a state dict, or arrays W_1 ... W_L.
    > as_network(Linear(2, 1), 1.0)  ->  the network has 1 layer of weights; give at least two.
    > as_network(Squared(), 1.0)
    The network is a Squared that does not answer as its Linear layers with one activation between them do; give them as an nn.Sequential, without anything that changes its inputs or outputs.
    > as_network(torch.nn.Sequential(Linear(2, 3), torch.nn.BatchNorm1d(3), ReLU(), Linear(3, 1)), 1.0)
    The network holds a BatchNorm1d; fold it into the Linear layer before it with torch.nn.utils.fusion.fuse_linear_bn_eval.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1
        with net({"0.weight": torch.ones(3, 2), "1.weight": torch.ones(3), "1.running_mean": torch.zeros(3)})
    '1.running_mean' in HERE/net.pt is no weight or bias of a Linear layer but BatchNorm's; fold it into the Linear layer before it with torch.nn.utils.fusion.fuse_linear_bn_eval.
    $ validate HERE/a.npz --net HERE/net.pt --lam 1 --escape HERE/better.txt  with net({})
    HERE/better.txt is to hold a network; give a name that ends in .pt (a state dict) or .npz.
    > as_network(torch.nn.Sequential(Linear(2, 3), torch.nn.Tanh(), Linear(3, 1)), 1.0)
    The network holds a Tanh where it cannot be; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.
    > as_network(torch.nn.Sequential(Linear(2, 1)), 1.0)  ->  The network has 1 Linear layer; give at least two.
    > as_network(torch.nn.Sequential(Linear(2, 3), Linear(3, 1), ReLU()), 1.0)
    The network's activations differ, or stand after its last layer; give Linear layers with one kind of ReLU, LeakyReLU or Identity between them.
    """,
)
