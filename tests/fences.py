"""The fenced blocks of the documentation, and how each kind is run.

A document has one empty directory and one Python namespace, in which its blocks run in order. `python` runs, `pycon`
must print what it shows (doctest, with `...`), and so must `console`, where a line that begins with `$ ` is a command.
`sh` must succeed. A comment before a block says what else is done with it:

    <!-- file: NAME -->        it is written to this file (and, where it is Python, not run by itself)
    <!-- ci: NAME -->          .ci/run runs it
    <!-- not run: REASON -->   it is not run, for this reason
    <!-- digits: may differ -->  what it prints is real, but numbers may be up to 5 % off, and any on lines of VARYING
"""

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from covopt.app.cli import main

COMMENT = re.compile(r"<!-- (file|ci|not run|digits): (.+) -->")
COMPARISON = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SHOWN = ("text", "bibtex", "json", "toml")
"""Kinds that are read and not run."""
VARYING = ("gap", "time", "width")
"""What depends on the machine: labels of lines."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Fence:
    """A block: its kind, its text, the line where it begins, and what a comment before it says."""

    kind: str
    text: str
    line: int
    mark: str | None
    value: str

    @property
    def is_directive(self) -> bool:
        """True if Sphinx reads it."""
        return self.kind.startswith("{")

    @property
    def runs(self) -> bool:
        """True if it is code that the tests run."""
        return self.mark in (None, "digits") and self.kind not in SHOWN and not self.is_directive


def nearly(expected: str, printed: str) -> bool:
    """Return True if the words agree (`...` stands for any), and the numbers to 5 %, except those of VARYING."""
    numbers = [
        None if line.split(" ")[0] in VARYING else float(number)
        for line in expected.splitlines()
        for number in NUMBER.findall(line)
    ]
    pattern = f"({NUMBER.pattern})".join([re.escape(part) for part in NUMBER.split(expected.strip())])
    pattern = re.sub(r"(?:\\\s|\s)+", r"\\s+", pattern).replace(r"\.\.\.", ".*?")
    match = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    return match is not None and all(
        shown is None or abs(float(number) - shown) <= 0.05 * abs(shown)
        for number, shown in zip(match.groups(), numbers, strict=True)
    )


def fences(document: Path) -> list[Fence]:
    """All blocks of a document; one that is indented and not fenced has no kind."""
    found, comment = [], None
    for token in MarkdownIt().parse(document.read_text()):
        if token.type in ("fence", "code_block"):
            mark, value = comment.groups() if comment else (None, "")
            found.append(Fence(token.info.strip(), token.content, (token.map or [0])[0] + 1, mark, value))
        comment = COMMENT.match(token.content) if token.type == "html_block" else None
    return found


class Runner:
    """Runs the blocks of one document in the current directory."""

    def __init__(self, document: Path) -> None:
        self.document = document
        self.names: dict[str, object] = {"__name__": "__main__"}

    def run(self, fence: Fence) -> None:
        if fence.mark == "file":
            Path(fence.value).write_text(fence.text)
        elif fence.runs:
            getattr(self, f"_run_{fence.kind}")(fence)

    def _run_python(self, fence: Fence) -> None:
        lines = "\n" * fence.line + fence.text  # tracebacks then name the document's line
        exec(compile(lines, self.document, "exec"), self.names)

    def _run_pycon(self, fence: Fence) -> None:
        runner, told = doctest.DocTestRunner(optionflags=COMPARISON), io.StringIO()
        test = doctest.DocTestParser().get_doctest(fence.text, self.names, "block", str(self.document), fence.line)
        runner.run(test, out=told.write, clear_globs=False)
        self.names |= test.globs
        assert not runner.failures, told.getvalue()

    def _run_sh(self, fence: Fence) -> None:
        for command in fence.text.replace("\\\n", " ").splitlines():
            self._command(command, fence)

    def _run_console(self, fence: Fence) -> None:
        for told in fence.text.removeprefix("$ ").split("\n$ "):
            command, _, expected = told.replace("\\\n", " ").partition("\n")
            found = self._command(command, fence)
            same = doctest.OutputChecker().check_output(expected, found, COMPARISON)
            same = same or (fence.mark == "digits" and nearly(expected, found))
            assert same, f"{self.document}:{fence.line}: {command}\n{expected}\nbut it prints\n{found}"

    def _command(self, command: str, fence: Fence) -> str:
        """What a command prints; covopt's own run in this process, which saves its imports."""
        words = shlex.split(command, comments=True)
        if not words:
            return ""
        if words[0] != "covopt":
            path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            done = subprocess.run(command, shell=True, capture_output=True, text=True, env={**os.environ, **path})
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            streams = io.StringIO(), io.StringIO()
            with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
                code = _exit_code(words[1:])
            out, err = (stream.getvalue() for stream in streams)
        assert code == 0, f"{self.document}:{fence.line}: {command} ended with {code}: {err}"
        return out


def _exit_code(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0
