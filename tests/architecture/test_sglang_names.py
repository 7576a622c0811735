"""The reuse surface: what is touched of SGLang is on the checked list, and what is on the list is touched.

Found in the source: imports, and attributes of the variables that hold upstream objects.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import voice_runtime
from tests.architecture import sglang_names

PACKAGE = Path(voice_runtime.__file__).parent
BACKEND = PACKAGE / "sglang_backend"

# Expressions that hold upstream objects, by the function or class in which they do. Nothing else may hold one:
# test_upstream_objects_are_held_where_the_list_looks_for_them.
HOLDERS = {
    ("QueueScheduler", "self"): "Scheduler",
    ("held", "scheduler"): "Scheduler",
    ("SglangEngine", "self._scheduler"): "Scheduler",
    ("_tokens", "batch"): "BatchTokenIDOutput",
    ("send_output", "message"): "AbortReq",
    ("QueueScheduler", "PortArgs"): "PortArgs",
    ("to_upstream", "sampling"): "SamplingParams",
}
OURS = {"Scheduler.collector", "Scheduler.collector.take", "Scheduler.round"}


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def imported() -> set[str]:
    names = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sglang":
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names if alias.name.split(".")[0] == "sglang"}
    return names


def keywords() -> set[str]:
    classes = {name.rsplit(".", 1)[1] for name in sglang_names.IMPORTED}
    return {
        f"{node.func.id}({keyword.arg}=)"
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
        for keyword in node.keywords
    }


def used() -> dict[str, set[str]]:
    """Dotted name on an upstream object -> how it is used: read, written, called."""
    uses: dict[str, set[str]] = {}
    for _, tree in trees():
        for scope in ast.walk(tree):
            if isinstance(scope, ast.FunctionDef | ast.ClassDef):
                for node in ast.walk(scope):
                    _record(scope.name, node, uses)
    return {name: kinds for name, kinds in uses.items() if name not in OURS}


def _record(scope: str, node: ast.AST, uses: dict[str, set[str]]) -> None:
    called = isinstance(node, ast.Call)
    target = node.func if isinstance(node, ast.Call) else node
    if not isinstance(target, ast.Attribute):
        return
    text = ast.unparse(target)
    for (holding_scope, variable), upstream in HOLDERS.items():
        if scope == holding_scope and text.startswith(f"{variable}."):
            kind = "called" if called else "written" if isinstance(target.ctx, ast.Store) else "read"
            uses.setdefault(upstream + text.removeprefix(variable), set()).add(kind)


def test_every_imported_name_is_on_the_list_and_used() -> None:
    assert imported() == sglang_names.IMPORTED


def test_every_name_of_an_upstream_object_is_on_the_list_and_used() -> None:
    uses = used()
    called = {name for name, kinds in uses.items() if "called" in kinds}
    written = {name for name, kinds in uses.items() if "written" in kinds}
    read = {name for name, kinds in uses.items() if "read" in kinds} - called
    assert called == sglang_names.CALLED
    assert written == sglang_names.WRITTEN
    assert read == sglang_names.READ


def test_every_keyword_of_an_upstream_constructor_is_on_the_list_and_used() -> None:
    assert keywords() == sglang_names.KEYWORDS


def test_upstream_objects_are_held_where_the_list_looks_for_them() -> None:
    """The engine's scheduler is bound to other names only in `held`; and it is never passed on."""
    source = (BACKEND / "engine.py").read_text()
    tree = ast.parse(source)
    bound = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    aliases = [text for text in bound if text.endswith("= self._scheduler")]
    assert aliases == ["scheduler = self._scheduler"]
    passed = [ast.unparse(argument) for node in ast.walk(tree) if isinstance(node, ast.Call) for argument in node.args]
    assert "self._scheduler" not in passed
    assert "scheduler" not in passed


def test_every_overridden_method_is_on_the_list() -> None:
    tree = ast.parse((BACKEND / "scheduler.py").read_text())
    ours = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "QueueScheduler")
    methods = {f"Scheduler.{node.name}" for node in ours.body if isinstance(node, ast.FunctionDef)}
    assert methods - {"Scheduler.__init__", "Scheduler.round"} == sglang_names.OVERRIDDEN


def test_no_private_name_of_upstream_is_touched() -> None:
    assert not [name for name in sglang_names.ALL if any(part.startswith("_") for part in name.split("."))]


def test_the_readme_tells_how_many_names_are_touched() -> None:
    readme = (PACKAGE.parent / "README.md").read_text()
    assert f"{len(sglang_names.ALL)} names of it and {len(sglang_names.KEYWORDS)} keyword arguments" in readme
