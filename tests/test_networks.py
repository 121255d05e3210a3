"""Networks as people have them: modules of many kinds and their state dicts, read as one or refused with the remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import covopt
from covopt.errors import CovoptError
from covopt.io.networks import FoundWeights, as_network, read_network, write_network

X = np.random.default_rng(0).standard_normal((30, 3))


class Net(nn.Module):
    """How most networks are written."""

    def __init__(self, slope: float = 0.0, shift: float = 0.0) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(3, 5), nn.Linear(5, 4), nn.Linear(4, 2)
        self.drop, self.slope, self.shift = nn.Dropout(0.5), slope, shift

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(nn.functional.leaky_relu(self.fc1(x.flatten(1)), self.slope))
        return self.head(nn.functional.leaky_relu(self.fc2(h), self.slope)) + self.shift * x[:, :2]


def stack(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), *between, nn.Linear(5, 2))


MODULES = {
    "plain": lambda: stack(nn.ReLU()),
    "flattened": lambda: nn.Sequential(nn.Flatten(), *stack(nn.ReLU())),
    "dropout": lambda: stack(nn.ReLU(), nn.Dropout(0.5)),
    "identity": lambda: nn.Sequential(nn.Identity(), *stack(nn.Identity(), nn.LeakyReLU(0.2))),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 5), nn.ReLU()), nn.Sequential(nn.Linear(5, 2))),
    "parallel": lambda: nn.DataParallel(stack(nn.ReLU())),
    "without biases": lambda: nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False)),
    "linear": lambda: stack(),
    "a class": lambda: Net(),
    "a leaky class": lambda: Net(0.01),
    "a class around a stack": lambda: nn.ModuleList([stack(nn.LeakyReLU(0.3))])[0],
}


def answers(weights: list[np.ndarray], slope: float, beta: float) -> np.ndarray:
    Z = X
    for W in weights[:-1]:
        Z = Z @ W[:, :-1].T + beta * W[:, -1]
        Z = np.where(Z > 0.0, Z, slope * Z)
    return Z @ weights[-1][:, :-1].T + beta * weights[-1][:, -1]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_a_module_answers_as_the_weights_that_are_read(name: str, beta: float) -> None:
    torch.manual_seed(0)
    net = MODULES[name]()
    found = as_network(net, beta)
    assert found.slope is not None
    with torch.no_grad():
        expected = net.eval()(torch.from_numpy(X).float()).numpy()
    assert answers(found.weights, found.slope, beta) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert found.stored is torch.float32


def test_reading_a_module_leaves_it_as_it_was() -> None:
    net = Net().train()
    as_network(net, 1.0)
    assert net.training
    assert net.drop.training


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


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (stack(nn.BatchNorm1d(5), nn.ReLU()), "holds a BatchNorm1d; fold it .*fuse_linear_bn_eval"),
        (stack(nn.BatchNorm1d(5), nn.ReLU()).state_dict(), "BatchNorm's; fold it"),
        (nn.Sequential(*stack(nn.ReLU()), nn.Softmax(1)), "holds a Softmax"),
        (Net(shift=1.0), "a Net that does not answer as its Linear layers"),
        (nn.Bilinear(3, 3, 2), "3 dimensions"),
        (stack(nn.ReLU(), nn.Unflatten(1, (5, 1))), "holds a Unflatten"),
    ],
)
def test_what_is_no_network_of_ours_is_refused(net: object, message: str) -> None:
    with pytest.raises(CovoptError, match=message):
        as_network(net, 1.0)


class Doubled(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


class DoubledLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


class Sine(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


class Noise(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1.0


class Called(nn.Sequential):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) + 1.0


class Quiet(nn.Module):
    """The plain network at random inputs, and another one near the first row of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        near = (x - torch.from_numpy(X[0]).to(x)).norm(dim=1, keepdim=True) < 1e-3
        return self.fc2(torch.relu(self.fc1(x))) + near


class Chain(nn.Module):
    """fc1, an activation, fc2, and what somebody makes of inputs and outputs."""

    def __init__(self, act=torch.relu, before=lambda x: x, after=lambda y, x: y) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 2)
        self.act, self.before, self.after = act, before, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.fc2(self.act(self.fc1(self.before(x)))), x)


class Reversed(nn.Module):
    """Layers are declared in another order than they act in."""

    def __init__(self) -> None:
        super().__init__()
        self.b, self.a = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(torch.relu(self.a(x)))))


def hooked(kind: str, place: int | None) -> nn.Module:
    net = stack(nn.ReLU())
    part = net if place is None else net[place]
    if kind == "before":
        part.register_forward_pre_hook(lambda module, inputs: (3.0 * inputs[0],))
    else:
        part.register_forward_hook(lambda module, inputs, output: 3.0 * output)
    return net


def with_forward_of_its_own(place: int) -> nn.Module:
    net = stack(nn.ReLU())
    net[place].forward = torch.sin
    return net


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    return net


def one_layer_twice() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


OTHERS = {
    **{f"a hook {kind} {place}": (lambda k=kind, p=place: hooked(k, p))
       for kind in ("before", "after") for place in (None, 0, 1, 2)},
    **{f"a forward of its own {place}": (lambda p=place: with_forward_of_its_own(p)) for place in range(3)},
    "a subclass": lambda: Doubled(*stack(nn.ReLU())),
    "an inner subclass": lambda: nn.Sequential(Doubled(nn.Linear(3, 5), nn.ReLU()), nn.Linear(5, 2)),
    "a subclass that is called otherwise": lambda: Called(*stack(nn.ReLU())),
    "a subclass of Linear": lambda: nn.Sequential(DoubledLinear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
    "a subclass of Linear at the end": lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), DoubledLinear(5, 2)),
    "a subclass of ReLU": lambda: stack(Sine()),
    "a subclass of Dropout": lambda: stack(nn.ReLU(), Noise()),
    "a layer twice": one_layer_twice,
    "tied weights": tied,
    "flat": lambda: nn.Sequential(nn.Flatten(0), *stack(nn.ReLU())),
    "otherwise on the data": Quiet,
    "declared in another order": Reversed,
    "a layer twice in a class": Twice,
    "tanh": lambda: Chain(torch.tanh),
    "gelu": lambda: Chain(nn.functional.gelu),
    "elu": lambda: Chain(nn.functional.elu),
    "softplus": lambda: Chain(nn.functional.softplus),
    "relu6": lambda: Chain(nn.functional.relu6),
    "absolute values": lambda: Chain(torch.abs),
    "two slopes": lambda: Chain(lambda z: torch.where(z > 0.0, 2.0 * z, z)),
    "a residual": lambda: Chain(after=lambda y, x: y + x[:, :2]),
    "scaled": lambda: Chain(after=lambda y, x: 5.0 * y),
    "softmax": lambda: Chain(after=lambda y, x: y.softmax(1)),
    "clamped": lambda: Chain(after=lambda y, x: y.clamp(-1.0, 1.0)),
    "centred": lambda: Chain(before=lambda x: x - 1.0),
    "rescaled": lambda: Chain(before=lambda x: x / 255.0),
    "normed": lambda: Chain(before=lambda x: nn.functional.normalize(x)),
    "across rows": lambda: Chain(before=lambda x: x - x.mean(0)),
    "less outputs": lambda: Chain(after=lambda y, x: y[:, :1]),
    "two answers": lambda: Chain(after=lambda y, x: (y, x)),
    "a norm": lambda: Chain(after=lambda y, x: nn.functional.layer_norm(y, (2,))),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_a_module_that_computes_another_function_is_refused(name: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(CovoptError, match=r"^The network"):
        covopt.validate(OTHERS[name](), X, X[:, : 3 if name.startswith(("tied", "a layer", "decl")) else 2], lam=0.1)


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
    with pytest.raises(CovoptError, match="exists already"):
        write_network(tmp_path / name, found)
