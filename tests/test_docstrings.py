"""Every public name says in its docstring what it takes, gives and raises, in what shape, and where it comes from."""

import dataclasses
import doctest
import inspect
import re
from collections.abc import Callable
from enum import Enum

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
    arrays = {"X", "Y", "A", "K", "Ks", "Z"} & parameters(function)
    for array in arrays:
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
        missing = {parameter for parameter in parameters(value) if not re.search(rf"\b{parameter}\b", text)}
        assert not missing
        assert "Raises:\n" in text or not raises(value)


@pytest.mark.parametrize("name", FROM_PAPERS)
def test_what_comes_from_a_paper_says_so(name: str) -> None:
    assert re.search(r"\[[A-Z]+\d\d\w?[],]", told(getattr(covopt, name).__doc__))


WITH_EXAMPLES = [name for name in PUBLIC if ">>>" in (getattr(covopt, name).__doc__ or "")]


def test_the_faces_of_the_loss_have_examples() -> None:
    assert {*FACES, "preactivations", "covariances_of", "representations_of", "LossValue"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_run(name: str) -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for example in finder.find(getattr(covopt, name), name, globs={}):
        runner.run(example)
    assert runner.summarize().attempted > 0
    assert runner.summarize().failed == 0
