"""What a run says is proved by its files, or named as unchecked: every entry and every file is tampered with."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from editing import forged, holds, is_refused, states
from forging import changed
from tampering import Tampering, forgeries, judge, tamperings

import covopt
from covopt.records import record

X = np.linspace(-1.0, 1.0, 6)[:, None]
Y = np.abs(X)
SAMPLED = 4
"""Of the hundreds of ways to tamper with a study, one in so many; `python -m tests.benchmarks tampering` tries all."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small runs of several kinds."""
    here = tmp_path_factory.mktemp("runs")
    covopt.solve(X, Y, lam=1e-2, time_limit=5).save(here / "exact")
    covopt.solve(X, Y, time_limit=5).save(here / "interpolate")
    covopt.solve(X, Y, lam=1e-2, depth=3, time_limit=1).save(here / "deep")
    return here


def missed(run: Path, scratch: Path, found: list[Tampering]) -> list[str]:
    verdicts = {each.name: judge(run, scratch, each) for each in found}
    return [
        f"{name}: {verdict}" for name, verdict in verdicts.items() if verdict not in ("noticed", "named", "the same")
    ]


@pytest.mark.parametrize("kind", ["exact", "interpolate", "deep"])
def test_an_honest_run_passes_and_names_what_is_not_checked(stored: Path, kind: str) -> None:
    checked = covopt.verify(stored / kind)
    assert checked.passed, checked.message
    for name in ("data", "seconds", "seed", "version"):
        assert name in checked.unchecked
        assert name in checked.message
    assert ("stationarity and gap of the layers" in checked.unchecked) == (kind == "deep")


@pytest.mark.parametrize("kind", ["exact", "interpolate", "deep"])
def test_tampering_is_noticed_or_named(stored: Path, tmp_path: Path, kind: str) -> None:
    found = [*tamperings(stored / kind), *forgeries(stored / kind)]
    assert len(found) > 200
    assert missed(stored / kind, tmp_path / "run", found) == []


@pytest.mark.parametrize("entry", ["timing", "starts", "seconds", "cost", "lower", "seed"])
def test_integers_beyond_float64_are_a_sentence(stored: Path, tmp_path: Path, entry: str) -> None:
    shutil.copytree(stored / "exact", tmp_path / "run")
    value = {"timing": {"proof": 10**400}, "starts": [10**400]}.get(entry, 10**400)
    states("result.json", **{entry: value})(tmp_path / "run")
    for action in (covopt.load, covopt.verify, covopt.write_report, record.read_summary):
        with pytest.raises(covopt.RecordError, match="damaged"):
            action(tmp_path / "run")


def test_a_file_of_the_users_is_named(stored: Path, tmp_path: Path) -> None:
    note = Tampering("", lambda path: (path / "notes.txt").write_text("mine"), ("notes.txt",))
    assert judge(stored / "exact", tmp_path / "run", note) == "named"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plateau", "compare", "audit", "ranks"])
def test_tampering_with_a_study_is_noticed_or_named(tmp_path: Path, kind: str) -> None:
    small = {"batch_size": 2, "steps": 3, "width": 2, "depth": 2, "seeds": 1, "reference": 0}
    make = {
        "ranks": lambda *a, **o: covopt.ranks(*a, **small, **o),
        "plateau": covopt.plateau,
        "compare": covopt.compare,
        "audit": lambda *a, **o: covopt.validate(None, *a, **o),
    }
    make[kind](X, Y, lam=1e-2, time_limit=2).save(tmp_path / "stored")
    assert covopt.verify(tmp_path / "stored").passed
    found = list(tamperings(tmp_path / "stored"))
    assert any(name in each.name for each in found for name in (record.SOLUTION, "cone", "spectra.npz"))
    assert missed(tmp_path / "stored", tmp_path / "run", found[::SAMPLED]) == []


@pytest.mark.parametrize("A", [np.eye(3) + 1.0, 2.0 - np.eye(3), np.diag([1.0, 0.0, 2.0])], ids=["in", "out", "apart"])
def test_tampering_with_a_cp_rank_is_noticed_or_named(tmp_path: Path, A: np.ndarray) -> None:
    covopt.cp_rank(A).save(tmp_path / "stored")
    assert covopt.verify(tmp_path / "stored").passed
    found = list(tamperings(tmp_path / "stored"))
    assert len(found) > 100
    assert missed(tmp_path / "stored", tmp_path / "run", found) == []


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit of a network that is far from trained, in float32."""
    net = [np.array([[1.0, 0.5], [-1.0, 0.25]], np.float32), np.array([[0.3, 0.4, 0.1]], np.float32)]
    here = tmp_path_factory.mktemp("audits") / "audit"
    covopt.validate(net, X, Y, lam=1e-2, time_limit=1).save(here)
    return here


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stored": "float16"}, "for rounded.loss"),
        ({"descended": lambda s: s["descended"] | {"loss": s["loss"], "gain": 0.0}}, "after further training costs"),
        ({"finding": "near", "stationary": True}, "states true for stationary, but its files give false"),
        ({"verdict": "No better network was found."}, "for verdict"),
        ({"layers": lambda s: [s["layers"][0] | {"dead": s["layers"][0]["dead"] + 1}]}, "for layers.1.dead"),
    ],
)
def test_an_audit_follows_from_its_networks(
    audited: Path, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    assert covopt.verify(audited).passed
    assert judge(audited, tmp_path / "run", Tampering("", states("audit.json", **change), ())) == "noticed"
    assert says in covopt.verify(tmp_path / "run").message


def test_a_network_of_an_audit_is_bound_to_its_loss(audited: Path, tmp_path: Path) -> None:
    with np.load(audited / "descended.npz") as held:
        forge = forged(holds("descended.npz", **{name: 1.01 * W for name, W in held.items()}))
    assert judge(audited, tmp_path / "run", Tampering("", forge, ())) == "noticed"
    assert "network after further training costs" in covopt.verify(tmp_path / "run").message


def test_a_plateau_follows_from_its_networks(tmp_path: Path) -> None:
    """Every file is whole and listed; one statement in them is not what the networks give."""
    stored = tmp_path / "stored"
    covopt.plateau(X, Y, lam=1e-2, widths=[1, 2], starts=1, time_limit=2.0).save(stored)
    assert covopt.verify(stored).passed
    widths = [int(line[0]) for line in record.read_table(stored / "curve.csv")[1:]]
    wide = max(widths)
    forged = {
        "scaled": holds("networks.npz", **{f"n{wide}_W1": lambda W: 1.01 * W}),
        "lower": states("plateau.json", level=lambda told: 0.99 * told["level"]),
        "ends": states("plateau.json", exact_start=[9, 8]),
    }
    for name, change in forged.items():
        changed(stored, change)(tmp_path / name)
        assert is_refused(tmp_path / name), name
    answer = covopt.load(stored)
    *narrow, widest = answer.points
    swapped = [replace(point, weights=widest.weights, cost=widest.cost) for point in narrow]
    replace(answer, points=[*swapped, widest]).save(tmp_path / "wider")
    with pytest.raises(covopt.RecordError, match="a network that is wider than 1"):
        covopt.verify(tmp_path / "wider")
    replace(answer, points=answer.points[::-1]).save(tmp_path / "falling")  # its curve would be that of the widest
    with pytest.raises(covopt.RecordError, match="that do not ascend"):
        covopt.verify(tmp_path / "falling")
