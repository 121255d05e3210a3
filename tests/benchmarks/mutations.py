"""The slips of `mutants.py`: a file, what it says, what it is made to say, and the tests that must notice.

Each makes a bound false, or a check vacuous; none only makes a bound lower. `mutations.txt` has them: after `==` the
file (in covopt/) and its tests (`bounds::test_a` is that test of test_bounds.py), then for each slip what is wrong, in
words, the old text after `-` and the new one after `+`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    """One slip.

    Attributes:
        file: from the root of the repository.
        slip: what is wrong, in words.
        old: text that the file holds exactly once; new: what takes its place.
        tests: files or tests that must notice it.
    """

    file: str
    slip: str
    old: str
    new: str
    tests: str

    def applied(self, text: str) -> str:
        """The text of the file with the slip.

        Raises:
            ValueError: the file does not hold the old text exactly once, or the new text is no Python.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {count} times, not once; bring the mutant up to date.")
        changed = text.replace(self.old, self.new)
        compile(changed, self.file, "exec")
        return changed


def _path_of(name: str) -> str:
    """Return where a file of tests, or one test in it, is."""
    file, colons, test = name.partition("::")
    path = next(TESTS.rglob(f"test_{file}.py"))
    return path.relative_to(TESTS.parent).as_posix() + colons + test


def _read(text: str) -> Iterator[Mutant]:
    for part in text.split("\n== ")[1:]:
        head, *lines = part.partition("\n## ")[0].splitlines()
        file, _, tests = head.partition(": ")
        names = " ".join(_path_of(name) for name in tests.split())
        starts = [number for number, line in enumerate(lines) if line and line[0] not in "-+"]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            old, new = ("\n".join(line[1:] for line in lines[start:end] if line[:1] == mark) for mark in "-+")
            yield Mutant(f"covopt/{file}.py", lines[start], old, new, names)


MUTANTS = tuple(_read((TESTS / "benchmarks" / "mutations.txt").read_text(encoding="utf-8")))
