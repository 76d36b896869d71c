"""Blocks of attempts (cms/store/attempts.py) may run again: they must not leave their function."""

import ast
from collections.abc import Iterator

from tests.house.source_modules import ROOT


def _leaving_lines(text: str) -> list[int]:
    """Return the lines that leave a block of an attempt before what ends the attempt has ended."""
    return [
        node.lineno
        for block in ast.walk(ast.parse(text))
        if isinstance(block, ast.With) and _is_attempt(block.items[0].context_expr)
        for node in _own_statements(block)
        if isinstance(node, ast.Return)
    ]


def _is_attempt(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "attempt"


def _own_statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a block, without those of functions that stand in it."""
    for node in ast.iter_child_nodes(block):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            yield from _own_statements(node)


def test_no_block_of_an_attempt_returns() -> None:
    leaving = {}
    for path in (ROOT / "cms").rglob("*.py"):
        text = path.read_text()
        lines = _leaving_lines(text) if "attempt" in text else []
        if lines:
            leaving[path.relative_to(ROOT)] = lines
    assert leaving == {}


def test_a_block_that_returns_is_found() -> None:
    text = "def f():\n    for attempt in x:\n        with attempt as c:\n            return c\n"
    assert _leaving_lines(text) == [4]
