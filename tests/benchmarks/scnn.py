"""One run of pyscnn, as `contender` runs covopt: `PYTHON -m tests.benchmarks.scnn DIRECTORY`, PYTHON an environment of
its own that holds pyscnn (docs/performance.md says how to make one).

pyscnn (Mishkin, Sahiner, Pilanci 2022) solves the convex programme over one random sample of activation patterns. With
its strength lam / n_L its objective is ours divided by 2 n_L. `unitize_data` is off, because it penalises rescaled
weights. Its network is balanced neuron by neuron before it is judged, which costs it nothing.
"""

from __future__ import annotations

import numpy as np
from scnn.activations import sample_gate_vectors
from scnn.metrics import Metrics
from scnn.models import ConvexReLU
from scnn.optimize import optimize_model
from scnn.regularizers import NeuronGL1
from scnn.solvers import AL

from tests.benchmarks.job import Stopwatch, run_job


def run(X: np.ndarray, Y: np.ndarray, job: dict) -> list[tuple[list[np.ndarray], dict]]:
    """Solve the convex programme."""
    options, question = job["options"], job["question"]
    if question["bias"] != 0.0 or question["activation"] != "relu":
        raise SystemExit("This contender is set up for ReLU networks without bias; choose such a work.")
    watch = Stopwatch()
    gates = sample_gate_vectors(options["seed"], X.shape[1], options["gates"])
    model = ConvexReLU(gates, c=Y.shape[1])
    limits = {
        key: options[key] for key in ("tol", "constraint_tol", "max_dual_iters", "max_primal_iters") if key in options
    }
    network, _ = optimize_model(
        model,
        AL(model, **limits),
        Metrics(metric_freq=10**6),
        X,
        Y,
        regularizer=NeuronGL1(question["lam"] / Y.shape[1]),
        unitize_data=False,
        dtype="float64",
        seed=options["seed"],
    )
    W1, W2 = (np.asarray(parameter, dtype=np.float64) for parameter in network.parameters)
    told = watch.told()
    W1, W2 = balanced(W1, W2)
    return [([np.pad(W, ((0, 0), (0, 1))) for W in (W1, W2)], told | {"width": len(W1)})]


def balanced(W1: np.ndarray, W2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The neurons that do something, W_1 (n, d), W_2 (m, n), each with incoming and outgoing weights of one norm."""
    sizes = np.linalg.norm(W1, axis=1), np.linalg.norm(W2, axis=0)
    alive = sizes[0] * sizes[1] > 0.0
    factor = np.sqrt(sizes[1][alive] / sizes[0][alive])
    return W1[alive] * factor[:, None], W2[:, alive] / factor


if __name__ == "__main__":
    run_job(run)
