"""Names of fields in stored queries, and in settings of lists, interfaces and displays: they follow
a renamed field.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.schema.references import (
    FieldChange,
    FollowChange,
    apply_to_conditions,
    apply_to_filter,
    apply_to_path,
    apply_to_template,
    target_of_field,
)


def apply_to_terms(terms: object, collection: str | None, change: FieldChange) -> object:
    """Return paths (`author.name`) or terms of a sort (`-author.name`) under the new name.

    They are a list, or a text with commas. A dropped field stays in them.
    """
    if isinstance(terms, list):
        return [apply_to_terms(term, collection, change) for term in terms]
    if not isinstance(terms, str):
        return terms
    changed = [_term(term, collection, change) for term in terms.split(",")]
    return ",".join(changed)


def _term(term: str, collection: str | None, change: FieldChange) -> str:
    path = term.strip().removeprefix("-")
    renamed = str(apply_to_path(path, collection, change)) if path else path
    if renamed == path:
        return term
    return term.replace(path, renamed, 1)


def apply_to_keys(values: object, collection: str | None, change: FieldChange) -> object:
    """Return an object whose keys are paths, such as widths of columns."""
    if not isinstance(values, Mapping):
        return values
    return {apply_to_path(key, collection, change): value for key, value in values.items()}


def apply_to_query(query: object, collection: str | None, change: FieldChange) -> object:
    """Return the parameters of a query under the new name, at whatever depth they name the field.

    A dropped field stays in them, as in filters.
    """
    if change.after is None or not isinstance(query, Mapping):
        return query
    changed = apply_to_members(query, _PARAMETERS, collection, change)
    deep = query.get("deep")
    if isinstance(deep, Mapping):
        changed["deep"] = _deep(deep, collection, change)
    return changed


def apply_to_members(
    values: Mapping[str, object],
    members: Mapping[str, FollowChange],
    collection: str | None,
    change: FieldChange,
) -> dict[str, object]:
    """Return an object of which some members hold names of fields."""
    changed = dict(values)
    for name, follow_change in members.items():
        if name in changed:
            changed[name] = follow_change(changed[name], collection, change)
    return changed


def _apply_to_values(values: object, collection: str | None, change: FieldChange) -> object:
    """Return an object whose values are names: of an alias, or of aggregates."""
    if not isinstance(values, Mapping):
        return values
    return {key: apply_to_terms(value, collection, change) for key, value in values.items()}


_PARAMETERS: Mapping[str, FollowChange] = MappingProxyType(
    {
        "fields": apply_to_terms,
        "filter": apply_to_filter,
        "sort": apply_to_terms,
        "group": apply_to_terms,
        "groupBy": apply_to_terms,
        "aggregate": _apply_to_values,
        "alias": _apply_to_values,
        "highlight": apply_to_terms,
    }
)
_DEEP_PARAMETERS = MappingProxyType(
    {f"_{name}": follow_change for name, follow_change in _PARAMETERS.items()}
)


def _deep(
    groups: Mapping[str, object], collection: str | None, change: FieldChange
) -> dict[str, object]:
    changed: dict[str, object] = {}
    for name, group in apply_to_members(groups, _DEEP_PARAMETERS, collection, change).items():
        if not isinstance(group, Mapping) or name in _DEEP_PARAMETERS:
            changed[name] = group
            continue
        renamed = str(apply_to_path(name, collection, change))
        changed[renamed] = _deep(group, target_of_field(name, collection, change.catalogue), change)
    return changed


# Presets: an object for each layout, whose members are those of the layouts of Directus.

_LAYOUT_OPTIONS: Mapping[str, FollowChange] = MappingProxyType(
    {
        "widths": apply_to_keys,
        "align": apply_to_keys,
        **dict.fromkeys(("title", "subtitle", "template", "displayTemplate"), apply_to_template),
        **dict.fromkeys(
            (
                "imageSource",
                "startDateField",
                "endDateField",
                "geometryField",
                "groupField",
                "dateField",
                "tagsField",
                "userField",
                "titleField",
                "textField",
            ),
            apply_to_path,
        ),
    }
)


def apply_to_layout_query(layouts: object, collection: str | None, change: FieldChange) -> object:
    """Return the queries of a preset, by layout."""
    if not isinstance(layouts, Mapping):
        return layouts
    return {name: apply_to_query(query, collection, change) for name, query in layouts.items()}


def apply_to_layout_options(layouts: object, collection: str | None, change: FieldChange) -> object:
    """Return the options of a preset, by layout."""
    if change.after is None or not isinstance(layouts, Mapping):
        return layouts
    changed: dict[str, object] = {}
    for layout, options in layouts.items():
        changed[layout] = options
        if isinstance(options, Mapping):
            changed[layout] = apply_to_members(options, _LAYOUT_OPTIONS, collection, change)
            _follow_group_title(changed[layout], options.get("groupField"), collection, change)
    return changed


def _follow_group_title(
    options: object, group_field: object, collection: str | None, change: FieldChange
) -> None:
    """Rename the title of the groups of a board, a field of the items that they stand for."""
    if isinstance(options, dict) and "groupTitle" in options:
        target = target_of_field(str(group_field), collection, change.catalogue)
        options["groupTitle"] = apply_to_path(options["groupTitle"], target, change)


# Options of interfaces and displays

# Options of Directus's interfaces and displays. Those of a relation name fields of the collection
# that the field leads to: of a list of junctions, of the junctions.
_OF_TARGET: Mapping[str, FollowChange] = MappingProxyType(
    {
        "template": apply_to_template,
        "displayTemplate": apply_to_template,
        "fields": apply_to_terms,
        "sort": apply_to_terms,
        "sortField": apply_to_path,
    }
)
# Items to choose from, and languages: behind the junctions.
_OF_FAR_END: Mapping[str, FollowChange] = MappingProxyType(
    {
        "filter": apply_to_filter,
        "languageField": apply_to_path,
        "languageDirectionField": apply_to_path,
    }
)
_OF_LINK: Mapping[str, FollowChange] = MappingProxyType(
    {"label": apply_to_template, "url": apply_to_template}
)


def apply_to_field_options(
    options: object, collection: str | None, field: str | None, change: FieldChange
) -> object:
    """Return options of the interface or display of a field with another field's new name.

    A dropped field stays in them.
    """
    if change.after is None or not isinstance(options, Mapping) or field is None:
        return options
    target = target_of_field(field, collection, change.catalogue)
    # An interface that picks items of any collection, without a relation.
    chosen = options.get("selectedCollection")
    if isinstance(chosen, str):
        target = chosen
    changed = dict(options)
    links = options.get("links")
    if isinstance(links, list):
        changed["links"] = [_link(link, collection, change) for link in links]
    # Without a relation they name members of a JSON field.
    if target is None:
        return changed
    changed = apply_to_members(changed, _OF_TARGET, target, change)
    far_end = _far_end(collection, field, target, change)
    return apply_to_members(changed, _OF_FAR_END, far_end, change)


def _link(link: object, collection: str | None, change: FieldChange) -> object:
    if not isinstance(link, Mapping):
        return link
    return apply_to_members(link, _OF_LINK, collection, change)


def _far_end(collection: str | None, field: str, target: str, change: FieldChange) -> str | None:
    relation = change.catalogue.by_one.get((collection or "", field))
    if relation is None or relation.junction_field is None:
        return target
    return target_of_field(relation.junction_field, target, change.catalogue)


def apply_to_field_conditions(
    conditions: object, collection: str | None, field: str | None, change: FieldChange
) -> object:
    """Return the conditions of a field with the new name in their rules and options."""
    conditions = apply_to_conditions(conditions, collection, change)
    if not isinstance(conditions, list):
        return conditions
    changed: list[object] = []
    for condition in conditions:
        after = condition
        if isinstance(condition, Mapping) and "options" in condition:
            options = condition["options"]
            after = {
                **condition,
                "options": apply_to_field_options(options, collection, field, change),
            }
        changed.append(after)
    return changed
