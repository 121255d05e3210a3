"""`covopt-check`: a copied file, without covopt, proves what `verify` passes and refuses what was tampered with."""

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import editing
import numpy as np
import pytest
from editing import Change, arrays, certified, forged
from runs import toy_result
from tampering import forgeries, tamperings

import covopt
from covopt.runtime.loop import Status

FILE = Path(covopt.__file__).parent / "check.py"
PROVED, REFUSED, UNREAD, UNCHECKED = range(4)
DEADLINE = 60.0


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The file alone, from a place where covopt is not."""
    copy = tmp_path_factory.mktemp("alone") / "copied.py"
    shutil.copy(FILE, copy)
    spec = importlib.util.spec_from_file_location("copied", copy)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(where: Path) -> None:
    """A small run of each kind that is covered, called by it, and of some that are not."""
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((12, 12)), rng.standard_normal((12, 2))
    classes = np.eye(2)[np.arange(12) % 2]
    full, fast = {"certify": "full", "gap": 3e-3}, {"certify": "fast", "time_limit": 0.6}
    ask: dict[str, tuple[np.ndarray, np.ndarray, dict[str, object]]] = {
        "exact": (X[:, :1], Y, {"lam": 1e-2}),
        "sphere": (X[:, :2], Y[:, :1], {"lam": 2e-2, "gap": 1e-2}),
        "interpolate": (X[:6, :1], Y[:6, :1], {}),
        "leaky": (X[:, :1], Y[:, :1], {"lam": 1e-2, "activation": "leaky:-0.3", "sample_weight": np.arange(1.0, 13.0)}),
        "linear": (X[:, :4], Y, {"lam": 1e-2, "activation": "linear"}),
        "entropy": (X[:, :1], classes, {"lam": 1e-2, "loss": "cross_entropy"}),
        "huber": (X[:, :1], Y[:, :1], {"lam": 1e-2, "loss": "huber:0.5"}),
        "logistic": (X[:, :1], np.sign(Y[:, :1]), {"lam": 1e-2, "loss": "logistic"}),
        "spectral": (X, Y, {"lam": 5e-2, **fast}),
        "spectral fit": (X[:6], Y[:6], {"bias": 0.0, "certify": "fast", "max_iterations": 3}),
        "branch-and-bound": (X[:, :4], Y, {"lam": 0.1, "bias": 0.0, "certify": "full", "gap": 1e-2}),
        "sign-branching": (X[:10, :7], Y[:10], {"lam": 0.03, "bias": 0.0, "activation": "leaky:0.1", **full}),
        "stationarity": (X[:10, :7], Y[:10], {"lam": 0.03, "bias": 0.0, "certify": "full", "gap": 3e-4}),
        "free": (X[:, :1], Y[:, :1], {"lam": 1e-2, "bias": "free"}),
        "free spectral": (X[:, :8], Y[:, :1], {"lam": 5e-2, "bias": "free", **fast}),
        "skip": (X[:, :1] + 3.0, Y, {"lam": 1e-2, "bias": "free", "skip": True}),
        "skip fit": (X[:6, :1], Y[:6, :1], {"bias": "free", "skip": True, "activation": "leaky:0.3"}),
        "skip spectral": (X[:, :6], Y[:, :1], {"lam": 5e-2, "bias": "free", "skip": True, **fast}),
        "deep": (X[:, :1], Y[:, :1], {"lam": 5e-2, "depth": 3, "time_limit": 0.6}),
    }
    plain = {name: lambda path: path.write_bytes(b"") for name in ("figure.png", "report.html")}
    for name, (inputs, targets, options) in ask.items():
        ended = {"time_limit": 60.0, "gap": 1e-2}  # the gap ends them long before, on a busy machine too
        covopt.solve(inputs, targets, **(ended | options)).save(where / name, others=plain)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs")
    make(where)
    return where


def test_it_runs_alone_and_without_covopt(stored: Path, tmp_path: Path) -> None:
    shutil.copy(FILE, tmp_path / "check.py")
    told = subprocess.run(
        [sys.executable, "-I", tmp_path / "check.py", stored / "exact"], capture_output=True, text=True, check=False
    )
    assert told.returncode == PROVED, told
    assert told.stdout.startswith("verdict      proved: ")
    nodes = list(ast.walk(ast.parse(FILE.read_text())))
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    modules = {str(node.module).split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported | modules <= sys.stdlib_module_names | {"numpy"}
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 1900


def test_it_proves_what_verify_passes(checker: ModuleType, stored: Path) -> None:
    for run in sorted(stored.iterdir()):
        code, told = checker.check(run, DEADLINE)
        verified, stated = covopt.verify(run), json.loads((run / "result.json").read_text())
        assert verified.passed, verified.message
        assert verified.cost == pytest.approx(stated["cost"], rel=1e-12)
        rounding = 1e-9 if stated["certificate"] in ("exact", "spectral") else 2e-7
        assert verified.lower == pytest.approx(stated["lower"], rel=rounding)
        assert code == PROVED, (run.name, told)
        assert told["cost"] == pytest.approx(stated["cost"], rel=1e-12)
        if stated["lower"] is not None:
            # A proof is asked for the stated bound less 1e-9 of the cost; some prove just that, up to rounding.
            assert stated["cost"] * (1 + 1e-9) >= told["bound"] >= stated["lower"] - (1e-9 + 1e-15) * stated["cost"]


def states(**values: object) -> Change:
    """Other entries in result.json; a function is asked with what is there."""
    return forged(editing.states("result.json", **values), certified)


def both(problem: dict[str, np.ndarray], **values: object) -> Change:
    """Entries in problem.npz and in result.json that agree, the status that such a bound allows among them."""
    return forged(arrays("problem.npz", **problem), states(**({"target": None, "status": "converged"} | values)))


def raised(part: float) -> Change:
    """A higher bound, to which gap and status fit."""
    lower = lambda s: s["lower"] + part * (s["cost"] - s["lower"]) + 1e-8 * s["cost"]  # noqa: E731
    return states(lower=lower, gap=lambda s: 1.0 - lower(s) / s["cost"], target=None, status="converged")


def infeasible(run: Path) -> None:
    """A longer dual point, whose D is above the bound, though some direction is above 1."""
    arrays("certificate.npz", Lambda=lambda L: 1.05 * L)(run)
    raised(0.5)(run)


TAMPERED: list[tuple[str, Callable[[Path], object]]] = [
    ("exact", arrays("network.npz", W1=lambda W: 0.999 * W)),
    ("exact", arrays("network.npz", W2=lambda W: W + 1e-6)),
    ("exact", arrays("network.npz", W1=lambda W: W[:, :-1])),
    ("exact", arrays("network.npz", W1=lambda W: np.full_like(W, np.nan))),
    ("exact", arrays("problem.npz", X=lambda X: X + 1e-6)),
    ("exact", arrays("problem.npz", X=lambda X: X[:-1])),
    ("exact", arrays("problem.npz", Y=lambda Y: 1.001 * Y)),
    ("exact", arrays("problem.npz", Y=lambda Y: np.full_like(Y, np.inf))),
    ("exact", arrays("problem.npz", lam=lambda lam: 1.01 * lam)),
    ("exact", arrays("problem.npz", bias=lambda bias: 0.5 * bias)),
    ("exact", arrays("problem.npz", activation=lambda name: np.array("linear"))),
    ("exact", arrays("problem.npz", loss=lambda name: np.array("interpolate"))),
    ("exact", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("exact", arrays("certificate.npz", Lambda=lambda L: 0.999 * L)),
    ("exact", infeasible),
    ("exact", arrays("certificate.npz", Lambda=lambda L: L[:-1])),
    ("exact", arrays("certificate.npz", Lambda=lambda L: np.full_like(L, np.nan))),
    ("exact", states(cost=lambda s: 0.9999 * s["cost"])),
    ("exact", states(norm=lambda s: 1.0001 * s["norm"])),
    ("exact", states(fit=None)),
    ("exact", states(certificate="laplacian")),
    ("exact", states(widths=lambda s: [s["widths"][0] + 1])),
    ("exact", states(lower=None)),
    ("exact", states(gap=lambda s: 0.5 * s["gap"])),
    ("spectral", states(gap=lambda s: 0.5 * s["gap"])),
    ("exact", raised(0.5)),
    ("sphere", raised(1e-2)),
    ("leaky", arrays("problem.npz", weights=lambda w: w[::-1])),
    ("linear", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("entropy", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("interpolate", arrays("network.npz", W2=lambda W: (1 + 1e-9) * W)),
    ("spectral", raised(0.5)),  # on a busy machine the solve states less than the checker proves
    ("branch-and-bound", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("branch-and-bound", raised(0.9999)),
    ("sign-branching", arrays("certificate.npz", values=lambda v: 0.99 * v)),
    ("sign-branching", arrays("certificate.npz", values=lambda v: v[:-1])),
    ("sign-branching", arrays("certificate.npz", splits=lambda s: np.append(s, s[-1:]))),
    ("sign-branching", arrays("certificate.npz", splits=lambda s: s[:1] * 0 - 1)),
    ("sign-branching", raised(0.5)),
    ("sign-branching", arrays("certificate.npz", heights=lambda h: h[:0], stages=lambda s: 0 * s)),
    ("stationarity", arrays("certificate.npz", heights=lambda h: h[:0], stages=lambda s: 0 * s)),
    ("stationarity", arrays("certificate.npz", heights=lambda h: 0.5 * h)),
    ("stationarity", arrays("certificate.npz", heights=lambda h: np.append(h, 0.5 * h[-1]), stages=lambda s: s + 1)),
    ("stationarity", arrays("certificate.npz", stages=lambda s: 0 * s)),
    ("stationarity", arrays("certificate.npz", values=lambda v: 0.99 * v)),
    ("stationarity", arrays("certificate.npz", values=lambda v: np.append(v, 0.0))),
    ("stationarity", raised(0.5)),
    ("free", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("skip", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("skip", arrays("network.npz", W2=lambda W: W + 1e-3 * (np.arange(W.shape[1]) == W.shape[1] - 2))),
    ("skip", arrays("network.npz", W2=lambda W: np.delete(W, -2, axis=1))),
    ("skip", arrays("problem.npz", X=lambda X: X + 1e-6 * np.arange(12.0)[:, None] ** 2)),
    ("skip", arrays("problem.npz", skip=lambda skip: ~skip)),
    ("skip", arrays("problem.npz", bias=lambda bias: np.array(1.0))),
    ("skip", states(skip=False)),
    ("skip", states(norm=lambda s: s["norm"] + 1e-3)),
    ("skip", raised(0.5)),
    ("skip fit", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("skip spectral", arrays("problem.npz", activation=lambda name: np.array("leaky:-0.5"))),
    ("skip spectral", raised(1e-2)),
    ("exact", arrays("problem.npz", bias=lambda bias: np.array("1.0"))),
    ("exact", both({"bias": np.array("0.5")}, bias="0.5")),
    ("exact", both({"bias": np.array("3/5")}, bias="3/5")),
    ("exact", arrays("problem.npz", bias=lambda bias: np.array(True))),
    ("exact", arrays("problem.npz", bias=lambda bias: np.array([1.0, 1.0]))),
    ("exact", arrays("problem.npz", lam=lambda lam: np.array(f"{lam}"))),
    ("exact", arrays("problem.npz", lam=lambda lam: lam + 0j)),
    ("exact", arrays("problem.npz", depth=lambda depth: np.array(2.0))),
    ("exact", both({"activation": np.array("0.0")}, activation="0.0")),
    ("exact", both({"loss": np.array("huber:-1")}, loss="huber:-1")),
    ("exact", both({}, certificate="act")),
    ("exact", both({}, certificate="")),
    ("exact", both({}, certificate="exact branch-and-bound")),
    ("exact", both({}, certificate="sign-branching")),
    ("exact", both({}, certificate="relaxation")),
    ("exact", both({}, certificate="spectral")),
    ("sign-branching", both({}, certificate="exact")),
    ("sign-branching", both({}, certificate="branch-and-bound")),
    ("exact", both({}, lower=False, gap=1.0, status="converged")),
    ("exact", states(status="optimal", target=None)),
    ("exact", editing.states("result.json", target=...)),
    ("exact", states(status="unsolved", target=None)),
    ("exact", states(status="perfect", target=None)),
    ("exact", states(target=True)),
    ("exact", states(rows=10.0)),
    ("exact", states(depth=True)),
    ("exact", states(cost=True)),
    ("exact", states(gap="0")),
    ("exact", states(weighted=0)),
    ("interpolate", states(status="unsolved")),
    ("exact", lambda run: shutil.copy(run.parent / "other" / "network.npz", run / "network.npz")),
    ("exact", lambda run: (run / "history.csv").write_text("")),
    ("exact", lambda run: (run / "certificate.npz").write_bytes(b"PK")),
    ("exact", lambda run: (run / "problem.npz").unlink()),
    ("exact", lambda run: (run / "result.json").write_text("[" * 100000)),
]


def test_what_was_tampered_with_is_refused(checker: ModuleType, stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored / "sphere", tmp_path / "other")
    assert editing.accepted(lambda run: checker.check(run, DEADLINE), stored, TAMPERED, tmp_path / "run") == []


def test_it_proves_no_cost_and_no_bound_that_verify_refuses(checker: ModuleType, stored: Path, tmp_path: Path) -> None:
    """Every entry and every file; what verify checks besides cost and bound is not asked here."""
    others = ("layers", "starts", "seconds", "seed", "method", "certify", "timing", "history", "state dict")
    others += ("attainable", "residual", "target", "data", "scale", "shuffle", "test", "version", "bias 1", "unique")
    for tampering in [*list(tamperings(stored / "exact"))[::2], *forgeries(stored / "exact")]:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(stored / "exact", tmp_path / "run")
        tampering.change(tmp_path / "run")
        code, _ = checker.check(tmp_path / "run", DEADLINE)
        if code == PROVED and not any(other in tampering.name for other in others):
            assert covopt.verify(tmp_path / "run").passed, tampering.name


@pytest.mark.parametrize("seed", range(12))
def test_cones_prove_the_maximum_and_nothing_below_it(checker: ModuleType, seed: int) -> None:
    """A hundred thousand directions and ascents from the best of them come near the maximum, from below."""
    rng = np.random.default_rng(seed)
    N, d, m, slope = rng.integers(1, 8), rng.integers(1, 4), rng.integers(1, 4), (0.0, 0.0, 0.3, -0.5)[seed % 4]
    X, Lambda = (rng.standard_normal((N, k)) * 10.0 ** rng.integers(-60, 60) for k in (d, m))
    w = rng.standard_normal((100_000, d))
    for _ in range(300):
        z = (w := w / np.linalg.norm(w, axis=1)[:, None]) @ X.T
        outputs = np.where(z > 0, z, slope * z) @ Lambda
        best = np.argsort(-np.linalg.norm(outputs, axis=1))[:50]
        largest, size = float(np.linalg.norm(outputs[best[0]])), np.abs(outputs).max()
        pull = (np.where(z[best] > 0, 1.0, slope) * (outputs[best] / size @ Lambda.T)) @ X
        near = w[best] + 1e-3 * rng.standard_normal((50, d))
        w = np.concatenate([w[best], near, pull / np.abs(pull).max()])
    rows, e = checker.scaled(X.tolist())
    frame = checker.Frame(rows, e, [[Fraction(x) for x in row] for row in Lambda.tolist()])

    def proved(part: float) -> bool:
        return checker.below(frame, Fraction(largest) * Fraction(part), Fraction(slope), time.monotonic() + DEADLINE)

    assert not proved(1 - 1e-9)
    assert proved(1 + 1e-5)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "huber:0.5"])
def test_costs_are_exact(checker: ModuleType, tmp_path: Path, loss: str) -> None:
    """Of a network that nobody optimised; covopt's own number comes from another program."""
    result = toy_result(loss=loss, proved=False, status=Status.CONVERGED)
    result.save(tmp_path / "run")
    assert checker.check(tmp_path / "run", DEADLINE)[0] == PROVED  # which states no bound
    low, high = checker.Run(tmp_path / "run").cost()["cost"]
    assert 0 <= high - low <= Fraction(1, 10**30)
    assert float(low) == pytest.approx(result.cost, rel=1e-14)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("output", "why"),
    [("full", "No space left on device"), ("closed", "Bad file descriptor"), ("unread", "Broken pipe")],
)
def test_a_verdict_that_cannot_be_written_is_not_refused(stored: Path, output: str, why: str) -> None:
    reader, unread = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full:
        told = subprocess.run(
            [sys.executable, FILE, stored / "exact"],
            stdout=full if output == "full" else unread,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            preexec_fn=(lambda: os.close(1)) if output == "closed" else None,
        )
    os.close(unread)
    assert told.returncode == UNREAD
    assert told.stderr.splitlines() == [f"the verdict cannot be written: {why}"]


def test_a_verdict_on_a_name_beyond_ascii_is_written(tmp_path: Path) -> None:
    (tmp_path / "Läufe").mkdir()
    (tmp_path / "Läufe" / "result.json").write_text('{"target": 0.1, "files": {"ä.npz": "0"}}', encoding="utf-8")
    command = [sys.executable, FILE, tmp_path / "Läufe"]
    environment = {"PATH": "", "PYTHONIOENCODING": "ascii"}
    told = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert (told.returncode, told.stderr) == (REFUSED, "")
    assert "ä.npz is missing" in told.stdout


def test_what_is_no_solve_is_said_to_be_unchecked_or_unread(checker: ModuleType, tmp_path: Path) -> None:
    assert checker.check(tmp_path, DEADLINE)[0] == UNREAD
    assert checker.check(tmp_path / "nowhere", DEADLINE)[0] == UNREAD
    (tmp_path / "plateau.json").write_text('{"kind": "plateau"}')
    code, told = checker.check(tmp_path, DEADLINE)
    assert code == UNCHECKED
    assert "not the run of a solve" in told["why"]
    (tmp_path / "plateau.json").rename(tmp_path / "origin.json")
    assert checker.check(tmp_path, DEADLINE)[0] == UNREAD


def test_damaged_summaries_are_said_in_words(checker: ModuleType, stored: Path, tmp_path: Path) -> None:
    summary = json.loads((stored / "exact" / "result.json").read_text())
    without = {name: value for name, value in summary.items() if name != "cost"}
    damaged = {
        "": "the files are damaged or incomplete (Expecting value: line 1 column 1 (char 0))",
        "[1]": "result.json is not the summary of a run",
        json.dumps(without): "the files are damaged or incomplete ('cost')",
    }
    run = shutil.copytree(stored / "exact", tmp_path / "run")
    for text, why in damaged.items():
        (run / "result.json").write_text(text)
        code, found = checker.check(run, DEADLINE)
        assert (code, found["why"]) == (UNREAD, why)
    (run / "result.json").write_text(json.dumps(summary | {"cost": None, "gap": None}))
    assert "states no cost" in checker.check(run, DEADLINE)[1]["why"]


def test_no_time_is_no_proof(checker: ModuleType, stored: Path) -> None:
    for name in ("exact", "branch-and-bound", "sign-branching"):
        code, told = checker.check(stored / name, 0.0)
        assert code == UNCHECKED
        assert "time limit" in told["why"]
