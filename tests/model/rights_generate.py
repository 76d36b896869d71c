"""Strategies: roles for a shape, queries that name what is not there,
and changes of what is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from tests.model.build import with_rows
from tests.model.generate import Json, filters
from tests.model.pools import ROWS, UUIDS
from tests.model.rights import ReadGrant, Role, sees, visible_shape, visible_tables
from tests.model.shape import KEY, Collection, Row, Shape, Tables

USER, ROLE, PARENT = UUIDS[:3]
FIRST_NAME = "a"
ROLE_NAME = "AB"

MISSING = "nowhere"


# Roles


@st.composite
def roles(draw: st.DrawFn, shape: Shape) -> Role:
    """Draw up to three grants for each collection; one at least shows its
    titles, so that there is what to ask for.
    """
    grants: list[ReadGrant] = []
    for collection in shape.values():
        if draw(st.integers(0, 6)):
            grants += [
                draw(_grant(shape, collection, first=not n)) for n in range(draw(st.integers(1, 3)))
            ]
    return grants or [ReadGrant(next(iter(shape)), ("*",), {})]


@st.composite
def _grant(draw: st.DrawFn, shape: Shape, collection: Collection, *, first: bool) -> ReadGrant:
    names = [
        *collection.columns,
        *dict.fromkeys(link.partition(":")[0] for link in collection.links),
    ]
    some = draw(st.sets(st.sampled_from(names)))
    if first:
        some |= {"title" if "title" in names else KEY, *([KEY] if draw(st.integers(0, 4)) else [])}
    fields = ("*",) if draw(st.integers(0, 2)) == 0 else tuple(sorted(some))
    rule = {} if draw(st.integers(0, 3)) == 0 else draw(filters(shape, collection, 2))
    return ReadGrant(collection.name, fields, rule, inherited=draw(st.booleans()))


# Variables


def with_variables(node: Any) -> Any:
    """Write a filter with variables in place of its literals."""
    match node:
        case dict():
            return {name: _variable(name, value) for name, value in node.items()}
        case list():
            return [with_variables(item) for item in node]
        case _:
            return node


TOMORROW = "$NOW(+1 day)"
VARIABLES = {
    USER: "$CURRENT_USER",
    ROLE: "$CURRENT_USER.role",
    FIRST_NAME: "$CURRENT_USER.first_name",
    ROLE_NAME: "$CURRENT_ROLE.name",
}
COMPARED = ("_eq", "_neq", "_lt", "_lte", "_gt", "_gte", "_ieq", "_nieq")


def _variable(name: str, value: Any) -> Any:
    if name == "timestamp" and value == {"_nnull": True}:
        return {"_lt": TOMORROW}
    if name in COMPARED and isinstance(value, str):
        return VARIABLES.get(value, value)
    if name in ("_in", "_nin") and isinstance(value, list) and len(value) == 1:
        return [VARIABLES.get(item, item) if isinstance(item, str) else item for item in value]
    return with_variables(value) if isinstance(value, dict | list) else value


def without_variables(node: Any) -> Any:
    """Write a filter, or a whole query, with the literals that its variables mean."""
    literals = {variable: value for value, variable in VARIABLES.items()}
    return _replaced(node, {**literals, TOMORROW: "9999-12-31T00:00:00Z"})


def without_paths(node: Any) -> Any:
    """Take back the variables that read what a member of these roles may not."""
    return _replaced(
        node, {variable: value for value, variable in VARIABLES.items() if "." in variable}
    )


def _replaced(node: Any, literals: Mapping[str, str]) -> Any:
    match node:
        case dict():
            return {name: _replaced(value, literals) for name, value in node.items()}
        case list():
            return [_replaced(item, literals) for item in node]
        case str():
            return literals.get(node, node)
        case _:
            return node


# Queries that name what is not there


@st.composite
def poisoned(draw: st.DrawFn, shape: Shape, role: Role, name: str, query: Json) -> Json:
    """Draw a query that names a field that is hidden or missing, here or behind a link."""
    visible = visible_shape(shape, role)
    collection = visible[name]
    grouped = "aggregate" in query or "groupBy" in query
    places = [*(IN_GROUPS if grouped else IN_ITEMS)]
    if "aggregate" in query and not query.get("groupBy"):
        # One row has no order: nobody looks at the sort.
        places.remove(_in_group_sort)
    poison = draw(st.sampled_from(places))
    links = [] if poison in HERE_ONLY else [*collection.links]
    steps = draw(st.lists(st.sampled_from(links), max_size=1)) if links else []
    end = visible[collection.links[steps[0]].target] if steps else collection
    poisoned_query: Json = poison(
        query, steps, draw(st.sampled_from(_hidden(shape[end.name], end, role)))
    )
    return poisoned_query


def _hidden(collection: Collection, visible: Collection, role: Role) -> list[str]:
    """Return names that are not there for a caller: of no field, of columns, of
    lists, of what lies beyond a field.
    """
    columns = [name for name in collection.columns if name not in visible.columns]
    links = [name for name in collection.links if name not in visible.links]
    return [
        MISSING,
        *columns,
        *(f"{name}.title" if sees(role, collection.name, name) else name for name in links),
    ]


def _in_filter(query: Json, steps: list[str], name: str) -> Json:
    return {
        **query,
        "filter": {"_and": [query.get("filter", {}), _at(steps, {name: {"_null": True}})]},
    }


def _in_or(query: Json, steps: list[str], name: str) -> Json:
    return {
        **query,
        "filter": {
            "_or": [_at(steps, {"_or": [{name: {"_nnull": True}}]}), {KEY: {"_null": True}}]
        },
    }


def _in_none(query: Json, steps: list[str], name: str) -> Json:
    return {**query, "filter": _at(steps, {f"count({name})": {"_eq": 0}})}


def _at(steps: list[str], inner: Json) -> Json:
    for step in reversed(steps):
        inner = {step: inner}
    return inner


def _in_sort(query: Json, steps: list[str], name: str) -> Json:
    return {**query, "sort": ["-" + ".".join([*steps, name])]}


def _in_fields(query: Json, steps: list[str], name: str) -> Json:
    """Aggregates would stand in the place of what is asked of the items."""
    deep = {step: params for step, params in query.get("deep", {}).items() if step not in steps}
    return {
        **query,
        "deep": deep,
        "fields": [*query.get("fields", ["*"]), ".".join([*steps, name])],
    }


def _in_function(query: Json, steps: list[str], name: str) -> Json:
    return _in_fields(query, steps, f"count({name})")


def _in_alias(query: Json, steps: list[str], name: str) -> Json:
    fields = [*query.get("fields", ["*"]), "other"]
    return {**query, "fields": fields, "alias": {**query.get("alias", {}), "other": name}}


def _in_deep(query: Json, steps: list[str], name: str) -> Json:
    if not steps:
        return _in_alias(query, steps, name)
    return {"fields": [f"{steps[0]}.*"], "deep": {steps[0]: {"_filter": {name: {"_null": True}}}}}


def _in_groups(query: Json, steps: list[str], name: str) -> Json:
    return {"groupBy": [name], "aggregate": {"count": ["*"]}}


def _in_aggregates(query: Json, steps: list[str], name: str) -> Json:
    return {**query, "aggregate": {**query.get("aggregate", {}), "countDistinct": [name]}}


def _in_group_sort(query: Json, steps: list[str], name: str) -> Json:
    return {**query, "sort": [f"-count.{name}"]}


Poison = Callable[[Json, list[str], str], Json]
EVERYWHERE: tuple[Poison, ...] = (_in_filter, _in_or, _in_none)
IN_ITEMS = (*EVERYWHERE, _in_sort, _in_fields, _in_function, _in_alias, _in_deep)
IN_GROUPS = (*EVERYWHERE, _in_groups, _in_aggregates, _in_group_sort)
HERE_ONLY = (_in_alias, _in_groups, _in_aggregates, _in_group_sort)


# Changes of what is not seen

Change = tuple[str, int, str | None, Any]
"""Of a collection the row at a place: it goes, or a column of it gets another value."""


@st.composite
def changes(draw: st.DrawFn, shape: Shape, rows: Mapping[str, list[Row]]) -> list[Change]:
    """Draw changes of any rows."""
    drawn: list[Change] = []
    for name in draw(
        st.lists(st.sampled_from([name for name in rows if rows[name]] or [""]), max_size=12)
    ):
        if not name:
            break
        row_index = draw(st.integers(0, len(rows[name]) - 1))
        columns = [column for column in shape[name].columns if column != KEY]
        column = draw(st.sampled_from([None, *columns]))
        value = draw(st.sampled_from(_values(shape, shape[name], column, rows))) if column else None
        drawn.append((name, row_index, column, value))
    return drawn


def _values(
    shape: Shape, collection: Collection, column: str, rows: Mapping[str, list[Row]]
) -> list[Any]:
    link = collection.links.get(column)
    if link:
        return [None, *(row[KEY] for row in rows[link.target])]
    if column in ("any", "kind"):
        return [None, *{row[column] for row in rows[collection.name]}]
    return [None, *ROWS[collection.columns[column]]]


def unseen(
    tables: Tables, role: Role, rows: Mapping[str, list[Row]], changed_rows: list[Change]
) -> dict[str, list[Row]]:
    """Return the rows after those of the changes that a role cannot see."""
    now = {name: list(items) for name, items in rows.items()}
    before = visible_tables(tables, role).rows
    for name, row_index, column, value in changed_rows:
        if row_index >= len(now[name]):
            continue
        row = now[name][row_index]
        other = [] if column is None else [{**row, column: value}]
        then = {**now, name: [*now[name][:row_index], *other, *now[name][row_index + 1 :]]}
        # Told apart as they are shown: 1.5 and 1.50 are equal, but not the same.
        if repr(visible_tables(with_rows(tables, then), role).rows) == repr(before):
            now = then
    return now
