"""Networks as people have them: modules of many kinds and their state dicts, read as one or refused with the remedy."""

from pathlib import Path

import numpy as np
import pytest
import torch
from module_forms import OTHERS, PLAIN, Net, X, stack
from torch import nn

import covopt
from covopt.data.modules import unwrapped
from covopt.data.networks import FoundWeights, as_network, read_network, write_network
from covopt.runtime.errors import CovoptError


def answers(weights: list[np.ndarray], slope: float, beta: float) -> np.ndarray:
    Z = X
    for W in weights[:-1]:
        Z = Z @ W[:, :-1].T + beta * W[:, -1]
        Z = np.where(Z > 0.0, Z, slope * Z)
    return Z @ weights[-1][:, :-1].T + beta * weights[-1][:, -1]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_a_module_answers_as_the_weights_that_are_read(name: str, beta: float) -> None:
    torch.manual_seed(0)
    net = PLAIN[name]()
    found = as_network(net, beta, torch.from_numpy(X))
    assert found.slope is not None
    dtype = next(net.parameters()).dtype
    with torch.no_grad():
        expected = unwrapped(net).eval()(torch.from_numpy(X).to(dtype)).double().numpy()
    close = {"rel": 1e-2, "abs": 1e-2} if dtype is torch.float16 else {"rel": 1e-4, "abs": 1e-5}
    assert answers(found.weights, found.slope, beta) == pytest.approx(expected, **close)
    assert found.stored is dtype


def test_reading_a_module_leaves_it_as_it_was() -> None:
    net = Net().train()
    as_network(net, 1.0)
    assert (net.training, net.drop.training) == (True, True)


@pytest.mark.parametrize("prefix", ["", "net.", "module.", "module.fc", "_orig_mod.layers."])
def test_state_dicts_with_prefixes_and_in_checkpoints(prefix: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    net = stack(nn.ReLU()).double()
    state = {f"{prefix}{key}": value for key, value in net.state_dict().items()}
    optimizer = torch.optim.Adam(net.parameters()).state_dict()
    torch.save(state, tmp_path / "plain.pt")
    torch.save({"epoch": 3, "model_state_dict": state, "optimizer": optimizer}, tmp_path / "checkpoint.pt")
    expected = as_network(net, 1.0).weights
    for name in ("plain.pt", "checkpoint.pt"):
        found = read_network(tmp_path / name, 1.0)
        assert all(np.array_equal(W, V) for W, V in zip(found.weights, expected, strict=True))
        assert found.stored is torch.float64


@pytest.mark.parametrize("name", OTHERS)
def test_a_module_that_computes_another_function_is_refused(name: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(CovoptError, match=r"(?i)the network"):
        as_network(OTHERS[name](), 1.0, torch.from_numpy(X))


@pytest.mark.parametrize("name", ["a subclass", "scaled by little", "otherwise at a late row"])
def test_an_audit_refuses_it_too(name: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(CovoptError, match=r"^The network"):
        covopt.validate(OTHERS[name](), X, X[:, :2], lam=0.1)


def test_a_hook_on_every_module_is_seen_in_the_outputs() -> None:
    hook = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: 1.5 * output)
    try:
        with pytest.raises(CovoptError, match="does not answer as its Linear layers"):
            as_network(stack(nn.ReLU()), 1.0)
    finally:
        hook.remove()


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("name", ["better.pt", "better.npz"])
def test_a_network_that_was_written_is_read_again(name: str, beta: float, tmp_path: Path) -> None:
    weights = [torch.randn(4, 4, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)]
    if beta == 0.0:
        for W in weights:
            W[:, -1] = 0.0
    found = FoundWeights(weights, beta, 0.2)
    write_network(tmp_path / name, found)
    again = read_network(tmp_path / name, beta).weights
    assert all(pytest.approx(W.numpy(), rel=1e-15) == V for W, V in zip(weights, again, strict=True))
    with torch.no_grad():
        outputs = found.to_torch()(torch.from_numpy(X)).numpy()
    assert outputs == pytest.approx(answers(again, 0.2, beta if beta > 0.0 else 1.0), rel=1e-12, abs=1e-12)
