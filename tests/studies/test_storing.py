"""Nothing of the user's is lost: what --force replaces, and what becomes of an answer that cannot be stored."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runs import Run, toy_result

import covopt
from covopt.app import common
from covopt.records import directories, storing
from covopt.runtime.errors import CovoptWarning, RecordError
from covopt.studies.audit.audit import Audit
from covopt.studies.compare.compare import Comparison, Contender
from covopt.studies.runs import KINDS
from covopt.studies.sweep.store import Counts


def save_run(path: Path, force: bool = False) -> None:
    toy_result().save(path, force=force)


def save_comparison(path: Path, force: bool = False) -> None:
    methods = [Contender("cone", toy_result()), Contender("train", toy_result(width=2))]
    Comparison(methods).save(path, force=force)


def save_audit(path: Path, force: bool = False) -> None:
    result = toy_result()
    cost = covopt.model.weights.evaluate(result.problem, result.weights)
    Audit(result.problem, result.weights, cost, result).save(path, force=force)


SAVERS = {"run": save_run, "comparison": save_comparison, "audit": save_audit}
INNER = {"run": "", "comparison": "train/", "audit": "solution/"}


def content(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("kind", SAVERS)
def test_a_run_as_it_was_stored_is_replaced(tmp_path: Path, kind: str) -> None:
    SAVERS[kind](tmp_path / "run")
    SAVERS[kind](tmp_path / "run", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert sorted(storing.listing(tmp_path / "run")) == sorted(content(tmp_path / "run"))


def link(path: Path) -> None:
    outside = path.parents[2] / "outside.txt"
    outside.write_text("dear")
    path.symlink_to(outside)


def linked_directory(path: Path) -> None:
    outside = path.parents[2] / "outside"
    outside.mkdir()
    (outside / "dear.txt").write_text("dear")
    path.symlink_to(outside)


USERS: dict[str, Callable[[Path], object]] = {
    "thesis.tex": lambda path: path.write_text("dear"),
    ".hidden": lambda path: path.write_text("dear"),
    "notes": lambda path: path.mkdir(),
    "figures": lambda path: shutil.copytree(Path(__file__).parents[1] / "messages", path),
    "a link": link,
    "linked": linked_directory,
    "other.npz": lambda path: np.savez(path, X=np.ones(3)),
    os.fsdecode(b"not\xff utf-8"): lambda path: path.write_text("dear"),
}


@pytest.mark.parametrize("kind", SAVERS)
def test_what_is_the_users_is_never_replaced(tmp_path: Path, kind: str) -> None:
    SAVERS[kind](tmp_path / "stored")
    for place, name in enumerate(USERS):
        run = tmp_path / str(place) / "run"
        shutil.copytree(tmp_path / "stored", run)
        file = run / (INNER[kind] + name)
        USERS[name](file)
        before = content(run.parent)
        with pytest.raises(RecordError) as refused:
            SAVERS[kind](run, force=True)
        assert f"{run} holds {INNER[kind]}" in str(refused.value)
        assert "which covopt did not write" in str(refused.value)
        assert content(run.parent) == before
        assert os.path.lexists(file)


def run_that_meets_another(path: Path, other: Callable[[], None], force: bool = False) -> None:
    """A run at whose last file another program has written the same directory."""

    def last(file: Path) -> None:
        file.write_text("mine")
        other()

    toy_result().save(path, force=force, others={"later.txt": last})


@pytest.mark.parametrize("other", ["run", "file", "directory", "link"])
def test_two_programs_with_one_directory_lose_no_run(tmp_path: Path, other: str) -> None:
    path = tmp_path / "run"
    made = {
        "run": lambda: save_run(path),
        "file": lambda: path.write_text("theirs"),
        "directory": lambda: (path / "theirs").mkdir(parents=True),
        "link": lambda: path.symlink_to("nowhere"),
    }
    with pytest.raises(RecordError, match=f"Another program has written {path} meanwhile; this run is in ") as told:
        run_that_meets_another(path, made[other])
    kept = Path(str(told.value).removesuffix(".").rpartition(" ")[2])
    assert directories.foreign(kept, storing.listing(kept) or {}) is None  # it is whole
    assert (kept / "later.txt").read_text() == "mine"
    assert os.path.lexists(path)
    assert not (path / "later.txt").exists()
    assert {file.name for file in tmp_path.iterdir()} == {"run", kept.name}


def test_force_replaces_what_another_program_wrote_meanwhile(tmp_path: Path) -> None:
    run_that_meets_another(tmp_path / "run", lambda: save_run(tmp_path / "run"), force=True)
    assert (tmp_path / "run" / "later.txt").read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_drafts_of_killed_programs_are_removed_and_no_others(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = f".run.{directories._machine()}"
    stale = tmp_path / f"{here}.{ended.pid}.abc.part"
    others = [
        tmp_path / f"{here}.{os.getpid()}.abc.part",  # of a program that runs
        tmp_path / f".run.elsewhere.{ended.pid}.abc.part",  # of another machine
        tmp_path / f".run2.{directories._machine()}.{ended.pid}.abc.part",  # of another run
        tmp_path / ".run.notes.part",
    ]
    for directory in (stale, *others):
        directory.mkdir()
        (directory / "file").touch()
    save_run(tmp_path / "run")
    assert not stale.exists()
    assert all((directory / "file").exists() for directory in others)


@pytest.mark.parametrize("name", ["network.npz", "history.csv", "figure.png", "origin.json"])
def test_a_file_that_the_user_changed_is_not_replaced(tmp_path: Path, name: str) -> None:
    save_run(tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(b"mine now")
    with pytest.raises(RecordError, match=f"holds {name}, which was changed after covopt wrote it"):
        save_run(tmp_path / "run", force=True)
    assert (tmp_path / "run" / name).read_bytes() == b"mine now"


@pytest.mark.parametrize(
    "told",
    [
        "{}",
        "[]",
        "text",
        '{"cost": 3, "status": "done"}',
        '{"files": {"thesis.tex": "0"}}',
        '{"cost": 1.0, "lower": null, "certificate": "none", "status": "ok", "widths": [], "version": "1"}',
    ],
)
@pytest.mark.parametrize("kind", [kind.file for kind in KINDS])
def test_what_another_programme_stored_is_no_run(tmp_path: Path, kind: str, told: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / kind).write_text(told)
    with pytest.raises(RecordError, match="is not a run of covopt and is not replaced"):
        save_run(run, force=True)
    assert content(run) == {kind: told.encode()}


def test_a_list_of_files_reaches_no_others(tmp_path: Path) -> None:
    """Names that lead out of the directory are those of nothing in it."""
    save_run(tmp_path / "run")
    (tmp_path / "thesis.tex").write_text("dear")
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    for name in ("../thesis.tex", str(tmp_path / "thesis.tex"), "run/../../thesis.tex"):
        told["files"][name] = directories.digest(tmp_path / "thesis.tex")
    (tmp_path / "run" / "result.json").write_text(json.dumps(told))
    save_run(tmp_path / "run", force=True)
    assert (tmp_path / "thesis.tex").read_text() == "dear"


def test_a_link_to_a_run_stays_a_link(tmp_path: Path) -> None:
    save_run(tmp_path / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    toy_result(width=2).save(tmp_path / "latest", force=True)
    assert (tmp_path / "latest").is_symlink()
    assert covopt.load(tmp_path / "run").widths == [2]
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(RecordError, match="circle"):
        save_run(tmp_path / "circle", force=True)


def test_a_file_that_appears_while_a_run_is_replaced_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_run(tmp_path / "run")
    before = content(tmp_path / "run")
    move_in = directories.move_in

    def late(draft: Path, path: Path, check: Callable) -> None:
        (path / "thesis.tex").write_text("dear")
        move_in(draft, path, check)

    monkeypatch.setattr(directories, "move_in", late)
    with pytest.raises(RecordError, match=r"holds thesis\.tex"):
        toy_result(width=2).save(tmp_path / "run", force=True)
    assert content(tmp_path / "run") == before | {"thesis.tex": b"dear"}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_file_that_appears_after_the_last_look_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by a process that stands in the directory while it is set aside."""
    save_run(tmp_path / "run")
    remove = directories._remove

    def late(aside: Path, listed: directories.Listing) -> bool:
        (aside / "sub").mkdir()
        (aside / "sub" / "thesis.tex").write_text("dear")
        return remove(aside, listed)

    monkeypatch.setattr(directories, "_remove", late)
    with pytest.warns(CovoptWarning, match=r"meanwhile are now in .*run\.kept\."):
        toy_result(width=2).save(tmp_path / "run", force=True)
    assert covopt.load(tmp_path / "run").widths == [2]
    kept = next(p for p in tmp_path.iterdir() if p.name.startswith("run.kept."))
    assert content(kept) == {"sub/thesis.tex": b"dear"}


def test_a_report_made_again_belongs_to_the_run_and_those_around_it(tmp_path: Path) -> None:
    save_run(tmp_path / "run")
    covopt.write_report(tmp_path / "run")
    covopt.write_report(tmp_path / "run", force=True)
    save_run(tmp_path / "run", force=True)
    save_audit(tmp_path / "audit")
    covopt.write_report(tmp_path / "audit" / "solution")
    save_audit(tmp_path / "audit", force=True)
    covopt.write_report(tmp_path / "audit" / "solution", tmp_path / "audit" / "mine.html")
    with pytest.raises(RecordError, match=r"holds mine\.html"):
        save_audit(tmp_path / "audit", force=True)


def test_files_are_replaced_by_their_own_kind_only(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", np.eye(2))
    save_run(tmp_path / "run")
    for words in ("cprank A.npy --out b.npz", "forces run --out f.png", "show run --report r.html"):
        assert [run(*words.split(), *force)[0] for force in ((), ("--force",))] == [0, 0]
    np.savez("data.npz", X=np.ones((3, 2)), Y=np.ones(3))
    Path("mine.png").write_bytes(Path("run/figure.png").read_bytes().replace(b"covopt", b"myself"))
    Path("mine.html").write_text("<html></html>")
    Path("linked.npz").symlink_to("data.npz")
    before = content(tmp_path)
    for words in (
        "cprank A.npy --out data.npz --force",
        "cprank A.npy --out linked.npz --force",
        "forces run --out mine.png --force",
        "show run --report mine.html --force",
    ):
        code, _, err = run(*words.split())
        assert (code, "is not replaced" in err) == (2, True)
    assert content(tmp_path) == before


def test_tables_replace_tables_of_sweeps_only(tmp_path: Path) -> None:
    found = covopt.Sweep(tmp_path / "s.sqlite", Counts(0, 0, 0, 0), [])
    for name, write in (("t.csv", found.to_csv), ("t.parquet", found.to_parquet)):
        write(tmp_path / name)
        write(tmp_path / name, force=True)
        (tmp_path / name).write_text("name,age\n")
        with pytest.raises(RecordError, match="is not replaced"):
            write(tmp_path / name, force=True)
        assert (tmp_path / name).read_text() == "name,age\n"


# ---- an answer that cannot be stored, or not whole
DATA = "solve data.npz --lam 0.1 --certify none --time-limit 0.5"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("data.npz", X=rng.standard_normal((6, 2)), Y=rng.standard_normal(6))
    np.save("A.npy", np.eye(2) + 1.0)
    Path("s.toml").write_text('data = "data.npz"\nlam = 0.1\ncertify = "none"\ntime_limit = 1\n')
    return tmp_path


COMMANDS = {
    "solve": f"{DATA} --out out/run",
    "plateau": f"{DATA.replace('solve', 'plateau')} --out out/run",
    "compare": f"{DATA.replace('solve', 'compare')} --method train --out out/run",
    "validate": f"{DATA.replace('solve', 'validate')} --out out/run --escape out/better.npz",
    "cprank": "cprank A.npy --time-limit 2 --out out/b.npz",
    "sweep": "sweep s.toml --csv out/t.csv",
}


def in_process(words: str | list[str | bytes], before: str = "") -> subprocess.CompletedProcess[bytes]:
    """A command line in a process of its own, after some Python."""
    start = f"import sys\nfrom covopt.app.cli import main\n{inspect.cleandoc(before)}\nmain(sys.argv[1:])"
    given = words.split() if isinstance(words, str) else words
    return subprocess.run([sys.executable, "-c", start, *given], capture_output=True, check=False)


FULL = """
    import resource, covopt.data.arrays, covopt.records.record
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "as_json"), [*((name, False) for name in COMMANDS if name != "sweep"), ("solve", True)]
)
def test_a_full_disk_costs_no_answer(data: Path, command: str, as_json: bool) -> None:
    Path("out").mkdir()
    ended = in_process(COMMANDS[command] + (" --json" if as_json else ""), FULL.replace("ROOM", "100"))
    told = ended.stderr.decode()
    assert ended.returncode == 2, told
    assert told.count("\n") == (2 if command == "validate" and "better" in told else 1), told
    assert "cannot be written (File too large)" in told
    if as_json:
        assert json.loads(ended.stdout)
        assert ended.stdout.count(b"\n") == 1
    else:
        assert len(ended.stdout.splitlines()) >= 2
        assert b"stored in" not in ended.stdout
    assert not list(Path("out").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("command", "as_json"), [*((name, False) for name in COMMANDS), ("solve", True)])
def test_a_directory_that_vanishes_costs_no_answer(
    data: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: str, as_json: bool
) -> None:
    """out is a file by the time the answer is there."""
    Path("out").mkdir()

    def late(*asked: object, deliver: Callable[..., None] = common.deliver) -> None:
        os.rmdir("out")
        Path("out").touch()
        deliver(*asked)

    for name in ("options", "sweep"):
        monkeypatch.setattr(f"covopt.app.{name}.deliver", late)
    code, out, err = run(*COMMANDS[command].split(), *(["--json"] if as_json else []))
    assert code == 2, err
    assert "cannot be written" in err
    assert json.loads(out) if as_json else len(out.splitlines()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_is_not_utf_8_costs_no_answer(data: Path, run: Run, command: str) -> None:
    Path("out").mkdir()
    code, out, err = run(*COMMANDS[command].replace("out/", "out/\udcff").split())
    assert code == 0, err
    assert "\udcff" not in out
    assert any(name.startswith(b"\xff") for name in os.listdir(b"out"))
    if command in ("solve", "plateau", "compare", "validate"):
        assert "report is out/?run/report.html" in out
        assert b"out/?run" in (Path(os.fsdecode(b"out/\xffrun")) / "report.html").read_bytes()


def test_data_with_a_name_that_is_not_utf_8(data: Path) -> None:
    shutil.copy("data.npz", os.fsdecode(b"d\xff.npz"))
    words: list[str | bytes] = [*DATA.replace("data.npz", "").split(), b"d\xff.npz", "--out", "run"]
    ended = in_process(words)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert Path("run/report.html").is_file()


def test_a_report_or_a_figure_that_fails_costs_no_run(data: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("no font\nanywhere.")

    monkeypatch.setattr("covopt.answer.page.page", fail)
    code, out, err = run(*DATA.split(), "--out", "run")
    assert code == 0
    assert err == "covopt: warning: report.html cannot be made (no font anywhere); the rest is stored without it.\n"
    assert out.endswith("The run is stored in run; it has no report.\n")
    assert covopt.verify("run").passed
    monkeypatch.setattr("covopt.answer.drawing.draw_run", fail)
    code, _, err = run(*DATA.split(), "--out", "run", "--force")
    assert code == 0
    assert "figure.png cannot be made" in err
    assert not Path("run/figure.png").exists()
    assert run(*DATA.split(), "--out", "run", "--force")[0] == 0


@pytest.mark.slow
def test_a_disk_that_the_figure_alone_fills_costs_no_run(data: Path) -> None:
    ended = in_process(f"{DATA} --out run", FULL.replace("ROOM", "20000"))
    assert ended.returncode == 0, ended.stderr
    assert b"figure.png cannot be made (File too large)" in ended.stderr
    assert covopt.verify("run").passed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")
def test_a_real_disk_that_is_full(data: Path) -> None:
    disk = data / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("no disk can be mounted here")
    try:
        ended = in_process(f"{DATA} --json --out disk/run")
        assert ended.returncode == 2
        assert json.loads(ended.stdout)["cost"] > 0
        said = b"covopt: disk/run cannot be written (No space left on device); choose another directory.\n"
        assert ended.stderr.endswith(said)
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)
