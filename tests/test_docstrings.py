"""Every public name says in its docstring what it takes, gives and raises, in what shape, and where it comes from."""

import dataclasses
import doctest
import inspect
import re
from collections.abc import Callable
from enum import Enum

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import covopt

PUBLIC = [name for name in covopt.__all__ if name != "__version__"]
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(covopt, name))]
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(covopt, name))]
FACES = (
    "loss_of_weights",
    "loss_of_representations",
    "loss_of_covariances",
    "weights_of",
    "project_to_range",
    "in_cone",
)
FROM_PAPERS = (
    "Forces",
    "cp_rank",
    "data_of_graph",
    "depth",
    "forces",
    "gram_of_graph",
    "ntk",
    "plateau",
    "sigma_rank",
    "solve",
    "spectra",
    "validate",
    *FACES,
)
"""Names that implement statements of papers."""

METHODS = [
    (name, method)
    for name in CLASSES
    for method, value in vars(getattr(covopt, name)).items()
    if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
]


def told(text: str | None) -> str:
    assert text
    assert text.strip()
    return text


def named(text: str, section: str) -> set[str]:
    """The names that a section explains; several may stand before one colon, and further ones after a semicolon."""
    found = re.search(rf"^ *{section}:\n(.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    heads = re.findall(r"(?:^ +|[;.] )([\w, *]+):(?= )", found[1], re.MULTILINE) if found else []
    return {name.strip(" *") for head in heads for name in head.split(",")}


def parameters(function: Callable[..., object]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


def raises(function: Callable[..., object]) -> bool:
    return bool(re.search(r"^\s+raise \w+Error", inspect.getsource(inspect.unwrap(function)), re.MULTILINE))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_explain_what_they_take_give_and_raise(name: str) -> None:
    function = getattr(covopt, name)
    text = told(function.__doc__)
    assert not parameters(function) - named(text, "Args")
    assert "Returns:\n" in text
    assert "Raises:\n" in text
    for array in {"X", "Y", "A", "K", "Ks", "Z"} & parameters(function):
        assert re.search(rf"\b{array}\b[^\n]*:[^\n]*\((N|n)", text), f"{array} has no shape"


@pytest.mark.parametrize("name", CLASSES)
def test_classes_explain_their_fields(name: str) -> None:
    kind = getattr(covopt, name)
    text = told(kind.__doc__)
    assert text != dict.__doc__
    if dataclasses.is_dataclass(kind):
        fields = {field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")}
        explained = named(text, "Attributes")
        if issubclass(kind, BaseEstimator):  # parameters; further estimators explain what differs from the first one
            documents = text, told(covopt.CovoptRegressor.__doc__), told(covopt.CovoptRegressorCV.__doc__)
            explained = set().union(*(named(document, "Args") for document in documents))
        assert not fields - explained
    if issubclass(kind, Enum):
        assert not {member.value for member in kind} - set(re.findall(r"[\w-]+", text))


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_methods_explain_what_they_take_and_raise(name: str, method: str) -> None:
    value = vars(getattr(covopt, name))[method]
    text = told(value.__doc__)
    if inspect.isfunction(value):
        assert not {parameter for parameter in parameters(value) if not re.search(rf"\b{parameter}\b", text)}
        assert "Raises:\n" in text or not raises(value)


@pytest.mark.parametrize("name", FROM_PAPERS)
def test_what_comes_from_a_paper_says_so(name: str) -> None:
    assert re.search(r"\[[A-Z]+\d\d\w?[],]", told(getattr(covopt, name).__doc__))


WITH_EXAMPLES = [name for name in PUBLIC if ">>>" in (getattr(covopt, name).__doc__ or "")]
ERRORS = {name for name in CLASSES if issubclass(getattr(covopt, name), Exception)} - {"CovoptError"}
"""Kinds of errors and warnings, for which the example of their base stands."""
INSIDE = set("describe describe_data draw files panels rows run_picture sentence stated summary".split())
INSIDE |= {"carried_out", "certificates", "networks", "overview", "proved", "to_parquet"}
"""What reports, files and the command line ask of an answer, which users print; and what needs an extra."""


Examples = dict[str, tuple[doctest.TestResults, dict[str, object]]]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """The examples, run: how each ended, and what its names are at its end."""
    ran = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in WITH_EXAMPLES:
            patch.chdir(tmp_path_factory.mktemp(name))
            finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
            (example,) = finder.find(getattr(covopt, name), name, globs={"covopt": covopt, "np": np})
            names = example.globs
            runner.run(example, clear_globs=False)
            ran[name] = runner.summarize(), names
    return ran


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_run(examples: Examples, name: str) -> None:
    assert examples[name][0].attempted > 0
    assert examples[name][0].failed == 0


def test_every_public_object_has_an_example(examples: Examples) -> None:
    """One of its own; a class that functions return, in theirs."""
    assert set(FUNCTIONS) <= set(WITH_EXAMPLES)
    made = {type(value) for _, names in examples.values() for value in names.values()}
    shown = {name for name in CLASSES if getattr(covopt, name) in made}
    printed = {
        name for name in CLASSES if any(f"<{name}." in getattr(covopt, other).__doc__ for other in WITH_EXAMPLES)
    }
    assert set(CLASSES) - ERRORS - set(WITH_EXAMPLES) - shown - printed == set()


def test_the_methods_that_users_call_are_in_an_example() -> None:
    text = "\n".join(getattr(covopt, name).__doc__ for name in WITH_EXAMPLES)
    called = {method for name, method in METHODS if inspect.isfunction(vars(getattr(covopt, name))[method])}
    assert {method for method in called - INSIDE if f".{method}(" not in text} == set()
