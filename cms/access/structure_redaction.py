"""Settings of the structure without names that are hidden from their reader.

A collection's settings name its fields, and a field's settings may name others: in templates, in
rules, and in options that only an app understands. Hidden and missing names are left out alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cms.query.language.ast import Caller
from cms.schema.model import Catalogue, Collection, Column, Field, Json, Relation
from cms.schema.names import parse_value_path
from cms.schema.references import placeholders, target_of, without_hidden
from cms.schema.types.field_type import Trait

# A dotted path of names, with functions and targets: `author.year(born)`, `item:headings.title`.
# Anything else in an option is free text.
_PATH = re.compile(r"[\w$():]+(\.[\w$():]+)*")
_FILTER_MEMBERS = frozenset({"filter", "rule", "validation", "permissions"})
"""Members of options that hold a filter."""
_VALUE_MEMBERS = frozenset({"choices"})
"""Members of options that hold values of the field and no names."""

_CALLER_COLLECTIONS = {f"${caller}": caller.collection for caller in Caller}


@dataclass(frozen=True, slots=True)
class Redaction:
    """Redacts settings: `visible` are the collections and fields that may be named.

    `catalogue` has all that exist, and so tells which words in options are names at all.
    """

    catalogue: Catalogue
    visible: Mapping[str, Collection]

    # Collections

    def collection(self, collection: Collection) -> Collection:
        """Return a known collection with redacted settings of its own and of its fields."""
        fields = {name: self.field(field) for name, field in collection.fields.items()}
        meta = collection.meta
        if meta is not None:
            meta = self._collection_meta(collection.name, meta)
        return replace(collection, fields=fields, meta=meta)

    def _collection_meta(self, name: str, meta: Json) -> Json:
        redacted = dict(meta)
        if not self._is_known_path(name, meta.get("archive_field")):
            # The values go with their field: they are values of it.
            redacted |= {"archive_field": None, "archive_value": None, "unarchive_value": None}
        if not self._is_known_path(name, meta.get("sort_field")):
            redacted["sort_field"] = None
        if meta.get("group") not in self.visible:
            redacted["group"] = None
        paths = meta.get("item_duplication_fields")
        if isinstance(paths, list):
            redacted["item_duplication_fields"] = self._known_paths(name, paths)
        template = meta.get("display_template")
        if isinstance(template, str):
            redacted["display_template"] = without_hidden(
                template, lambda path: self._is_known_path(name, path)
            )
        url = meta.get("preview_url")
        if isinstance(url, str) and not self._has_known_placeholders(name, url):
            redacted["preview_url"] = None
        return redacted

    def _known_paths(self, collection: str, paths: list[object]) -> list[object]:
        return [path for path in paths if self._is_known_path(collection, path)]

    def _has_known_placeholders(self, collection: str, url: str) -> bool:
        return all(self._is_known_path(collection, path) for path in placeholders(url))

    # Fields

    def field(self, field: Field) -> Field:
        """Return a known field with redacted settings."""
        meta = None if field.meta is None else self._field_meta(field, field.meta)
        return replace(field, meta=meta, column=field.column and self._column(field.column))

    def _column(self, column: Column) -> Column:
        target = self.visible.get(column.foreign_table or "")
        if target is None:
            return replace(column, foreign_table=None, foreign_column=None)
        if column.foreign_column not in target.fields:
            return replace(column, foreign_column=None)
        return column

    def _field_meta(self, field: Field, meta: Json) -> Json:
        owner = field.collection
        redacted = dict(meta)
        if not self._is_known_path(owner, meta.get("group")):
            redacted["group"] = None
        if not self._may_show_rule(owner, meta.get("validation")):
            redacted |= {"validation": None, "validation_message": None}
        collections = self._option_collections(field)
        for name in ("options", "display_options"):
            redacted[name] = self._options(meta.get(name), collections)
        conditions = meta.get("conditions")
        if isinstance(conditions, list):
            redacted["conditions"] = self._conditions(owner, conditions, collections)
        return redacted

    def _conditions(
        self, owner: str, conditions: list[object], collections: frozenset[str]
    ) -> list[object]:
        """Return the conditions of a field whose rules may be shown, with redacted options."""
        redacted: list[object] = []
        for condition in conditions:
            if self._has_known_rule(owner, condition):
                redacted.append(self._options(condition, collections))
        return redacted

    def _has_known_rule(self, owner: str, condition: object) -> bool:
        return isinstance(condition, Mapping) and self._may_show_rule(owner, condition.get("rule"))

    # Relations

    def relation(self, relation: Relation) -> Relation:
        """Return a known relation without the fields and collections that may not be named."""
        many = self.visible[relation.many_collection]
        one = self.visible.get(relation.one_collection or "")
        allowed = relation.one_allowed_collections
        if allowed is not None:
            allowed = tuple(name for name in allowed if name in self.visible)
        constraint = relation.constraint
        if constraint and (one is None or not {*constraint.foreign_columns} <= one.fields.keys()):
            # Its name often holds the names of table and column.
            constraint = None
        return replace(
            relation,
            one_field=_if_known(relation.one_field, one),
            one_collection_field=_if_known(relation.one_collection_field, many),
            one_allowed_collections=allowed,
            junction_field=_if_known(relation.junction_field, many),
            sort_field=_if_known(relation.sort_field, many),
            constraint=constraint,
        )

    # Paths and rules

    def _is_known_path(self, collection: str | None, path: object) -> bool:
        """Tell whether every step of a path is a known field."""
        return isinstance(path, str) and self._resolves(self.visible, collection, path)

    def _is_known_in_any(self, collections: Iterable[str], path: str) -> bool:
        return any(self._is_known_path(name, path) for name in collections)

    def _resolves(
        self, collections: Mapping[str, Collection], collection: str | None, path: str
    ) -> bool:
        """Tell whether a path leads through fields of these collections."""
        for name in parse_value_path(path):
            # `$thumbnail` and the like are no fields.
            if str(name).startswith("$"):
                continue
            owner = collections.get(collection or "")
            field = owner.fields.get(name.field) if owner else None
            if field is None:
                return False
            if name.target and name.target not in collections:
                return False
            # The rest of a path behind a JSON field lies in its value.
            if Trait.JSON in field.type.traits:
                return True
            collection = target_of(name, collection, self.catalogue)
        return True

    def _may_show_rule(self, collection: str | None, rule: object) -> bool:
        """Tell whether a rule holds known names only.

        It is shown as a whole or not at all: a part of a rule would be another rule.
        """
        if isinstance(rule, list):
            return all(self._may_show_rule(collection, item) for item in rule)
        if not isinstance(rule, Mapping):
            return self._may_show_operand(rule)
        return all(self._may_show_entry(collection, str(key), inner) for key, inner in rule.items())

    def _may_show_entry(self, collection: str | None, key: str, inner: object) -> bool:
        owner = self.catalogue.collections.get(collection or "")
        # An operator or a group such as `_and`, unless a field has that name.
        if key.startswith("_") and not (owner and key in owner.fields):
            return self._may_show_rule(collection, inner)
        last = parse_value_path(key)[-1]
        target = target_of(last, collection, self.catalogue)
        return self._is_known_path(collection, key) and self._may_show_rule(target, inner)

    def _may_show_operand(self, operand: object) -> bool:
        """Tell whether an operand may be shown: a path from the caller names fields."""
        if not isinstance(operand, str):
            return True
        start, _, path = operand.partition(".")
        collection = _CALLER_COLLECTIONS.get(start)
        if collection is None or "." not in operand:
            return True
        return self._is_known_path(collection, path)

    # Options, whose form an app decides

    def _option_collections(self, field: Field) -> frozenset[str]:
        """Return the collections whose fields the options of a field may name.

        These are its own collection and those that the field leads to, through a junction as well.
        """
        many = self.catalogue.by_many.get((field.collection, field.name))
        one = self.catalogue.by_one.get((field.collection, field.name))
        collections = [field.collection, *_targets_of(many)]
        if one:
            collections.append(one.many_collection)
            junction = self.catalogue.by_many.get((one.many_collection, one.junction_field or ""))
            collections += _targets_of(junction)
        return frozenset(collections)

    def _options(self, value: object, collections: frozenset[str]) -> object:
        # An option may name another collection, and in the same option fields of that.
        collections |= self.catalogue.collections.keys() & set(_texts_in(value))
        return self._redacted(value, collections) if self._may_show(value, collections) else None

    def _may_show(self, value: object, collections: frozenset[str]) -> bool:
        """Tell whether an option may be shown; of a template only its hidden paths are left out."""
        if not isinstance(value, str) or "{{" in value:
            return True
        return not self._is_hidden(value, collections)

    def _redacted(self, value: object, collections: frozenset[str]) -> object:
        """Return an option that may be shown, without the parts of it that may not."""
        match value:
            case Mapping():
                return self._members(value, collections)
            case list():
                return self._entries(value, collections)
            case str() if "{{" in value:
                return without_hidden(value, lambda path: self._is_known_in_any(collections, path))
            case _:
                return value

    def _entries(self, values: list[object], collections: frozenset[str]) -> list[object]:
        redacted: list[object] = []
        for value in values:
            if self._may_show(value, collections):
                redacted.append(self._redacted(value, collections))
        return redacted

    def _members(
        self, options: Mapping[object, object], collections: frozenset[str]
    ) -> dict[str, object]:
        redacted: dict[str, object] = {}
        for name, value in options.items():
            key = str(name)
            if key in _VALUE_MEMBERS:
                redacted[key] = value
            elif key in _FILTER_MEMBERS and isinstance(value, Mapping | list):
                if self._may_show_filter(value, collections):
                    redacted[key] = value
            elif isinstance(value, Mapping) and self._is_hidden(key, collections):
                continue
            elif self._may_show(value, collections):
                redacted[key] = self._redacted(value, collections)
        return redacted

    def _may_show_filter(self, filter: object, collections: frozenset[str]) -> bool:
        # Options do not say which collection a filter in them is for.
        return any(self._may_show_rule(collection, filter) for collection in collections)

    def _is_hidden(self, text: str, collections: Iterable[str]) -> bool:
        """Tell whether a text names a collection or field that exists and may not be known."""
        # First as a collection with or without a path in it, `articles` or `articles.title`; then
        # as a path from one of the collections that the option is about.
        collection, _, path = text.replace(":", ".").partition(".")
        if self._exists(collection, path):
            return not self._is_known(collection, path)
        if not _PATH.fullmatch(text):
            return False
        if self._is_known_in_any(collections, text):
            return False
        return any(self._resolves(self.catalogue.collections, name, text) for name in collections)

    def _exists(self, collection: str, path: str) -> bool:
        """Tell whether a collection exists, and the path in it, unless that is empty."""
        if collection not in self.catalogue.collections:
            return False
        return not path or self._resolves(self.catalogue.collections, collection, path)

    def _is_known(self, collection: str, path: str) -> bool:
        """Tell whether a collection may be named, and the path in it, unless that is empty."""
        if collection not in self.visible:
            return False
        return not path or self._is_known_path(collection, path)


def _targets_of(relation: Relation | None) -> tuple[str, ...]:
    """Return the collections that a to-one or many-to-any field leads to."""
    if relation is None:
        return ()
    if relation.one_collection:
        return (relation.one_collection,)
    return relation.one_allowed_collections or ()


def _if_known(field: str | None, owner: Collection | None) -> str | None:
    return field if owner and field in owner.fields else None


def _texts_in(value: object) -> Iterable[str]:
    """Yield every text in options."""
    match value:
        case Mapping():
            for inner in value.values():
                yield from _texts_in(inner)
        case list():
            for entry in value:
                yield from _texts_in(entry)
        case str():
            yield value
