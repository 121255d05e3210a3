"""`validate`: what it says of networks whose place is known, and what it refuses, in Python and on the command line."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from instances import gaussian
from numpy.typing import NDArray
from runs import Run
from torch import nn

import covopt
from covopt.data.arrays import read_npz
from covopt.data.networks import as_network, read_network
from covopt.model.weights import evaluate
from covopt.runtime import interrupts
from covopt.runtime.errors import CovoptError
from covopt.runtime.loop import Status
from covopt.studies.audit import audit as audits, examination, words
from covopt.studies.audit.audit import Audit
from covopt.studies.audit.hypotheses import hint

SIGNS = np.array([[1.0], [-1.0]])


def stuck(lam: float, angle: float) -> list[NDArray[np.float64]]:
    """[JGHG22, Prop. 19]: a local minimum in the weights, not in the covariances; bias column last, of zeros."""
    a = (1.0 - lam) ** 0.5 * np.array([np.cos(angle), np.sin(angle)])
    return [np.column_stack([a, np.zeros(2)]), np.append(a, 0.0)[None]]


@pytest.mark.parametrize(("lam", "angle"), [(0.05, 0.3), (0.3, 0.9), (0.8, 1.4)])
def test_proposition_19(lam: float, angle: float) -> None:
    """Their loss is twice ours at lam / 2; the missing neuron is w = -1, h = 1 / lam, and the minimum is known."""
    audit = covopt.validate(stuck(lam, angle), SIGNS, np.ones(2), lam=lam / 2, bias=0.0, time_limit=20)
    assert 2.0 * audit.loss == pytest.approx(1.0 + 2.0 * lam - lam**2, rel=1e-12)
    assert max(audit.residuals) < 1e-12
    layer = audit.layers[0]
    assert layer.escape.direction.tolist() == pytest.approx([-1.0, 0.0], abs=1e-9)
    assert layer.escape.value == pytest.approx(1.0 / lam, rel=1e-9)
    assert not audit.stationary
    assert "Stuck" in audit.verdict
    assert "direction (-1, 0)" in audit.verdict
    assert audit.escape is not None
    minimum = 4.0 * lam - 2.0 * lam**2
    assert 2.0 * evaluate(audit.problem, audit.escape).total == pytest.approx(minimum, rel=1e-6)
    assert layer.facts.gap == pytest.approx(1.0 - minimum / (1.0 + 2.0 * lam - lam**2), rel=1e-6)
    assert layer.merging == [[0, 1]]


def test_a_search_that_the_time_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a minimum every h is at most 1; with no time no ascent is made, and less is known."""
    X, Y = gaussian(8, 3, seed=0), gaussian(8, 2, seed=1)
    best = covopt.solve(X, Y, lam=0.3, bias=0.0, certify="none", time_limit=10)
    asked = {"lam": 0.3, "bias": 0.0, "certify": "none"}
    whole = covopt.validate(best, X, Y, time_limit=60, **asked)
    assert whole.layers[0].verdict.startswith("No neuron is missing")
    monkeypatch.setattr(examination, "LEAST", 0.0)
    cut = covopt.validate(best, X, Y, time_limit=1e-3, **asked)
    assert cut.layers[0].escape.cut
    assert cut.layers[0].verdict.startswith("No missing neuron was found in hidden layer 1 within the time: |M^T s|")


def test_lines_name_what_they_speak_of() -> None:
    """No "it" for the network after a sentence on the minimum, no "0 of it", and no two brackets in a row."""
    stored = {"stored": "float32", "descended": {"loss": 2.0}}
    same, moved = ({**stored, "rounded": {"loss": loss, "residuals": [0.5, 0.25]}} for loss in (2.0, 2.001))
    start = "the weights are stored in float32: rounding to it"
    end = "the cost after further training{}, and leaves residuals of 0.5, 0.25"
    assert words.precision(same) == f"{start} does not change {end.format('')}"
    assert words.precision(moved) == f"{start} changes {end.format(' by 0.05 %')}"
    X, Y = gaussian(8, 2, seed=3), gaussian(8, 1, seed=4)
    best = covopt.solve(X, Y, lam=1e-2, certify="none", time_limit=3)
    other = hint(replace(best.problem, lam=0.05), best.weights, 1.0, dict, lambda: False)
    assert other.startswith("Possibly the network was trained on another problem: with --lam 0.01 ")
    text = str(covopt.validate(best, X, Y, lam=1e-2, certify="none", function=True, time_limit=1))
    assert "singular values of A_1" in text
    assert ") (" not in text.replace("  ", " ")


# ---- audits that end before they have tested anything
def stored_and_read(audit: Audit, directory: Path) -> dict[str, Any]:
    """The JSON of an audit that passes its own check."""
    audit.save(directory)
    checked = covopt.verify(directory)
    assert checked.passed, checked.message
    return json.loads((directory / "audit.json").read_text())


def test_ctrl_c_during_the_first_trainings_decides_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The network is the best of its own trainings, and nothing else was tried: this says nothing about it."""

    def solve_then_ctrl_c(*data: Any, **options: Any) -> covopt.Result:
        result = covopt.solve(*data, **options)
        interrupts.remember()
        return replace(result, status=Status.INTERRUPTED)

    monkeypatch.setattr(audits, "solve", solve_then_ctrl_c)
    X, Y = gaussian(20, 3, seed=0), gaussian(20, 2, seed=1)
    audit = covopt.validate(None, X, Y, lam=0.02, width=4, starts=2, time_limit=5, certify="none")
    assert (audit.finding, audit.stationary, str(audit.status)) == (None, None, "interrupted")
    assert audit.verdict.startswith("Not decided: the audit was interrupted. So far further training gained nothing")
    text = str(audit)
    assert "status       interrupted" in text
    assert "stationary   not decided" in text
    for untested in ("No better network", "Stuck", "Nearly", "stationary   yes", "time limit"):
        assert untested not in text
    summary = stored_and_read(audit, tmp_path / "run")
    assert (summary["finding"], summary["stationary"], summary["status"]) == (None, None, "interrupted")


def test_ctrl_c_during_the_solver_decides_nothing_of_the_best(tmp_path: Path) -> None:
    """Further training finished, but the search for a better network did not."""

    def press(_: object) -> None:
        raise KeyboardInterrupt

    X, Y = gaussian(20, 3, seed=0), gaussian(20, 2, seed=1)
    best = covopt.solve(X, Y, lam=0.02, certify="none", time_limit=3)
    whole = covopt.validate(best, X, Y, lam=0.02, certify="none", time_limit=3)
    assert (str(whole.finding), whole.stationary, str(whole.status)) == ("best", True, "converged")
    cut = covopt.validate(best, X, Y, lam=0.02, certify="none", time_limit=3, callback=press)
    assert (cut.finding, cut.stationary, cut.finished) == (None, None, True)
    summary = stored_and_read(cut, tmp_path / "run")
    assert "the audit was interrupted" in summary["verdict"]
    assert "audit was interrupted" not in summary["layers"][0]["verdict"]


def test_an_audit_without_time_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of training was made: a network at its initialisation is not stuck."""
    monkeypatch.setattr(examination, "LEAST", 0.0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    X, Y = gaussian(20, 3, seed=0), gaussian(20, 2, seed=1)
    audit = covopt.validate(net, X, Y, lam=0.02, time_limit=1e-9, certify="none")
    assert (audit.finding, audit.stationary, str(audit.status)) == (None, None, "time_limit")
    assert audit.verdict.startswith("Not decided: further training reached its limit; give more time. So far")
    assert "further training gained nothing before its time limit" in str(audit)
    assert stored_and_read(audit, tmp_path / "run")["layers"][0]["cut"] is True
    assert str(covopt.validate(net, X, Y, lam=0.02, time_limit=2, certify="none").finding) == "untrained"


@pytest.fixture(scope="module")
def line() -> tuple[torch.Tensor, torch.Tensor]:
    """Points on a line, where an oracle is exact."""
    return gaussian(8, 1, seed=3), gaussian(8, 1, seed=4)


def test_the_solver_s_network_is_at_the_minimum(line: tuple[torch.Tensor, torch.Tensor]) -> None:
    result = covopt.solve(*line, lam=0.01, gap=1e-8, time_limit=20)
    audit = covopt.validate(result, *line, lam=0.01, gap=1e-8, time_limit=20)
    assert audit.verdict.startswith("At the minimum")
    assert audit.stationary
    assert audit.best == pytest.approx(result.cost, rel=1e-7)
    layer = audit.layers[0]
    assert 0.0 <= layer.facts.gap < 1e-7
    assert str(layer.facts.gap_certificate) == "exact"
    assert max(audit.inert) < 1e-6
    assert layer.unbalanced_neuron < 1e-9


def test_the_parts_that_are_wrong_are_found(line: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Weights that act on nothing, neurons out of balance, neurons that could be one: put in, and found again."""
    X, Y = torch.cat([line[0], torch.zeros(8, 1, dtype=torch.float64)], dim=1), line[1]
    W, V = (W.clone() for W in covopt.solve(X, Y, lam=0.02, time_limit=10).weights)
    idle = torch.zeros_like(W)
    idle[:, 1] = 2.0  # the second input is zero
    off = covopt.validate([W + idle, V], X, Y, lam=0.02, time_limit=0.3)
    assert off.inert[0] == pytest.approx(float(idle.norm() / (W + idle).norm()), rel=1e-6)
    lopsided = [torch.cat([3.0 * W[:1], W[1:]]), torch.cat([V[:, :1] / 3.0, V[:, 1:]], dim=1)]
    assert covopt.validate(lopsided, X, Y, lam=0.02, time_limit=0.3).layers[0].unbalanced_neuron > 0.5
    half = 0.5**0.5
    split = [torch.cat([half * W[:1], half * W[:1], W[1:]]), torch.cat([half * V[:, :1], half * V[:, :1], V[:, 1:]], 1)]
    assert covopt.validate(split, X, Y, lam=0.02, time_limit=0.3).layers[0].merging == [[0, 1]]


def test_an_untrained_network_moves(line: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1)).double()
    audit = covopt.validate(net, *line, lam=0.01, time_limit=1.5)
    assert audit.verdict.startswith("Not trained to the end")
    assert audit.problem.activation.slope == 0.2
    outputs = net(line[0])
    norm = sum(float(p.detach().square().sum()) for p in net.parameters())
    assert audit.loss == pytest.approx(float((outputs - line[1]).square().mean().detach()) + 0.01 * norm)


@pytest.mark.parametrize("widths", [(0, 0), (2, 0), (0, 2)])
def test_layers_without_neurons(widths: tuple[int, int], line: tuple[torch.Tensor, torch.Tensor]) -> None:
    """What strong penalties leave: the zero function is audited like any other network."""
    weights = [np.zeros((n, below + 1)) for below, n in pairwise((1, *widths, 1))]
    audit = covopt.validate(weights, *line, lam=0.1, time_limit=0.6, certify="none")
    assert audit.loss == pytest.approx(float(line[1].square().mean()))
    assert [layer.facts.width for layer in audit.layers] == list(widths)
    assert audit.best < audit.loss


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_one_network_in_many_forms(beta: float, tmp_path: Path) -> None:
    """PyTorch's bias is beta W[:, -1]."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    linear = [part for part in net if isinstance(part, nn.Linear)]
    weights = [np.column_stack([p.weight.detach(), p.bias.detach() / beta]) for p in linear]
    torch.save(net.state_dict(), tmp_path / "a.pt")
    np.savez(tmp_path / "a.npz", **{f"W{i}": W for i, W in enumerate(weights, start=1)})
    shuffled = dict(reversed(net.state_dict().items()))
    found = [
        as_network(net, beta),
        as_network(shuffled, beta),
        as_network(weights, beta),
        read_network(tmp_path / "a.pt", beta),
        read_network(tmp_path / "a.npz", beta),
    ]
    assert found[0].slope == 0.0
    for network in found:
        for W, V in zip(network.weights, weights, strict=True):
            assert pytest.approx(V) == W


def test_runs_of_covopt_come_back(line: tuple[torch.Tensor, torch.Tensor], tmp_path: Path) -> None:
    result = covopt.solve(*line, lam=0.05, bias=0.5, time_limit=10)
    result.save(tmp_path / "run")
    for name in ("network.pt", "network.npz"):
        network = read_network(tmp_path / "run" / name, 0.5)
        assert evaluate(result.problem, [torch.from_numpy(W) for W in network.weights]).total == pytest.approx(
            result.cost, rel=1e-12
        )


def test_representation_costs(line: tuple[torch.Tensor, torch.Tensor]) -> None:
    """A network that fits exactly has a cost; one that does not is refused."""
    line = line[0][:5], line[1][:5]
    result = covopt.solve(*line, gap=1e-5, time_limit=2)
    audit = covopt.validate(result, *line, gap=1e-5, time_limit=2)
    assert audit.loss == pytest.approx(result.cost)
    assert audit.layers[0].facts.gap == pytest.approx(0.0, abs=2e-5)
    off = [W.clone() for W in result.weights]
    off[1][0, -1] += 0.1
    with pytest.raises(CovoptError, match=r"misses the targets by up to 0\.1"):
        covopt.validate(off, *line)


def test_networks_are_trained_where_none_is_given(run: Run) -> None:
    code, out, err = run(
        *("validate", "iris", "--rows", 12, "--shuffle", 0, "--scale", "max", "--lam", 0.02, "--depth", 3),
        *("--width", 6, "--starts", 2, "--time-limit", 1, "--certify", "none", "--json"),
    )
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert len(told["trained"]) == 2
    assert told["loss"] == pytest.approx(min(told["trained"]))
    assert told["best"] <= told["loss"]
    assert told["widths"] == [6, 6]
    assert {"stationarity", "gap", "gap_certificate", "rank_K", "rank_Ks", "mergeable"} <= set(told["layers"][0])
    assert (told["layers"][0]["gap"], told["lower"]) == (None, None)


# ---- the command line
@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "data.npz", X=SIGNS, Y=np.ones(2))
    return tmp_path / "data.npz"


def test_the_command_names_the_direction_and_writes_the_escape(run: Run, data: Path, tmp_path: Path) -> None:
    lam, out_file = 0.4, tmp_path / "better.npz"
    np.savez(tmp_path / "net.npz", W1=stuck(lam, 0.5)[0], W2=stuck(lam, 0.5)[1])
    options = ("validate", data, "--net", tmp_path / "net.npz", "--lam", lam / 2, "--bias", 0, "--time-limit", 20)
    code, out, err = run(*options, "--escape", out_file)
    assert (code, err) == (0, "")
    assert "direction (-1, 0)" in out
    assert "holds the better network" in out
    better = read_npz(out_file)
    again = json.loads(run("validate", data, "--net", out_file, *options[4:], "--json")[1])
    assert 2.0 * again["loss"] == pytest.approx(4.0 * lam - 2.0 * lam**2, rel=1e-6)
    assert set(better) == {"W1", "W2"}
    assert again["stationary"] is True
    code, out, err = run(*options, "--escape", out_file)
    assert (code, out) == (2, "")
    assert "exists already" in err


def test_an_empty_answer_is_said(run: Run, data: Path, tmp_path: Path) -> None:
    """At the minimum there is nothing to write."""
    best: Audit = covopt.validate(stuck(0.4, 0.5), SIGNS, np.ones(2), lam=0.2, bias=0.0, time_limit=20)
    assert best.reference.weights
    np.savez(tmp_path / "net.npz", **{f"W{i}": W.numpy() for i, W in enumerate(best.reference.weights, start=1)})
    options = ("--lam", 0.2, "--bias", 0, "--time-limit", 20, "--escape", tmp_path / "none.npz")
    code, out, _ = run("validate", data, "--net", tmp_path / "net.npz", *options)
    assert code == 0
    assert "At the minimum" in out
    assert (tmp_path / "none.npz").exists() == ("holds the better network" in out)
