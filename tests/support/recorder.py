"""Records which attributes of SGLang's objects our code touches, while the tests run it.

Installed before `voice_runtime.sglang_backend` is imported: each attribute access in its modules then goes through
`_touch`, which looks at the object that is really there. Upstream's own code is not slowed. What other test processes
record is left for the first one in a folder, whose name they inherit.
"""

import ast
import atexit
import importlib.abc
import importlib.machinery
import json
import multiprocessing.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "voice_runtime.sglang_backend"
FOLDER_VARIABLE = "VOICE_RUNTIME_RECORD"
SOURCES = Path(__file__).parents[2] / "voice_runtime" / "sglang_backend"

touched: set[str] = set()
places: set[str] = set()  # file:line:column of every access that was made, upstream's or not


def install() -> None:
    """Record from now on, and leave what was recorded in the folder when the process ends."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    assert not any(name.startswith(f"{PACKAGE}.") and name.count(".") == 2 for name in sys.modules), "too late"
    if FOLDER_VARIABLE not in os.environ:
        os.environ[FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="touched-")
        atexit.register(shutil.rmtree, os.environ[FOLDER_VARIABLE], ignore_errors=True)
    sys.meta_path.insert(0, _Finder())
    atexit.register(_leave)
    multiprocessing.util.Finalize(None, _leave, exitpriority=0)  # its child processes run no atexit


def all_touched() -> tuple[set[str], set[str]]:
    """Names and places of this process and of those that have ended."""
    names, where = set(touched), set(places)
    for path in Path(os.environ[FOLDER_VARIABLE]).glob("*.json"):
        record = json.loads(path.read_text())
        names |= set(record["touched"])
        where |= set(record["places"])
    return names, where


def accesses() -> Iterator[str]:
    """The place of every attribute access in our source."""
    for path in sorted(SOURCES.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and _place(path.name, node) not in _declarations(path):
                yield _place(path.name, node)


def _leave() -> None:
    if not Path(os.environ[FOLDER_VARIABLE]).is_dir():  # the process that wanted the records has ended
        return
    record = {"touched": sorted(touched), "places": sorted(places)}
    (Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.json").write_text(json.dumps(record))


def _touch(owner: Any, name: str, place: str) -> None:
    places.add(place)
    if (upstream := _upstream_class(owner, name)) is not None:
        touched.add(f"{upstream}.{name}")


def _read(owner: Any, name: str, place: str) -> Any:
    _touch(owner, name, place)
    return getattr(owner, name)


def _upstream_class(owner: Any, name: str) -> str | None:
    """Upstream's class that defines the attribute, else the object's own when it is upstream's."""
    if isinstance(owner, ModuleType):
        return owner.__name__ if owner.__name__.split(".")[0] == "sglang" else None
    of = getattr(owner, "__self_class__", owner) if isinstance(owner, super) else owner
    of = of if isinstance(of, type) else type(of)
    if any(name in vars(cls) for cls in of.__mro__ if cls.__module__.startswith("voice_runtime")):
        return None
    classes = [cls for cls in of.__mro__ if cls.__module__.split(".")[0] == "sglang"]
    defining = [cls for cls in of.__mro__ if name in vars(cls)]
    if not classes or (defining and defining[-1] not in classes):  # a library's own, such as torch's
        return None
    return (defining[-1:] or classes[:1])[0].__name__.lstrip("_")


def _place(file: str, node: ast.expr) -> str:
    return f"{file}:{node.lineno}:{node.col_offset}:{node.end_col_offset}"


class _Rewriter(ast.NodeTransformer):
    """`a.b` becomes `_read(a, "b", place)`; before `a.b = c` goes `_touch(a, "b", place)`."""

    def __init__(self, file: str) -> None:
        self._file = file

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        place = _place(self._file, node)
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(self._call("__recorder_read__", node.value, node.attr, place), node)

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return self._noted(node, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        return self._noted(node, [node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        annotation, node.annotation = node.annotation, ast.Constant(None)
        noted = self._noted(node, [node.target] if node.value is not None else [])
        node.annotation = annotation
        return noted

    def _noted(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, targets: Sequence[ast.expr]) -> list[ast.stmt]:
        """The assignment behind a note for each attribute that it writes, in a tuple as well."""
        written = [
            inner
            for target in targets
            for inner in ast.walk(target)
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
        ]
        notes = [
            ast.Expr(self._call("__recorder_touch__", _loaded(to.value), to.attr, _place(self._file, to)))
            for to in written
        ]
        self.generic_visit(node)
        return [*(ast.copy_location(note, node) for note in notes), node]

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return node  # an annotation is no access

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        returns, node.returns = node.returns, None
        self.generic_visit(node)
        node.returns = returns
        return node

    def _call(self, function: str, owner: ast.expr, name: str, place: str) -> ast.Call:
        return ast.Call(ast.Name(function, ast.Load()), [owner, ast.Constant(name), ast.Constant(place)], [])


def _loaded(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


@cache
def _declarations(path: Path) -> set[str]:
    """Places of the attributes in annotations, and of those that are declared without a value: no accesses."""
    found: set[str] = set()
    for parent in ast.walk(ast.parse(path.read_text())):
        notes = [getattr(parent, "annotation", None), getattr(parent, "returns", None)]
        if isinstance(parent, ast.AnnAssign) and parent.value is None:
            notes.append(parent.target)
        for note in notes:
            if isinstance(note, ast.expr):
                found |= {_place(path.name, inner) for inner in ast.walk(note) if isinstance(inner, ast.Attribute)}
    return found


class _Loader(importlib.machinery.SourceFileLoader):
    def path_stats(self, path: str) -> Any:
        raise OSError("compiled anew each time: what lies in a cache records nothing")

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        tree = _Rewriter(Path(os.fsdecode(path)).name).visit(ast.parse(data))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True, optimize=_optimize)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(__recorder_read__=_read, __recorder_touch__=_touch)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{PACKAGE}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec
