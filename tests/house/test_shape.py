"""Functions and modules stay small (docs/code-map.md); what cannot be split without harm is named
with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("cms", "tests", "bench")
MAX_LINES_OF_A_FUNCTION = 60
MAX_LINES_OF_A_MODULE = 400
MAX_LINES_OF_A_TEST_MODULE = 500
MAX_PARAMETERS = 6

LONG_FUNCTIONS: dict[str, str] = {}
LONG_MODULES: dict[str, str] = {"cms/settings.py": "one table, a setting in each entry"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            yield str(path.relative_to(ROOT)), path.read_text()


def max_lines_of(name: str) -> int:
    return MAX_LINES_OF_A_TEST_MODULE if name.startswith("tests/") else MAX_LINES_OF_A_MODULE


def functions(*folders: str) -> Iterator[tuple[str, Function]]:
    for name, source in sources(*folders):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, Function):
                yield f"{name}:{node.name}", node


def is_packed_assignment(node: ast.AST) -> bool:
    """Tell whether a node is `a, b = x, y`; `a, b = pair` takes one value apart, and is none."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) for target in node.targets)
    )


def is_nested_conditional(node: ast.AST) -> bool:
    """Tell whether a node is `a if x else b if y else c`, in whichever of its parts."""
    return isinstance(node, ast.IfExp) and any(
        isinstance(part, ast.IfExp) for part in ast.walk(node) if part is not node
    )


def lines_with(is_unwanted: Callable[[ast.AST], bool]) -> list[str]:
    return [
        f"{name}:{getattr(node, 'lineno', 0)}"
        for name, source in sources(*FOLDERS)
        for node in ast.walk(ast.parse(source))
        if is_unwanted(node)
    ]


def test_an_assignment_assigns_one_thing() -> None:
    assert lines_with(is_packed_assignment) == [], "give each of these assignments a line"


def test_a_conditional_expression_chooses_between_two() -> None:
    assert lines_with(is_nested_conditional) == [], "write these choices as if statements"


def test_functions_are_short() -> None:
    too_long = [
        name
        for name, node in functions(*FOLDERS)
        if (node.end_lineno or 0) - node.lineno >= MAX_LINES_OF_A_FUNCTION
        and name not in LONG_FUNCTIONS
    ]
    assert too_long == []


def test_modules_are_short() -> None:
    too_long = [
        name
        for name, source in sources(*FOLDERS)
        if source.count("\n") > max_lines_of(name) and name not in LONG_MODULES
    ]
    assert too_long == []


def test_most_functions_have_fewer_than_ten_lines() -> None:
    lengths = sorted((node.end_lineno or 0) - node.lineno for _, node in functions("cms"))
    assert lengths[len(lengths) // 2] < 10


def test_functions_take_few_parameters_and_no_flag_by_position() -> None:
    too_many = [
        name
        for name, node in functions("cms")
        if len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
        > MAX_PARAMETERS + 1
    ]
    assert too_many == []


def test_every_folder_of_the_service_is_in_the_wheel() -> None:
    configuration = ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    packages = configuration["options"]["packages"].split()
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "cms").rglob("*.py")
    }
    assert folders <= set(packages)
