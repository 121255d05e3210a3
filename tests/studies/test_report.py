"""Reports: what they say, that names stay text, and what a real browser makes of them."""

import ast
import base64
import inspect
import json
import re
import shlex
import shutil
from dataclasses import dataclass, field
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import DESKTOP, PHONE, Browser
from hypothesis import given, strategies as st
from matplotlib.image import imread
from runs import Run, toy_result

import covopt
from covopt.answer import parts, words
from covopt.answer.verify import different
from covopt.app.cli import main
from covopt.records.numerals import Lower
from covopt.records.page import Table
from covopt.runtime.errors import RecordError
from covopt.runtime.loop import Status
from covopt.studies import runs as stored_runs
from covopt.studies.compare import words as compare_words
from covopt.studies.width import words as width_words

KINDS = ("solve", "plateau", "compare", "validate", "cprank")
FIGURES = {"cprank": 2}
"""The fewest figures of a page, where they are fewer than five."""
COLUMNS = [
    "<script>document.title = 'run'</script>",
    '"><img src=x onerror="document.title = 1">',
    "$\\frac{1$",
    "_\x1b中",
]
CLASSES = ["<b>bold</b>", "$x_", "_hidden"]
FILE = '"><img src=x onerror=document.title=1> & {{ 7 * 7 }} $x.csv'
LARGEST = 3_000_000
"""Bytes of a report."""


@dataclass
class Read(HTMLParser):
    """The text of a page, its tags, and its images."""

    text: str = ""
    tags: list[str] = field(default_factory=list)
    images: list[dict[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: Path) -> Read:
    parser = Read()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def command(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    assert not ended.value.code


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of each kind, made on the command line; `solve` has hostile names, `compare` images."""
    place = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    rows = [",".join([*(f"{x:.6f}" for x in rng.standard_normal(4)), CLASSES[i % 3]]) for i in range(12)]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in [*COLUMNS, "kind"])
    (place / FILE).write_text("\n".join([header, *rows]), encoding="utf-8")
    x = np.linspace(-1.0, 1.0, 10)
    np.savez(place / "wave.npz", X=x[:, None], Y=np.sin(3.0 * x))
    question = ["--lam", 0.01, "--out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        command("solve", FILE, "--target", "kind", "--time-limit", 1, *question, "solve")
        command("plateau", "wave.npz", "--time-limit", 1, "--starts", 1, *question, "plateau")
        methods = ["--method", "cone", "--method", "train", "--time-limit", 1, "--starts", 2]
        command("compare", "digits", "--rows", 12, "--scale", "max", *methods, *question, "compare")
        np.save(place / "matrix.npy", np.eye(3) + 1.0)
        command("cprank", "matrix.npy", "--out", "cprank")
        shape = ["--depth", 3, "--width", 4, "--starts", 2]
        command("validate", "wave.npz", *shape, "--time-limit", 1, *question, "validate")
    return place


# ---- what a report says
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_says_what_was_asked_and_how_to_repeat_and_check_it(runs: Path, kind: str) -> None:
    file = runs / kind / "report.html"
    page = read(file)
    assert file.stat().st_size < LARGEST
    origin = json.loads((runs / kind / "origin.json").read_text())
    assert origin["command"][:2] == ["covopt", kind]
    assert json.dumps(origin["machine"]["torch"])[1:-1] in page.text
    strength = () if kind == "cprank" else ("--lam 0.01", "λ = 0.01")
    for said in (*strength, f"covopt verify {kind}", f"covopt {kind}", "seed", "threads", covopt.__version__):
        assert said in page.text
    assert page.tags.count("h1") == 1
    assert all(image["alt"] for image in page.images)


@pytest.mark.parametrize("kind", ["solve", "plateau", "compare", "cprank"])
def test_a_stored_answer_comes_back(runs: Path, kind: str, tmp_path: Path) -> None:
    answer = covopt.load(runs / kind)
    answer.save(tmp_path / "again")
    stored, again = (json.loads((run / answer.file).read_text()) for run in (runs / kind, tmp_path / "again"))
    assert different(again | {"files": stored["files"]}, stored, 1e-9) is None
    label, text = answer.describe()[-1]
    assert f"{label:<13}{text}" in str(answer) or kind == "solve"
    assert len(repr(answer).splitlines()) <= 5
    assert ("data:image/svg+xml" in answer._repr_html_()) == (kind in ("solve", "plateau"))


def test_the_answer_is_the_runs(runs: Path) -> None:
    summary = json.loads((runs / "solve" / "result.json").read_text())
    assert words.answer(summary) in read(runs / "solve" / "report.html").text
    comparison = json.loads((runs / "compare" / "comparison.json").read_text())
    assert compare_words.answer(comparison) in read(runs / "compare" / "report.html").text
    verdict = json.loads((runs / "validate" / "audit.json").read_text())["verdict"]
    assert verdict.split(". ")[0] in read(runs / "validate" / "report.html").text
    plateau = json.loads((runs / "plateau" / "plateau.json").read_text())
    assert width_words.answer(plateau) in read(runs / "plateau" / "report.html").text


def test_a_shell_takes_the_command_as_it_was_given(runs: Path) -> None:
    shown = read(runs / "solve" / "report.html").text
    line = next(line for line in shown.splitlines() if line.startswith("covopt solve '"))
    assert shlex.split(line) == json.loads((runs / "solve" / "origin.json").read_text())["command"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_made_again_is_the_same(
    runs: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    command("show", kind, "--report", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (runs / kind / "report.html").read_bytes()
    assert "again.html" in capsys.readouterr().out
    command("show", kind, "--json")
    assert json.loads(capsys.readouterr().out)


def test_a_result_in_python_has_a_report_with_the_call_that_repeats_it(tmp_path: Path) -> None:
    result = covopt.solve(np.eye(3), np.eye(3), bias=0.0)
    result.save(tmp_path / "run")
    page = read(covopt.write_report(tmp_path / "run"))
    said = re.search(r"R is between (\S+) and (\S+),", page.text)
    assert float(said[1]) <= 6.0 <= float(said[2]) < 6.01  # R(I, I) = 2 |I|_* [JGHG22, Prop. 14]
    call = page.text[page.text.index("data = covopt") : page.text.index("\n", page.text.index("covopt.solve("))]
    names: dict[str, object] = {"covopt": covopt}
    exec(call.replace("covopt.solve(", "again = covopt.solve("), names)
    again = names["again"]
    assert isinstance(again, covopt.Result)
    assert again.cost == result.cost
    assert covopt.write_report(result, tmp_path / "x.html").stat().st_size > 10_000


@pytest.mark.parametrize("call", ["solve", "plateau", "compare", "validate"])
def test_the_call_that_repeats_a_run_takes_the_options_that_it_is_given(call: str) -> None:
    lines = parts.in_python(toy_result().summary(), "DIR", call, "net.npz" if call == "validate" else None)
    (_, told) = ast.parse(lines).body
    assert isinstance(told, ast.Expr)
    assert isinstance(told.value, ast.Call)
    given = {str(keyword.arg) for keyword in told.value.keywords}
    known = set(inspect.signature(getattr(covopt, call)).parameters)
    if call == "compare":  # it hands the others on
        known |= set(inspect.signature(covopt.solve).parameters) - {"method"}
    assert {"lam", "seed"} <= given <= known
    assert len(told.value.args) == (3 if call == "validate" else 2)


# ---- sentences
def summary(**changes: object) -> dict[str, object]:
    return toy_result().summary() | changes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"loss": "interpolate", "cost": 12.3476, "lower": 12.3112, "widths": [14]},
            "R is between 12.311 and 12.348, a gap of 0.295 %; the upper end is the cost of the network of 14 neurons.",
        ),
        (
            {"loss": "interpolate", "cost": 3.0, "lower": 3.0, "widths": [2], "residual": 1.23e-13},
            "R is between 3 and 3, a gap of 0 %; the upper end is the cost of the network of 2 neurons (up to 1.3e-13"
            " off Y).",
        ),
        (
            {"cost": 2.0, "lower": 1.99999999998, "widths": [1]},
            "The minimum is between 1.999999999 and 2, a gap of 1.01e-09 %; the upper end is the cost of the network"
            " of 1 neuron.",
        ),
        (
            {"cost": 0.13589283, "lower": 0.062231595, "widths": [20, 15]},
            "The minimum is between 0.06223 and 0.1359, a gap of 54.3 %; the upper end is the cost of the network of"
            " 20 × 15 neurons.",
        ),
        (
            {"cost": 0.13589283, "lower": None, "widths": [20]},
            "The minimum is at most 0.1359, the cost of the network of 20 neurons. No lower bound is proved.",
        ),
        (
            {"loss": "interpolate", "cost": None, "lower": 3.0},
            "No network that fits exactly was found; R is at least 3 (proved).",
        ),
        (
            {"cost": 0.5, "lower": 0.49999, "widths": [0], "status": "optimal", "bias": 0.0},
            "The minimum is between 0.49999 and 0.5, a gap of 0.00201 %; the upper end is the cost of the zero"
            " function, so no hidden neurons are needed.",
        ),
        # The same network, and a gap that is not within the target: nothing is said of what is needed.
        (
            {"cost": 0.5, "lower": 0.499, "widths": [0], "status": "converged", "bias": 0.0},
            "The minimum is between 0.499 and 0.5, a gap of 0.201 %; the upper end is the cost of the zero function.",
        ),
        (
            {"cost": 26970.4, "lower": 742.9, "widths": [0], "status": "time_limit"},
            "The minimum is between 742.9 and 26980, a gap of 97.3 %; the upper end is the cost of a constant"
            " function.",
        ),
        (
            {"cost": 0.5, "lower": None, "widths": [3, 0], "status": "time_limit"},
            "The minimum is at most 0.5, the cost of a constant function. No lower bound is proved.",
        ),
        ({"cost": 0.0, "lower": 0.0, "widths": [0]}, "The minimum is 0: the zero function costs nothing."),
    ],
)
def test_the_answer_in_one_sentence(changes: dict[str, object], sentence: str) -> None:
    assert words.answer(summary(**changes)) == sentence


def test_what_is_needed_is_said_of_proved_runs_only() -> None:
    """A solve that ends at once holds a simple network; a few neurons cost less."""
    data = covopt.read_data("diabetes", scale="standard", rows=60)
    hasty = covopt.solve(data.X, data.Y, lam=10.0, time_limit=0.001)
    patient = covopt.solve(data.X, data.Y, lam=10.0, max_iterations=2, certify="none")
    assert hasty.widths in ([0], [1])
    assert patient.cost < hasty.cost
    assert "needed" not in words.answer(hasty.summary() | {"widths": [0]})
    assert "No lower bound is proved" in words.answer(patient.summary() | {"lower": None})


def test_every_sentence_against_a_run_of_which_it_would_be_false() -> None:
    none = summary(cost=None, lower=None, widths=[], status="time_limit", certificate="none")
    assert dict(words.pairs(none))["status"] == "stopped by the time limit; no network was found"
    assert "network found" not in words.proof(none)
    assert "bound from" not in words.checking(none)
    assert "bound from" in words.checking(summary(lower=0.1))
    for limit in ("time_limit", "iteration_limit", "interrupted"):
        assert "better" not in words.status(none | {"status": limit})
    equal = {
        "method": "cone",
        "best": 2.0,
        "lower": None,
        "methods": [{"method": m, "cost": 2.0} for m in ("cone", "train")],
    }
    said = "Cone reached the lowest cost, 2; train reached the same cost. No lower bound is proved."
    assert compare_words.answer(equal) == said
    empty = equal | {"methods": [{"method": "cone", "cost": None}], "best": None, "lower": 1.99999999998}
    assert compare_words.answer(empty).endswith("No network costs less than 1.9999 (proved).")


def test_one_is_no_plural() -> None:
    assert dict(words.pairs(summary(widths=[1])))["width"] == "1 hidden neuron"
    assert dict(words.pairs(summary(widths=[2])))["width"] == "2 hidden neurons"
    assert dict(words.pairs(summary(widths=[1, 1])))["width"] == "1 x 1 hidden neurons"
    told = {
        "start": {"0.01": [1, 1]}, "estimate": {"0.01": 1}, "layer": None, "depth": 2, "level": 2.0, "lower": None,
    }  # fmt: skip
    assert width_words.answer(told).startswith("To come within 1 % of the minimum, 1 neuron is needed and enough")
    assert width_words.answer(told | {"start": {"0.01": [1, 9]}, "estimate": {"0.01": 2}}).startswith(
        "To come within 1 % of the minimum, at least 1 and at most 9 neurons are needed (proved); the narrowest"
        " network found within 1 % of the lowest cost known has 2."
    )


def test_bounds_are_rounded_down_wherever_they_are_shown() -> None:
    close = summary(cost=2.0, lower=1.99999999998, gap=1.00000000001e-11)
    assert dict(words.pairs(close))["lower bound"] == "1.9999999"
    assert dict(words.pairs(close))["gap"] == "1.01e-09 %"
    assert dict(parts.facts(close))["lower bound"] == "1.9999999"
    table = Table("", ["cost", "bound"], [[1.99999999998, Lower(1.99999999998)]])
    assert (table.cells, table.kinds) == ([["2", "1.99999"]], ["number", "number"])
    plateau = {
        "start": {}, "estimate": {}, "reasons": {"0": ["", ""]}, "exact_start": [1, 2], "level": 2.0,
        "lower": 1.99999999998, "certificate": "exact", "status": "converged", "seconds": 1.0,
    }  # fmt: skip
    assert dict(width_words.pairs(summary() | plateau))["lower bound"] == "1.9999999 (exact)"
    compared = {"method": "cone", "methods": [{**summary(), "method": "cone", "median": 2.0}], "lower": 1.99999999998}
    assert dict(compare_words.pairs(compared))["lower bound"] == "1.9999999"


@given(st.floats(1e-12, 1e12), st.floats(0.0, 1.0))
def test_rounding_never_makes_a_bound_stronger(upper: float, part: float) -> None:
    lower = part * upper
    low, high = words.interval(lower, upper)
    assert float(low) <= lower
    assert float(high) >= upper
    assert words.up(upper) == words.up(float(words.up(upper)))


def test_every_proof_and_status_has_words() -> None:
    for kind in covopt.Certificate:
        assert len(words.proof(summary(certificate=str(kind)))) > 60
    for status in Status:
        assert words.status(summary(status=str(status))) or status is Status.OPTIMAL


# ---- names from the data stay text
def test_hostile_names_are_text(runs: Path) -> None:
    page = read(runs / "solve" / "report.html")
    assert "script" not in page.tags
    for name in (FILE, *COLUMNS[:3], *CLASSES):
        assert name in page.text
    assert "49" not in page.text[: page.text.index("rows")]  # no template in a name is run


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_whole_and_hold_no_scripts(runs: Path, kind: str) -> None:
    images = read(runs / kind / "report.html").images
    assert len(images) >= FIGURES.get(kind, 5)
    for image in images:
        head, _, code = str(image["src"]).partition(",")
        assert head == "data:image/svg+xml;base64"
        tags = {element.tag for element in ElementTree.parse(BytesIO(base64.b64decode(code))).iter()}
        assert not any(tag.endswith(("script", "foreignObject")) for tag in tags)
    if kind == "solve":
        shown = "".join(base64.b64decode(str(image["src"]).partition(",")[2]).decode() for image in images)
        assert "&lt;script&gt;doc" in shown
        assert "hidden" in shown


def test_what_a_notebook_shows_is_escaped() -> None:
    result = toy_result()
    result.data = "<script>alert(1)</script>"
    shown = result._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert words.answer(result.summary()) in shown


# ---- bad input: one sentence
def test_bad_input_gets_one_sentence(tmp_path: Path, runs: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.html").write_text("mine")
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        (("empty", "--report", "a.html"), "holds no run"),
        ((runs / "solve", "--report", "taken.html"), "--force"),
        ((runs / "solve", "--report", "gone/a.html"), "no directory gone"),
        ((runs / "solve", "--report", "empty"), "exists already"),
    ):
        code, out, err = run("show", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert (tmp_path / "taken.html").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "taken.html"]


@pytest.mark.parametrize("kind", [kind.file for kind in stored_runs.KINDS])
@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"methods": 3, "layers": {}}'])
def test_damaged_runs_are_named(tmp_path: Path, kind: str, text: str, run: Run) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / kind).write_text(text)
    for more in ([], ["--report", tmp_path / "a.html"]):
        code, _, err = run("show", tmp_path / "run", *more)
        assert (code, err.count("\n")) == (2, 1)
    assert not (tmp_path / "a.html").exists()


def test_a_plateau_without_a_network_has_a_page(runs: Path, tmp_path: Path) -> None:
    """Where the time was too short for any network, the level and the costs are null."""
    shutil.copytree(runs / "plateau", tmp_path / "run")
    file = tmp_path / "run" / "plateau.json"
    told = json.loads(file.read_text())
    told |= {"level": None, "gap": None, "estimate": dict.fromkeys(told["estimate"])}
    told["curve"] = [point | {"cost": None} for point in told["curve"]]
    file.write_text(json.dumps(told))
    assert "needed (proved)." in read(covopt.write_report(tmp_path / "run", force=True)).text
    assert "no network was found" in dict(width_words.pairs(told))["lowest cost"]


def test_a_damaged_origin_is_named(tmp_path: Path) -> None:
    toy_result().save(tmp_path / "run")
    for text in ("{", "{}", '{"command": 3, "columns": null, "classes": null, "finished": null, "machine": {}}'):
        (tmp_path / "run" / "origin.json").write_text(text)
        with pytest.raises(RecordError, match=re.escape("origin.json is damaged")):
            covopt.write_report(tmp_path / "run")
    (tmp_path / "run" / "origin.json").unlink()
    assert covopt.write_report(tmp_path / "run").is_file()


# ---- in a real browser
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_shows_the_page_without_complaint(runs: Path, window: Browser, kind: str, width: int) -> None:
    page = runs / kind / "report.html"
    window.open(page, width)
    assert window.complaints() == []
    assert window.requests() == [page.resolve().as_uri()]
    assert window.run("return document.title").endswith(f"covopt {kind}")
    assert window.run("return document.querySelectorAll('script, [onerror], main b').length") == 0
    sizes = window.run(
        "return [...document.images].map(i => [i.naturalWidth, i.naturalHeight, i.offsetWidth, i.offsetHeight])"
    )
    assert len(sizes) >= FIGURES.get(kind, 5)
    assert min(min(size) for size in sizes) >= 50
    assert window.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_readable_on_a_phone(runs: Path, window: Browser, kind: str) -> None:
    window.open(runs / kind / "report.html", PHONE)
    fonts = window.run(
        "return [...document.querySelectorAll('td, th, caption, dt, dd, p, figcaption, code')]"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert len(fonts) > 30
    assert min(fonts) >= 12.0
    outside = window.run(
        "return [...document.querySelectorAll('td, th, dt, dd, p, pre, h1')].filter(e => !e.closest('.scroll'))"
        f".filter(e => e.getBoundingClientRect().right > {PHONE}).length"
    )
    assert outside == 0


def test_page_and_figures_follow_a_dark_scheme(runs: Path, window: Browser) -> None:
    brightness = []
    for dark in (False, True):
        window.open(runs / "solve" / "report.html", dark=dark)
        shot = window.driver.find_element("css selector", "figure img").screenshot_as_png
        brightness.append(float(np.median(imread(BytesIO(shot))[..., :3])))
    assert brightness[0] > 0.95
    assert brightness[1] < 0.2


def test_the_browser_hears_what_pages_do_wrong(window: Browser, tmp_path: Path) -> None:
    """The checks above can fail: a page with a script, a missing image and a wide table is found out."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<meta name=viewport content='width=device-width'><img src=gone.png>"
        "<script>throw new Error('bad')</script><table><td><div style='width: 900px'>x</div></table>"
    )
    window.open(page, PHONE)
    assert any("bad" in said for said in window.complaints())
    assert len(window.requests()) == 2
    assert window.run("return document.documentElement.scrollWidth") > PHONE
    assert window.run("return document.images[0].naturalWidth") == 0
