"""Modules of many forms: those that compute what their weights tell (PLAIN), and those that compute something else.

Each is made anew by its entry, and takes rows of three numbers.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

X = np.random.default_rng(0).standard_normal((300, 3))
LATE = 290  # a row of X that comes late
NEARLY = 1.00001


class Net(nn.Module):
    """How most networks are written."""

    def __init__(self, slope: float = 0.0, shift: float = 0.0) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(3, 5), nn.Linear(5, 4), nn.Linear(4, 2)
        self.drop, self.slope, self.shift = nn.Dropout(0.5), slope, shift

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(functional.leaky_relu(self.fc1(x.flatten(1)), self.slope))
        return self.head(functional.leaky_relu(self.fc2(h), self.slope)) + self.shift * x[:, :2]


class Chain(nn.Module):
    """fc1, an activation, fc2, and what somebody makes of inputs and outputs."""

    def __init__(self, act=torch.relu, before=lambda x: x, after=lambda y, x: y) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 2)
        self.act, self.before, self.after = act, before, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.fc2(self.act(self.fc1(self.before(x)))), x)


def stack(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), *between, nn.Linear(5, 2))


def in_single(factor: float = 1.0) -> nn.Module:
    """A network that has no copy in float64."""
    return Chain(before=lambda x: x.float(), after=lambda y, x: factor * y)


def without_its_parametrization() -> nn.Module:
    net = parametrized()
    parametrize.remove_parametrizations(net[0], "weight")
    return net


def with_backward_hook() -> nn.Module:
    net = stack(nn.ReLU())
    net[0].register_full_backward_hook(lambda *grad: None)
    return net


PLAIN: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: stack(nn.ReLU()),
    "in double precision": lambda: stack(nn.ReLU()).double(),
    "in half precision": lambda: stack(nn.ReLU()).half(),
    "flattened": lambda: nn.Sequential(nn.Flatten(), *stack(nn.ReLU())),
    "dropout": lambda: stack(nn.ReLU(), nn.Dropout(0.5)),
    "identity": lambda: nn.Sequential(nn.Identity(), *stack(nn.Identity(), nn.LeakyReLU(0.2))),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 5), nn.ReLU()), nn.Sequential(nn.Linear(5, 2))),
    "parallel": lambda: nn.DataParallel(stack(nn.ReLU())),
    "compiled": lambda: torch.compile(stack(nn.ReLU())),
    "scripted": lambda: torch.jit.script(stack(nn.ReLU())),
    "traced": lambda: torch.jit.trace(stack(nn.ReLU()), torch.zeros(2, 3)),
    "a graph": lambda: fx.symbolic_trace(stack(nn.ReLU())),
    "without biases": lambda: nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False)),
    "linear": lambda: stack(),
    "in place": lambda: stack(nn.ReLU(inplace=True)),
    "wide": lambda: nn.Sequential(nn.Linear(3, 2000), nn.ReLU(), nn.Linear(2000, 2)),
    "a class": lambda: Net(),
    "a leaky class": lambda: Net(0.01),
    "a class around a stack": lambda: nn.ModuleList([stack(nn.LeakyReLU(0.3))])[0],
    "a class in single precision": in_single,
    "a backward hook": with_backward_hook,
    "without its parametrization": without_its_parametrization,
}


class Doubled(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


class DoubledLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


class DoubledWeight(nn.Module):
    def forward(self, W: Tensor) -> Tensor:
        return 2.0 * W


class Sine(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


class Noise(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1.0


class Called(nn.Sequential):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) + 1.0


class Tripled(nn.DataParallel):
    def forward(self, x: Tensor) -> Tensor:
        return 3.0 * self.module(x)


class Masked(Chain):
    """A mask that its state dict does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)) * self.mask)


class Growing(Chain):
    """Each call changes the weights."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.fc2(torch.relu(self.fc1(x)))
        with torch.no_grad():
            self.fc2.weight.mul_(NEARLY)
        return outputs


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


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.a(x)))


def near_row(place: int) -> nn.Module:
    """The plain network, but near one row of X."""
    return Chain(after=lambda y, x: y + ((x - torch.from_numpy(X[place]).to(x)).norm(dim=1, keepdim=True) < 1e-3))


def hooked(kind: str, place: int | None) -> nn.Module:
    net = stack(nn.ReLU())
    part = net if place is None else net[place]
    if kind == "before":
        part.register_forward_pre_hook(lambda module, inputs: (3.0 * inputs[0],))
    else:
        part.register_forward_hook(lambda module, inputs, output: 3.0 * output)
    return net


def inside(net: nn.Module, wrap: Callable[[nn.Module], object]) -> nn.Module:
    """A hook on what wraps a network."""
    wrapped = wrap(net)
    assert isinstance(wrapped, nn.Module)
    wrapped.register_forward_hook(lambda module, inputs, output: 3.0 * output)
    return wrapped


def with_forward_of_its_own(place: int) -> nn.Module:
    net = stack(nn.ReLU())
    net[place].forward = torch.sin
    return net


def of_another_class() -> nn.Module:
    net = stack(nn.ReLU())
    net[0].__class__ = DoubledLinear
    return net


def seems_compiled() -> nn.Module:
    net = Chain(after=lambda y, x: 5.0 * y)
    net._orig_mod = stack(nn.ReLU())
    return net


def tied(share: Callable[[nn.Parameter], nn.Parameter]) -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    net[2].weight = share(net[0].weight)
    return net


def one_layer_twice() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


def parametrized() -> nn.Module:
    net = stack(nn.ReLU())
    parametrize.register_parametrization(net[0], "weight", DoubledWeight())
    return net


def with_first(change: Callable[[nn.Module], object]) -> nn.Module:
    net = stack(nn.ReLU())
    change(net[0])
    return net


def with_parameter(name: str) -> nn.Module:
    net = stack(nn.ReLU())
    net.register_parameter(name, nn.Parameter(torch.ones(2, 2)))
    return net


def quantised() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(stack(nn.ReLU()), {nn.Linear})


OTHERS: dict[str, Callable[[], nn.Module]] = {
    **{f"a hook {kind} {place}": (lambda k=kind, p=place: hooked(k, p))
       for kind in ("before", "after") for place in (None, 0, 1, 2)},
    **{f"a forward of its own {place}": (lambda p=place: with_forward_of_its_own(p)) for place in range(3)},
    "a hook in parallel": lambda: nn.DataParallel(hooked("after", 0)),
    "a hook around what is parallel": lambda: inside(stack(nn.ReLU()), nn.DataParallel),
    "a hook around what is compiled": lambda: inside(stack(nn.ReLU()), torch.compile),
    "a hook on an inner stack": lambda: nn.Sequential(hooked("after", None), nn.ReLU(), nn.Linear(2, 2)),
    "a subclass": lambda: Doubled(*stack(nn.ReLU())),
    "an inner subclass": lambda: nn.Sequential(Doubled(nn.Linear(3, 5), nn.ReLU()), nn.Linear(5, 2)),
    "a subclass that is called otherwise": lambda: Called(*stack(nn.ReLU())),
    "a subclass of Linear": lambda: nn.Sequential(DoubledLinear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
    "a subclass of Linear at the end": lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), DoubledLinear(5, 2)),
    "a subclass of ReLU": lambda: stack(Sine()),
    "a subclass of Dropout": lambda: stack(nn.ReLU(), Noise()),
    "a subclass of DataParallel": lambda: Tripled(stack(nn.ReLU())),
    "a class that was changed": of_another_class,
    "what seems compiled": seems_compiled,
    "a layer twice": one_layer_twice,
    "tied weights": lambda: tied(lambda W: W),
    "tied memory": lambda: tied(lambda W: nn.Parameter(W.data)),
    "parametrized": parametrized,
    "weight_norm": lambda: with_first(parametrizations.weight_norm),
    "weight_norm as it was": lambda: with_first(weight_norm),
    "spectral_norm": lambda: with_first(parametrizations.spectral_norm),
    "spectral_norm as it was": lambda: with_first(spectral_norm),
    "orthogonal": lambda: with_first(parametrizations.orthogonal),
    "pruned": lambda: with_first(lambda layer: prune.l1_unstructured(layer, "weight", 0.5)),
    "quantised": quantised,
    "one more parameter": lambda: with_parameter("scale"),
    "one more weight": lambda: with_parameter("weight"),
    "a mask": Masked,
    "weights that grow": Growing,
    "flat": lambda: nn.Sequential(nn.Flatten(0), *stack(nn.ReLU())),
    "an activation at the end": lambda: nn.Sequential(*stack(nn.ReLU()), nn.ReLU()),
    "an activation at the start": lambda: nn.Sequential(nn.ReLU(), *stack(nn.ReLU())),
    "two activations": lambda: stack(nn.LeakyReLU(0.1), nn.LeakyReLU(0.1)),
    "PReLU": lambda: stack(nn.PReLU()),
    "BatchNorm": lambda: stack(nn.BatchNorm1d(5, affine=False, track_running_stats=False), nn.ReLU()),
    "LayerNorm": lambda: stack(nn.ReLU(), nn.LayerNorm(5, elementwise_affine=False)),
    "complex": lambda: stack(nn.ReLU()).to(torch.complex64),
    "no numbers yet": lambda: nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2)),
    "otherwise at the first row": lambda: near_row(0),
    "otherwise at a late row": lambda: near_row(LATE),
    "declared in another order": Reversed,
    "a layer twice in a class": Twice,
    "a layer that is not used": Unused,
    "tanh": lambda: Chain(torch.tanh),
    "gelu": lambda: Chain(functional.gelu),
    "elu": lambda: Chain(functional.elu),
    "softplus": lambda: Chain(functional.softplus),
    "sharp softplus": lambda: Chain(lambda z: functional.softplus(z, beta=1000.0)),
    "relu6": lambda: Chain(functional.relu6),
    "random slopes": lambda: Chain(lambda z: functional.rrelu(z, 0.1, 0.2, training=True)),
    "another slope": lambda: Chain(lambda z: functional.leaky_relu(z, 1e-4)),
    "absolute values": lambda: Chain(torch.abs),
    "two slopes": lambda: Chain(lambda z: torch.where(z > 0.0, 2.0 * z, z)),
    "a residual": lambda: Chain(after=lambda y, x: y + x[:, :2]),
    "scaled": lambda: Chain(after=lambda y, x: 5.0 * y),
    "scaled by little": lambda: Chain(after=lambda y, x: NEARLY * y),
    "scaled by little, traced": lambda: fx.symbolic_trace(Chain(after=lambda y, x: NEARLY * y)),
    "scaled by little, compiled": lambda: torch.compile(Chain(after=lambda y, x: NEARLY * y)),
    "scaled, in single precision": lambda: in_single(1.0001),
    "shifted by little": lambda: Chain(after=lambda y, x: y + 1e-6),
    "noise": lambda: Chain(after=lambda y, x: y + 1e-4 * torch.randn_like(y)),
    "dropout in evaluation": lambda: Chain(after=lambda y, x: functional.dropout(y, 0.5)),
    "rounded to halves": lambda: Chain(after=lambda y, x: y.half().to(y)),
    "on a grid": lambda: Chain(lambda z: torch.round(4096.0 * torch.relu(z)) / 4096.0),
    "softmax": lambda: Chain(after=lambda y, x: y.softmax(1)),
    "clamped": lambda: Chain(after=lambda y, x: y.clamp(-1.0, 1.0)),
    "centred": lambda: Chain(before=lambda x: x - 1.0),
    "rescaled": lambda: Chain(before=lambda x: x / 255.0),
    "normed": lambda: Chain(before=lambda x: functional.normalize(x)),
    "across rows": lambda: Chain(before=lambda x: x - x.mean(0)),
    "less outputs": lambda: Chain(after=lambda y, x: y[:, :1]),
    "two answers": lambda: Chain(after=lambda y, x: (y, x)),
    "a norm": lambda: Chain(after=lambda y, x: functional.layer_norm(y, (2,))),
}  # fmt: skip
