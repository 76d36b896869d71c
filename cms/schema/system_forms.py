"""How forms show the fields of system collections, whose settings no table holds."""

from __future__ import annotations

from cms.schema.model import Field
from cms.schema.system import FILES, FOLDERS, USERS, system_table
from cms.schema.types import ALIAS

_BY_NAME = {
    "icon": "select-icon",
    "color": "select-color",
    "project_color": "select-color",
    "description": "input-multiline",
    "note": "input-multiline",
    "comment": "input-multiline",
    "message": "input-multiline",
    "public_note": "input-multiline",
    "language": "system-language",
    "default_language": "system-language",
    "custom_css": "input-code",
    "password": "input-hash",
    "token": "system-token",
    "tags": "tags",
}
_BY_TARGET = {USERS: "user", FILES: "file", FOLDERS: "system-folder"}
_BY_TYPE = {
    "alias": "list-o2m",
    "boolean": "boolean",
    "timestamp": "datetime",
    "json": "input-code",
}
_CODE_LANGUAGES = {"custom_css": "css"}
_HIDDEN = frozenset({"last_page"})


def form_of(field: Field) -> dict[str, object]:
    """Return `interface`, `options` and `hidden` of a field of a system collection."""
    is_key = field.column is not None and field.column.is_primary_key
    interface = _interface_of(field)
    options: dict[str, object] | None = None
    if interface == "select-dropdown":
        words = system_table(field.collection).choices[field.name].words
        options = {"choices": [{"text": word.capitalize(), "value": word} for word in words]}
    elif interface == "input-code":
        options = {"language": _CODE_LANGUAGES.get(field.name, "json")}
    return {
        "interface": interface,
        "options": options,
        "hidden": is_key or field.name in _HIDDEN,
    }


def _interface_of(field: Field) -> str:
    table = system_table(field.collection)
    if field.name in table.choices:
        return "select-dropdown"
    target = table.references.get(field.name)
    if field.column is not None and field.column.foreign_table is not None:
        target = field.column.foreign_table
    if target is not None:
        return _BY_TARGET.get(target, "select-dropdown-m2o")
    if field.type is not ALIAS and field.name in _BY_NAME:
        return _BY_NAME[field.name]
    return _BY_TYPE.get(field.type.name, "input")
