"""Names of fields in the options of panels, which follow a renamed field."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.schema.references import (
    FieldChange,
    FollowChange,
    apply_to_filter,
    apply_to_path,
    apply_to_paths,
    apply_to_template,
)

_FIELD_OPTIONS = ("field", "sortField", "dateField", "valueField", "xAxis", "yAxis", "grouping")

PANEL_OPTIONS_WITH_NAMES: Mapping[str, FollowChange] = MappingProxyType(
    {
        **dict.fromkeys(_FIELD_OPTIONS, apply_to_path),
        "fields": apply_to_paths,
        "displayTemplate": apply_to_template,
        "filter": apply_to_filter,
    }
)
"""Options of panels that name fields of their `collection`."""


def apply_to_panel(options: object, _collection: str | None, change: FieldChange) -> object:
    """Return the options of a panel with the field's new name.

    A dropped field stays in them: a panel without it would show something else.
    """
    if change.after is None or not isinstance(options, Mapping):
        return options
    collection = options.get("collection")
    changed = dict(options)
    for option, follow_change in PANEL_OPTIONS_WITH_NAMES.items():
        if option in changed:
            changed[option] = follow_change(changed[option], collection, change)
    return changed
