"""Imports run downwards only, and drivers stay in their rooms (docs/code-map.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import cms

ROOT = Path(cms.__file__).parent
LAYERS = ("base", "web", "schema", "query", "access", "store", "files", "jobs", "mail", "auth", "http", "top")
TOP = {"app", "__main__", "cli", "server", "tasks"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer(module: str) -> str:
    name = module.split(".")[1] if "." in module else ""
    return "top" if name in TOP else name if name in LAYERS else "base"


def modules() -> list[tuple[str, Path]]:
    return [(".".join(("cms", *path.relative_to(ROOT).with_suffix("").parts)), path) for path in ROOT.rglob("*.py")]


def test_imports_run_downwards_only() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path)
        if name.startswith("cms.") and LAYERS.index(layer(name)) > LAYERS.index(layer(module))
    ]
    assert wrong == []


def test_only_the_store_knows_psycopg_and_only_http_knows_falcon() -> None:
    rooms = {
        "psycopg": {"store"},
        "psycopg_pool": {"store"},
        "procrastinate": {"jobs"},
        "falcon": {"http", "top"},
        "httptools": {"web"},
        "uvloop": {"web"},
    }
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path)
        if layer(module) not in rooms.get(name.split(".")[0], {layer(module)})
    ]
    assert wrong == []
