"""`validate` of networks trained by SGD or on another problem: which of them batches move, and what the hint names."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from editing import states
from sklearn.datasets import load_diabetes, load_wine
from tampering import Tampering, judge, tamperings
from torch import nn

import covopt
from covopt.data.arrays import read_npz
from covopt.data.data import read_data
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.solvers.deep.descent import descent_for
from covopt.studies.audit.batches import Training, batches_of
from covopt.studies.audit.hypotheses import FREE, hint, scalings_of

CASES = Path(__file__).parents[2] / "cases"
LAM, RATE = 5e-3, 0.1


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The first 512, divided by 16, in classes."""
    data = read_data("digits", rows=512, scale="max")
    return data.X, data.Y


def network(name: str, X: np.ndarray, Y: np.ndarray) -> nn.Sequential | Path:
    """Trained for 48,128 steps, of the study; or for 94 epochs, here."""
    if name != "early":
        return CASES / f"{name}.npz"
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
    for module in net[::2]:
        nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(module.bias)
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE, weight_decay=2.0 * LAM)
    inputs, classes = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(Y.argmax(axis=1))
    for _ in range(94):
        for rows in torch.randperm(512).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(inputs[rows]), classes[rows]).backward()
            optimiser.step()
    return net


@pytest.mark.parametrize(
    ("name", "batch", "steps", "begins"),
    [
        ("net_B4", 4, 48128, "SGD noise keeps the network moving; lower the rate or average the weights"),
        ("early", 64, 752, "Not trained to the end"),
    ],
)
def test_digits(name: str, batch: int, steps: int, begins: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    options = {"lam": LAM, "loss": "cross_entropy", "certify": "none", "time_limit": 1.0, "at": digits[0][:8]}
    audit = covopt.validate(network(name, *digits), *digits, **options, batch_size=batch, rate=RATE, steps=steps)
    assert audit.verdict.startswith(begins)
    told, kept = audit.summary(), (1.0 - 2.0 * RATE * LAM) ** steps
    assert told["kept"] == pytest.approx(kept, rel=1e-9)
    rms, residual, floor = (told["noise"][0][name] for name in ("rms", "residual", "floor"))
    if name == "early":
        assert "train longer" in audit.verdict
        assert "47.1 % of the network's initial weights remains." in audit.verdict
        assert residual < rms  # as in the other two: only what is left of the start tells them apart
        assert rms == pytest.approx(2.5, rel=0.1)
        return
    assert (rms, residual, floor) == pytest.approx((15.6, 4.3, 0.486), rel=0.01)
    assert told["finding"] == "moving"
    assert not audit.stationary
    assert not any(layer.missing for layer in audit.layers)
    assert all("not judged while SGD noise moves" in layer.verdict for layer in audit.layers)
    assert "missing" not in audit.verdict
    assert "train longer" not in audit.verdict
    assert dict(audit.describe())["batches"].startswith(f"of {batch}: gradients of ")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit of a network that single samples move, as a run."""
    X, Y = np.array([[1.0], [2.0], [-1.0], [0.5]]), np.array([[1.0], [-1.0], [1.0], [0.0]])
    net = [np.array([[0.5, 0.1], [-0.4, 0.2]]), np.array([[0.3, 0.4, 0.1]])]
    audit = covopt.validate(net, X, Y, lam=0.1, time_limit=2, batch_size=1, rate=0.1, steps=300, momentum=0.5)
    assert audit.moving
    here = tmp_path_factory.mktemp("audits") / "audit"
    audit.save(here)
    return here


def test_the_batches_of_a_stored_audit_are_checked(stored: Path, tmp_path: Path) -> None:
    checked = covopt.verify(stored)
    assert checked.passed, checked.message
    assert "training" in checked.unchecked  # what the user tells
    found = [each for each in tamperings(stored) if each.name.startswith(("audit.json: kept", "audit.json: noise"))]
    found += [each for each in tamperings(stored) if each.name.startswith("audit.json: training")]
    assert len(found) > 60
    judged = {each.name: judge(stored, tmp_path / "run", each) for each in found[::6]}
    assert set(judged.values()) <= {"noticed", "named", "the same"}, judged
    assert {told for name, told in judged.items() if "training" not in name} == {"noticed"}
    calm = states("audit.json", training=None, kept=None, noise=None)
    assert judge(stored, tmp_path / "run", Tampering("", calm, ())) == "noticed"


@pytest.mark.quick
def test_quieter_batches_move_a_network_too(digits: tuple[np.ndarray, np.ndarray]) -> None:
    problem = make_problem(*digits, lam=LAM, loss="cross_entropy", depth=3)
    weights = [torch.from_numpy(W).double() for W in read_npz(CASES / "net_B64.npz").values()]
    found = batches_of(problem, weights, Training(64, RATE, 48128))
    assert found.move
    assert found.rms == pytest.approx([3.45, 2.38, 2.21], rel=0.01)
    assert found.residuals == pytest.approx([0.717, 0.544, 0.449], rel=0.01)


@pytest.mark.quick
def test_only_where_start_and_gradient_are_below_the_batches() -> None:
    problem = make_problem([[1.0], [2.0], [-1.0]], [[1.0], [-1.0], [1.0]], lam=0.1)
    weights = [torch.tensor([[0.5, 0.1]], dtype=torch.float64), torch.tensor([[0.3, 0.1]], dtype=torch.float64)]
    move = [
        batches_of(problem, weights, training).move
        for training in (
            Training(1, 0.1, 1000),
            Training(1, 0.1, 10),  # the start is still there
            Training(3, 0.1, 1000),  # all samples: no batch moves it
            Training(1, 20.0, 1000),  # the start grows
        )
    ]
    assert move == [True, False, False, False]
    assert not batches_of(problem, [0.0 * W for W in weights], Training(1, 0.1, 1000)).move


# ---- networks trained on one problem and asked another: the hint names what differs
def _diabetes() -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    scaled = scalings_of(torch.from_numpy(X[:40, :4]))["standard"]
    return X[:40, :4], scaled, (y[:40, None] - y.mean()) / y.std()


def _trained(problem: Problem) -> list[torch.Tensor]:
    """Adam, then L-BFGS until nothing gains: as one trains who means this question."""
    found = covopt.solve(
        problem.X, problem.Y, lam=problem.lam, loss=problem.loss, depth=problem.depth, bias=problem.beta,
        method="train", width=8, starts=3, time_limit=60.0, seed=1,
    )  # fmt: skip
    (weights,), _ = descent_for(problem).further([found.weights], lambda: False)
    return weights


def _hint(problem: Problem, weights: list[torch.Tensor]) -> str:
    before = evaluate(problem, weights).total
    (after,), _ = descent_for(problem).further([weights], lambda: False)
    gain = (before - evaluate(problem, after).total) / before
    return hint(problem, weights, gain, lambda: scalings_of(problem.X), lambda: False)


def test_the_network_s_own_question_gets_no_hint() -> None:
    _, X, y = _diabetes()
    problem = make_problem(X, y, lam=1e-2)
    assert _hint(problem, _trained(problem)) == ""


@pytest.mark.parametrize(("multiple", "says"), [(2.0, "twice --lam: a weight decay"), (7.0, "")])
def test_another_lam(multiple: float, says: str) -> None:
    _, X, y = _diabetes()
    weights = _trained(make_problem(X, y, lam=multiple * 3e-2))
    told = re.search(r"--lam (\S+) \((.*?)\)", _hint(make_problem(X, y, lam=3e-2), weights))
    assert float(told[1]) == pytest.approx(multiple * 3e-2, rel=0.02)
    assert told[2].startswith(says)


def test_another_loss() -> None:
    X, y = load_wine(return_X_y=True)
    taken = np.random.default_rng(0).permutation(len(X))[:40]
    X, Y = scalings_of(torch.from_numpy(X[taken]))["standard"], np.eye(3)[y[taken]]
    weights = _trained(make_problem(X, Y, lam=1e-2, loss="cross_entropy"))
    assert "with --loss cross_entropy its cost is" in _hint(make_problem(X, Y, lam=1e-2), weights)


def test_another_scale() -> None:
    X, scaled, y = _diabetes()
    weights = _trained(make_problem(scaled, y, lam=1e-2))
    assert "with --scale standard its cost is" in _hint(make_problem(X, y, lam=1e-2), weights)


def test_biases_without_a_penalty() -> None:
    _, X, y = _diabetes()
    free = _trained(make_problem(X, y + 3.0, lam=1e-2, bias=FREE))
    weights = [torch.cat([W[:, :-1], FREE * W[:, -1:]], dim=1) for W in free]
    assert "biases that are almost unpenalised" in _hint(make_problem(X, y + 3.0, lam=1e-2, bias=1.0), weights)
    without = _trained(make_problem(X, y + 3.0, lam=1e-2, bias=0.0))
    assert "with no biases (--bias 0) its cost is" in _hint(make_problem(X, y + 3.0, lam=1e-2), without)
