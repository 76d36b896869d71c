"""Imports run downwards only, and drivers stay in their rooms (docs/code-map.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import cms
from cms.schema.types import TYPES

ROOT = Path(cms.__file__).parent
LAYERS = (
    "base",
    "web",
    "embedded",
    "schema",
    "query.language",
    "query.plan",
    "query.sql",
    "query.rules",
    "access",
    "database",
    "store",
    "items.read",
    "items.write",
    "items.history",
    "items.transfer",
    "structure",
    "files",
    "jobs",
    "mail",
    "auth",
    "http",
    "top",
)
TOP = {"app", "__main__", "cli", "gunicorn_process", "tasks"}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layer(module: str) -> str:
    parts = module.split(".")[1:]
    if parts and parts[0] in TOP:
        return "top"
    for name in (".".join(parts[:2]), *parts[:1]):
        if name in LAYERS:
            return name
    return "base"


def modules() -> list[tuple[str, Path]]:
    return [
        (".".join(("cms", *path.relative_to(ROOT).with_suffix("").parts)), path)
        for path in ROOT.rglob("*.py")
    ]


def test_imports_run_downwards_only() -> None:
    violations = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path)
        if name.startswith("cms.") and LAYERS.index(layer(name)) > LAYERS.index(layer(module))
    ]
    assert violations == []


def test_only_the_database_knows_psycopg_and_only_http_knows_falcon() -> None:
    rooms = {
        "psycopg": {"database", "embedded"},
        "psycopg_pool": {"database"},
        "procrastinate": {"jobs"},
        "falcon": {"http", "top"},
        "httptools": {"web"},
        "uvloop": {"web"},
    }
    violations = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path)
        if layer(module) not in rooms.get(name.split(".")[0], {layer(module)})
    ]
    assert violations == []


RAW = {"FieldName", "Query", "Pick", "Star", "Filter", "AtField", "Some", "OperatorTest"}
"""Types of names and filters as they were written."""
GUARDED = {
    "Guarded",
    "GuardedQuery",
    "GuardedValue",
    "AtValue",
    "AtItems",
    "GuardedPath",
    "predicate_of",
}
"""What only the guard makes, and only the planner takes."""
WITHOUT_RAW = ("cms.query.sql.", "cms.query.plan.")


def test_neither_planner_nor_printer_knows_names_and_raw_filters() -> None:
    violations = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path)
        if module.startswith(WITHOUT_RAW) and name.startswith("cms.") and name.split(".")[-1] in RAW
    ]
    assert violations == []


def test_only_the_guard_makes_what_the_planner_takes() -> None:
    violations = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path)
        if name.startswith("cms.query.plan.") and name.split(".")[-1] in GUARDED
        if layer(module) not in ("access", "query.plan")
    ]
    assert violations == []


def test_nothing_is_decided_by_the_name_of_a_field_type() -> None:
    """What a type is like is an attribute of its entry in cms/schema/types."""
    violations: list[str] = []
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and "type" in ast.unparse(node):
                constants = [
                    part.value for part in ast.walk(node) if isinstance(part, ast.Constant)
                ]
                if any(constant in TYPES for constant in constants if isinstance(constant, str)):
                    violations.append(f"{module}: {ast.unparse(node)}")
    assert violations == []
