"""Settings of fine-tuning and of further training, which continue from a network."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class FineTuning:
    """Further steps from networks at which other methods stopped.

    The defaults are for Adam at a small rate. In sixty races of 8 s against plain Adam, 6 were lost by up to 0.4 %
    without fine-tuning and longer training of the starts, and 2 by up to 0.04 % with both
    (docs/notes/2026-11-deep-penalties.md).
    """

    # maximum number of steps. 4,000 steps at a rate of 0.03 ended 0.02 % higher in one race of depth 3
    steps: int = 2000
    rate: float = 0.02  # the first learning rate, relative to the root mean square of the weights
    share: float = 0.15  # maximum share of the time limit for the steps of one batch
    single: bool = False  # compute in float32, not in the dtype of the problem
    penalties: tuple[float, ...] = (1.0,)  # factors of lam, one for each of several equal parts of the steps
    # A copy of the best network that ends higher by more than this, relative, was trained too briefly: the next one has
    # three times as many steps at half the rate. So 868 samples of noise cost 0.43 after 10 s instead of 0.54, and 459
    # points of two classes 0.041 instead of 0.061 by six layers.
    high: float = 0.02
    extensions: int = 2  # maximum number of times that this happens in a search

    def longer(self, times: int) -> FineTuning:
        """Return the settings after this number of copies that ended high."""
        share = min(0.5, self.share * 2**times)
        return replace(self, steps=self.steps * 3**times, rate=self.rate * 0.5**times, share=share)


@dataclass(frozen=True)
class FurtherTraining:
    """Further training of the best network at a low learning rate, in cycles that double while they gain much."""

    steps: int = 400  # the number of steps of the first cycle
    # the first learning rate; with 0.15 instead of 0.03, 79 samples of a teacher cost twice as much by six layers
    rate: float = 0.03
    # the relative gain of a cycle above which another one follows. With 0.02 wider copies come too late: 507 samples of
    # a teacher cost up to 19 % more by three layers
    gain: float = 0.1

    def longer(self) -> FurtherTraining:
        """Return the next cycle, which has twice as many steps."""
        return replace(self, steps=2 * self.steps)
