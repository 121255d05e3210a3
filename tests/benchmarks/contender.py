"""One run of one contender in a process of its own: `python -m tests.benchmarks.contender DIRECTORY`.

The clock starts after the imports, and stops when the weights are there; with the option `clock` "processor" it counts
the seconds of the processor.
"""

import math
import time
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from covopt.answer.solve import solve
from covopt.certify.relaxation import signs
from covopt.model.problem import make_problem
from covopt.runtime.loop import Budget
from covopt.solvers.training.batch import Batch
from covopt.solvers.training.trainer import train as train_together
from tests.benchmarks.job import Stopwatch, run_job

Answer = tuple[list[np.ndarray], dict]


def run(X: np.ndarray, Y: np.ndarray, job: dict) -> list[Answer]:
    """Run the contender that the job names."""
    torch.set_num_threads(job["threads"])
    if job["options"].pop("clock", None) == "processor":
        time.perf_counter = time.process_time
    watch = Stopwatch()
    runs = _CONTENDERS[job["contender"]](X, Y, job)
    spent = watch.told()
    return [(weights, spent | told) for weights, told in runs]


def _covopt(X: np.ndarray, Y: np.ndarray, job: dict) -> list[Answer]:
    nodes = job["options"].pop("nodes", None)
    if nodes is not None:  # that trees over signs split together
        signs.BranchOptions = partial(signs.BranchOptions, batch=nodes)
    result = solve(X, Y, **job["question"], **job["options"])
    told = {
        "lower": result.lower,
        "certificate": str(result.certificate),
        "status": str(result.status),
        "width": max(result.widths),
        "history": [(line.seconds, line.cost) for line in result.history],
        "searched_gap": next((max(line.gaps) for line in reversed(result.history) if line.gaps), None),
    }
    return [([W.cpu().numpy() for W in result.weights], told)]


def _trainings(X: np.ndarray, Y: np.ndarray, job: dict) -> list[Answer]:
    """Many networks together; the seconds are those of all of them."""
    problem, options = make_problem(X, Y, **job["question"]), job["options"]
    batch = train_together(problem, options["width"], seeds=options["networks"], budget=Budget(options["seconds"]))
    return [
        (
            [W.cpu().numpy() for W in network.weights],
            {
                "status": "converged" if network.converged else "time_limit",
                "width": max(network.widths),
                "history": network.history.tolist(),
            },
        )
        for network in batch.networks
    ]


def _plain_adam(X: np.ndarray, Y: np.ndarray, job: dict) -> list[Answer]:
    """The best of many He starts, all in one batch; the rate falls to 0 along a cosine over the time."""
    options, started, seconds = job["options"], time.perf_counter(), job["options"]["seconds"]
    problem = make_problem(X, Y, **job["question"]).to(torch.float32)
    widths = [options["width"]] * (problem.depth - 1)
    sizes = [X.shape[1], *widths, problem.Y.shape[1]]
    generator = torch.Generator().manual_seed(0)
    batch = Batch(problem, [widths] * options["starts"])
    x = batch.pack([_he(sizes, generator) for _ in range(options["starts"])])
    first, second, steps = torch.zeros_like(x), torch.zeros_like(x), 0
    while (part := (time.perf_counter() - started) / seconds) < 1.0:
        gradient, steps = batch.evaluate(x)[1], steps + 1
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        rate = options["rate"] * 0.5 * (1.0 + math.cos(math.pi * part)) / (1.0 - 0.9**steps)
        x.addcdiv_(first, (second / (1.0 - 0.999**steps)).sqrt_().add_(1e-8), value=-rate)
    best = x[batch.evaluate(x)[0].argmin()]
    took = time.perf_counter() - started
    told = {"seconds": took, "cpu_seconds": took, "status": f"{steps} steps", "width": options["width"]}
    return [([W.double().numpy() for W in batch.unpack(best, widths)], told)]


def _he(sizes: list[int], generator: torch.Generator) -> list[torch.Tensor]:
    shapes = [(n, below) for below, n in pairwise(sizes)]
    drawn = [torch.randn(shape, generator=generator) * math.sqrt(2.0 / shape[1]) for shape in shapes]
    return [torch.cat([W, torch.zeros(len(W), 1)], dim=1) for W in drawn]


_CONTENDERS = {"covopt": _covopt, "trainings": _trainings, "adam": _plain_adam}

if __name__ == "__main__":
    run_job(run)
