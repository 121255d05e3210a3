"""Shapes are checked in the tests, and only there; property tests repeat; a test and its programs use one thread."""

import os
import sys
import time
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

# Time limits count processor time: a search on a busy machine goes as far as on a quiet one, and limits can be short.
time.perf_counter = time.process_time

# pytest imports by path here (importlib mode), so the tests' shared modules must be put within reach.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))  # for `tests.benchmarks`, after what is installed

# Before anything imports covopt.
import typecheck  # noqa: F401

install_import_hook("covopt", "typecheck.check")

from runs import Run  # noqa: E402

from covopt.app.cli import main  # noqa: E402

settings.register_profile(
    "covopt", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("covopt")


# Files that together take less than a minute on two cores: what `-m quick` runs.
QUICK = {
    *("activation", "copositive", "data", "forces", "graphs", "house", "lbfgs", "loss", "numerals", "problem", "psd"),
    *("quadratic", "reduce", "row_space", "weights"),
}
# Tests of ten seconds and more each, of what others see in part: what only `-m long` runs.
LONG = {
    "test_closed_forms[completely positive root]",
    "test_exact_fits_are_far_below_the_deepened_answer_of_two_layers",
    "test_the_wave_of_the_first_quarter_of_an_hour[1]",
    "test_certified_shallow_values[reg-1d-onehot-0.03]",
    "test_tampering_with_a_study_is_noticed_or_named[compare]",
    "test_a_slower_machine_gives_the_same_answer[deep]",
    "test_the_default_dtype_of_torch_changes_nothing[options1-dtype1]",
    "test_blocks_of_a_deep_network_are_at_their_minimum",
    "test_spectral_and_exact_bounds",
    "test_representation_costs",
    "test_cp_rank_has_them[twelve]",
    "test_the_wave_of_the_first_quarter_of_an_hour[0]",
    "test_the_default_dtype_of_torch_changes_nothing[options1-dtype0]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressor_data_not_an_array]",
    "test_a_deep_solve_reports_its_layers_and_survives_storage",
    "test_depth_50_runs",
    "test_another_scale",
    "test_the_same_seed_gives_the_same_answer_and_the_width_is_limited",
    "test_what_is_told_of_a_layer_holds_for_the_network_that_is_returned[3-fast]",
    "test_tampering_with_a_study_is_noticed_or_named[ranks]",
    "test_tampering_with_a_study_is_noticed_or_named[plateau]",
    "test_tampering_with_a_study_is_noticed_or_named[audit]",
    "test_order_and_scale_of_the_samples_do_not_matter",
    "test_the_family_of_rank_1_takes_out_noise",
    "test_certified_shallow_values[interp-1d-smooth-0.05]",
    "test_invariances",
    "test_a_default_fit_ends_by_what_rounds_gain_near_the_minimum",
    "test_the_network_s_own_question_gets_no_hint",
    "test_exact_fits_leave_the_corner_that_they_start_in",
    "test_certified_shallow_values[interp-plane-0.01]",
    "test_no_random_network_violates_a_bound",
    "test_what_is_told_of_a_layer_holds_for_the_network_that_is_returned[2-fast]",
    "test_tampering_is_noticed_or_named[deep]",
    "test_stored_proofs_are_checked[question4-loop]",
    "test_free_biases_against_what_kinks_and_one_neuron_allow",
    "test_every_method_of_covopt_answers_the_same_problem",
    "test_progress_says_what_a_deep_solve_does_next",
    "test_known_costs_at_any_depth[four-points-12]",
    "test_known_costs_at_any_depth[line-slope-2-12]",
    "test_known_costs_at_any_depth[signed-identity-12]",
    "test_known_costs_at_any_depth[identity-scalar-5-12]",
    "test_known_costs_at_any_depth[linear-8x4-12]",
    "test_free_biases_along_a_path[True]",
    "test_the_default_dtype_of_torch_changes_nothing[options3-dtype1]",
    "test_dense_matrices_beyond_order_ten_are_separated[15-jumps1]",
    "test_the_answer_of_two_layers_bounds_the_cost_at_any_depth[sine-cosine-20]",
    "test_linear_networks[4]",
    "test_a_name_that_is_not_utf_8_costs_no_answer[compare]",
    "test_a_full_disk_costs_no_answer[plateau-False]",
    "test_a_slower_machine_gives_the_same_answer[interpolate]",
    "test_a_full_disk_costs_no_answer[plateau-True]",
    "test_a_full_disk_costs_no_answer[validate-True]",
    "test_a_full_disk_costs_no_answer[compare-True]",
    "test_a_full_disk_costs_no_answer[cprank-True]",
    "test_a_directory_that_vanishes_costs_no_answer[plateau-True]",
    "test_a_directory_that_vanishes_costs_no_answer[validate-True]",
    "test_a_directory_that_vanishes_costs_no_answer[compare-True]",
    "test_a_name_that_is_not_utf_8_costs_no_answer[validate]",
    "test_a_name_that_is_not_utf_8_costs_no_answer[plateau]",
    "test_a_name_that_is_not_utf_8_costs_no_answer[cprank]",
    "test_a_name_that_is_not_utf_8_costs_no_answer[sweep]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressors_train]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressors_train(readonly_memmap=True)]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressors_train(readonly_memmap=True,X_dtype=float32)]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_estimators_dtypes]",
    "test_scikit_learn_accepts_the_estimator[CovoptRegressor()-check_regressors_int]",
    "test_scikit_learn_accepts_the_estimator[CovoptClassifier()-check_estimators_dtypes]",
    "test_two_processes_descend_on_all_rows",
    "test_full_certification_closes_the_gap_and_bounds_every_network",
    "test_what_two_processes_store_is_verified[--depth 3 --time-limit 3 --starts 1]",
    "test_what_is_told_of_a_layer_holds_for_the_network_that_is_returned[2-full]",
    "test_rows_in_parts_cost_what_they_cost_together[small lam]",
}


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the files in QUICK are `quick`, those in LONG `long` and `slow`; `gpu` needs a CUDA device."""
    for item in items:
        if item.path.stem.removeprefix("test_") in QUICK:
            item.add_marker(pytest.mark.quick)
        if item.name in LONG:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.slow)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


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
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; hands back its exit code, standard output and standard error."""

    def run_main(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run_main
