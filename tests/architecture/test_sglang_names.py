"""The reuse surface: what is touched of SGLang is on the checked list, and what is on the list is touched.

Imports, overrides and keyword arguments are found in the source. Attributes of upstream's objects are recorded while
the tests run, see tests/support/recorder.py.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import voice_runtime
from tests.architecture import sglang_names
from tests.sglang_backend import test_own_process
from tests.support import recorder

PACKAGE = Path(voice_runtime.__file__).parent


def trees() -> Iterator[ast.Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ast.parse(path.read_text())


def imported() -> set[str]:
    names = set()
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sglang":
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names if alias.name.split(".")[0] == "sglang"}
    return names


def classes() -> set[str]:
    return {name.rsplit(".", 1)[1] for name in sglang_names.IMPORTED}


def keywords() -> set[str]:
    """Of what is constructed of upstream's classes, of the one namespace that stands for one, and of a call changed."""
    names = {name: name for name in classes()} | {"SimpleNamespace": "ipc_channels"}
    given = {
        f"{names[node.func.id]}({keyword.arg}=)"
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for keyword in node.keywords
    }
    changed = ast.parse((recorder.SOURCES / "embeddings.py").read_text())
    return given | {
        f"Qwen3MoeLLMModel({key.value}=)"
        for node in ast.walk(changed)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def overridden() -> set[str]:
    """Methods of our classes below upstream's, at any depth."""
    ours = {node.name: node for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {
        f"{upstream}.{node.name}"
        for found in ours.values()
        for upstream in _upstream_bases(found, ours)
        for node in found.body
        if isinstance(node, ast.FunctionDef)
    } - sglang_names.OURS


def _upstream_bases(found: ast.ClassDef, ours: dict[str, ast.ClassDef]) -> set[str]:
    bases = {base.id for base in found.bases if isinstance(base, ast.Name)}
    deeper = (_upstream_bases(ours[base], ours) for base in bases if base in ours)
    return (bases & classes()).union(*deeper)


def test_every_provided_name_is_defined_by_us_for_upstream_to_find() -> None:
    defined = {
        node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.targets[0])
        for path in recorder.SOURCES.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.Assign)
    }
    assert sglang_names.PROVIDED - defined == set()


def test_every_imported_name_is_on_the_list_and_used() -> None:
    assert imported() == sglang_names.IMPORTED


def test_every_keyword_of_an_upstream_constructor_is_on_the_list_and_used() -> None:
    assert keywords() == sglang_names.KEYWORDS


def test_every_overridden_method_is_on_the_list() -> None:
    assert overridden() == sglang_names.OVERRIDDEN


@pytest.mark.last
def test_every_attribute_of_upstream_that_a_test_run_touched_is_on_the_list() -> None:
    touched, _ = recorder.all_touched()
    assert touched - sglang_names.OURS - sglang_names.TOUCHED == set()


@pytest.mark.last
def test_every_attribute_on_the_list_is_touched_and_no_access_of_ours_went_unseen() -> None:
    if not test_own_process.has_run_whole():
        pytest.skip("tests/sglang_backend has not run as a whole: what it would touch is not known")
    touched, places = recorder.all_touched()
    assert sglang_names.TOUCHED - touched == set()
    unseen = {place for place in recorder.accesses() if place not in places}
    assert {_source(place) for place in unseen} == sglang_names.UNSEEN


def _source(place: str) -> str:
    """The text of an access, with its file."""
    file, line, start, end = place.split(":")
    text = (recorder.SOURCES / file).read_text().splitlines()[int(line) - 1]
    return f"{file}: {text[int(start) : int(end)]}"


def test_no_private_name_of_upstream_is_touched() -> None:
    assert not [name for name in sglang_names.ALL if any(part.startswith("_") for part in name.split("."))]


def test_the_readme_tells_how_many_names_are_touched() -> None:
    readme = (PACKAGE.parent / "README.md").read_text()
    assert f"{len(sglang_names.ALL)} names of it and {len(sglang_names.KEYWORDS)} keyword arguments" in readme
