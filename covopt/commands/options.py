"""The options that several commands share, each declared once, and their allowed values."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Loss(StrEnum):
    """Names of the losses."""

    MSE = "mse"
    CROSS_ENTROPY = "cross_entropy"
    INTERPOLATE = "interpolate"


class Scale(StrEnum):
    """Ways to scale the inputs."""

    NONE = "none"
    MAX = "max"
    STANDARD = "standard"


class Task(StrEnum):
    """What targets are."""

    REGRESSION = "regression"
    CLASSIFICATION = "classification"


class Method(StrEnum):
    """Ways to solve."""

    CONE = "cone"
    HIDDEN = "hidden"
    TRAIN = "train"


class Certify(StrEnum):
    """How much work to spend on the proof."""

    NONE = "none"
    FAST = "fast"
    FULL = "full"
    AUTO = "auto"


# The options that several commands share, in the four panels of --help.
_DATA, _QUESTION, _SOLVING, _OUTPUT = "Data", "Question", "Solving", "Output"
Source = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.npz with X and Y or y; .csv or .parquet with --target; .pt with tensors X, Y), or a name:"
        " digits, iris, wine, breast_cancer, diabetes, linnerud, mnist.",
    ),
]
Target = Annotated[
    str | None, typer.Option(help="Table column with the targets.", metavar="COLUMN", rich_help_panel=_DATA)
]
TaskName = Annotated[
    Task | None,
    typer.Option(
        help="Treat targets as numbers or as classes; by default, integers and texts are classes.",
        rich_help_panel=_DATA,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="Table column to leave out; repeatable.", metavar="COLUMN", rich_help_panel=_DATA),
]
OneHot = Annotated[
    list[str] | None,
    typer.Option(
        "--one-hot",
        help="Table column whose texts become 0/1 columns; repeatable.",
        metavar="COLUMN",
        rich_help_panel=_DATA,
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(help="Use N rows: the first ones, or with --shuffle random ones.", metavar="N", rich_help_panel=_DATA),
]
Shuffle = Annotated[
    int | None, typer.Option(help="Draw the N rows at random with this seed.", metavar="SEED", rich_help_panel=_DATA)
]
Scaling = Annotated[
    Scale, typer.Option(help="max: divide X by max|X|; standard: mean 0, deviation 1.", rich_help_panel=_DATA)
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Directory with the mnist files (default: OpenML).", metavar="DIR", rich_help_panel=_DATA),
]
Depth = Annotated[int, typer.Option(help="Layers of weights.", metavar="L", rich_help_panel=_QUESTION)]
Bias = Annotated[float, typer.Option(help="Amount of bias; 0: none.", metavar="BETA", rich_help_panel=_QUESTION)]
Lam = Annotated[
    float | None,
    typer.Option(
        help="Strength of the penalty; default: none, which gives the representation cost.",
        metavar="LAM",
        rich_help_panel=_QUESTION,
    ),
]
LossName = Annotated[
    Loss | None, typer.Option(help="Default: mse with --lam, interpolate without.", rich_help_panel=_QUESTION)
]
ActivationName = Annotated[
    str, typer.Option(help="relu, leaky:A with -1 < A < 1, or linear.", metavar="NAME", rich_help_panel=_QUESTION)
]
MethodName = Annotated[
    Method,
    typer.Option(
        help="cone: Frank-Wolfe over covariances; hidden: descent on representations; train: ordinary training.",
        rich_help_panel=_SOLVING,
    ),
]
Proof = Annotated[
    Certify,
    typer.Option(
        help="Work to spend on the proof. fast: what the search provides; full: all the time left; auto: the time left,"
        " while it pays off.",
        rich_help_panel=_SOLVING,
    ),
]
Width = Annotated[
    int | None,
    typer.Option(help="Width of every hidden layer, for hidden and train.", metavar="N", rich_help_panel=_SOLVING),
]
MaxWidth = Annotated[
    int | None,
    typer.Option(
        help="Largest width of a hidden layer, for cone at depth >= 3.", metavar="N", rich_help_panel=_SOLVING
    ),
]
Starts = Annotated[
    int | None,
    typer.Option(help="Number of random draws, descents or trainings.", metavar="N", rich_help_panel=_SOLVING),
]
Gap = Annotated[float, typer.Option(help="Stop at this proved relative gap.", metavar="GAP", rich_help_panel=_SOLVING)]
TimeLimit = Annotated[
    float,
    typer.Option(
        help="Time limit; the answer is the best network so far.", metavar="SECONDS", rich_help_panel=_SOLVING
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the random starts.", metavar="SEED", rich_help_panel=_SOLVING)]
Device = Annotated[str, typer.Option(help="Device: cpu or cuda.", metavar="NAME", rich_help_panel=_SOLVING)]
Init = Annotated[Path | None, typer.Option(help="Start from a stored run.", metavar="RUN", rich_help_panel=_SOLVING)]
Out = Annotated[
    Path | None, typer.Option(help="Write the run into a new directory.", metavar="DIR", rich_help_panel=_OUTPUT)
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in DIR.", rich_help_panel=_OUTPUT)]
ShowProgress = Annotated[
    bool,
    typer.Option("--progress", help="Without a terminal: print a progress line every 5 s.", rich_help_panel=_OUTPUT),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A directory written by --out.")]
