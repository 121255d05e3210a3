"""The errors a user can meet: one sentence that says what is wrong and what to do."""


class CovoptError(Exception):
    """Base of every error that covopt raises on purpose; the command line turns it into exit code 2."""


class DataError(CovoptError):
    """The data cannot be read, or holds what no problem can be made of."""


class ProblemError(CovoptError):
    """The question itself is ill-posed: an option out of range, shapes that do not match."""


class InfeasibleError(ProblemError):
    """No network of the asked kind fits the data exactly; the message names the rows that show it."""


class RecordError(CovoptError):
    """A stored run is missing, incomplete or would be overwritten."""
