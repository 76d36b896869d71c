"""What the tests of the project's shape look at in its Python modules, found in one walk of
each.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("cms", "tests", "bench")
MAX_LINE_LENGTH = 100
SENTENCE_WORDS = 6

_TYPE_NAME = re.compile(r"_?[A-Z][a-z]")
_NOTED = (
    ast.stmt,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.IfExp,
    ast.Name,
    ast.Attribute,
    ast.arg,
)
"""What lists of modules are made of: most nodes are nothing of that."""


class Function(NamedTuple):
    name: str
    lines: int
    """How many lines follow that of its `def`."""
    parameters: int
    body: str
    """Its code without the docstring, written in one way; only of functions of the service."""


class SourceModule(NamedTuple):
    """A module, without its syntax tree: thousands of nodes that stay slow down the collector."""

    path: Path
    """Below the project's folder."""
    line_count: int
    long_lines: list[int]
    functions: list[Function]
    classes: list[str]
    variables: set[str]
    """The names of what it assigns, and of parameters."""
    type_aliases: list[str]
    """Names such as `Row` that are assigned: types that are no classes."""
    imports: set[str]
    """Modules, and `module.name` where a name is imported from one."""
    packed_assignments: list[int]
    """The lines of `a, b = x, y`; `a, b = pair` takes one value apart, and is none."""
    nested_conditionals: list[int]
    """The lines of `a if x else b if y else c`, in whichever of its parts."""
    comparisons: list[Comparison]
    patterns: list[str]
    """The code of its regular expressions."""
    sleeps: list[int]
    """The lines of calls such as `time.sleep(1)`."""
    sentences: list[str]
    """Its strings of `SENTENCE_WORDS` or more, pieces of f-strings too, but no docstrings.

    They are in small letters and without full stops.
    """


class Comparison(NamedTuple):
    code: str
    texts: set[str]
    """The strings in it."""


@cache
def source_modules(folder: str) -> tuple[SourceModule, ...]:
    """Read all modules of one of the project's folders."""
    return tuple(_read(path) for path in sorted((ROOT / folder).rglob("*.py")))


def _read(path: Path) -> SourceModule:
    text = path.read_text()
    lines = text.splitlines()
    long_lines = [number for number, line in enumerate(lines, 1) if len(line) > MAX_LINE_LENGTH]
    name = path.relative_to(ROOT)
    module = SourceModule(
        name, len(lines), long_lines, [], [], set(), [], set(), [], [], [], [], [], []
    )
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, _NOTED):
            continue
        _note(module, node)
        # A statement comes before its parts in this walk.
        match node:
            case ast.Expr(value=ast.Constant()):
                docstrings.add(id(node.value))
            case ast.Constant(value=str(words)) if id(node) not in docstrings:
                if len(words.split()) >= SENTENCE_WORDS:
                    module.sentences.append(words.strip(" .").lower())
    return module


def _note(module: SourceModule, node: ast.AST) -> None:
    """Add to a module's lists what they need of one of its nodes."""
    match node:
        case ast.Call(func=ast.Attribute(attr="sleep") | ast.Name(id="sleep")):
            module.sleeps.append(node.lineno)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            body = _body(node) if module.path.parts[0] == "cms" else ""
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            lines = (node.end_lineno or 0) - node.lineno
            module.functions.append(Function(node.name, lines, len(parameters), body))
        case ast.ClassDef():
            module.classes.append(node.name)
        case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
            module.variables.add(name)
        case ast.Name(id=name, ctx=ast.Store()):
            module.variables.add(name)
        case ast.Import():
            module.imports.update(alias.name for alias in node.names)
        case ast.ImportFrom(module=str(source)):
            module.imports.update(f"{source}.{alias.name}" for alias in node.names)
        case ast.Assign(targets=[ast.Name(id=name)]) if _TYPE_NAME.match(name):
            module.type_aliases.append(name)
        case ast.Assign(value=ast.Tuple()):
            if any(isinstance(target, ast.Tuple) for target in node.targets):
                module.packed_assignments.append(node.lineno)
        case ast.IfExp():
            if any(isinstance(part, ast.IfExp) for part in ast.walk(node) if part is not node):
                module.nested_conditionals.append(node.lineno)
        case ast.Compare():
            module.comparisons.extend(_comparison(node))
        case ast.Call(func=ast.Attribute(attr="compile"), args=[pattern, *_]):
            module.patterns.append(ast.unparse(pattern))
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="re")),
            args=[ast.Constant() | ast.JoinedStr() as pattern, *_],
        ):
            module.patterns.append(ast.unparse(pattern))


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    statements = node.body[1:] if ast.get_docstring(node) else node.body
    return "\n".join(map(ast.unparse, statements))


def _comparison(node: ast.Compare) -> list[Comparison]:
    """Return a comparison if there are strings in it."""
    texts = {
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    return [Comparison(ast.unparse(node), texts)] if texts else []
