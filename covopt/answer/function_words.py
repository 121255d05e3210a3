"""The results of an audit of a network as a function, in sentences, from its summary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from covopt.answer.statements import line_of
from covopt.records.numerals import down, up
from covopt.records.record import Pairs, Summary
from covopt.runtime.errors import counted


def pairs(s: Summary) -> Pairs:
    """Return the lines of an audit; none if the function was not audited."""
    audit = s["function"]
    if audit is None:
        return []
    layers = audit["layers"]
    hidden = layers[:-1]
    lines = [
        ("Jacobian", _ranks(audit)),
        ("its function", _same(audit, s)),
        ("R_1", _first_correction(audit)),
        ("bottleneck", _bottleneck(audit)),
        ("NTK", _kernel(audit)),
        ("dimensions", f"{_list(layers, 'dimension')}  (singular values of A_1 ... A_L above 1/2, layers balanced)"),
        ("affine", f"{_list(hidden, 'affine_dimension')}  (dimensions of S_1 ... S_(L-1), centred)"),
        ("nonlinearity", f"{_list(hidden, 'nonlinearity')}  (|Z - sigma(Z)| / |Z| of Z_1 ... Z_(L-1))"),
        ("orbits", _orbits(layers)),
    ]
    return [
        *((label, text) for label, text in lines if text),
        *((s["source"], line_of(s)) for s in audit["statements"]),
    ]


def sentences(s: Summary) -> list[str]:
    """Return the same as sentences, for a report."""
    audit = s["function"]
    first = _first_correction(audit)
    texts = (
        f"its Jacobian has {_ranks(audit)}",
        _same(audit, s),
        first and f"R_1 is {first}",
        _bottleneck(audit),
        _kernel(audit),
    )
    return [f"{text[:1].upper()}{text[1:]}." for text in texts if text]


def _ranks(audit: Summary) -> str:
    counts = {int(rank): int(count) for rank, count in audit["jacobian_rank"].items()}
    where = "given inputs" if audit["elsewhere"] else "samples"
    rows = audit["rows"]
    if len(counts) == 1:
        ranks = f"{next(iter(counts))} at {f'all {rows} {where}' if rows > 1 else f'the only one of the {where}'}"
    else:
        listed = [f"{rank} at {count}" for rank, count in counts.items()]
        ranks = f"{', '.join(listed[:-1])} and {listed[-1]} of {rows} {where}"
    text = f"rank {ranks}"
    if audit["kinks"]:
        text += f" ({audit['kinks']} on a kink, where one side is taken)"
    if audit["jacobian_values"]:
        text += f"; its singular values are {_numbers(audit['jacobian_values'])} (medians)"
    if audit["pseudo_determinant"] is not None:
        low, middle, high = audit["pseudo_determinant"]
        text += f"; at rank {max(counts)} they multiply to {low:.4g} ... {high:.4g}, median {middle:.4g}"
    return text


def _same(audit: Summary, s: Summary) -> str:
    if audit["lower"] is None:
        return ""
    depth = len(audit["layers"])
    where = "these inputs" if audit["elsewhere"] else "these samples"
    share = "" if audit["share"] is None else f", {down(100.0 * audit['share'])} % of this network's {s['norm']:.8g}"
    return (
        f"every network of {counted(depth, 'layer')} that computes the same function near {where} has |W|^2 of at least"
        f" {down(audit['lower'], 8)}{share}; networks that fit the data by another function may have less"
    )


def _first_correction(audit: Summary) -> str:
    if audit["R1_lower"] is None:
        return ""
    rank = max(int(rank) for rank in audit["jacobian_rank"])
    return f"at least {down(audit['R1_lower'])} if R_0 of the function is {rank}, and unknown otherwise"


def _bottleneck(audit: Summary) -> str:
    low = audit["bottleneck"]
    if low is None:
        return ""
    ones = counted(low["k"], "singular value")
    return (
        f"the layers are {low['sum']:.5g} (sum of squares) away from {ones} of 1 each and nothing else, by [J23b,"
        f" Theorem 6] at most {up(low['at_most'])}"
    )


def _kernel(audit: Summary) -> str:
    trace, sharp, step = audit["ntk_trace"], audit["sharpness"], audit["stable_step"]
    text = "its trace is unknown" if trace is None else f"Tr Theta(x, x) / L is {trace:.5g} on average"
    if sharp is not None:
        text += f"; sharpness {sharp:.5g} (largest eigenvalue of the Gauss-Newton matrix of the loss on the data)"
    return text if step is None else f"{text}, stable step of gradient descent {step:.4g}"


def _orbits(layers: Sequence[Summary]) -> str:
    if layers[0]["orbit_collapse"] is None:
        return ""
    return f"{_list(layers, 'orbit_collapse')}  (distance to the transformed input over that to another one, by layer)"


def _list(layers: Sequence[Summary], name: str) -> str:
    """Numbers layer by layer."""
    return _numbers([layer[name] for layer in layers])


def _numbers(values: Sequence[float | None]) -> str:
    """Numbers in a row, several equal ones once."""
    runs = [
        (text, len(list(run))) for text, run in groupby("-" if value is None else f"{value:.2g}" for value in values)
    ]
    return ", ".join(text if count == 1 else f"{text} ({count} times)" for text, count in runs)
