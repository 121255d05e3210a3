import gzip
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import Run
from sklearn import datasets

import covopt
from covopt.data import mnist
from covopt.data.data import read_data
from covopt.runtime.errors import CovoptWarning, DataError

X = np.arange(12.0).reshape(4, 3)
Y = np.array([[0.5], [1.5], [-1.0], [2.0]])


def stored(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


# ---- targets, rows and scales
def test_npz_holds_numbers(tmp_path: Path) -> None:
    for name in ("Y", "y"):
        got = read_data(stored(tmp_path / "a.npz", X=X, **{name: Y[:, 0]}))
        np.testing.assert_array_equal(got.X, X)
        np.testing.assert_array_equal(got.Y, Y)
        assert (got.classes, got.rows, got.scale, got.X.dtype) == (None, 4, "none", np.float64)


@pytest.mark.parametrize(
    ("targets", "classes"),
    [
        (np.array([7, -1, 7, 3] * 5), ("-1", "3", "7")),
        (np.array([7, 3, 7, 3] * 5, dtype=np.uint8), ("3", "7")),
        (np.array([True, False, True, True]), ("False", "True")),
        (np.array(["b", "a", "c", "a"]), ("a", "b", "c")),
        (np.array([["b"], ["a"], ["c"], ["a"]]), ("a", "b", "c")),
    ],
)
def test_classes_have_columns_of_the_whole_set(tmp_path: Path, targets: np.ndarray, classes: tuple[str, ...]) -> None:
    inputs = np.arange(float(len(targets)))[:, None]
    got = read_data(stored(tmp_path / "a.npz", X=inputs, y=targets), rows=2)
    assert (got.classes, got.Y.shape) == (classes, (2, len(classes)))
    assert [classes[i] for i in got.Y.argmax(axis=1)] == [str(t) for t in targets.ravel()[:2]]
    np.testing.assert_array_equal(got.Y.sum(axis=1), 1.0)


def test_several_columns_of_integers_are_numbers(tmp_path: Path) -> None:
    targets = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    got = read_data(stored(tmp_path / "a.npz", X=X, y=targets))
    np.testing.assert_array_equal(got.Y, targets)
    assert got.classes is None


def test_scales_measure_the_whole_set(tmp_path: Path) -> None:
    inputs = np.array([[1.0, 5.0, 0.1], [2.0, 5.0, 0.1], [-8.0, 5.0, 0.1]])
    file = stored(tmp_path / "a.npz", X=inputs, y=Y[:3])
    np.testing.assert_allclose(read_data(file, rows=2, scale="max").X, inputs[:2] / 8.0)
    standard = read_data(file, scale="standard").X
    np.testing.assert_allclose(standard[:, 0], (inputs[:, 0] - inputs[:, 0].mean()) / inputs[:, 0].std())
    np.testing.assert_array_equal(standard[:, 1:], 0.0)
    np.testing.assert_array_equal(read_data(file, rows=1, scale="standard").X, standard[:1])
    np.testing.assert_array_equal(read_data(stored(tmp_path / "0.npz", X=0 * X, y=Y), scale="max").X, 0.0)


def test_digits_over_sixteen() -> None:
    got = read_data("digits", rows=30, scale="max")
    raw = datasets.load_digits()
    np.testing.assert_array_equal(got.X, raw.data[:30] / 16)
    np.testing.assert_array_equal(got.Y, np.eye(10)[raw.target[:30]])
    assert (got.name, read_data("digits").columns) == ("digits", None)


@pytest.mark.parametrize(
    ("name", "shape", "targets"),
    [
        ("iris", (150, 4), 3),
        ("wine", (178, 13), 3),
        ("breast_cancer", (569, 30), 2),
        ("diabetes", (442, 10), 1),
        ("linnerud", (20, 3), 3),
    ],
)
def test_shipped_sets(name: str, shape: tuple[int, int], targets: int) -> None:
    got = read_data(name)
    assert (got.X.shape, got.Y.shape) == (shape, (shape[0], targets))
    assert (got.classes is None) == (name in ("diabetes", "linnerud"))
    names = (("setosa", "versicolor", "virginica"), "sepal length (cm)")
    assert name != "iris" or (got.classes, got.columns[0]) == names


# ---- tables
def table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_csv(tmp_path: Path) -> None:
    got = read_data(table(tmp_path / "a.csv", "\ufeffheight, kind,weight\n1,x,2\n\n3,y,4e-1\n"), target="kind")
    np.testing.assert_array_equal(got.X, [[1.0, 2.0], [3.0, 0.4]])
    assert got.classes == ("x", "y")


def test_several_targets_of_a_table(tmp_path: Path, run: Run) -> None:
    file = table(tmp_path / "a.csv", "a,b,c\n" + "".join(f"{n},{n % 3},{n * n}\n" for n in range(20)))
    got = read_data(file, target=["c", "a"])
    np.testing.assert_array_equal(got.Y, [[n * n, n] for n in range(20)])
    assert (got.columns, got.targets) == (("b",), "2 outputs, targets read as numbers")
    table(tmp_path / "p.csv", "c,b,a\n9,1,4\n")  # in another order
    question = ["--target", "c", "--target", "a", "--lam", "1", "--time-limit", "2"]
    code, _, said = run("solve", str(file), *question, "--test", str(tmp_path / "p.csv"), "--out", str(tmp_path / "r"))
    assert (code, said) == (0, "")
    result = covopt.load(tmp_path / "r")
    assert result.test is not None
    assert result.test["loss"] == pytest.approx(((result.predict([[1.0]]) - [9.0, 4.0]) ** 2).sum())
    assert result.columns == ("b",)


def test_csv_few_whole_numbers_are_classes_and_decimals_are_not(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", "a,b,c\n" + "1,10,1.0\n2,9,2\n" * 5)
    assert read_data(file, target="b").classes == ("9", "10")
    got = read_data(file, target="c")
    assert got.classes is None
    np.testing.assert_array_equal(got.Y, [[1.0], [2.0]] * 5)


def test_parquet_reads_as_csv_does(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"a": [1.5, 2.5], "n": [1, 2], "s": ["u", "v"], "flag": [True, False]})
    parquet.write_table(table.select(["a", "n", "s"]), tmp_path / "a.parquet")
    got = read_data(tmp_path / "a.parquet", target="s")
    np.testing.assert_array_equal(got.X, [[1.5, 1.0], [2.5, 2.0]])
    assert got.classes == ("u", "v")
    parquet.write_table(table.select(["a", "flag"]), tmp_path / "b.parquet")
    assert read_data(tmp_path / "b.parquet", target="flag").classes == ("False", "True")


# ---- tensors
def test_torch_tensors(tmp_path: Path) -> None:
    tensors = {"X": torch.tensor(X, dtype=torch.bfloat16, requires_grad=True), "Y": torch.tensor([1, 0, 1, 2])}
    torch.save(tensors, tmp_path / "a.pt")
    got = read_data(tmp_path / "a.pt", task="classification")
    np.testing.assert_array_equal(got.X, X)
    assert got.classes == ("0", "1", "2")


def refused(message: str, source: object, **options: object) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_data(source, **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text


# ---- MNIST
def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4), dtype=np.uint8)
LABELS = np.array([3, 1, 3, 0, 9, 1], dtype=np.uint8)


@pytest.mark.parametrize("names", [("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), None])
def test_mnist_files(tmp_path: Path, names: tuple[str, str] | None) -> None:
    if names:
        (tmp_path / names[0]).write_bytes(idx(IMAGES))
        (tmp_path / names[1]).write_bytes(idx(LABELS))
    else:
        (tmp_path / "train-images.idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES), mtime=0))
        (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS), mtime=0))
    got = read_data("mnist", data_dir=tmp_path, rows=3, scale="max")
    np.testing.assert_allclose(got.X, IMAGES[:3].reshape(3, 16) / IMAGES.max())
    assert got.classes == ("0", "1", "3", "9")
    np.testing.assert_array_equal(got.Y.argmax(axis=1), [2, 1, 2])


def test_mnist_from_openml(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> tuple:
        return IMAGES.reshape(6, 16).astype(float), np.array([str(n) for n in LABELS], dtype=object)

    monkeypatch.setattr(mnist.datasets, "fetch_openml", fetch)
    assert read_data("mnist").classes == ("0", "1", "3", "9")


# ---- tasks, draws and columns
def test_the_task_chooses_between_numbers_and_classes(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", "a,y\n1,3\n2,5\n3,3\n")
    assert read_data(file, target="y", task="classification").targets == "2 classes, one-hot"
    numbers = read_data(file, target="y", task="regression")
    np.testing.assert_array_equal(numbers.Y, [[3.0], [5.0], [3.0]])
    assert (numbers.classes, numbers.targets) == (None, "targets read as numbers")
    halves = stored(tmp_path / "b.npz", X=X, y=np.array([0.5, 1.5, 0.5, 0.5]))
    assert read_data(halves).targets is None
    got = read_data(halves, task="classification")
    assert got.classes == ("0.5", "1.5")
    np.testing.assert_array_equal(got.Y, [[1, 0], [0, 1], [1, 0], [1, 0]])


def test_rows_are_drawn_without_repetition_and_repeatably() -> None:
    whole = read_data("iris")
    got = read_data("iris", rows=60, shuffle=3)
    np.testing.assert_array_equal(got.X, read_data("iris", rows=60, shuffle=3).X)
    assert not np.array_equal(got.X, read_data("iris", rows=60, shuffle=4).X)
    pairs, all_pairs = (sorted(map(tuple, np.hstack([d.X, d.Y]))) for d in (got, whole))
    assert all(pairs.count(pair) <= all_pairs.count(pair) for pair in pairs)
    assert sorted(map(tuple, np.hstack([(d := read_data("iris", rows=150, shuffle=1)).X, d.Y]))) == all_pairs
    assert got.Y.any(axis=0).all()


def test_a_class_that_is_missing_is_told() -> None:
    with pytest.warns(CovoptWarning, match="50 rows of iris there is none of class versicolor, virginica; draw them"):
        got = read_data("iris", rows=50)
    assert (got.Y.shape, got.targets) == ((50, 3), "3 classes, one-hot (2 not among the rows)")
    with pytest.warns(CovoptWarning, match="take more of them"):
        read_data("iris", rows=1, shuffle=0)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble])
def test_other_precisions_are_read_without_a_warning(tmp_path: Path, kind: type) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = read_data(stored(tmp_path / "a.npz", X=X.astype(kind), Y=Y.astype(kind)))
    np.testing.assert_array_equal(got.X, X)
    np.testing.assert_array_equal(got.Y, Y)
    assert got.X.dtype == got.Y.dtype == np.float64


def test_booleans_of_pandas_are_numbers(tmp_path: Path) -> None:
    got = read_data(table(tmp_path / "a.csv", "flag,y,kind\nTrue,0.5,False\nFalse,1.5,True\n"), target="kind")
    np.testing.assert_array_equal(got.X, [[1.0, 0.5], [0.0, 1.5]])
    assert got.classes == ("False", "True")


def test_columns_are_dropped_and_made_one_hot(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", "id,city,age,y\nq,Rome,30,0.5\nr,Oslo,20,1.5\ns,Rome,10,2.5\n")
    got = read_data(file, target="y", drop=["id"], one_hot=["city"])
    assert got.columns == ("city=Oslo", "city=Rome", "age")
    np.testing.assert_array_equal(got.X, [[0, 1, 30], [1, 0, 20], [0, 1, 10]])


@pytest.mark.parametrize("cell", ["+-3", "1_000", "0x10", "１２", "1e400", "inf", "1,5", "--1", "1e", ".", "+"])
def test_odd_cells_are_no_numbers(tmp_path: Path, cell: str) -> None:
    refused("'a' of .* not numeric", table(tmp_path / "a.csv", f'a,y\n"{cell}",0.5\n2,1\n'), target="y")
    refused("the cell|correct it", table(tmp_path / "b.csv", f'a,y\n1,0.5\n2,"{cell}"\n'), target="y")


@pytest.mark.parametrize("cell", ["-0", "+3", ".5", "5.", "1e5", "-1.25E-3", "007"])
def test_ways_to_write_a_number(tmp_path: Path, cell: str) -> None:
    assert read_data(table(tmp_path / "a.csv", f"a,y\n{cell},0.5\n2,1\n"), target="y").X[0, 0] == float(cell)
