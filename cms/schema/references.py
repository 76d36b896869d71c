"""Names of fields inside stored values: filters, presets, templates follow its new name (decisions, section 6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cms.schema.model import Catalogue

_CALL = re.compile(r"([a-z]+)\(([^()]+)\)")
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
_LISTS = ("_and", "_or")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of `collection` that gets the name `after`, or is dropped when that is None.

    `catalogue` is the one before the change: stored values still speak its names.
    """

    catalogue: Catalogue
    collection: str
    before: str
    after: str | None

    def is_of(self, collection: str | None, field: str) -> bool:
        return (collection, field) == (self.collection, self.before)


def placeholders(template: str) -> list[str]:
    """Return the paths that a template shows, `author.name` of `{{author.name}}`."""
    return _PLACEHOLDER.findall(template)


def without_hidden(template: str, shows: Callable[[str], bool]) -> str:
    """Return a template without the placeholders whose path is not to be shown."""
    return _PLACEHOLDER.sub(
        lambda placeholder: placeholder[0] if shows(placeholder[1]) else "", template
    )


def parse_step(key: str, collection: str | None, catalogue: Catalogue) -> tuple[str, str | None]:
    """Return the field that a step of a path names, and the collection that it leads to, if any."""
    call = _CALL.fullmatch(key)
    field, _, scope = (call[2] if call else key).partition(":")
    return field, scope or _target(catalogue, collection, field)


FollowChange = Callable[[object, str | None, FieldChange], object]
"""How a stored value that speaks of a collection follows a change; returns it unchanged when it has no part in it."""


def apply_to_filter(rule: object, collection: str | None, change: FieldChange) -> object:
    """Return a filter or rule with the field's new name, at that collection only, however deep.

    A rule that names a dropped field stays as it is: without that condition it would allow more than it was
    written to allow. It names what is not there, so whoever compiles it refuses.
    """
    if change.after is None:
        return rule
    if isinstance(rule, list):
        return [apply_to_filter(item, collection, change) for item in rule]
    if not isinstance(rule, Mapping):
        return rule
    return dict(_entry(str(key), inner, collection, change) for key, inner in rule.items())


def _entry(
    key: str, inner: object, collection: str | None, change: FieldChange
) -> tuple[str, object]:
    if key in _LISTS or not _names_field(key, collection, change.catalogue):
        return key, apply_to_filter(inner, collection, change)
    renamed, beyond = _step(key, collection, change)
    return renamed or key, apply_to_filter(inner, beyond, change)


def _names_field(key: str, collection: str | None, catalogue: Catalogue) -> bool:
    """Operators start with an underscore; so may columns of tables that were made elsewhere."""
    owner = catalogue.collections.get(collection or "")
    return not key.startswith("_") or bool(owner and key in owner.fields)


def apply_to_conditions(conditions: object, collection: str | None, change: FieldChange) -> object:
    """Return a form's conditions with the new name in each `rule`."""
    if not isinstance(conditions, list):
        return conditions
    return [
        {**item, "rule": apply_to_filter(item["rule"], collection, change)}
        if isinstance(item, Mapping) and "rule" in item
        else item
        for item in conditions
    ]


def apply_to_presets(values: object, collection: str | None, change: FieldChange) -> object:
    """Return the values of an item, and of items nested in it, under the new name; a dropped field loses its own.

    A preset only adds to a payload, so that one for a field that is gone can go without allowing more.
    """
    if isinstance(values, list):
        return [apply_to_presets(item, collection, change) for item in values]
    if not isinstance(values, Mapping):
        return values
    found: dict[str, object] = {}
    for key, inner in values.items():
        renamed, beyond = _step(str(key), collection, change)
        if renamed is not None:
            found[renamed] = _nested_presets(inner, beyond, change)
    return found


def _nested_presets(inner: object, collection: str | None, change: FieldChange) -> object:
    """A to-many field takes its items in an array, or `{"create": […], "update": […]}`; other values stay."""
    if collection is None:
        return inner
    if isinstance(inner, Mapping) and inner.keys() <= {"create", "update", "delete"}:
        return {key: apply_to_presets(items, collection, change) for key, items in inner.items()}
    return apply_to_presets(inner, collection, change)


def apply_to_paths(paths: object, collection: str | None, change: FieldChange) -> object:
    """Return a list of dotted paths under the new name; those through a dropped field leave it."""
    if not isinstance(paths, list):
        return paths
    found = [_path(path, collection, change) if isinstance(path, str) else path for path in paths]
    return [path for path in found if path is not None]


def apply_to_template(template: object, collection: str | None, change: FieldChange) -> object:
    """Return a display template (`{{author.name}}`) under the new name; a dropped field stays and shows nothing."""
    if not isinstance(template, str):
        return template

    def placeholder(found: re.Match[str]) -> str:
        renamed = _path(found[1], collection, change)
        return found[0] if renamed in (None, found[1]) else f"{{{{{renamed}}}}}"

    return _PLACEHOLDER.sub(placeholder, template)


def _path(path: str, collection: str | None, change: FieldChange) -> str | None:
    steps: list[str] = []
    for step in path.split("."):
        renamed, collection = _step(step, collection, change)
        if renamed is None:
            return None
        steps.append(renamed)
    return ".".join(steps)


def _step(key: str, collection: str | None, change: FieldChange) -> tuple[str | None, str | None]:
    """Return a step under its new name, None when it is dropped, and the collection that it leads to.

    A step may stand in a function, `year(published)`, or name the collection of a many-to-any, `item:headings`.
    """
    call = _CALL.fullmatch(key)
    field, _, scope = (call[2] if call else key).partition(":")
    beyond = scope or _target(change.catalogue, collection, field)
    if not change.is_of(collection, field):
        return key, beyond
    if change.after is None:
        return None, beyond
    named = change.after + (f":{scope}" if scope else "")
    return (f"{call[1]}({named})" if call else named), beyond


def _target(catalogue: Catalogue, collection: str | None, field: str) -> str | None:
    if collection is None:
        return None
    if many := catalogue.by_many.get((collection, field)):
        return many.one_collection
    one = catalogue.by_one.get((collection, field))
    return one.many_collection if one else None
