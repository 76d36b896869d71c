"""Settings of the structure without the names that their reader may not know (decisions, section 11).

A collection's settings name its fields, and a field's settings may name others: in templates, rules, and options that
only an app understands. A name that is hidden and one that does not exist are left out alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cms.schema.model import Catalogue, Collection, Column, Field, Json, Relation
from cms.schema.references import parse_step, placeholders, without_hidden
from cms.schema.types import Family

_PATH = re.compile(r"[\w$():]+(\.[\w$():]+)*")
_FILTER_MEMBERS = frozenset({"filter", "rule", "validation", "permissions"})
"""Members of options that hold a filter."""
_VALUE_MEMBERS = frozenset({"choices"})
"""Members of options that hold values of the field and no names."""

_LEFT_OUT = object()


@dataclass(frozen=True, slots=True)
class Redaction:
    """What may be named: the collections and fields of `known`, of all that there are in `catalogue`."""

    catalogue: Catalogue
    known: Mapping[str, Collection]

    # Collections

    def collection(self, collection: Collection) -> Collection:
        """Return a known collection with what may be told of it and its fields."""
        fields = {name: self.field(found) for name, found in collection.fields.items()}
        meta = (
            None
            if collection.meta is None
            else self._collection_meta(collection.name, collection.meta)
        )
        return replace(collection, fields=fields, meta=meta)

    def _collection_meta(self, name: str, meta: Json) -> Json:
        told = dict(meta)
        if not self._is_known_path(name, meta.get("archive_field")):
            told |= {"archive_field": None, "archive_value": None, "unarchive_value": None}
        if not self._is_known_path(name, meta.get("sort_field")):
            told["sort_field"] = None
        if meta.get("group") not in self.known:
            told["group"] = None
        paths = meta.get("item_duplication_fields")
        if isinstance(paths, list):
            told["item_duplication_fields"] = [
                path for path in paths if self._is_known_path(name, path)
            ]
        template, url = meta.get("display_template"), meta.get("preview_url")
        if isinstance(template, str):
            told["display_template"] = without_hidden(
                template, lambda path: self._is_known_path(name, path)
            )
        if isinstance(url, str) and not all(
            self._is_known_path(name, path) for path in placeholders(url)
        ):
            told["preview_url"] = None
        return told

    # Fields

    def field(self, field: Field) -> Field:
        """Return a known field with what may be told of it."""
        meta = None if field.meta is None else self._field_meta(field, field.meta)
        return replace(field, meta=meta, column=field.column and self._column(field.column))

    def _column(self, column: Column) -> Column:
        target = self.known.get(column.foreign_table or "")
        if target is None:
            return replace(column, foreign_table=None, foreign_column=None)
        return (
            column
            if column.foreign_column in target.fields
            else replace(column, foreign_column=None)
        )

    def _field_meta(self, field: Field, meta: Json) -> Json:
        owner, told = field.collection, dict(meta)
        if not self._is_known_path(owner, meta.get("group")):
            told["group"] = None
        if not self._may_show_rule(owner, meta.get("validation")):
            told |= {"validation": None, "validation_message": None}
        around = self._option_collections(field)
        for name in ("options", "display_options"):
            told[name] = self._options(meta.get(name), around)
        conditions = meta.get("conditions")
        if isinstance(conditions, list):
            told["conditions"] = [
                self._options(entry, around)
                for entry in conditions
                if self._has_known_rule(owner, entry)
            ]
        return told

    def _has_known_rule(self, owner: str, condition: object) -> bool:
        return isinstance(condition, Mapping) and self._may_show_rule(owner, condition.get("rule"))

    # Relations

    def relation(self, relation: Relation) -> Relation:
        """Return a known relation without the fields and collections that may not be named."""
        many, one = (
            self.known[relation.many_collection],
            self.known.get(relation.one_collection or ""),
        )
        allowed, constraint = relation.one_allowed_collections, relation.constraint
        if constraint and (one is None or constraint.foreign_column not in one.fields):
            constraint = None
        return replace(
            relation,
            one_field=_if_known(relation.one_field, one),
            one_collection_field=_if_known(relation.one_collection_field, many),
            one_allowed_collections=None
            if allowed is None
            else tuple(name for name in allowed if name in self.known),
            junction_field=_if_known(relation.junction_field, many),
            sort_field=_if_known(relation.sort_field, many),
            constraint=constraint,
        )

    # Paths and rules

    def _is_known_path(self, collection: str | None, path: object) -> bool:
        """Tell whether every step of a path leads through what is known."""
        return isinstance(path, str) and self._resolves(self.known, collection, path)

    def _resolves(
        self, collections: Mapping[str, Collection], collection: str | None, path: str
    ) -> bool:
        """Tell whether a path leads through fields of these collections; `$thumbnail` and the like are no fields."""
        for step in path.split("."):
            if step.startswith("$"):
                continue
            name, beyond = parse_step(step, collection, self.catalogue)
            owner = collections.get(collection or "")
            field = owner.fields.get(name) if owner else None
            if field is None or (beyond is not None and ":" in step and beyond not in collections):
                return False
            if field.type.family is Family.JSON:  # the rest of the path lies in its value
                return True
            collection = beyond
        return True

    def _may_show_rule(self, collection: str | None, rule: object) -> bool:
        """Tell whether a rule names nothing but what is known; a part of it would be another rule."""
        if isinstance(rule, list):
            return all(self._may_show_rule(collection, item) for item in rule)
        if not isinstance(rule, Mapping):
            return self._may_show_operand(rule)
        return all(self._may_show_entry(collection, str(key), inner) for key, inner in rule.items())

    def _may_show_entry(self, collection: str | None, key: str, inner: object) -> bool:
        owner = self.catalogue.collections.get(collection or "")
        if key.startswith("_") and not (owner and key in owner.fields):  # an operator, or a group
            return self._may_show_rule(collection, inner)
        *_, last = key.split(".")
        _, beyond = parse_step(last, collection, self.catalogue)
        return self._is_known_path(collection, key) and self._may_show_rule(beyond, inner)

    def _may_show_operand(self, operand: object) -> bool:
        """Tell whether a value may be told: a path from the caller names fields of users or roles."""
        if not isinstance(operand, str) or not operand.startswith(
            ("$CURRENT_USER.", "$CURRENT_ROLE.")
        ):
            return True
        start, _, path = operand.partition(".")
        return self._is_known_path(
            "system_users" if start == "$CURRENT_USER" else "system_roles", path
        )

    # Options, whose form an app decides

    def _option_collections(self, field: Field) -> frozenset[str]:
        """Return the collections whose fields the options of a field may name: its own, and those it leads to."""
        many = self.catalogue.by_many.get((field.collection, field.name))
        one = self.catalogue.by_one.get((field.collection, field.name))
        found = [field.collection, *_targets_of(many)]
        if one:
            found.append(one.many_collection)
            found += _targets_of(
                self.catalogue.by_many.get((one.many_collection, one.junction_field or ""))
            )
        return frozenset(found)

    def _options(self, value: object, around: frozenset[str]) -> object:
        named = frozenset(word for word in _texts_in(value) if word in self.catalogue.collections)
        shown = self._shown(value, around | named)
        return None if shown is _LEFT_OUT else shown

    def _shown(self, value: object, around: frozenset[str]) -> object:
        match value:
            case Mapping():
                members = {
                    str(key): self._member(str(key), inner, around) for key, inner in value.items()
                }
                return {key: inner for key, inner in members.items() if inner is not _LEFT_OUT}
            case list():
                entries = [self._shown(entry, around) for entry in value]
                return [entry for entry in entries if entry is not _LEFT_OUT]
            case str() if "{{" in value:
                return without_hidden(
                    value, lambda path: any(self._is_known_path(name, path) for name in around)
                )
            case str() if self._is_hidden(value, around):
                return _LEFT_OUT
            case _:
                return value

    def _member(self, key: str, value: object, around: frozenset[str]) -> object:
        if key in _VALUE_MEMBERS:
            return value
        if key in _FILTER_MEMBERS and isinstance(value, Mapping | list):
            return value if any(self._may_show_rule(name, value) for name in around) else _LEFT_OUT
        if isinstance(value, Mapping) and self._is_hidden(key, around):
            return _LEFT_OUT
        return self._shown(value, around)

    def _is_hidden(self, word: str, around: Iterable[str]) -> bool:
        """Tell whether a word names what is there and may not be known: a collection, or a path to a field."""
        head, _, rest = word.replace(":", ".").partition(".")
        if head in self.catalogue.collections and (
            not rest or self._resolves(self.catalogue.collections, head, rest)
        ):
            return head not in self.known or bool(rest and not self._is_known_path(head, rest))
        if not _PATH.fullmatch(word) or any(self._is_known_path(name, word) for name in around):
            return False
        return any(self._resolves(self.catalogue.collections, name, word) for name in around)


def _targets_of(relation: Relation | None) -> tuple[str, ...]:
    """Return the collections that a to-one or many-to-any field leads to."""
    if relation is None:
        return ()
    return (
        (relation.one_collection,)
        if relation.one_collection
        else relation.one_allowed_collections or ()
    )


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
