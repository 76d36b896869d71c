"""The routes of rows of system collections, and of any collection: a line for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cms.openapi.operation import Operation
from cms.openapi.row_operations import TitledRows, list_operations, row_operations
from cms.schema.system import (
    ACTIVITY,
    DASHBOARDS,
    ENDPOINTS,
    FILES,
    FLOW_DELIVERIES,
    FLOW_RUNS,
    FLOWS,
    FOLDERS,
    NOTIFICATIONS,
    OPERATIONS,
    PANELS,
    PERMISSIONS,
    PRESETS,
    REVISIONS,
    ROLES,
    SETTINGS,
    SHARES,
    TRANSLATIONS,
    USERS,
)

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
    for name in (USERS, ROLES, PERMISSIONS, NOTIFICATIONS, PRESETS, TRANSLATIONS, SHARES):
        routes += _endpoint(name, ANY_LIST, ANY_ROW)
    for name in (FLOWS, OPERATIONS, DASHBOARDS, PANELS, FOLDERS):
        routes += _endpoint(name, ANY_LIST, ANY_ROW)
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
