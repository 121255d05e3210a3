"""The errors that users see: one sentence each, which says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real

SHOWN, LISTED = 60, 10  # the maximum length of a text, and of a list of names, in a message


def printable(text: str) -> str:
    """Return `text` on one line, without control characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def shown(value: object, article: bool = True) -> str:
    """Return a value as a message shows it: text in quotes, a number as it is, else its type, with its article."""
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= SHOWN else f"'{value[:SHOWN]}...'"
    if value is None:
        return "none"
    if isinstance(value, (bool, Real)):
        text = str(value) if not isinstance(value, int) or abs(value) < 10**SHOWN else "a huge number"
        return text.lower() if isinstance(value, bool) else text
    kind = type(value).__name__.removeprefix("nd")
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}" if article else kind


def listed(names: Iterable[object]) -> str:
    """Return names joined by commas; of many, the first few and the number of the others."""
    texts = [str(name) for name in names]
    few = [text if len(text) <= SHOWN else f"{text[:SHOWN]}..." for text in texts[:LISTED]]
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ", ".join(few) + more or "nothing"


def close_match(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the candidate that `name` is a misspelling of, in upper or lower case; None if none is close."""
    names = {candidate.lower(): candidate for candidate in candidates}
    close = get_close_matches(name.lower(), names, n=1, cutoff=cutoff)
    return names[close[0]] if close else None


def meant_or(close: str | None, remedy: str = "") -> str:
    """Return how a message about a wrong name goes on: with the name that was probably meant, or with a remedy."""
    return f" (did you mean {close}?)" if close else remedy and f"; {remedy}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows, 2 classes."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


class CovoptError(Exception):
    """The base of all errors that covopt raises on purpose; exit code 2 on the command line.

    >>> try:
    ...     covopt.solve([[1.0]], [[1.0]], lam=-1.0)
    ... except covopt.CovoptError as error:
    ...     print(error)
    lam is -1; give lam > 0, or ask for the representation cost, which takes no lam.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class DataError(CovoptError):
    """The data cannot be read, or does not define a problem."""


class ProblemError(CovoptError):
    """The problem itself is ill-posed: an option out of range, shapes that do not match."""


class InfeasibleError(ProblemError):
    """No network of the requested kind fits the data exactly; the message names the rows."""


class InternalError(CovoptError):
    """covopt's own results contradict each other, so none of them is reported."""


class RecordError(CovoptError):
    """A stored run is missing, incomplete or would be overwritten."""


class ProcessError(CovoptError):
    """A process that shares a solve with this one has ended, or is not found."""


class CovoptWarning(UserWarning):
    """A warning that a call may not have done what was meant; the command line prints it."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
