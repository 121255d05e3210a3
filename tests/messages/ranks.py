"""Messages about ranks, about training by SGD, and about what `validate` is told of it."""

from __future__ import annotations

import numpy as np
import torch

import covopt
from covopt.model.problem import make_problem
from covopt.model.ranks import functional_ranks
from covopt.model.recursion import Decay
from covopt.studies.ranks.rank_audit import audit_ranks
from messages import Row

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2
PROBLEM = make_problem(X, Y, lam=0.1)
W = [torch.ones(4, 3, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)]
BATCHES = {"batch_size": 2, "rate": 0.1, "steps": 9}


def validate(net: object = W, **options: object) -> object:
    return covopt.validate(net, X, Y, **({"lam": 0.1, "time_limit": 1.0} | options))  # type: ignore[arg-type]


def ranks(**options: object) -> object:
    chosen = {"lam": 0.1, "reference": 0, "width": 2, "seeds": 1, "time_limit": 5.0} | options
    return covopt.ranks(X, Y, **chosen)  # type: ignore[arg-type]


def audited(**options: object) -> object:
    return ranks(net=W, width=None, seeds=None, **options)


ROWS = [
    Row("kept and epochs each say how long to train; give one of them.", lambda _: ranks(kept=0.1, epochs=2)),
    Row("A start is that of a given network; give the network too, or leave the start out.", lambda _: ranks(start=W)),
    Row(
        "A given network is not trained here; leave kept, epochs, width, depth and seeds out, or the network.",
        lambda _: audited(epochs=2),
    ),
    Row(
        "The grid has more than 1,000 networks; give fewer values, or run a sweep.",
        lambda _: ranks(seeds=1_001, batch_size=2),
    ),
    Row(
        "covopt ranks counts all rows the same; leave the weights out, or repeat rows instead.",
        "ranks HERE/a.npz --lam 0.1",
        {"a.npz": lambda path: np.savez(path, X=X, Y=Y, weights=np.ones(6))},
    ),
    Row("So many epochs, 1e+13, take more than 1e+12 steps; give fewer.", lambda _: ranks(epochs=1e13)),
    Row(
        "Without a penalty nothing of the start fades; with lam 0, give epochs or steps.",
        "ranks iris --lam 0 --time-limit 5",
    ),
    Row(
        "Every network diverged, also at the rate 1e+09; give a smaller rate.",
        "ranks iris --lam 0.1 --rate 1e9 --steps 60 --seeds 1 --width 3 --reference 0",
    ),
    Row("A given network was trained with one batch size; give one.", lambda _: audited(batch_size=[1, 2])),
    Row("A momentum without a rate says nothing; give the rate too.", lambda _: audited(momentum=0.9)),
    Row(
        "The loss interpolate has no penalty that makes weights decay; give lam and the loss mse or cross_entropy.",
        "ranks iris --lam 0.1 --loss interpolate",
    ),
    Row(
        "The strength of the penalty is missing; give lam, half of PyTorch's weight_decay, or 0.",
        "ranks iris",
    ),
    Row("lam is -0.1; give 0 or more.", "ranks iris --lam -0.1"),
    Row("The tolerance of a rank is 1; give a number above 0 and below 1.", lambda _: ranks(tolerance=1)),
    Row("The solver's time is 7 s of 5; give less than the time limit, or 0.", lambda _: ranks(reference=7)),
    Row("The list of the rate is empty, and so is the grid; give at least one value.", lambda _: ranks(rate=[])),
    Row("The batch size has a value twice; give each once.", lambda _: ranks(batch_size=[2, 2])),
    Row("The rate is 'fast'; give a number.", lambda _: ranks(rate="fast")),
    Row("The rate is inf; give a finite number.", lambda _: ranks(rate=float("inf"))),
    Row("The number of epochs is 0; give a number above 0.", lambda _: ranks(epochs=0)),
    Row("The network has more than 100,000,000 weights; give a smaller width.", lambda _: ranks(width=10**5)),
    Row("The width is 0; give a whole number from 1 to 1,000,000,000,000.", lambda _: ranks(width=0)),
    Row(
        "What batches do is known of penalised biases; leave batch_size, rate and steps out, or ask with the decay all.",
        lambda _: validate(**BATCHES, decay="weights"),
    ),
    Row(
        "The decay is 'some'; use all, or weights for biases that the penalty is not on.",
        lambda _: validate(decay="some"),
    ),
    Row(
        "With the decay weights biases are free, and have no amount; leave the bias out.",
        lambda _: validate(decay="weights", bias=2.0),
    ),
    Row("The rate is 0; give a number above 0.", lambda _: validate(**BATCHES | {"rate": 0.0})),
    Row("lam is -1; give 0 or more.", lambda _: Decay(0.1, -1.0)),
    Row("The momentum is 1; give a number from 0 to below 1.", lambda _: validate(**BATCHES, momentum=1.0)),
    Row("The number of steps is -1; give 0 or more.", lambda _: validate(**BATCHES | {"steps": -1})),
    Row("The part of the start to keep is 0; give a number above 0.", lambda _: Decay(0.1, 1.0).steps_to(0.0)),
    Row(
        "With this rate, lam and momentum the start never fades; give lam > 0, or a smaller rate.",
        lambda _: Decay(0.1, 0.0).steps_to(0.5),
    ),
    Row(
        "The start fades in more than 1e+12 steps; give a larger rate or lam, or let more of the start be kept.",
        lambda _: Decay(1e-9, 1e-9).steps_to(0.5),
    ),
    Row(
        "The loss interpolate has no batches; leave the batch size out, or give lam and a loss.",
        lambda _: validate(**BATCHES, lam=None),
    ),
    Row(
        "The batch size is 7; give a number from 1 to the number of samples, 6.",
        lambda _: validate(**BATCHES | {"batch_size": 7}),
    ),
    Row("batch_size is 2.5; give a whole number.", lambda _: validate(**BATCHES | {"batch_size": 2.5})),
    Row(
        "Only a part of the training is told; give batch_size, rate and steps together, or none of them (and no momentum).",
        lambda _: validate(batch_size=2),
    ),
    Row(
        "Without a network there is no batch_size, rate or steps of its training; give the network, or leave them out.",
        lambda _: validate(None, **BATCHES),
    ),
    Row(
        "The network's loss on these data is not finite; check its weights and the scale of X.",
        lambda _: functional_ranks(PROBLEM, [1e200 * each for each in W]),
    ),
    Row(
        "The network's gradient on these data is not finite; check its weights and the scale of X.",
        lambda _: audit_ranks(PROBLEM, [1e200 * each for each in W]),
    ),
    Row(
        "The tolerance of a rank is 2; give a number above 0 and below 1.",
        lambda _: audit_ranks(PROBLEM, W, tolerances=(2.0,)),
    ),
    Row(
        "The start has other shapes than the network; give the network's own first weights.",
        lambda _: audit_ranks(PROBLEM, W, start=W[::-1]),
    ),
]
