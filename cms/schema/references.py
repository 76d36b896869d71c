"""Names of fields inside stored values: filters, presets and templates follow a renamed field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from cms.schema.model import Catalogue
from cms.schema.names import FieldName, FollowName, follow_name, parse_name, parse_value_path

# `{{ author.name }}`, with or without spaces. A path begins and ends with something else: so a long
# run of spaces is read once, and not in every way in which it could be taken apart.
_PLACEHOLDER = re.compile(r"\{\{\s*+([^{}\s](?:[^{}]*[^{}\s])?)\s*+\}\}")
_LISTS = ("_and", "_or")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of `collection` that is renamed to `after`, or dropped where that is None.

    `catalogue` is the one before the change: stored values still have its names.
    """

    catalogue: Catalogue
    collection: str
    before: str
    after: str | None

    def concerns(self, collection: str | None, field: str) -> bool:
        return (collection, field) == (self.collection, self.before)


def placeholders(template: str) -> list[str]:
    """Return the paths that a template shows, `author.name` of `{{author.name}}`."""
    return _PLACEHOLDER.findall(template)


def without_hidden(template: str, shows: Callable[[str], bool]) -> str:
    """Return a template without the placeholders whose paths the caller must not see."""

    def visible_placeholder(match: re.Match[str]) -> str:
        if not shows(match[1]):
            return ""
        return match[0]

    return _PLACEHOLDER.sub(visible_placeholder, template)


def target_of(name: FieldName, collection: str | None, catalogue: Catalogue) -> str | None:
    """Return the collection that a step of a path leads to, if any."""
    return name.target or _target(catalogue, collection, name.field)


def target_of_field(field: str, collection: str | None, catalogue: Catalogue) -> str | None:
    """Return the collection that a field leads to, as its name is written, if any."""
    return target_of(parse_name(field), collection, catalogue)


FollowChange = Callable[[object, str | None, FieldChange], object]
"""Returns a stored value about a collection as it is after a change."""


def apply_to_filter(rule: object, collection: str | None, change: FieldChange) -> object:
    """Return a filter or rule with the field's new name, at whatever depth it names the field.

    A rule that names a dropped field stays as it is: without that condition it would allow more
    than it was written to allow. With a name that does not exist it is refused when it is compiled.
    """
    if change.after is None:
        return rule
    if isinstance(rule, list):
        return [apply_to_filter(item, collection, change) for item in rule]
    if not isinstance(rule, Mapping):
        return rule
    changed: dict[str, object] = {}
    for key, inner in rule.items():
        name = str(key)
        target = collection
        # `_and` and `_or` stay at the collection; a field leads on to its target, if it has one.
        if name not in _LISTS and _names_field(name, collection, change.catalogue):
            step = _filter_step(name, collection, change)
            name = step.written or name
            target = step.target
        changed[name] = apply_to_filter(inner, target, change)
    return changed


def _filter_step(name: str, collection: str | None, change: FieldChange) -> _PathStep:
    if follow := follow_name(name):
        renamed = [_renamed(field, follow.collection, change) for field in follow[1:] if field]
        return _PathStep(str(FollowName(follow.collection, *renamed)), follow.collection)
    owner = change.catalogue.collections.get(collection or "")
    # A path into a JSON field, `meta.price`, maybe behind relations; nothing but operators follows.
    if "." in name and owner is not None and name not in owner.fields:
        return _PathStep(_path(name, collection, change), None)
    return _step(parse_name(name), collection, change)


def _renamed(field: str, collection: str, change: FieldChange) -> str:
    if change.after is not None and change.concerns(collection, field):
        return change.after
    return field


def _names_field(key: str, collection: str | None, catalogue: Catalogue) -> bool:
    """Tell whether a key of a filter names a field and no operator."""
    if not key.startswith("_"):
        return True
    # Operators begin with an underscore, and so may columns of tables that others have made.
    owner = catalogue.collections.get(collection or "")
    return owner is not None and key in owner.fields


def apply_to_conditions(conditions: object, collection: str | None, change: FieldChange) -> object:
    """Return the conditions of a field with the new name in each `rule`."""
    if not isinstance(conditions, list):
        return conditions
    changed: list[object] = []
    for condition in conditions:
        if isinstance(condition, Mapping) and "rule" in condition:
            rule = apply_to_filter(condition["rule"], collection, change)
            changed.append({**condition, "rule": rule})
        else:
            changed.append(condition)
    return changed


def apply_to_presets(values: object, collection: str | None, change: FieldChange) -> object:
    """Return the values of an item, and of items nested in it, under the new name.

    The value of a dropped field goes. Unlike a rule, a preset only adds to a payload, so that
    nothing more is allowed without it.
    """
    if isinstance(values, list):
        return [apply_to_presets(item, collection, change) for item in values]
    if not isinstance(values, Mapping):
        return values
    changed: dict[str, object] = {}
    for key, inner in values.items():
        step = _step(parse_name(str(key)), collection, change)
        if step.written is not None:
            changed[step.written] = _nested_presets(inner, step.target, change)
    return changed


def _nested_presets(inner: object, collection: str | None, change: FieldChange) -> object:
    """Return the presets of related items; other values stay as they are."""
    if collection is None:
        return inner
    # A to-many field takes its items in an array, or as {"create": […], "update": […]}.
    if isinstance(inner, Mapping) and inner.keys() <= {"create", "update", "delete"}:
        return {key: apply_to_presets(items, collection, change) for key, items in inner.items()}
    return apply_to_presets(inner, collection, change)


def apply_to_paths(paths: object, collection: str | None, change: FieldChange) -> object:
    """Return a list of dotted paths under the new name, without those through a dropped field."""
    if not isinstance(paths, list):
        return paths
    changed: list[object] = []
    for path in paths:
        renamed: object = path
        if isinstance(path, str):
            renamed = _path(path, collection, change)
        if renamed is not None:
            changed.append(renamed)
    return changed


def apply_to_path(path: object, collection: str | None, change: FieldChange) -> object:
    """Return a dotted path under the new name; a path through a dropped field stays as it is."""
    if not isinstance(path, str):
        return path
    return _path(path, collection, change) or path


def apply_to_template(template: object, collection: str | None, change: FieldChange) -> object:
    """Return a display template (`{{author.name}}`) under the new name.

    The placeholder of a dropped field stays, and shows nothing.
    """
    if not isinstance(template, str):
        return template

    def renamed_placeholder(match: re.Match[str]) -> str:
        path = match[1]
        renamed = _path(path, collection, change)
        # Unchanged placeholders keep their spaces.
        if renamed is None or renamed == path:
            return match[0]
        return "{{" + renamed + "}}"

    return _PLACEHOLDER.sub(renamed_placeholder, template)


def _path(path: str, collection: str | None, change: FieldChange) -> str | None:
    steps: list[str] = []
    for name in parse_value_path(path):
        step = _step(name, collection, change)
        if step.written is None:
            return None
        steps.append(step.written)
        # The next name belongs to the collection that this one leads to; behind a field that leads
        # nowhere it belongs to none.
        collection = step.target
    return ".".join(steps)


class _PathStep(NamedTuple):
    """A step of a path after a change: None in place of a dropped field.

    `target` is the collection that the step leads to, if any.
    """

    written: str | None
    target: str | None


def _step(name: FieldName, collection: str | None, change: FieldChange) -> _PathStep:
    # The target is looked up under the old name, as the catalogue is that of before the change.
    target = target_of(name, collection, change.catalogue)
    if not change.concerns(collection, name.field):
        return _PathStep(str(name), target)
    if change.after is None:
        return _PathStep(None, target)
    return _PathStep(str(replace(name, field=change.after)), target)


def _target(catalogue: Catalogue, collection: str | None, field: str) -> str | None:
    if collection is None:
        return None
    if relation := catalogue.by_many.get((collection, field)):
        # None of a many-to-any field, whose names of targets stand in the path (`item:headings`).
        return relation.one_collection
    if relation := catalogue.by_one.get((collection, field)):
        return relation.many_collection
    return None
