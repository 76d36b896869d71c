"""Names of fields in flows, which follow a renamed field.

They stand in queries and payloads of operations, and in templates and conditions that look into
items: into the payload of an event of one collection, and into what an `item-read` has read.
Scripts are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cms import jsontext
from cms.flows.definition.flow import FlowDefinition, FlowOperation
from cms.schema.query_references import apply_to_query
from cms.schema.references import (
    FieldChange,
    FollowChange,
    apply_to_filter,
    apply_to_paths,
    apply_to_presets,
    target_of_field,
)
from cms.schema.system import FLOWS, OPERATIONS

OPTIONS_WITH_NAMES: Mapping[str, Mapping[str, FollowChange]] = MappingProxyType(
    {
        "item-create": {"payload": apply_to_presets},
        "item-read": {"query": apply_to_query},
        "item-update": {"payload": apply_to_presets, "query": apply_to_query},
        "item-delete": {"query": apply_to_query},
    }
)
"""Options of operations that name fields of their `collection`."""

_LOOKUP = re.compile(r"\{\{([^{}]*)\}\}")
# `$trigger`, `.payload`, `[0]`, `["first name"]`.
_TOKEN = re.compile(r"""\.?[\w$:-]+|\[(?:\d+|"[^"]*"|'[^']*')\]|.""", re.DOTALL)
_LISTS = ("_and", "_or")

Path = tuple[str, ...]
Roots = Mapping[Path, str]
"""The paths in the values of a run that lead to items, with the collection of these."""


class ChangedOptions(NamedTuple):
    """The options of a flow or an operation after a change."""

    table: str
    key: str
    options: Mapping[str, object]


def changed_flow_options(flow: FlowDefinition, change: FieldChange) -> Iterator[ChangedOptions]:
    """Yield the options of a flow and its operations that name a renamed field.

    A dropped field stays in them: without it they would do something else.
    """
    if change.after is None:
        return
    roots = _roots(flow)
    for operation in flow.graph.operations.values():
        own_roots = {**roots, **_last(flow, operation)}
        options = _operation_options(operation, own_roots, change)
        if options != (operation.options or {}):
            yield ChangedOptions(OPERATIONS, operation.id, options)
    returns = _last_of(list(flow.graph.operations.values())[-1:])
    options = _flow_options(flow, {**roots, **returns}, change)
    if options != flow.options:
        yield ChangedOptions(FLOWS, flow.id, options)


def _roots(flow: FlowDefinition) -> dict[Path, str]:
    roots: dict[Path, str] = {}
    collection = _only(flow.options.get("collections"))
    if flow.trigger == "event" and collection:
        roots["$trigger", "payload"] = collection
    for operation in flow.graph.operations.values():
        collection = _items_of(operation)
        if collection:
            roots[operation.key,] = collection
    return roots


def _last(flow: FlowDefinition, operation: FlowOperation) -> Roots:
    """Return what `$last` is for an operation, if it is the same on every way to it."""
    others = flow.graph.operations.values()
    return _last_of([each for each in others if operation.id in (each.resolve, each.reject)])


def _last_of(operations: Sequence[FlowOperation]) -> dict[Path, str]:
    collection, *others = {_items_of(operation) for operation in operations} or {None}
    return {} if others or collection is None else {("$last",): collection}


def _items_of(operation: FlowOperation) -> str | None:
    """Return the collection of the items that an operation reads."""
    if operation.type != "item-read":
        return None
    collection = (operation.options or {}).get("collection")
    return collection if isinstance(collection, str) else None


def _only(names: object) -> str | None:
    if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str):
        return names[0]
    return None


def _operation_options(
    operation: FlowOperation, roots: Roots, change: FieldChange
) -> Mapping[str, object]:
    # Null stands for no options.
    options = operation.options or {}
    collection = options.get("collection")
    followed = OPTIONS_WITH_NAMES.get(operation.type, {})
    changed: dict[str, object] = {}
    for name, value in options.items():
        after = value
        if name in followed and isinstance(collection, str):
            after = _followed(value, followed[name], collection, change)
        if operation.type == "condition" and name == "filter":
            after = _condition(value, (), roots, change)
        changed[name] = _templates(after, roots, change)
    return changed


def _followed(
    value: object, follow_change: FollowChange, collection: str, change: FieldChange
) -> object:
    """Return a query or a payload, which may be a text that is JSON."""
    if not isinstance(value, str):
        return follow_change(value, collection, change)
    try:
        before = jsontext.loads(value)
    except ValueError:
        return value
    after = follow_change(before, collection, change)
    if after == before:
        return value
    return jsontext.dumps(after).decode()


def _flow_options(flow: FlowDefinition, roots: Roots, change: FieldChange) -> Mapping[str, object]:
    changed = dict(flow.options)
    collection = _only(changed.get("collections"))
    if flow.trigger == "manual" and collection and "fields" in changed:
        changed["fields"] = apply_to_paths(changed["fields"], collection, change)
    returns = changed.get("return")
    if isinstance(returns, str) and "{{" not in returns:
        changed["return"] = _lookup(returns, roots, change)
    elif returns is not None:
        changed["return"] = _templates(returns, roots, change)
    return changed


def _condition(rule: object, before: Path, roots: Roots, change: FieldChange) -> object:
    """Return a filter on the values of a run; `before` is the path to its names."""
    if isinstance(rule, list):
        return [_condition(inner, before, roots, change) for inner in rule]
    if before in roots:
        return apply_to_filter(rule, roots[before], change)
    if not isinstance(rule, Mapping):
        return rule
    changed: dict[str, object] = {}
    for name, inner in rule.items():
        path = before if name in _LISTS else (*before, name)
        changed[name] = _condition(inner, path, roots, change)
    return changed


def _templates(value: object, roots: Roots, change: FieldChange) -> object:
    """Return a value with the new name in its templates."""
    if isinstance(value, str):
        return _LOOKUP.sub(lambda match: "{{" + _lookup(match[1], roots, change) + "}}", value)
    if isinstance(value, Mapping):
        return {
            _templates(name, roots, change): _templates(inner, roots, change)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_templates(inner, roots, change) for inner in value]
    return value


def _lookup(path: str, roots: Roots, change: FieldChange) -> str:
    """Return a path into the values of a run with the new name, and all else as it is written."""
    tokens = _TOKEN.findall(path)
    steps: Path = ()
    collection: str | None = None
    for index, token in enumerate(tokens):
        name = token.strip(".[]\"' ")
        if not name:
            continue
        if collection is None:
            steps = (*steps, name)
            collection = roots.get(steps)
            continue
        # An element of a list.
        if name.isdecimal():
            continue
        target = target_of_field(name, collection, change.catalogue)
        if change.concerns(collection, name):
            tokens[index] = token.replace(name, str(change.after))
        if target is None:
            break
        collection = target
    return "".join(tokens)
