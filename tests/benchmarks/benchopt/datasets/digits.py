"""The first rows of scikit-learn's digits, one-hot, without bias."""

from benchopt import BaseDataset  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

from tests.benchmarks import works


class Dataset(BaseDataset):
    """8 x 8 pixels in [0, 1], 10 classes."""

    name = "digits"
    requirements = ("numpy", "scikit-learn")
    parameters = {"rows": [200]}  # noqa: RUF012 - benchopt's way

    def get_data(self) -> dict[str, object]:
        """X, Y and the size of the bias neuron."""
        work = works.digits(self.rows, 1.0)
        return {"X": work.X, "Y": work.Y, "beta": work.beta}
