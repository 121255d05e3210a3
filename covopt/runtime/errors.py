"""The errors a user can meet: one sentence that says what is wrong and what to do; and how values stand in it."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real

SHOWN, LISTED = 60, 10
"""The most characters of a text, and the most names of a list, that a sentence holds."""


def printable(text: str) -> str:
    """`text` on one line, without the control characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def shown(value: object) -> str:
    """A value as it stands in a sentence: texts in quotes, numbers as they are, of anything else the kind."""
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= SHOWN else f"'{value[:SHOWN]}...'"
    if value is None:
        return "none"
    if isinstance(value, (bool, Real)):
        text = str(value) if not isinstance(value, int) or abs(value) < 10**SHOWN else "a huge number"
        return text.lower() if isinstance(value, bool) else text
    kind = type(value).__name__.removeprefix("nd")
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def listed(names: Iterable[object]) -> str:
    """Names with commas between them, the first few of many."""
    texts = [str(name) for name in names]
    few = [text if len(text) <= SHOWN else f"{text[:SHOWN]}..." for text in texts[:LISTED]]
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ", ".join(few) + more or "nothing"


def counted(number: int, noun: str) -> str:
    """A number and what it counts: 1 row, 2 rows."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class CovoptError(Exception):
    """Base of every error that covopt raises on purpose; the command line turns it into exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class DataError(CovoptError):
    """The data cannot be read, or holds what no problem can be made of."""


class ProblemError(CovoptError):
    """The question itself is ill-posed: an option out of range, shapes that do not match."""


class InfeasibleError(ProblemError):
    """No network of the asked kind fits the data exactly; the message names the rows that show it."""


class InternalError(CovoptError):
    """covopt contradicts itself, as by a lower bound above a network's cost; nothing of such an answer is reported."""


class RecordError(CovoptError):
    """A stored run is missing, incomplete or would be overwritten."""


class ProcessError(CovoptError):
    """A process that shares a solve with this one has ended, or is not found."""


class CovoptWarning(UserWarning):
    """What was asked is done, but may not be what was meant; the command line tells it in one sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
