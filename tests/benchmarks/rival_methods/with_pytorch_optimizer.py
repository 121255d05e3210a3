"""Muon, SOAP and schedule-free AdamW of the package pytorch-optimizer, on the penalised loss; for any depth.

Muon moves the matrices; the bias columns move by AdamW, as its authors advise. The rates of Muon and SOAP fall along
cosines over periods that double, as AdamW's in `descents`. Schedule-free AdamW needs no schedule: its averaged network
is the one that is shown.
"""

from __future__ import annotations

import numpy as np
import torch
from pytorch_optimizer import SOAP, Muon, ScheduleFreeAdamW  # pyright: ignore[reportMissingImports]

from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.descents import Network, batches, restarts, step
from tests.benchmarks.rival_methods.log import Log

BIAS_RATE = 0.1
"""The rate of AdamW for the biases, times Muon's: Muon spreads its step over a matrix, AdamW takes it in each entry."""
WARM_UP = 50
"""Steps, over which the rate of schedule-free AdamW rises."""


def run(
    question: Question,
    log: Log,
    seed: int,
    *,
    method: str,
    width: int,
    rate: float,
    scale: float = 0.3,
    batch: int = 512,
    period: float = 1.0,
    single: bool = False,
    device: str = "cpu",
) -> None:
    """Until the time is up; `period`: seconds of the first cosine; `single`: in float32."""
    torch.set_num_threads(1)
    network = Network(question, np.random.default_rng(seed), width, scale, single, device)
    if method == "schedule-free":
        _schedule_free(network, log, rate, batch)
        return
    if method == "soap":
        optimiser = SOAP(network.parameters, lr=rate, weight_decay=0.0)
    else:
        groups = [{"params": network.matrices, "use_muon": True}]
        if network.biases:
            groups.append({"params": network.biases, "use_muon": False, "factor": BIAS_RATE})
        optimiser = Muon(groups, lr=rate, weight_decay=0.0, adamw_wd=0.0)
    restarts(network, log, optimiser, rate, batch, period)


def _schedule_free(network: Network, log: Log, rate: float, batch: int) -> None:
    optimiser = ScheduleFreeAdamW(network.parameters, lr=rate, weight_decay=0.0, warmup_steps=WARM_UP)
    optimiser.train()
    for rows in batches(network, batch):
        step(network, optimiser, rows)
        if log.due() or not log.kept:
            optimiser.eval()
            network.show(log)
            optimiser.train()
        if not log.running():
            return
