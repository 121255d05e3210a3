"""Every public function refuses every wrong option in one sentence, and takes NumPy's numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path


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
