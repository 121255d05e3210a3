"""Messages about ranks, about training by SGD, and about what `validate` is told of it."""

from __future__ import annotations

import numpy as np
import torch

import covopt
from covopt.model.problem import make_problem
from covopt.model.ranks import functional_ranks
from covopt.model.recursion import Decay
from covopt.study.rank_audit import audit_ranks
from messages import Row

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2
PROBLEM = make_problem(X, Y, lam=0.1)
W = [torch.ones(4, 3, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)]
BATCHES = {"batch_size": 2, "rate": 0.1, "steps": 9}


def validate(net: object = W, **options: object) -> object:
    return covopt.validate(net, X, Y, **({"lam": 0.1, "time_limit": 1.0} | options))  # type: ignore[arg-type]


ROWS = [
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
