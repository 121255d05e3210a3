"""A sum of five ReLU neurons at 100 normal points, without bias."""

from benchopt import BaseDataset  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

from tests.benchmarks import works


class Dataset(BaseDataset):
    """The teachers of the benchmarks."""

    name = "teacher"
    requirements = ("numpy", "scikit-learn")
    parameters = {"seed": [0]}  # noqa: RUF012 - benchopt's way

    def get_data(self) -> dict[str, object]:
        """X, Y and the size of the bias neuron."""
        work = works.teacher(self.seed)
        return {"X": work.X, "Y": work.Y, "beta": work.beta}
