"""Foreign keys of several columns in payloads: rules and presets know them by either name.

Such a reference is sent as its own field, or as its columns (section 18 of the decisions).
"""

from __future__ import annotations

from collections.abc import Collection as NameCollection
from collections.abc import Mapping

from cms.query.plan.links import link_of
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.payload import column_values

_UNKNOWN: Mapping[str, object] = {}
"""Stands for a key that is not known: like an object of a related item, it passes no comparison."""


def with_references(
    collection: Collection, payload: Mapping[str, object], catalogue: Catalogue, *, is_new: bool
) -> Mapping[str, object]:
    """Return a payload in which each reference that it sets has its columns, and the reverse."""
    completed = dict(payload)
    for field in collection.references:
        if field.name in payload:
            completed |= _columns(collection, field, payload[field.name], catalogue)
    # Afterwards: references may share a column.
    for field in collection.references:
        if field.name not in payload and any(part.name in completed for part in field.parts):
            completed[field.name] = _key(field, completed, is_new=is_new)
    return completed


def names_set_by(collection: Collection, names: NameCollection[str]) -> set[str]:
    """Return names with those of the columns of references among them, and the reverse."""
    all_names = set(names)
    for field in collection.references:
        columns = {part.name for part in field.parts}
        if field.name in names:
            all_names |= columns
        elif not columns.isdisjoint(names):
            all_names.add(field.name)
    return all_names


def _columns(
    collection: Collection, field: Field, value: object, catalogue: Catalogue
) -> Mapping[str, object]:
    names = [part.name for part in field.parts]
    if isinstance(value, Mapping):
        link = link_of(catalogue, collection, field.name)
        targets = link.far.key_fields if link else field.parts
        # An object may lack a part of its key, which the database gives it.
        values = [value.get(target.name, value) for target in targets]
        return dict(zip(names, values, strict=True))
    if value is None:
        return column_values(field, None)
    try:
        key = field.type.read_default(field.type.parse(value))
    except ValueError:
        return {}  # it is refused elsewhere
    assert isinstance(key, list)
    return dict(zip(names, key, strict=True))


def _key(field: Field, payload: Mapping[str, object], *, is_new: bool) -> object:
    """Return the key of the columns in a payload; that of a change may be known only in part."""
    names = [part.name for part in field.parts]
    if any(payload.get(name, _UNKNOWN) is None for name in names):
        return None
    if any(name not in payload for name in names):
        return None if is_new else _UNKNOWN
    return [payload[name] for name in names]
