"""Types in Python: a TypedDict for each collection."""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from cms.client_types.client_model import ClientCollection, ClientField, type_names
from cms.openapi.json_schemas import JsonSchema

_HEAD = '''"""The collections of the service, as `cms types --language python` prints them.

A row has the fields that a request asks for; none of them has to be there.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict
'''
_RESERVED = frozenset({*keyword.kwlist, "Any", "Literal", "TypedDict"})
"""Names that a module cannot give to a class, or that the printed text itself uses."""

_TYPES: Mapping[object, str] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list[Any]",
    "object": "dict[str, Any]",
}
_BUILTIN_TYPES = {name.partition("[")[0] for name in _TYPES.values()}


def print_python(collections: list[ClientCollection]) -> str:
    """Return a module with a TypedDict for each collection."""
    names = type_names(collections, _RESERVED)
    parts = [_HEAD]
    for collection in collections:
        parts.append(_typed_dict(collection, names))
    return "\n\n".join(parts)


def _typed_dict(collection: ClientCollection, names: Mapping[str, str]) -> str:
    if all(_can_be_attribute(field.name, names) for field in collection.fields):
        return _class(collection, names)
    return _call(collection, names)


def _can_be_attribute(name: str, names: Mapping[str, str]) -> bool:
    """Tell whether a class can have an annotation of a name.

    Python changes names that begin with two underscores. A field with the name of a type would hide
    that type from the annotations behind it.
    """
    hides_type = name in names.values() or name in ("Any", "Literal", *_BUILTIN_TYPES)
    is_usable = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return is_usable and not name.startswith("__") and not hides_type


def _class(collection: ClientCollection, names: Mapping[str, str]) -> str:
    lines = [f"class {names[collection.name]}(TypedDict, total=False):"]
    for field in collection.fields:
        lines.append(f"    {field.name}: {_field_type(field, names)}")
    if not collection.fields:
        lines.append("    pass")
    return "\n".join([*lines, ""])


def _call(collection: ClientCollection, names: Mapping[str, str]) -> str:
    """Return the form that takes names of any kind.

    Its types are texts, because the classes that they name may be defined further down.
    """
    name = names[collection.name]
    lines = [f"{name} = TypedDict(", f"    {name!r},", "    {"]
    for field in collection.fields:
        lines.append(f"        {field.name!r}: {_field_type(field, names)!r},")
    return "\n".join([*lines, "    },", "    total=False,", ")", ""])


def _field_type(field: ClientField, names: Mapping[str, str]) -> str:
    own = _value_type(field.schema)
    # `Any` needs no other type beside it.
    if own == "Any" and not field.is_list:
        return own
    types = [own]
    for target in field.targets:
        types.append(names[target])
    if field.is_list:
        types = [f"list[{name}]" for name in types]
    if field.is_nullable:
        types.append("None")
    return " | ".join(types)


def _value_type(schema: JsonSchema) -> str:
    choices = schema.get("enum")
    if isinstance(choices, list):
        return f"Literal[{', '.join(map(repr, choices))}]"
    items = schema.get("items")
    if isinstance(items, Mapping):
        return f"list[{_value_type(items)}]"
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, list):
        return " | ".join(map(_value_type, alternatives))
    return _TYPES.get(schema.get("type"), "Any")
