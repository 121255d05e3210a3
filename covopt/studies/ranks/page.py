"""`covopt ranks`: the ranks after SGD, and their explanation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from covopt.answer import parts, pictures
from covopt.records import provenance, record
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary
from covopt.studies.ranks import check as rank_runs, words as rank_words
from covopt.studies.ranks.architectures import PLAIN

MEANING = (
    "A threshold rank counts the singular values above a fraction of |W|. After SGD with weight decay, W is what"
    " remains of its initialisation (the retained fraction times the initial W, of full rank) plus what the steps"
    " added; the rank of the first part alone is in the column “of the initialisation”. Compare ranks of different"
    " settings at equal retained fractions."
)
CURVES = (
    "First: rank against epochs, as in the literature. Second: the same networks against the retained fraction of their"
    " initialisation; dashed the rank of that part alone. Then the singular values at the end, beside those of the"
    " solver's network."
)


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin, answer = provenance.read_origin(directory), rank_runs.load(directory)
    description = dict(s) | {"lam": None}
    sections = [
        Section(
            "Ranks",
            [CURVES] if s["until"] is not None else [],
            [pictures.panel(panel) for panel in answer.panels()],
            [Table("Means over the seeds", *rank_words.table(s))],
        ),
        Section("Network by network", [], [], [Table("What explains each rank", *_verdicts(s))]),
    ]
    return Page(
        kind="ranks",
        question=f"What rank does SGD end with, and why? {rank_words.title(s)}.",
        answer=rank_words.answer(s),
        notes=[f"{rank_words.ended(s).capitalize()}."],
        facts=[("networks", str(len(s["cells"]))), ("time", f"{s['seconds']:.3g} s")],
        asked=[*parts.asked(description, origin), ("trained", rank_words.trained(s))],
        proof_title="How to read it",
        proof=[MEANING, "The check computes all ranks, bounds and losses again from the stored networks."],
        sections=sections,
        python=_in_python(s, name),
        **parts.made(name, s, origin),
    )


def _verdicts(s: Summary) -> tuple[list[str], list[list[object]]]:
    """Return columns and rows, without the settings that all networks share."""
    names = {**rank_words.HEADS, "seed": "seed", "steps": "steps", "kept": "retained", "loss": "cost"}
    names["accuracy"] = "accuracy"
    varied = {key: name for key, name in names.items() if len({cell[key] for cell in s["cells"]}) > 1}
    rows = [
        [*(cell[key] for key in varied), layer["layer"], verdict]
        for cell in s["cells"]
        for layer, verdict in zip(cell["layers"], cell["verdict"], strict=True)
    ]
    return [*varied.values(), "layer", "verdict"], rows


def _in_python(s: Summary, run: str) -> str:
    """Return the call that trains these networks again, or that audits the given one."""
    cells = s["cells"]
    varied = {k: list(dict.fromkeys(cell[k] for cell in cells)) for k in ("lam", "batch_size", "rate", "momentum")}
    options: dict[str, Any] = {key: values[0] if len(values) == 1 else values for key, values in varied.items()}
    options |= {key: s[key] for key in ("loss", "bias", "activation", "tolerance", "seed")}
    loading = ""
    if s["until"] is None:
        options |= {"steps": cells[0]["steps"], "net": ...}
        loading = f"networks = numpy.load({f'{run}/networks.npz'!r})  # c1_W1 ...\n"
    else:
        options |= s["until"] | {"depth": s["depth"], "width": s["widths"][0]}
        options["seeds"] = len({cell["seed"] for cell in cells})
    options["nesterov"] = cells[0]["nesterov"]
    if cells[0]["milestones"]:
        size = cells[0]["batch_size"]
        options["milestones"] = [step * size / s["rows"] for step in cells[0]["milestones"]]
        options["gamma"] = cells[0]["gamma"]
    if s["architecture"] != PLAIN.name:
        options["architecture"] = s["architecture"]
    call = ", ".join(f"{key}={value!r}" for key, value in options.items() if value is not None and value is not ...)
    net = f", net=[networks[f'c1_W{{layer}}'] for layer in range(1, {s['depth'] + 1})]" if loading else ""
    data = f"data = covopt.read_data({f'{run}/{record.PROBLEM}'!r})\n"
    return f"{data}{loading}covopt.ranks(data.X, data.Y, {call}{net})"
