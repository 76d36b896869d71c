"""Names of fields in the options of interfaces and displays, which follow a renamed field."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.schema.query_references import apply_to_members, apply_to_terms
from cms.schema.references import (
    FieldChange,
    FollowChange,
    apply_to_conditions,
    apply_to_filter,
    apply_to_path,
    apply_to_template,
    target_of_field,
)

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
