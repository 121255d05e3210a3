"""Batch normalisation, residual blocks, falling rates and held-out data, held against PyTorch's own."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from editing import holds
from instances import gaussian
from torch import Tensor, nn

import covopt
from covopt.model.problem import Problem, make_problem
from covopt.model.recursion import Decay, StepwiseDecay
from covopt.studies.ranks.architectures import ARCHITECTURES, Normalised
from covopt.studies.ranks.sgd import Setting, epochs, he_start, train_sgd

NORMALISED = ("batch_norm", "residual")


class Module(nn.Module):
    """Either network as a user of PyTorch writes it; matrices (n, d), shifts in the normalisations."""

    def __init__(self, name: str, weights: list[Tensor]) -> None:
        super().__init__()
        self.residual = name == "residual"
        self.linear = nn.ModuleList(nn.Linear(W.shape[1] - 1, W.shape[0], bias=False).double() for W in weights)
        self.norms = nn.ModuleList(nn.BatchNorm1d(len(W), momentum=None).double() for W in weights[:-1])
        self.bias = nn.Parameter(weights[-1][:, -1].clone())
        for layer, W in zip(self.linear, weights, strict=True):
            layer.weight.data.copy_(W[:, :-1])
        for norm, W in zip(self.norms, weights, strict=False):
            norm.bias.data.copy_(W[:, -1])
            norm.weight.requires_grad_(False)

    def forward(self, X: Tensor) -> Tensor:
        layers = [nn.Sequential(*pair) for pair in zip(self.linear, self.norms, strict=False)]
        if self.residual:
            X = layers[0](X)
            for first, second in zip(layers[1::2], layers[2::2], strict=True):
                X = X + second(torch.relu(first(X)))
        else:
            for layer in layers:
                X = torch.relu(layer(X))
        return self.linear[-1](X) + self.bias

    def weights(self) -> list[Tensor]:
        pairs = zip(self.linear, [*(norm.bias for norm in self.norms), self.bias], strict=True)
        return [torch.cat([layer.weight, shift[:, None]], dim=1).detach() for layer, shift in pairs]


def small(loss: str = "cross_entropy", samples: int = 14) -> Problem:
    X, Y = gaussian(samples, 5, seed=1), torch.eye(3, dtype=torch.float64)[torch.arange(samples) % 3]
    return make_problem(X, Y, lam=1.0, loss=loss, depth=4)


@pytest.mark.parametrize("name", NORMALISED)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_normalised_networks_take_the_steps_of_pytorch(name: str, momentum: float) -> None:
    """With a rate that falls at milestones; outputs elsewhere have the statistics of all training samples."""
    problem = small()
    options = [Setting(4, rate, 0.01, 25, momentum, milestones=(7, 15), gamma=0.3) for rate in (0.05, 0.02)]
    starts = [he_start(problem, [6, 6, 6], seed) for seed in range(2)]
    networks, _ = train_sgd(problem, starts, options, architecture=ARCHITECTURES[name], seed=3)
    for network, start, o in zip(networks, starts, options, strict=True):
        module, batches = Module(name, start), epochs(14, 4, 3)
        theirs = torch.optim.SGD(
            [p for p in module.parameters() if p.requires_grad], o.rate, momentum=momentum, weight_decay=2.0 * o.lam
        )
        schedule = torch.optim.lr_scheduler.MultiStepLR(theirs, list(o.milestones), o.gamma)
        for _ in range(o.steps):
            rows, before = next(batches), module.weights()
            theirs.zero_grad()
            nn.functional.cross_entropy(module(problem.X[rows]), problem.Y[rows]).backward()
            theirs.step()
            schedule.step()
        for W, V in zip(network.weights, module.weights(), strict=True):
            torch.testing.assert_close(W, V, rtol=1e-9, atol=1e-11)
        moves = [float((W - V).norm()) for W, V in zip(before, module.weights(), strict=True)]
        assert network.course is not None
        assert network.course.distances[-1] == pytest.approx(np.mean(moves), rel=1e-8)
        for norm in module.norms:
            norm.reset_running_stats()
        module(problem.X)
        assert network.course.fits[-1] == pytest.approx(
            float(nn.functional.cross_entropy(module(problem.X), problem.Y).detach()), rel=1e-9
        )
        elsewhere = gaussian(9, 5, seed=8)
        ours = ARCHITECTURES[name].outputs(problem, network.weights, elsewhere)
        for norm in module.norms:
            norm.running_var *= 13 / 14  # PyTorch's running variance is unbiased
        torch.testing.assert_close(ours, module.eval()(elsewhere).detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NORMALISED)
def test_what_batches_say_of_ranks(name: str) -> None:
    """rank G <= B, and the chain of P2; a normalised matrix is orthogonal to its gradient, up to epsilon."""
    problem, network = small(), ARCHITECTURES[name]
    for seed, size in itertools.product(range(5), (3, 5, 6)):
        weights = he_start(problem, [8, 8, 8], seed)
        rows = torch.randperm(14, generator=torch.Generator().manual_seed(seed))[:size]
        leaves = [W.clone().requires_grad_() for W in weights]
        assert isinstance(network, Normalised)
        F = network.forward(problem, leaves, problem.X[rows], size)
        gradients = torch.autograd.grad(nn.functional.cross_entropy(F, problem.Y[rows]), leaves)
        chains = network.bounds(problem, weights, rows)
        for layer, (W, G, chain) in enumerate(zip(weights, gradients, chains, strict=True), start=1):
            assert int((torch.linalg.svdvals(G) > 1e-10).sum()) <= chain.rank_bound <= size
            whole = (G + 2.0 * W).norm() / (2.0 * W.norm())
            assert chain.theorem == pytest.approx(float(whole), rel=1e-9)
            ends = [chain.tail, chain.projection, chain.angle, chain.theorem]
            assert all(a <= b + 1e-12 for a, b in itertools.pairwise(ends))
            if layer < problem.depth:
                assert int((torch.linalg.svdvals(G[:, :-1]) > 1e-10).sum()) <= size - 1
                A, slope = W[:, :-1], G[:, :-1]
                assert abs(float((A * slope).sum())) <= 0.01 * float(A.norm() * slope.norm())
                assert chain.angle > 0.99


@pytest.mark.parametrize("name", NORMALISED)
def test_functional_ranks_by_brute_force(name: str) -> None:
    problem, network = small("mse"), ARCHITECTURES[name]
    weights = he_start(problem, [5, 5, 5], seed=2)
    cost = network.cost(problem, weights)
    assert cost.total == pytest.approx(cost.fit + sum(float(W.square().sum()) for W in weights))
    for layer, least in enumerate(network.functional_ranks(problem, weights)):
        U, s, Vt = torch.linalg.svd(weights[layer], full_matrices=False)
        for r in range(least + 1):
            replaced = [*weights[:layer], (U[:, :r] * s[:r]) @ Vt[:r], *weights[layer + 1 :]]
            fit = float(problem.loss_at(network.outputs(problem, replaced, problem.X)))
            assert (fit <= 1.01 * cost.fit) == (r == least) or (r == least == len(s))


@pytest.mark.quick
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.8, True)])
def test_a_falling_rate_is_remembered_as_the_optimiser_does(momentum: float, nesterov: bool) -> None:
    """Without gradients W_T = kept W_0, and a W + b v from any step before."""
    decay = StepwiseDecay(Decay(0.3, 0.1, momentum, nesterov), (5, 11), 0.2, 20)
    W = nn.Parameter(torch.tensor([1.0, 0.0], dtype=torch.float64))
    theirs = torch.optim.SGD([W], 0.3, momentum=momentum, nesterov=nesterov, weight_decay=0.2)
    schedule = torch.optim.lr_scheduler.MultiStepLR(theirs, [5, 11], 0.2)
    path = []
    for step in range(20):
        velocity = theirs.state[W].get("momentum_buffer") if step else None
        path.append((W.detach().clone(), torch.zeros(2) if velocity is None else velocity.clone()))
        W.grad = torch.tensor([0.0, float(step == 0)], dtype=torch.float64)
        theirs.step()
        schedule.step()
        assert decay.kept(step + 1) == pytest.approx(W.tolist()[0], rel=1e-12)
    for k in (1, 8, 13, 19):
        a, b = decay.memory(k)
        earlier, velocity = path[20 - k]
        assert W.tolist() == pytest.approx((a * earlier + b * velocity).tolist(), rel=1e-11, abs=1e-15)
    if momentum == 0.0:
        k = decay.steps_to(0.9)
        assert abs(decay.memory(k)[0]) <= 0.9 < abs(decay.memory(k - 1)[0])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_stored_architecture_comes_back_and_is_verified(name: str, tmp_path: Path) -> None:
    problem, held = small(samples=24), small(samples=9)
    options = {"lam": 0.02, "loss": "cross_entropy", "width": 6, "depth": 4, "seeds": 1, "reference": 0}
    answer = covopt.ranks(
        *(problem.X, problem.Y), **options, architecture=name, batch_size=[4, 12], epochs=5, milestones=[2.0, 3.5],
        gamma=0.5, test=(held.X, held.Y),
    )  # fmt: skip
    cell = answer.cells[0]
    assert cell.setting.milestones == (12, 21)
    rates = [0.1] * 12 + [0.05] * 9 + [0.025] * 9
    assert cell.kept == pytest.approx(np.prod([1.0 - 0.04 * rate for rate in rates]))
    assert cell.course is not None
    assert cell.test_accuracy == cell.course.test_accuracies[-1]
    answer.save(tmp_path / "run")
    assert covopt.load(tmp_path / "run").summary() == answer.summary()
    assert covopt.verify(tmp_path / "run").passed
    holds("problem.npz", Y_test=lambda Y: np.roll(Y, 1, axis=1))(tmp_path / "run")
    assert not covopt.verify(tmp_path / "run").passed
