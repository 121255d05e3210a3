"""Names of options in other programs, from which the command line and the functions tell which one is meant."""

from __future__ import annotations

from collections.abc import Iterable

from covopt.runtime.errors import close_match

ELSEWHERE = {
    "lam": ("alpha", "lambda", "l2", "penalty", "reg", "regularization", "strength"),
    "lam, which is half of PyTorch's weight_decay": ("wd", "weight-decay"),
    "time-limit": ("epochs", "iterations", "max-iter", "max-iterations", "max-time", "timeout", "seconds"),
    "progress": ("verbose", "v", "log", "debug"),
    "rate": ("lr", "learning-rate"),
    "width": ("hidden", "neurons", "units", "hidden-size"),
    "depth": ("layers", "n-layers"),
    "out": ("output", "o", "save", "dir", "directory"),
    "force": ("overwrite", "f", "replace"),
    "device cuda": ("gpu", "cuda"),
    "scale standard": ("standardize", "standardise", "normalize", "normalise", "zscore"),
    "target": ("label", "labels", "y", "column", "target-column"),
    "rows": ("n", "samples", "n-rows", "limit", "subset"),
    "net": ("model", "network", "state-dict"),
    "seed": ("random-state", "random-seed"),
    "gap": ("mip-gap", "epsilon"),
    "loss": ("criterion", "objective"),
    "json": ("format", "as-json"),
    "bias": ("no-bias", "fit-intercept", "intercept"),
}
"""Options, and their names in other programs, in lower case."""


def meant(word: str, names: Iterable[str]) -> str | None:
    """Return which of these options, words joined by hyphens, is meant by a word that is none of them; or None."""
    options = set(names)
    plain = word.lower().strip("_-").replace("_", "-")
    for option, words in ELSEWHERE.items():
        if plain in words and option.split()[0].rstrip(",") in options:
            return option
    return close_match(word, options, 0.7)
