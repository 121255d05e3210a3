"""The names in a summary's JSON in words: kinds of certificates, and reasons of an end."""

from __future__ import annotations

from typing import NamedTuple

FREE = "free"  # the amount of bias of networks whose biases are not penalised


class Wording(NamedTuple):
    """A kind of certificate in words."""

    short: str  # the proof of the bound, in a line
    proof: str  # the same in sentences, and what it means
    way: str = ""  # that it applies, for problems where it could be proved and was not; empty if this is never printed


_DUAL = (
    "The bound is proved by a dual point Λ, one row for each sample: D(Λ) is at most the objective of every network, of"
    " any width, if no neuron violates it, |Λᵀσ(Xw)| ≤ 1 for all unit directions w."
)
CERTIFICATES = {
    "exact": Wording(
        "proved, by the exact maximum over all neurons",
        f"{_DUAL} Here the largest value over all w was found exactly, by going through all the patterns in which a"
        " neuron can be active on these samples.",
        "the exact maximum over all neurons can be computed for inputs of this rank",
    ),
    "branch-and-bound": Wording(
        "proved, by branch and bound over all neurons",
        f"{_DUAL} Here the neurons were split into cases until a bound held in each of them; the list of the cases is"
        " stored with the run.",
        "branch and bound over all directions applies to inputs of this rank",
    ),
    "relaxation": Wording(
        "proved, by a convex relaxation",
        f"{_DUAL} Here a semidefinite relaxation bounds the largest value over all w; its multipliers are stored with"
        " the run.",
        "a semidefinite relaxation applies to data of this size",
    ),
    "sign-branching": Wording(
        "proved, by convex relaxations with branches on signs",
        f"{_DUAL} Here the neurons were split into cases by the signs of their values on some samples, and a"
        " semidefinite relaxation bounds the largest value in each; the cases and the multipliers are stored with the"
        " run.",
        "a semidefinite relaxation applies to data of this size",
    ),
    "groups": Wording(
        "proved, by a convex relaxation for groups of samples",
        f"{_DUAL} Here a semidefinite relaxation bounds the largest value over all w; its multipliers, which groups of"
        " samples share, are stored with the run.",
        "a semidefinite relaxation for groups of samples applies to data of this size",
    ),
    "laplacian": Wording(
        "proved, by weighted edges between samples, for every network of this depth",
        "The bound comes from weighted edges between samples: no layer stretches the differences along them by more"
        " than the size of its weights, so the differences of the targets have a price. No network of this"
        " depth, of any width, can cost less; the weights are stored with the run.",
        "a bound from weighted edges between samples applies",
    ),
    "one-input": Wording(
        "proved, by two numbers of each network, for every network of three layers",
        "The bound comes from two numbers of a network, the lengths of its second hidden layer at the inputs 1 and -1:"
        " with one input and without biases they determine what the weights cost at least. No network of three layers,"
        " of any width, can cost less.",
        "with one input and without biases the minimum is that of two numbers",
    ),
    "shares": Wording(
        "proved, by a tree over the shares of the hidden neurons, for every network of three layers",
        "The bound comes from a tree of cases: the neurons of the second hidden layer are of finitely many kinds, by"
        " their sign and by the samples on which they are active, and each case says within which limits the kinds"
        " share the output weights. In each case prices of the neurons' outputs bound the cost. No network of three"
        " layers, of any width, can cost less; the tree and the prices are stored with the run.",
        "a tree over the shares of the hidden neurons applies to so few samples",
    ),
    "paths": Wording(
        "proved, by the path norm of the hidden neurons, for every network of three layers",
        "The bound comes from the path norm, the sum over all paths through a network of the product of the weights on"
        " the path: the weights cost at least as much as it says. Multipliers of the samples price the neurons of the"
        " second hidden layer, and a tree over the signs of their values proves that no neuron has a larger price. No"
        " network of three layers, of any width, can cost less; the multipliers and the tree are stored with the run.",
        "the path norm of the hidden neurons applies to so few samples",
    ),
    "convexity": Wording(
        "proved, by multipliers of one sign, for every network of this depth",
        "The bound comes from multipliers of one sign for each output: the norm of the multipliers times a layer is a"
        " convex function of the same product one layer below, so it can grow only with the size of the weights. No"
        " network of this depth, of any width, can cost less; the multipliers are stored with the run.",
    ),
    "angle": Wording(
        "proved, by the angle between two samples, for every network of this depth",
        "The bound comes from two samples: without biases, a layer can widen the angle between them, or the area that"
        " they span, only by the size of its weights. No network of this depth, of any width, can cost less; the two"
        " samples are stored with the run.",
    ),
    "loop": Wording(
        "proved, by a closed loop of samples, for every network of this depth",
        "The bound comes from a closed loop of samples whose targets enclose an area: a network that fits them maps a"
        " disc onto that area, which takes two large singular values in every layer, or it is very steep. No network of"
        " this depth, of any width, can cost less; the loop is stored with the run.",
    ),
    "linear": Wording(
        "proved, by the singular values of the smallest linear map that fits",
        "The bound is a closed form: a linear network computes one matrix, and the singular values of the smallest"
        " matrix that fits determine the cost for every number of layers.",
    ),
    "spectral": Wording(
        "proved, by the spectral bound that holds for every network",
        "The bound comes from the data alone, from their singular values and the distances of pairs of samples: no"
        " network of this depth, of any width, can cost less. It is cheap and true, but usually far from tight, so a"
        " wide interval says little about the network.",
    ),
    "none": Wording(
        "none: nothing is proved about how far the cost is from the minimum",
        "No lower bound is proved. The cost of the network is an upper bound on the minimum; how far below it the"
        " minimum is, is not known.",
    ),
}
"""The proof of a lower bound in words, by the kind of certificate."""
STATUSES = {
    "optimal": ("optimal: the proved gap is within the target", ""),
    "converged": (
        "converged: the search finds no improvement, but this is no proof",
        "The search found no further improvement, which is no proof that there is none.",
    ),
    "tolerance": (
        "stopped by the tolerance: rounds gain little; the best network so far",
        "The search ended because its last rounds gained less than its tolerance; with a smaller tolerance it may find,"
        " or prove, more.",
    ),
    "memory_limit": (
        "stopped by the memory limit; the best network so far",
        "The rounds on all samples were skipped, as they exceed the memory limit; with more memory the search may find,"
        " or prove, more.",
    ),
    "time_limit": (
        "stopped by the time limit; the best network so far",
        "The time limit ended the search; with more time it may find, or prove, more.",
    ),
    "iteration_limit": (
        "stopped by the iteration limit; the best network so far",
        "The limit on rounds ended the search; with more of them it may find, or prove, more.",
    ),
    "interrupted": (
        "interrupted; the best network so far",
        "The search was interrupted; with more time it may find, or prove, more.",
    ),
    "unsolved": ("not solved", "The search found no network."),
}
"""The end of a run in a few words and as a sentence; no sentence if it was complete."""
