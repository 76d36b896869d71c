"""Imports run downwards only, and drivers stay in their rooms (docs/code-map.md)."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import TopologicalSorter

from cms.schema.types import TYPES
from tests.house.source_modules import SourceModule, source_modules

LAYERS = (
    "base",
    "web",
    "embedded",
    "schema",
    "query.language",
    "query.plan",
    "query.sql",
    "query.rules",
    "flows.definition",
    "dashboards.definition",
    "access",
    "database",
    "jobs",
    "mail",
    "store",
    "items.read",
    "items.write.transaction",
    "items.write.stages",
    "items.write.parse",
    "items.write.hooks",
    "items.write.complete",
    "items.write.run",
    "items.write",
    "items.history",
    "items.transfer",
    "structure",
    "schema_sync",
    "openapi",
    "client_types",
    "files",
    "backup",
    "auth",
    "sso",
    "flows",
    "dashboards",
    "health",
    "http",
    "top",
)
TOP = {"app", "__main__", "cli", "extensions", "gunicorn_process", "tasks"}


def layer(module: str) -> str:
    parts = module.split(".")[1:]
    if parts and parts[0] in TOP:
        return "top"
    for name in (".".join(parts[:3]), ".".join(parts[:2]), *parts[:1]):
        if name in LAYERS:
            return name
    return "base"


def modules() -> Iterator[tuple[str, SourceModule]]:
    """Yield each module of the service with its dotted name."""
    for source in source_modules("cms"):
        yield ".".join(source.path.with_suffix("").parts), source


def test_imports_run_downwards_only() -> None:
    violations = [
        f"{module} imports {name}"
        for module, source in modules()
        for name in source.imports
        if name.startswith("cms.") and LAYERS.index(layer(name)) > LAYERS.index(layer(module))
    ]
    assert violations == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types and imports in functions count as well."""
    sources = {module.removesuffix(".__init__"): source for module, source in modules()}
    imported = {
        module: {
            name if name in sources else name.rpartition(".")[0]
            for name in source.imports
            if name.startswith("cms.")
        }
        for module, source in sources.items()
    }
    # Its error names a circle.
    TopologicalSorter(imported).prepare()


def test_flows_and_dashboards_do_not_know_each_other() -> None:
    rooms = {"cms.dashboards": "cms.flows", "cms.flows": "cms.dashboards"}
    violations = [
        f"{module} imports {name}"
        for module, source in modules()
        for name in source.imports
        for room, other in rooms.items()
        if module.startswith(f"{room}.") and name.startswith(f"{other}.")
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
        "opentelemetry": {"base"},
        "prometheus_client": {"base"},
    }
    violations = [
        f"{module} imports {name}"
        for module, source in modules()
        for name in source.imports
        if layer(module) not in rooms.get(name.split(".")[0], {layer(module)})
    ]
    assert violations == []


RAW = {
    "FieldName",
    "Query",
    "Pick",
    "Star",
    "Filter",
    "AtField",
    "Some",
    "OperatorTest",
    "CallerValue",
    "Operand",
}
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
        for module, source in modules()
        for name in source.imports
        if module.startswith(WITHOUT_RAW) and name.startswith("cms.") and name.split(".")[-1] in RAW
    ]
    assert violations == []


KNOWS_THE_CATALOGUE = {
    "cms.query.plan.links": "the guard follows relations by it",
    "cms.query.plan.history_items": "a part of the guard's view of the history",
}


def test_neither_planner_nor_printer_looks_a_name_up() -> None:
    modules_with_catalogue = {
        module
        for module, source in modules()
        if module.startswith(WITHOUT_RAW) and "cms.schema.model.Catalogue" in source.imports
    }
    assert modules_with_catalogue == set(KNOWS_THE_CATALOGUE)


def test_only_the_guard_makes_what_the_planner_takes() -> None:
    violations = [
        f"{module} imports {name}"
        for module, source in modules()
        for name in source.imports
        if name.startswith("cms.query.plan.") and name.split(".")[-1] in GUARDED
        if layer(module) not in ("access", "query.plan")
    ]
    assert violations == []


def test_nothing_is_decided_by_the_name_of_a_field_type() -> None:
    """What a type is like is an attribute of its entry in cms/schema/types."""
    violations = [
        f"{module}: {comparison.code}"
        for module, source in modules()
        for comparison in source.comparisons
        if "type" in comparison.code and not comparison.texts.isdisjoint(TYPES)
    ]
    assert violations == []
