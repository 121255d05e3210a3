"""Every message that a user can meet, each made by the input that makes it; the tables are in tests/messages.

And every public function refuses every wrong option in one sentence, and takes NumPy's numbers.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from messages.__main__ import ROWS

import covopt
from covopt.runtime import errors

SOURCE = Path(covopt.__file__).parent
RAISED = {name for name, value in vars(errors).items() if isinstance(value, type)}
LENGTH = 350
"""The longest sentence."""
REPRESENTATIONS = re.compile(r"<\w+[ .]|array\(|tensor\(|dtype\(|Path\(|object at|Error\b|Traceback|\bNone\b|\[\d|\['")


@pytest.fixture(scope="module")
def told() -> list[dict]:
    """What each row says, in a process of its own, where no types are checked."""
    here = Path(__file__).parent
    ended = subprocess.run([sys.executable, "-m", "messages"], cwd=here, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_each_input_is_told_its_sentence(told: list[dict]) -> None:
    wrong = []
    for row, found in zip(ROWS, told, strict=True):
        pattern = re.escape(row.says).replace(re.escape("..."), ".*")
        code = row.code if isinstance(row.what, str) else None
        if not re.fullmatch(pattern, found["said"]) or found["code"] != code:
            wrong.append(f"{row.says!r} expected; exit code {found['code']} and {found['said']!r} met")
    assert not wrong, "\n".join(wrong)


def test_every_error_in_the_source_is_made_by_a_row(told: list[dict]) -> None:
    met = {(str(Path(file).resolve()), line) for found in told for file, line in found["sites"]}
    missed = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in RAISED:
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if not any((str(path.resolve()), line) in met for line in lines):
                    missed.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert not missed, f"no row of tests/messages makes these errors: {', '.join(missed)}"


def test_every_sentence_is_one_plain_sentence(told: list[dict]) -> None:
    for found in told:
        said = found["said"].replace("n" * 300, "")
        assert said.endswith("."), said
        assert said.isprintable(), said
        assert len(said) <= LENGTH, said
        first = re.sub(r"[.-]", "_", said.split()[0].strip("'-"))
        assert said[0].isupper() or first.isidentifier() or "HERE" in said, said
        assert not REPRESENTATIONS.search(said), said


def test_wrong_options_are_refused_in_one_sentence(tmp_path: Path) -> None:
    """In a process of its own, as users meet them; the table is in tests/messages/options.py."""
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "messages.options"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": here},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    wrong = {name: told for name, told in json.loads(ended.stdout.splitlines()[-1]).items() if told}
    assert not wrong, json.dumps(wrong, indent=1)
