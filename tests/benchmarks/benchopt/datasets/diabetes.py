"""scikit-learn's diabetes, columns standardised, with a bias; its targets are of size 150."""

from benchopt import BaseDataset  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

from tests.benchmarks import works


class Dataset(BaseDataset):
    """442 patients, 10 measurements."""

    name = "diabetes"
    requirements = ("numpy", "scikit-learn")

    def get_data(self) -> dict[str, object]:
        """X, Y and the size of the bias neuron."""
        work = works.table("diabetes", None, 1.0)
        return {"X": work.X, "Y": work.Y, "beta": work.beta}
