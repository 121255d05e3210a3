"""The training of the first random start, which comes before all others, by depth and penalty.

A network trained by SOAP, widened and trained again ends lower than many descents (docs/notes/2026-11-first-starts.md).
"""

from __future__ import annotations

from dataclasses import replace

from covopt.model.problem import Problem
from covopt.solvers.deep.exploration import Cycle, Exploration, RandomStarts, by_soap, usual_width
from covopt.solvers.deep.fine_tuning import FineTuning, FurtherTraining
from covopt.solvers.training.exact_fit import usual_penalty

FIRST = Exploration(
    # with fewer than 60 neurons, a teacher network of three or five layers ends 2e-5 to 5e-5 higher. Without `widest`
    # 3,000 rows of 20 inputs cost twice as much after 1 s, and 20,000 of 10 inputs 3 % more after 8 s; without
    # `largest`, a checkerboard costs 6 % more after 2 s by four layers
    starts=RandomStarts((1.25,), (0.5,), narrowest=60, widest=3.0, largest=0.5),
    together=4,
    steps=(1000, 4000),
    rate=0.3,
    share=0.35,
    shallowest=3,
    least=0.0,
    fewest=(1, 200),
    elite=4,
    call=4e6,
    speed=1.5e10,
    method=by_soap,
    # so that there is a good network at every time. With cycles of 200, 400 and 700 steps, and further training of
    # 1,000, 200 digits cost up to 0.4 % more between 1 and 2 s, and as much at the end
    cycles=(Cycle(100), Cycle(400), Cycle(2000)),
    tuning=FineTuning(500, 0.3, 0.2, single=True),
)

FIRST_OF_MORE_LAYERS = replace(
    FIRST,
    shallowest=4,
    share=0.5,
    # with those of FIRST_OF_MANY_LAYERS, 200 digits end 0.4 % higher at four layers, 1.8 % at six, 1.6 % at eight, and
    # 60 digits 2.6 % at five; 300 digits and Friedman's function end 0.1 % lower at five
    cycles=(Cycle(500, 4.0), Cycle(650), Cycle(2000)),
    tuning=FineTuning(600, 0.3, 0.2, single=True, penalties=(2.0, 1.0)),
    # with the cycles of a first start, 200 digits and six layers cost 0.8 % more after 6.5 s, and as much after 10 s
    copies=(Cycle(200, 4.0), Cycle(200, 2.0), Cycle(400)),
)
"""The same for four layers and more, where a penalty that begins higher and falls leads to layers of lower rank.

200 digits end 0.5 % lower at four layers, 1.6 % lower at six and 0.3 % higher at three (2026-11-first-starts.md).
"""

FIRST_OF_FOUR_LAYERS = replace(
    FIRST_OF_MORE_LAYERS,
    starts=replace(FIRST.starts, widths=(2.0,)),
    tuning=FineTuning(600, 0.3, 0.2, single=True, penalties=(1.5, 1.0)),
)
"""The same for four layers, wider: with the usual width, 200 digits cost 0.2 % more after a first start."""

FIRST_OF_MANY_LAYERS = replace(
    FIRST_OF_MORE_LAYERS, cycles=(Cycle(250, 4.0), Cycle(250, 2.0), Cycle(250, 1.4), Cycle(400), Cycle(2000))
)
"""The same for nine layers and more: with the cycles above, one of two solves of a teacher of 13 ended 44 % higher."""

NARROW = replace(FIRST.starts, widths=(0.6,))
"""The first starts of five layers and more: a teacher of 13 layers ends 30 % lower after 10 s, 1 % lower after 60 s.

1,000 digits end 17 % lower at ten layers; at six, 500 digits end 0 to 5 % lower, 1,000 up to 6 % lower or 0.5 % higher.
"""


def first_starts(problem: Problem) -> RandomStarts:
    """Return the random starts that are trained first."""
    return FIRST.starts if problem.depth <= 4 else NARROW


def has_falling_penalty(problem: Problem) -> bool:
    """Return True if a first start is trained with a penalty that begins higher and falls: from four layers on.

    It ended 0.8 % higher on 30 samples, 0.9 % lower on 60. It never ended lower at 1.9 times the usual lam and with
    cross-entropy, where costs after 1 s were 0.3 to 1.5 % and 9 % higher.
    """
    deep = problem.depth >= FIRST_OF_MORE_LAYERS.shallowest
    return deep and bool(problem.ridge) and problem.lam < usual_penalty(problem)


def has_small_lam(problem: Problem) -> bool:
    """Return True if lam is far below the usual one: first starts then end far from a minimum, and copies gain less."""
    return problem.lam < 0.08 * usual_penalty(problem)


def first_training(problem: Problem, seconds: float, max_width: int | None = None) -> Exploration:
    """Return how first starts are trained, and what follows.

    With a small lam further training at a low rate comes after it, in place of copies of lower rank, and wider copies
    have twice the steps. After 10 s, 79 samples of a teacher cost 54 % less by six layers, 282 of noise 29 % by three.
    """
    training = _with_falling_penalty(problem, seconds, max_width)
    if not has_small_lam(problem):
        return training
    longer = replace(training.tuning, steps=2 * training.tuning.steps)
    return replace(training, restarts=0, further=FurtherTraining(), tuning=longer)


def _with_falling_penalty(problem: Problem, seconds: float, max_width: int | None) -> Exploration:
    """Return a training with a falling penalty at four layers and more, if all cycles fit; else one without.

    From five layers on, copies of lower rank follow, unless `max_width` is below the usual width.
    """
    # With time for twice these steps instead, 1,000 digits and six layers end 10 % higher after 10 s.
    plain = replace(FIRST, starts=first_starts(problem))
    if problem.samples < 50 or not has_falling_penalty(problem):
        return plain
    if problem.depth == 4:
        falling = replace(FIRST_OF_FOUR_LAYERS, tuning=FIRST.tuning) if has_small_lam(problem) else FIRST_OF_FOUR_LAYERS
        narrower = replace(falling, starts=plain.starts)
        return next((training for training in (falling, narrower) if training.fits(problem, seconds)), plain)
    # If widths are limited, other starts gain more than copies: 60 points and five layers of width 4 ended up to 16 %
    # higher with them.
    wide = max_width is None or max_width >= usual_width(problem.samples, problem.Y.shape[1])
    several = FIRST_OF_MORE_LAYERS if problem.depth <= 8 else FIRST_OF_MANY_LAYERS
    falling = replace(several, starts=plain.starts, restarts=2 if wide else 0)
    return falling if falling.fits(problem, seconds) else plain
