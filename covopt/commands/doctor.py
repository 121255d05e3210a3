"""covopt doctor."""

from __future__ import annotations

from covopt.commands import options
from covopt.commands.common import print_pairs

NEEDED = "numpy scipy torch cvxpy clarabel networkx scikit-learn matplotlib joblib rich typer jaxtyping".split()
EXTRAS = {"pyarrow": "parquet", "dask": "sweep", "distributed": "sweep"}
"""Packages that only some features need, and the extra of covopt that installs each."""


def doctor_command(as_json: options.Json = False) -> None:
    """What covopt runs on: versions, threads, the GPU, and what is missing."""
    import json

    found = examine()
    if as_json:
        print(json.dumps(found))
        return
    print_pairs([(name, "none" if value is None else str(value)) for name, value in found.items()])


def examine() -> dict[str, object]:
    """Versions (None: not installed), threads, devices, and in `missing` what to install for what is not there."""
    import os
    import platform
    import sqlite3
    from importlib import metadata

    import torch

    from covopt import __version__

    def version(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    versions: dict[str, object] = {package: version(package) for package in [*NEEDED, *EXTRAS]}
    lacking = [package for package, known in versions.items() if known is None]
    remedies = [f"pip install 'covopt[{EXTRAS[p]}]'" if p in EXTRAS else f"pip install {p}" for p in lacking]
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "covopt": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **versions,
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": ", ".join(gpus) or None,
        "cuda": torch.version.cuda,
        "missing": "; ".join(dict.fromkeys(remedies)) or "nothing",
    }
