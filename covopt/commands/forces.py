"""covopt forces: attraction and repulsion on a hidden layer of a stored run, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covopt.commands import options


def forces_command(
    run: options.Run,
    out: Annotated[Path, typer.Option(help="The picture, a PNG.", metavar="FILE")] = Path("forces.png"),
    layer: Annotated[int, typer.Option(help="Hidden layer, from 1.", metavar="l")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
) -> None:
    """Draw samples and neurons of a hidden layer of a stored run, with the forces on them."""
    from covopt import figures, stored
    from covopt.errors import RecordError

    picture = stored.load(run).forces_picture(layer)
    if out.exists() and not force:
        raise RecordError(f"{out} exists already; give another --out, or --force.")
    try:
        figures.draw_forces(picture, out)
    except OSError as error:
        raise RecordError(f"{out} cannot be written ({error.strerror}); give another --out.") from error
    print(f"{picture.title}; drawn in {out}.")
