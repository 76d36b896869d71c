"""Caches whose keys come from requests are bounded by what their keys and values hold."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cachebox import LRUCache

import cms
from cms.access.policy import ADMIN
from cms.access.write_permissions import MAX_RULES_BYTES, WritePermissions
from cms.bounded_cache import bounded_cache, weight_of
from cms.database import statement_names
from cms.flows.flow_calls import MAX_CACHED_BYTES, FlowCalls
from cms.query.sql import constants
from cms.schema.build import NO_STRUCTURE
from cms.schema.model import Version
from cms.store.snapshot import MAX_DOCUMENT_BYTES, Snapshot

COUNTED = {
    "cms.access.ip_addresses": "addresses of at most 100 characters",
    "cms.database.statement_names": "no arguments",
    "cms.database.statements": "no arguments",
    "cms.database.queue_schema": "no arguments",
    "cms.dashboards.charts": "no requests",
    "cms.files.assets": "forms of at most 1,000 characters, beside values of columns",
    "cms.flows.secret_texts": "names from the settings, and names of at most 100 characters",
    "cms.fragment": "templates of the code",
    "cms.http.assets": "names of files and moments, which are columns",
    "cms.http.requests.authenticator": "tokens of at most 200 characters, or signed ones",
    "cms.http.requests.request": "names of headers in the code",
    "cms.logs": "the second",
    "cms.openapi.docs_page": "no requests",
    "cms.outgoing.outgoing_requests": "no arguments",
    "cms.query.plan.inner_parts": "no requests",
    "cms.query.sql.arguments": "numbers",
    "cms.query.sql.constants": "names of collections",
    "cms.rate_limits.limiter": "addresses",
    "cms.regex": "patterns of at most 1,000 characters, and of a bounded size",
    "cms.store.snapshot": "callers, policies, collections and flows",
    "cms.web.request_head": "names of at most 64 characters",
}
"""The modules with caches that are bounded by the number of their entries, and why that is enough:
what their keys are, or how long.
"""


def modules_with_counted_caches() -> Iterator[str]:
    """Yield the modules that call `lru_cache`, `cache` or `LRUCache` without a size of entries."""
    for module in pkgutil.walk_packages(cms.__path__, "cms."):
        path = importlib.util.find_spec(module.name)
        if path is None or path.origin is None or module.name.startswith("cms.cli"):
            continue
        for node in ast.walk(ast.parse(Path(path.origin).read_text())):
            if is_counted_cache(node):
                yield module.name
                break


def is_counted_cache(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Name("lru_cache" | "cache")):
            return True
        case ast.Call(ast.Name("LRUCache"), keywords=keywords):
            return not any(keyword.arg == "getsizeof" for keyword in keywords)
        case ast.FunctionDef(decorator_list=decorators):
            return any(isinstance(each, ast.Name) and each.id == "cache" for each in decorators)
    return False


def test_every_cache_is_bounded_by_its_bytes_or_has_keys_that_are_short() -> None:
    assert sorted(modules_with_counted_caches()) == sorted(COUNTED)


def snapshot() -> Snapshot:
    return Snapshot(Version(1, 1, 1), NO_STRUCTURE, "")


def rules() -> WritePermissions:
    return WritePermissions(ADMIN, NO_STRUCTURE.catalogue)


CACHES: dict[str, tuple[LRUCache[Any, Any], int]] = {
    "documents": (snapshot().documents, MAX_DOCUMENT_BYTES),
    "rules after a change": (rules()._rules_after, MAX_RULES_BYTES),
    "rules of a change": (rules()._update_rules, MAX_RULES_BYTES),
    "answers of flows": (FlowCalls(None)._answers, MAX_CACHED_BYTES),  # type: ignore[arg-type]
    "names of statements": (statement_names._names, statement_names._MAX_BYTES),
    "lists of texts": (constants._lists, constants._MAX_LIST_BYTES),
}


@pytest.mark.parametrize("name", CACHES)
def test_long_keys_count(name: str) -> None:
    cache, max_bytes = CACHES[name]
    text = "x" * (max_bytes // 20)
    for number in range(60):
        cache[text, frozenset({f"{number}"})] = None
    assert 0 < len(cache) < 20
    cache.clear()


def test_an_entry_that_is_larger_than_the_cache_is_alone_in_it() -> None:
    cache = bounded_cache(1_000)
    for key in ("a", "b" * 2_000):
        assert cache.setdefault_with(key, lambda: "value") == "value"
    assert list(cache.keys()) == ["b" * 2_000]


def test_the_parts_of_a_value_count() -> None:
    assert weight_of(("a" * 100, frozenset({"b" * 100}))) > 300


def test_names_and_lists_are_the_same_objects_again() -> None:
    assert statement_names.name_of('DELETE FROM "a"') == "DELETE a"
    assert constants.text_list(("a", "b")) is constants.text_list(("a", "b"))
