"""Small enough to be read: functions of at most 40 lines, classes of at most 15 methods. A waiver says why."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import voice_runtime

PACKAGE = Path(voice_runtime.__file__).parent
MOST_LINES, MOST_METHODS, MEDIAN_LINES = 40, 15, 8
MOST_FILE_LINES, MEDIAN_FILE_LINES = 360, 120

WAIVERS = {
    "Code2WavScheduler": "each of its methods is one step of the loop, a few lines long",
    "Session": "one method for each input of a session; what they do is in hearing, reply, turn and playout",
    "Agent": "one method for each thing that is asked of a reply: to be made, drafted, played, held, cut",
    "Hearing": "one method for each thing that is asked of what was heard; what it means is in voice_activity and echo",
    "Playout": "one short method for each question about one reply's samples: to send, heard, shown, held, left",
    "PhoneLine": "one short method for each thing that a session may want of a line, and the steps that these share",
    "Pipeline": "one method for each message between gateway and worker, on one table of requests",
    "Inbox": "what other threads and the scheduler may ask, and one-line checks that these share",
    "ModelRunner": "its hooks, empty here, are what models fill",
}


def nodes(kind: type) -> Iterator[ast.AST]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kind))


def lines(node: ast.AST) -> int:
    """Without the docstring."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def methods(node: ast.AST) -> int:
    assert isinstance(node, ast.ClassDef)
    return sum(isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) for inner in node.body)


def test_no_function_is_longer_than_a_screen() -> None:
    functions = [*nodes(ast.FunctionDef), *nodes(ast.AsyncFunctionDef)]
    assert [node.name for node in functions if lines(node) > MOST_LINES] == []  # type: ignore[attr-defined]
    assert statistics.median(lines(node) for node in functions) <= MEDIAN_LINES


def test_a_class_with_many_methods_has_a_waiver_and_a_waiver_its_class() -> None:
    large = {node.name for node in nodes(ast.ClassDef) if methods(node) > MOST_METHODS}  # type: ignore[attr-defined]
    assert large == set(WAIVERS)


def test_no_file_is_longer_than_one_reads_in_one_go() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > MOST_FILE_LINES} == {}
    assert statistics.median(lengths.values()) <= MEDIAN_FILE_LINES
