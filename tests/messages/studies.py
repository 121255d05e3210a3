"""Messages of validate, compare, plateau and sweep."""

import sqlite3
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from hostile import swept, with_spec
from joblib.externals.loky.process_executor import TerminatedWorkerError

import covopt
from covopt.studies.sweep import sweep
from covopt.studies.sweep.store import Counts
from covopt.studies.width import plateau
from messages import rows

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2
torch.manual_seed(0)
NET = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LeakyReLU(0.5), torch.nn.Linear(3, 1))
HUGE = [np.full((4, 3), 1e80), np.full((1, 5), 1e80)]
DATA = {"data": "iris", "rows": 6, "lam": 0.1}
FULL = OSError(28, "No space left on device")


def validate(net: object = NET, **options: object) -> object:
    return covopt.validate(net, X, Y, **({"lam": 0.1, "time_limit": 1.0} | options))  # type: ignore[arg-type]


def monitored(depth: int = 2, **options: object) -> object:
    """A Monitor beside the solver's answer for so many layers, and a look at NET."""
    known = covopt.solve(X, Y, lam=0.1, depth=depth, activation="leaky:0.5", time_limit=1.0, certify="none")
    return covopt.Monitor(X, Y, **({"lam": 0.1, "known": known} | options))(NET)  # type: ignore[arg-type]


def spec(text: str) -> dict:
    return {"s.toml": text.encode()}


def swept_with(target: str, error: object, here: Path, **options: object) -> object:
    with patch(f"covopt.studies.sweep.sweep.{target}", **({"side_effect": error} if error else {"new": None})):
        return sweep.sweep(DATA, here / "s.sqlite", **options)  # type: ignore[arg-type]


def table(here: Path, name: str = "t.csv") -> sweep.Sweep:
    return sweep.Sweep(here / "s.sqlite", Counts(0, 0, 0, 0), [])


def without_parquet(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep.parquet", None):
        return table(here).to_parquet(here / "t.parquet")


def full_disk(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep.os.replace", side_effect=FULL):
        return table(here).to_csv(here / "t.csv")


def without_workers(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep._backend", return_value=nullcontext()):
        return swept_with("_round", TimeoutError(), here, scheduler="tcp://10.0.0.1:8786")


def without_dask(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep.find_spec", return_value=None):
        return sweep.sweep(DATA, here / "s.sqlite", scheduler="tcp://10.0.0.1:8786")


def no_scheduler(here: Path) -> object:
    return swept_with("joblib.parallel_config", OSError(), here, scheduler="tcp://10.0.0.1:8786")


def full_file(here: Path) -> object:
    full = sqlite3.OperationalError("database or disk is full")
    with patch("covopt.studies.sweep.store.sqlite3.connect", side_effect=full):
        return sweep.sweep(DATA, here / "s.sqlite")


def busy(here: Path) -> object:
    """Another process holds the file, longer than we are ready to wait."""
    with patch("covopt.studies.sweep.store.PATIENCE", 0.1):
        connection = sqlite3.connect(here / "s.sqlite", isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        try:
            return sweep.sweep(DATA, here / "s.sqlite", resume=True)
        finally:
            connection.close()


def found(here: Path) -> plateau.Plateau:
    return covopt.plateau(X, Y, lam=0.1, widths=[2], starts=1, time_limit=1.0)


def deep() -> covopt.Depths:
    return covopt.depth(X, Y, lam=0.1, depths=[2], ranks=[], time_limit=0.5)


def misplaced(here: Path) -> object:
    """A run in the place of another depth's."""
    covopt.depth(X, Y, lam=0.1, depths=[2, 3], ranks=[], time_limit=1.0).save(here / "run")
    (here / "run" / "depths" / "2").rename(here / "run" / "depths" / "4")
    return covopt.load(here / "run")


ROWS = rows(
    globals(),
    r"""
    > covopt.Monitor(X, Y, lam=None, loss="interpolate")
    A Monitor follows a loss with a penalty; use another loss, and give its lam.
    > validate(bias=[1.0])  ->  bias is a list; give a number.
    > covopt.depth(X, Y, lam=0.1, seed="a")  ->  The seed is 'a'; give a whole number from 0 to 2^63 - 1.
    > covopt.cp_rank(np.eye(2), seed=1.5)  ->  The seed is 1.5; give a whole number from 0 to 2^63 - 1.
    > validate(time_limit="a")  ->  The time limit is 'a'; give seconds above 0.
    > monitored(known="run")  ->  known is 'run'; give an answer of covopt.solve.
    > monitored(known=None, rows=2, seed=1.5)  ->  The seed is 1.5; give a whole number from 0 to 2^63 - 1.
    > monitored(known=None, tolerance=2.0)  ->  The tolerance of a rank is 2; give a number above 0 and below 1.
    > validate(torch.nn.ModuleDict({"a": torch.nn.LazyLinear(3)}))
    'a.weight' in the network has no numbers yet; call the network once with inputs.
    > covopt.Monitor(X, Y, lam=0.1)(NET, "a")  ->  step is 'a'; give a whole number, at least 0.
    > covopt.Monitor(X, Y, lam=0.1)(NET, -1)  ->  step is -1; give a whole number, at least 0.
    > covopt.Monitor(X, Y, lam=0.1)(NET, True)  ->  step is true; give a whole number, at least 0.
    > covopt.Monitor(X, Y, lam=0.1, every=0)  ->  every is 0; give a whole number, at least 1.
    > covopt.Monitor(X, Y, lam=0.1, rows=7)  ->  rows is 7, but there are 6; give at most as many, or leave it out.
    > monitored(lam=0.2)
    The known answer is one to another question, which differs in lam; solve the one of the Monitor, on the rows of its `problem`.
    > monitored(3)
    The known answer is for depth 3 and leaky:0.5, but the network has depth 2 and leaky:0.5; leave it out.
    > monitored(known=None, lower=1000.0)
    The lower bound 1000 is above the loss ... of this network, so that it is none for these rows; leave it out.
    > validate(depth=3)  ->  The network has depth 2, not 3; leave the depth out.
    > validate(activation="relu")  ->  The network's activation is leaky:0.5, not relu; leave the activation out.
    > validate(HUGE)  ->  The network's loss on these data is not finite; check its weights and the scale of X.
    > validate(lam=None)
    The network misses the targets by up to 1.52, so that it has no representation cost; give the lam that it was trained with.
    > validate(at=np.ones((4, 3)))
    at has 3 columns, but the network takes 2 inputs; give inputs of the same kind as X.
    > validate(orbits=np.ones((4, 2)))
    orbits has 4 rows, but there are 6 inputs; give the transform of each, in the same order.
    > covopt.jacobians([np.full((4, 3), 1e200), np.full((1, 5), 1e200)], X)
    What is asked of the network is beyond what float64 holds; divide its weights or X by a number.
    > covopt.ntk(NET, np.ones((20000, 2)))  ->  The kernel would have 20000 rows; give at most 16384 inputs.
    > covopt.compare(X, Y, methods=["cone", "magic"])
    The methods to compare are cone, magic; use some of cone, hidden, train.
    > covopt.compare(np.eye(6), Y, methods=["train"])
    Training needs a penalty, and interpolate has none; give lam, or use the method cone.
    > covopt.plateau(X, Y, lam=0.1, time_limit=0.0)  ->  The time limit is 0.0; give seconds above 0.
    > covopt.plateau(X, Y, lam=0.1, layer=2)  ->  There is no hidden layer 2; give one from 1 to 1.
    > covopt.plateau(X, Y, lam=0.1, widths=[0, 3])  ->  The widths are 0, 3; give whole numbers of at least 1.
    > covopt.plateau(X, Y, lam=0.1, starts=-1)  ->  starts is -1; give a whole number from 0 to 1,000,000.
    > found(here).network(0)  ->  No network of width 0 was found; ask for a larger width.
    # Depths.
    > covopt.depth(X, Y, lam=0.1, time_limit=-1)  ->  The time limit is -1; give seconds above 0.
    > covopt.depth(X, Y, depths=[1, 3])  ->  The depths are a list; give whole numbers of at least 2.
    > covopt.depth(X, Y, depths=[])  ->  The depths are none; give whole numbers of at least 2.
    > covopt.depth(X, Y, ranks=3)  ->  The ranks are 3; give whole numbers of at least 1.
    > deep().network(7)  ->  No network of depth 7 was found; ask for one of 2.
    > covopt.depth(X, Y, lam=0.2, depths=[2], init=deep())
    The earlier answer is one to another question (data, weights, loss, lam, bias or activation); ask the same again.
    > covopt.depth(X, Y, lam=0.2, depths=[2], init=3)  ->  init is 3; give a Depths, a Result, or arrays W_1 ... W_L.
    > covopt.depth(X, Y, lam=0.2, depths=[2], init=[np.ones((1, 3)), np.ones((1, 2)), np.ones((1, 2))])
    init has depth 3, which is none of 2; ask for it too.
    > covopt.depth([[1.0], [1.0]], [[1.0], [2.0]], depths=[2, 3], time_limit=1.0)
    Rows 0 and 1 of X are equal but their targets differ, so no network fits them; drop or average such rows, or give lam and a loss.
    $ depth iris --depths 1:3  ->  --depths is '1:3'; give depths from 2 to 1000, the smaller one first.
    $ depth iris --depths two  ->  --depths is 'two'; give depths such as 2:8 or 2,3,5,9.
    $ depth iris --resume
    --resume goes on from the run in DIR of --out; give --out DIR, without --force and --init.
    $ depth iris --out HERE/run --resume
        with {"run": lambda path: covopt.solve(X, Y, lam=0.1, time_limit=1.0).save(path)}
    HERE/run holds no run of depth to go on from; choose another directory.
    > misplaced(here)  ->  HERE/run holds a run of another depth than it says; solve again with --out.
    # Sweeps: the grid.
    $ sweep HERE/s.toml
    HERE/s.toml cannot be read (No such file or directory); give a TOML file that describes a sweep.
    $ sweep HERE/s.toml  with spec("data = ")  ->  HERE/s.toml is not TOML (...); correct it there.
    $ sweep HERE/s.toml  with spec("seed = " + "[" * 100_000)
    HERE/s.toml is not TOML of options (it nests too deep); give each a value or a list.
    $ sweep HERE/s.toml  with spec('data = "iris"\nlamb = 1')  ->  'lamb' is no option of a sweep; did you mean lam.
    $ sweep HERE/s.toml  with spec('data = "iris"\nzzz = 1')
    'zzz' is no option of a sweep; use some of data, target, task, rows, shuffle, scale, data_dir, lam, loss, depth, bias, activation, method, certify, gap, tol, time_limit, max_iterations, width, max_width, starts, device, seed, test.
    $ sweep HERE/s.toml  with spec("lam = 1")
    The sweep names no data; give data = "digits", or another name or file.
    $ sweep HERE/s.toml  with spec('data = "iris"\nlam = []')
    The list of lam is empty, and so is the grid; give at least one value.
    $ sweep HERE/s.toml  with spec('data = "iris"\nlam = [1, 1.0]')
    The list of lam names a value twice; name each once.
    $ sweep HERE/s.toml  with spec('data = "iris"\nlam = "much"')  ->  lam is 'much'; give a number, or a list of them.
    $ sweep HERE/s.toml  with spec('data = "iris"\nlam = inf')  ->  lam is inf; give finite numbers.
    $ sweep HERE/s.toml  with spec('data = "iris"\nmethod = "magic"')
    method is 'magic'; use cone or hidden or train.
    $ sweep HERE/s.toml
        with spec('data = "a.npz"\nlam = 1') | {"a.npz": lambda path: np.savez(path, X=np.eye(3), y=np.ones(3) / 2, weights=np.arange(3.0))}
    covopt sweep counts all rows the same; leave the weights out, or repeat rows instead.
    $ sweep HERE/s.toml  with spec('data = "iris"\nlam = 1\nloss = "hinge"')
    The loss 'hinge' is unknown; use one of mse, cross_entropy, interpolate, huber, logistic, or huber:D with D > 0.
    $ sweep HERE/s.toml  with spec(f'data = "iris"\nseed = {list(range(2000))}\nwidth = {list(range(1, 2000))}')
    The grid has more than 1,000,000 cells; give shorter lists, or several sweeps.
    $ sweep HERE/s.toml --jobs 0  with spec('data = "iris"\nlam = 1')
    jobs is 0; give 1 or more, or -1 for all cores.
    # Sweeps: the file.
    $ sweep HERE/s.toml  with {**spec('data = "iris"\nlam = 1'), "s.sqlite": b""}
    HERE/s.sqlite exists already; go on with it by --resume, or choose another --database.
    $ sweep HERE/s.toml --database HERE/none/s.sqlite  with spec('data = "iris"\nlam = 1')
    HERE/none/s.sqlite cannot be written, because HERE/none is no directory; make it first.
    $ sweep HERE/s.toml --resume  with {**spec('data = "iris"\nlam = 1'), "s.sqlite": b"text" * 500}
    HERE/s.sqlite is no file of a sweep, or damaged; choose another --database.
    $ sweep HERE/s.toml --resume  with {"s.sqlite": with_spec(swept("PRAGMA application_id = 1"))}
    HERE/s.sqlite is no file of a sweep, or damaged; choose another --database.
    $ sweep HERE/s.toml --resume  with {"s.sqlite": with_spec(swept("UPDATE cells SET key = key || 'x'"))}
    HERE/s.sqlite holds another sweep (2 of its 2 cells are not in this one, or their data changed); choose another --database.
    $ sweep HERE/s.toml --resume  with {"s.sqlite": with_spec(swept("UPDATE cells SET options = '['"))}
    HERE/s.sqlite is damaged (an entry is no JSON object); choose another --database.
    > busy(here)  ->  HERE/s.sqlite is held by another process; continue with --resume when that has ended.
    > full_file(here)
    HERE/s.sqlite cannot be written or read (database or disk is full); what was stored is kept: make room or repair the disk, and continue with --resume.
    # Sweeps: workers and tables.
    > swept_with("_round", TerminatedWorkerError("gone"), here)
    A worker died, possibly out of memory; 0 cells are stored: continue with --resume and fewer --jobs.
    > without_workers(here)  ->  The scheduler at tcp://10.0.0.1:8786 has no workers; start some, or use --jobs.
    > without_dask(here)  ->  --scheduler needs dask; pip install '.[sweep]' in the checkout.
    > no_scheduler(here)  ->  No dask scheduler answers at tcp://10.0.0.1:8786; start one, or correct the address.
    > without_parquet(here)
    Writing .parquet needs pyarrow; pip install '.[parquet]' in the checkout, or write .csv.
    > full_disk(here)  ->  HERE/t.csv cannot be written (No space left on device); choose another name.
    $ sweep HERE/s.toml --csv HERE/t.csv  with {**spec('data = "iris"\nlam = 1'), "t.csv": b""}
    HERE/t.csv exists already; choose another name, or replace it with --force.
    $ sweep HERE/s.toml --csv HERE/none/t.csv  with spec('data = "iris"\nlam = 1')
    HERE/none/t.csv cannot be written, because there is no directory HERE/none; make it.
    """,
)
