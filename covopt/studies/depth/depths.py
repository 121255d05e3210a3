"""`depth`: how does depth change the cost of a data set, and what is proved about it?

* `curve`: at each depth the network of lowest cost found, the lower bound, and the dimensions that pass its narrowest
    layer;
* `families`: the same for networks with a hidden layer of at most k neurons;
* `limit`: the cost at large depth, by a theorem; `fit`: an extrapolation of the curve, which proves nothing;
* `rank_one`: a lower bound on the cost of networks that pass one dimension.

The search is in depth_search.py and depth_families.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from torch import Tensor, nn

from covopt.answer.plan import weights_to_start
from covopt.answer.result import Result
from covopt.answer.solve import Question, study
from covopt.answer.verify import first_difference
from covopt.certify.rank_one import rank_one
from covopt.model.activation import Activation
from covopt.model.bottleneck import bottleneck, layer_shapes
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import check_network
from covopt.runtime.errors import ProblemError, listed
from covopt.runtime.loop import Budget, Callback, Status
from covopt.runtime.options import whole_numbers
from covopt.solvers.deep.starts import ENDS
from covopt.studies.depth.depth_answer import Depths, Family
from covopt.studies.depth.depth_families import FamilySearch
from covopt.studies.depth.depth_search import DepthSearch

# Shares of the time at which these end: the search; the solves of up to four layers; the families; the deeper solves.
# Without deeper solves the families end at the last share, and the shallow solves at that of the families. Without
# families the shallow solves end where the families would.
SEARCHING, SHALLOW, BUILT, FAMILIES = 0.92, 0.2, 0.5, 0.7
# Default ranks of families, in addition to those that the solutions of two and three layers show.
RANKS, SHOWING = (1, 2, 3), 2
MOST_SHOWN = 8


@study(Question)
def depth(
    X: object,
    Y: object = None,
    *,
    depths: Sequence[int] = range(2, 9),
    ranks: Sequence[int] | None = None,
    bias: float = 1.0,
    activation: str | Activation = "relu",
    time_limit: float = 300.0,
    init: Depths | Result | nn.Module | Sequence[object] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **question: Unpack[Question],
) -> Depths:
    """Find the network of lowest cost at each depth, bound its cost, and measure its layers.

    >>> answer = covopt.depth([[0.0], [1.0]], [0.0, 1.0], depths=[2, 3], time_limit=3)
    >>> {depth: round(result.cost, 3) for depth, result in answer.results.items()}, len(answer.network(3))
    ({2: 2.0, 3: 3.0}, 3)

    Every depth is solved, from the smallest up, and the depths exchange their networks, with an identity layer inserted
    or a layer removed. So no depth costs more than its neighbours' networks changed in this way. Sources: [J23a,
    Theorem 1 and 2], [J23b, section 2 and Figure 1].

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`.
        depths: numbers of weight matrices, each at least 2.
        ranks: maximum numbers of neurons in the narrowest hidden layer, one for each family of networks; None: 1, 2, 3
            and the dimensions in the solutions of two and three layers; empty: no families.
        lam: strength of the penalty; None asks for the representation cost.
        time_limit: seconds for all depths together.
        init: a `Depths` of the same problem to continue; or a Result, an nn.Module, or weights, to start from.
        loss, bias, activation, certify, gap, seed, device, callback, progress, sample_weight, task: as for `solve`.

    Returns:
        The curve with its bounds, the families, and the proved and the fitted behaviour at large depth.

    Raises:
        ProblemError: an option is out of range, data have the wrong shape, or `init` belongs to another problem.
        InfeasibleError: `interpolate` on data that no network of these depths fits.
    """
    chosen = whole_numbers(depths, "depths", 2)
    chosen_ranks = None if ranks is None else whole_numbers(ranks, "ranks", 1, can_be_empty=True)
    budget = Budget(time_limit=time_limit)
    asked: dict[str, Any] = {**question, "bias": bias, "activation": activation}
    effort = {name: asked.pop(name) for name in ("certify", "gap", "seed")}
    first = make_problem(X, Y, depth=chosen[0], **asked).double()
    objective = {name: asked[name] for name in ("lam", "loss", "bias", "activation")}
    weighted_objective = {**objective, "sample_weight": first.weight}
    problems = {L: make_problem(first.X, first.Y, depth=L, **weighted_objective).double() for L in chosen}
    earlier = _known(init, problems)
    within, results = budget.part(SEARCHING), {} if earlier is None else earlier.results
    search = DepthSearch(problems, objective | effort, within, budget, callback, results)
    for family in [] if earlier is None else earlier.families:
        search.families[family.rank] = {d: m for d, m in family.members.items() if d in problems}
    shallow = [L for L in chosen if L <= ENDS] or chosen[:1]
    first_part, last_part = (SHALLOW, BUILT) if len(shallow) < len(chosen) else (BUILT, FAMILIES)
    search.run(shallow, last_part if chosen_ranks == [] else first_part, _weights(init, problems))
    wanted = _shown_ranks(search.best) if chosen_ranks is None else chosen_ranks
    families = FamilySearch(search, effort["seed"])
    families.begin(wanted)
    families.run(wanted, budget.part(last_part))
    search.run([L for L in chosen if L not in shallow], FAMILIES, _weights(init, problems))
    ended = search.share()
    while not within.spent() and search.again():
        ended = search.share()
    if any(result.status not in (Status.OPTIMAL, Status.CONVERGED) for result in search.best.values()):
        ended = Status.TIME_LIMIT
    return Depths(
        results=search.best,
        sources={L: search.sources[L] for L in search.best},
        families=[
            Family(rank, {L: member for L, member in sorted(members.items()) if L in search.best})
            for rank, members in sorted(search.families.items())
        ],
        refused=search.refused,
        path=rank_one(problems[max(search.best)]) if asked["lam"] is None else None,
        status=search.status(ended),
        seconds=budget.seconds(),
    )


def _shown_ranks(results: Mapping[int, Result]) -> list[int]:
    """Return RANKS and the dimensions of the narrowest layers at depths 2 and 3."""
    shown_there = set()
    for result in list(results.values())[:SHOWING]:
        if math.isfinite(result.cost) and result.problem.depth <= 1 + SHOWING:
            shapes = layer_shapes(result.problem, result.weights)
            shown_there.add(shapes[bottleneck(shapes) - 1].dimension)
    return sorted({*RANKS, *(rank for rank in shown_there if 1 <= rank <= MOST_SHOWN)})


def _known(init: object, problems: Mapping[int, Problem]) -> Depths | None:
    """Return an earlier answer to the same problem, if `init` is one."""
    if not isinstance(init, Depths):
        return None
    earlier = next(iter(init.results.values())).problem
    if first_difference(next(iter(problems.values())), earlier, {"depth"}) is not None:
        raise ProblemError(
            "The earlier answer is one to another problem (data, weights, loss, lam, bias or activation); give the same"
            " problem."
        )
    results = {L: replace(result, problem=problems[L]) for L, result in init.results.items() if L in problems}
    return replace(init, results=results)


def _weights(init: object, problems: Mapping[int, Problem]) -> list[Tensor] | None:
    """Return the network to start from, if `init` is one."""
    if init is None or isinstance(init, Depths):
        return None
    accepted = "a Depths, a Result, an nn.Module, or arrays W_1 ... W_L"
    weights = weights_to_start(init, accepted, next(iter(problems.values())))
    if len(weights) not in problems:
        raise ProblemError(f"init has depth {len(weights)}, which is none of {listed(problems)}; ask for it too.")
    check_network(problems[len(weights)], weights)
    return weights
