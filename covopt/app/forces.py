"""covopt forces: attraction and repulsion on a hidden layer of a stored run, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from covopt.app import options
from covopt.app.common import deliver
from covopt.app.help import common
from covopt.runtime.errors import printable


def forces_command(
    run: options.Run,
    out: Annotated[Path, common("The picture, a .png file.")] = Path("forces.png"),
    layer: Annotated[int, common("Hidden layer, from 1.")] = 1,
    tikhonov: Annotated[
        float | None,
        common(
            "Use (Ks + t I)^-1 in place of the pseudo-inverse of Ks; 0: the pseudo-inverse. Default: 0, or 1e-4"
            " of the largest eigenvalue if a nonzero singular value is below 1e-3 of the largest."
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Draw samples and neurons of a hidden layer of a stored run, with the forces on them."""
    from covopt.answer import drawing as figures, stored
    from covopt.answer.forces import draw_forces
    from covopt.runtime import files

    files.check_free(out, force, figures.is_picture)
    picture = stored.load(run).forces_picture(layer, tikhonov)

    def draw() -> None:
        files.write_file(out, lambda draft: draw_forces(picture, draft), force, figures.is_picture)
        print(printable(f"The picture is {out}."))

    deliver(lambda: print(f"{printable(picture.title)}."), draw)
