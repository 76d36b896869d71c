"""Keys of items: their parsers, and the fields of keys of several columns.

In JSON such a key is an array of its values, in the order of the constraint; as a text it is that
of `key_texts.py` (section 18 of the decisions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cms.schema.key_texts import key_text, key_values
from cms.schema.model import Collection, Field
from cms.schema.payload import converter
from cms.schema.types import ALIAS
from cms.schema.types.field_type import Cell, FieldType, Parse, Trait, ValueSize

TO_ONE = "m2o"
"""The special marker of a field that leads to one item."""


def key_parser(field: Field) -> Parse:
    """Return the function that turns a key of a client into its text as the type writes it.

    The function raises ValueError for a value that is none.
    """
    # Only the column knows which values such a type takes, such as the choices of an enum.
    if field.type.is_text_form and not field.parts:
        return converter(field)
    return field.type.parse_rounded or field.type.parse


def can_be_key(field: Field) -> bool:
    """Tell whether a column's values can stand in a path and in a list of keys, and be sorted."""
    column = field.column
    # PostgreSQL's names of array types begin with an underscore.
    return (
        column is not None
        and Trait.SORTING in field.type.traits
        and not column.base_type.startswith("_")
    )


def sent_key(collection: Collection, item: Mapping[str, object]) -> object:
    """Return the key that an item of a client holds, None where it or a part of it is missing."""
    if collection.key_name:
        return item.get(collection.key_name)
    values = [item.get(name) for name in collection.key_names]
    return None if None in values else values


def text_of_key(key: object) -> str:
    """Return the text of a key of JSON, as far as that is possible without its types."""
    if isinstance(key, list):
        return str(key_text(map(str, key)))
    return str(key)


def item_of_key(collection: Collection, key: object) -> dict[str, object]:
    """Return the item that holds nothing but a key of a client.

    Raises ValueError for a value that is no key of several columns.
    """
    if collection.key_name:
        return {collection.key_name: key}
    values = collection.key.type.read_default(collection.key.type.parse(key))
    assert isinstance(values, list)
    return dict(zip(collection.key_names, values, strict=True))


def may_be_key(collection: Collection, value: object) -> bool:
    """Tell whether a value of JSON has the shape of a key: arrays are keys of several columns."""
    if isinstance(value, list):
        return len(collection.key_names) > 1
    return value is not None and not isinstance(value, Mapping)


def are_keys(collection: Collection, value: object) -> bool:
    """Tell whether a value is an array of keys, and not one key that is an array."""
    if not isinstance(value, list) or len(collection.key_names) < 2:
        return isinstance(value, list)
    return all(isinstance(key, list) for key in value)


def filter_of_keys(collection: Collection, keys: Iterable[object]) -> dict[str, object]:
    """Return the filter of the items of keys, as a client writes it.

    Raises ValueError for a value that is no key of several columns.
    """
    if collection.key_name:
        return {collection.key_name: {"_in": list(keys)}}
    items: list[object] = []
    for key in keys:
        pairs = item_of_key(collection, key).items()
        items.append({"_and": [{name: {"_eq": value}} for name, value in pairs]})
    return {"_or": items}


def compound_key(collection: str, parts: tuple[Field, ...], *, name: str = "") -> Field:
    """Return the field of a key of several columns; that of a primary key has no name."""
    return Field(collection, name, _key_type(parts), parts=parts)


def reference_field(
    collection: str, name: str, parts: tuple[Field, ...], former: Field | None
) -> Field:
    """Return the field of a foreign key of several columns; `former` has its settings, if any."""
    if former and former.parts == parts:
        return former
    reference = compound_key(collection, parts, name=name)
    return replace(reference, special=(TO_ONE,), meta=former.meta if former else None)


def is_reference(field: Field) -> bool:
    """Tell whether a field is that of a foreign key of several columns."""
    return field.column is None and TO_ONE in field.special


def _key_type(parts: tuple[Field, ...]) -> FieldType:
    parsers = [key_parser(part) for part in parts]
    readers = [part.type.comparable or key_parser(part) for part in parts]

    def split(value: object) -> Sequence[object]:
        values = key_values(value) if isinstance(value, str) else value
        if not isinstance(values, list | tuple) or len(values) != len(parts):
            raise ValueError(f"it must be an array of {len(parts)} values")
        if None in values:
            raise ValueError("no value of a key may be null")
        return values

    def parse(value: object) -> str:
        pairs = zip(parsers, split(value), strict=True)
        return str(key_text(parse_part(part) for parse_part, part in pairs))

    def comparable(value: object) -> tuple[object, ...]:
        pairs = zip(readers, split(value), strict=True)
        return tuple(read_part(part) for read_part, part in pairs)

    def read(text: str) -> list[object]:
        pairs = zip(parts, key_values(text), strict=True)
        return [part.type.read_default(value) for part, value in pairs]

    # Keys of a range, for instance, are compared by the database alone.
    are_comparable = all(
        part.type.comparable or Trait.EQUALITY not in part.type.own_comparisons for part in parts
    )
    return FieldType(
        name=ALIAS.name,
        traits=frozenset({Trait.NULL, Trait.EQUALITY, Trait.SORTING}),
        parse=parse,
        comparable=comparable if are_comparable else None,
        own_comparisons=frozenset() if are_comparable else frozenset({Trait.EQUALITY}),
        read_default=read,
        cast="text",
        cell=Cell.JSON_OR_TEXT,
        size=ValueSize.LONG if any(map(_is_long, parts)) else ValueSize.SHORT,
        can_change=False,
        is_known=False,
        json_schema={
            "type": "array",
            "minItems": len(parts),
            "maxItems": len(parts),
            "items": {},
            "prefixItems": [part.type.json_schema for part in parts],
        },
    )


def _is_long(part: Field) -> bool:
    return part.type.size is not ValueSize.SHORT
