"""Messages about ranks, about training by SGD, and about what `validate` is told of it."""

import numpy as np
import torch

import covopt
from covopt.model.problem import make_problem
from covopt.model.ranks import functional_ranks
from covopt.model.recursion import Decay
from covopt.studies.ranks.rank_audit import audit_ranks
from messages import rows

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


ROWS = rows(
    globals(),
    """
    > ranks(kept=0.1, epochs=2)  ->  kept and epochs each say how long to train; give one of them.
    > ranks(start=W)  ->  A start is that of a given network; give the network too, or leave the start out.
    > audited(epochs=2)
    A given network is not trained here; leave kept, epochs, width, depth and seeds out, or the network.
    > ranks(seeds=1_001, batch_size=2)  ->  The grid has more than 1,000 networks; give fewer values, or run a sweep.
    $ ranks HERE/a.npz --lam 0.1  with {"a.npz": lambda path: np.savez(path, X=X, Y=Y, weights=np.ones(6))}
    covopt ranks counts all rows the same; leave the weights out, or repeat rows instead.
    > ranks(epochs=1e13)  ->  So many epochs, 1e+13, take more than 1e+12 steps; give fewer.
    $ ranks iris --lam 0 --time-limit 5
    Without a penalty nothing of the start fades; with lam 0, give epochs or steps.
    $ ranks iris --lam 0.1 --rate 1e9 --steps 60 --seeds 1 --width 3 --reference 0
    Every network diverged, also at the rate 1e+09; give a smaller rate.
    > audited(batch_size=[1, 2])  ->  A given network was trained with one batch size; give one.
    > audited(momentum=0.9)  ->  A momentum without a rate says nothing; give the rate too.
    $ ranks iris --lam 0.1 --loss interpolate
    The loss interpolate has no penalty that makes weights decay; give lam and the loss mse or cross_entropy.
    $ ranks iris  ->  The strength of the penalty is missing; give lam, half of PyTorch's weight_decay, or 0.
    $ ranks iris --lam -0.1  ->  lam is -0.1; give 0 or more.
    > ranks(tolerance=1)  ->  The tolerance of a rank is 1; give a number above 0 and below 1.
    > ranks(reference=7)  ->  The solver's time is 7 s of 5; give less than the time limit, or 0.
    > ranks(rate=[])  ->  The list of the rate is empty, and so is the grid; give at least one value.
    > ranks(batch_size=[2, 2])  ->  The batch size has a value twice; give each once.
    > ranks(rate="fast")  ->  The rate is 'fast'; give a number.
    > ranks(rate=float("inf"))  ->  The rate is inf; give a finite number.
    > ranks(epochs=0)  ->  The number of epochs is 0; give a number above 0.
    > ranks(width=10**5)  ->  The network has more than 100,000,000 weights; give a smaller width.
    > ranks(width=0)  ->  The width is 0; give a whole number from 1 to 1,000,000,000,000.
    > validate(**BATCHES, decay="weights")
    What batches do is known of penalised biases; leave batch_size, rate and steps out, or ask with the decay all.
    > validate(decay="some")  ->  The decay is 'some'; use all, or weights for biases that the penalty is not on.
    > validate(decay="weights", bias=2.0)
    With the decay weights biases are free, and have no amount; leave the bias out.
    > validate(**BATCHES | {"rate": 0.0})  ->  The rate is 0; give a number above 0.
    > Decay(0.1, -1.0)  ->  lam is -1; give 0 or more.
    > validate(**BATCHES, momentum=1.0)  ->  The momentum is 1; give a number from 0 to below 1.
    > validate(**BATCHES | {"steps": -1})  ->  The number of steps is -1; give 0 or more.
    > Decay(0.1, 1.0).steps_to(0.0)  ->  The part of the start to keep is 0; give a number above 0.
    > Decay(0.1, 0.0).steps_to(0.5)
    With this rate, lam and momentum the start never fades; give lam > 0, or a smaller rate.
    > Decay(1e-9, 1e-9).steps_to(0.5)
    The start fades in more than 1e+12 steps; give a larger rate or lam, or let more of the start be kept.
    > validate(**BATCHES, lam=None)
    The loss interpolate has no batches; leave the batch size out, or give lam and a loss.
    > validate(**BATCHES | {"batch_size": 7})
    The batch size is 7; give a number from 1 to the number of samples, 6.
    > validate(**BATCHES | {"batch_size": 2.5})  ->  batch_size is 2.5; give a whole number.
    > validate(batch_size=2)
    Only a part of the training is told; give batch_size, rate and steps together, or none of them (and no momentum).
    > validate(None, **BATCHES)
    Without a network there is no batch_size, rate or steps of its training; give the network, or leave them out.
    > functional_ranks(PROBLEM, [1e200 * each for each in W])
    The network's loss on these data is not finite; check its weights and the scale of X.
    > audit_ranks(PROBLEM, [1e200 * each for each in W])
    The network's gradient on these data is not finite; check its weights and the scale of X.
    > audit_ranks(PROBLEM, W, tolerances=(0.0,))  ->  The tolerance of a rank is 0; give a number above 0 and below 1.
    > audit_ranks(PROBLEM, W, batch_size=0)
    The batch size is 0; give a number from 1 to the number of samples, 6.
    > ranks(batch_size=7)  ->  The batch size is 7; give a number from 1 to the number of samples, 6.
    > audit_ranks(PROBLEM, W, tolerances=(2.0,))  ->  The tolerance of a rank is 2; give a number above 0 and below 1.
    > audit_ranks(PROBLEM, W, start=W[::-1])
    The start has other shapes than the network; give the network's own first weights.
    """,
)
