"""Every route of the service with its operations, as one caller may use them, and the members that
bodies may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Collection as Names
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from cms.openapi.account_routes import ACCOUNT_ROUTES
from cms.openapi.collection_schemas import ROW, VisibleCollections, sent_members
from cms.openapi.content_routes import CONTENT_ROUTES, file_routes
from cms.openapi.json_schemas import reference
from cms.openapi.operation import JSON, Body, Operation, PathItem
from cms.openapi.row_operations import RowSchemas, TitledRows, list_operations, row_operations
from cms.openapi.service_routes import SERVICE_ROUTES
from cms.openapi.structure_routes import STRUCTURE_ROUTES
from cms.schema.model import Collection, Kind
from cms.schema.system import (
    ACTIVITY,
    ENDPOINTS,
    FILES,
    FLOW_DELIVERIES,
    FLOW_RUNS,
    FOLDERS,
    REVISIONS,
    SETTINGS,
    SYSTEM_TABLES,
    USERS,
    is_system,
)

Routes = dict[str, dict[str, Operation]]
"""Operations by path and by method in small letters."""

_ROW = reference(ROW)
_ANY_ROWS = TitledRows("items of a collection", RowSchemas(_ROW, _ROW, _ROW), None)
_ITEMS = "/items/{collection}"
_ITEM = "/items/{collection}/{key}"


def routes_of(visible: VisibleCollections, templates: Names[str]) -> Routes:
    """Return the routes of an application that a caller may use.

    `templates` are the paths that the application serves; those of each collection come after them.
    """
    routes: Routes = {}
    for path, operations in _all_routes(visible).items():
        permitted = _permitted(operations, visible)
        if path in templates and permitted:
            routes[path] = permitted
    return routes | _collection_routes(visible)


def _all_routes(visible: VisibleCollections) -> Routes:
    routes: Routes = {}
    files = visible.rows(FILES, "files").schemas
    uploads = file_routes(
        files,
        sent_members(visible, FILES, "create"),
        changeable=sent_members(visible, FILES, "update"),
    )
    items: Mapping[str, PathItem] = {
        _ITEMS: list_operations(_ANY_ROWS, ANY_LIST),
        _ITEM: row_operations(_ANY_ROWS, ANY_ROW),
    }
    tables = (SERVICE_ROUTES, items, STRUCTURE_ROUTES, ACCOUNT_ROUTES, CONTENT_ROUTES)
    for table in (*tables, uploads):
        for path, operations in table.items():
            routes.setdefault(path, {}).update(operations)
    for route in ROW_ROUTES:
        routes.setdefault(route.path, {}).update(_row_route(route, visible))
    return routes


def _row_route(route: RowRoute, visible: VisibleCollections) -> PathItem:
    title = route.path.strip("/").partition("/")[0]
    if not route.is_permitted_by_rows:
        return route.operations(_ANY_ROWS, route.methods)
    return route.operations(visible.rows(route.collection, title), route.methods)


def _permitted(operations: PathItem, visible: VisibleCollections) -> dict[str, Operation]:
    return {method: each for method, each in operations.items() if _may_see(each, visible)}


def _may_see(operation: Operation, visible: VisibleCollections) -> bool:
    if operation.is_for_admins and not visible.policy.is_admin:
        return False
    return operation.need is None or visible.allows(operation.need)


# The routes of each collection: those of any collection once more, with its own schemas


def _collection_routes(visible: VisibleCollections) -> Routes:
    routes: Routes = {}
    for name, collection in visible.catalogue.collections.items():
        if is_system(name) or collection.kind is Kind.FOLDER:
            continue
        path = _ITEMS.format(collection=quote(name, safe=""))
        for own_path, operations in _own_routes(path, collection, visible).items():
            permitted = _permitted(operations, visible)
            if permitted:
                routes[own_path] = permitted
    return routes


def _own_routes(
    path: str, collection: Collection, visible: VisibleCollections
) -> Mapping[str, PathItem]:
    rows = visible.rows(collection.name, collection.name)
    if collection.is_singleton:
        methods = "get search patch" if collection.is_writable else "get search"
        return {path: row_operations(rows, methods)}
    if not collection.is_writable:
        return {path: list_operations(rows, "get search")}
    return {
        path: list_operations(rows, _possible(ANY_LIST, collection)),
        f"{path}/{{key}}": row_operations(rows, _possible(ANY_ROW, collection)),
    }


_ACTION_OF_METHOD = {"post": "create", "patch": "update", "delete": "delete"}


def _possible(methods: str, collection: Collection) -> str:
    """Return those methods that a collection takes: a view may have triggers for some only."""
    possible: list[str] = []
    for method in methods.split():
        action = _ACTION_OF_METHOD.get(method)
        if action is None or action in collection.writable_actions:
            possible.append(method)
    return " ".join(possible)


# The routes of rows of system collections, and of any collection

ANY_LIST = "get search post patch delete"
ANY_ROW = "get search patch delete"


class RowRoute(NamedTuple):
    """A route of rows of a system collection, with its methods; `operations` describes them."""

    path: str
    collection: str
    methods: str
    operations: Callable[[TitledRows, str], Mapping[str, Operation]] = list_operations
    is_permitted_by_rows: bool = True
    """Whether the caller needs a permission on the collection for the methods of the route."""


def _endpoint(collection: str, methods: str, row_methods: str) -> list[RowRoute]:
    path = ENDPOINTS[collection]
    return [
        RowRoute(path, collection, methods),
        RowRoute(f"{path}/{{key}}", collection, row_methods, row_operations),
    ]


def _row_routes() -> list[RowRoute]:
    routes: list[RowRoute] = []
    for table in SYSTEM_TABLES.values():
        if (table.is_writable and not table.is_singleton) or table.name == FOLDERS:
            routes += _endpoint(table.name, ANY_LIST, ANY_ROW)
    # A new file comes as a form as well, which `content_routes.file_routes` describes.
    routes += _endpoint(FILES, "get search patch delete", "get search delete")
    for name in (ACTIVITY, REVISIONS, FLOW_RUNS, FLOW_DELIVERIES):
        routes += _endpoint(name, "get search", "get search")
    return [
        *routes,
        RowRoute("/settings", SETTINGS, "get search patch", row_operations),
        RowRoute(
            "/users/me", USERS, "get search patch", row_operations, is_permitted_by_rows=False
        ),
        RowRoute("/comments", ACTIVITY, "get search"),
        RowRoute("/comments/{key}", ACTIVITY, "get search", row_operations),
        RowRoute("/flows/{key}/runs", FLOW_RUNS, "get"),
        RowRoute("/flows/{key}/deliveries", FLOW_DELIVERIES, "get"),
    ]


ROW_ROUTES = tuple(_row_routes())


_NONE: frozenset[str] = frozenset()


def _members_of(body: Body | None) -> frozenset[str]:
    properties = body.content.get(JSON, {}).get("properties") if body else None
    return frozenset(properties) if isinstance(properties, Mapping) else _NONE


def _body_members() -> dict[tuple[str, str], frozenset[str]]:
    members: dict[tuple[str, str], frozenset[str]] = {}
    for routes in (ACCOUNT_ROUTES, SERVICE_ROUTES):
        for path, operations in routes.items():
            for method, operation in operations.items():
                members[path, method.upper()] = _members_of(operation.body)
    return members


BODY_MEMBERS: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(_body_members())
"""By the template of a path and the method; a call without a body has no members."""
