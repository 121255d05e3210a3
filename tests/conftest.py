"""Shapes are checked in the tests, and only there; property tests repeat; a test and its programs use one thread."""

import gc
import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Before anything loads torch or numpy: several threads at the small matrices of tests take longer than one, and on a
# busy machine many times as long. The programs that tests start inherit it; tests of threads undo it (test_threads).
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook
from xdist.scheduler import LoadScopeScheduling

# pytest imports by path here (importlib mode), so the tests' shared modules must be put within reach.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))  # for `tests.benchmarks`, after what is installed

# Before anything imports covopt.
import typecheck  # noqa: F401

install_import_hook("covopt", "typecheck.check")

from browser import window  # noqa: E402, F401
from runs import Run  # noqa: E402

from covopt.app.cli import main  # noqa: E402

# Time limits count processor time: a search on a busy machine goes as far as on a quiet one, and limits can be short.
time.perf_counter = time.process_time

settings.register_profile(
    "covopt", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("covopt")


# Files that together take less than a minute on two cores: what `-m quick` runs.
QUICK = {
    *("copositive", "data", "forces", "graphs", "house", "lbfgs", "loss", "numerals", "problem", "psd", "quadratic"),
    *("reduce", "row_space"),
}
# Tests of many seconds each, of what others see in part: what only `-m long` runs. Beginnings of their names.
LONG = (
    "test_a_default_fit_ends_by_what_rounds_gain_near_the_minimum",
    "test_a_run_is_stored_though_nobody_reads[False]",
    "test_another_number_of_processes_goes_on",
    "test_another_scale",
    "test_biases_without_a_penalty",
    "test_progress_says_what_a_deep_solve_does_next",
    "test_rows_in_parts_cost_what_they_cost_together[small lam]",
    "test_scikit_learn_accepts_the_estimator[CovoptClassifier()-check_classifiers_train(readonly_memmap",
    "test_scikit_learn_accepts_the_estimator[CovoptClassifier()-check_estimators_dtypes]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_estimators_dtypes]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressor_data_not_an_array]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressors_int]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressors_train",
    "test_stored_proofs_are_checked[question0-shares]",
    "test_stored_proofs_are_checked[question1-laplacian]",
    "test_stored_proofs_are_checked[question5-loop]",
    "test_tampering_is_noticed_or_named[deep]",
    "test_tampering_with_a_study_is_noticed_or_named",
    "test_the_default_dtype_of_torch_changes_nothing[options1",
    "test_the_default_dtype_of_torch_changes_nothing[options3-dtype1]",
    "test_the_network_s_own_question_gets_no_hint",
    "test_two_processes_descend_on_all_rows",
    "test_what_two_processes_store_is_verified[--depth 3",
)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the files in QUICK are `quick`, those in LONG `long` and `slow`; `gpu` needs a CUDA device."""
    for item in items:
        if item.path.stem.removeprefix("test_") in QUICK:
            item.add_marker(pytest.mark.quick)
        if item.name.startswith(LONG):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.slow)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    gc.freeze()  # what was imported stays: collections do not look through it again


class WholeFiles(LoadScopeScheduling):
    """Tests that share what takes long to make run in one process, so that it is made once; others one by one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _shares(self.config.rootpath / file) else nodeid


@cache
def _shares(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    return 'scope="module"' in text or "@cache" in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> WholeFiles:
    """How `pytest -n 2` hands out the tests."""
    return WholeFiles(config, log)  # type: ignore[arg-type]


@pytest.fixture
def two() -> Iterator[None]:
    """PyTorch with two threads, as on two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; hands back its exit code, standard output and standard error."""

    def run_main(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run_main
