"""Payloads about files: the fields that clients may set, and contents in JSON."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping

from cms.errors import Problem, Refused, abbreviated, invalid_payload, no_object
from cms.files.contents import FieldValues
from cms.files.file_names import clean_name
from cms.mappings import without
from cms.schema.system import CREATE_ONLY, FILES, SERVER_OWNED


def checked_fields(fields: Mapping[str, object]) -> FieldValues:
    """Return a client's values for a new file.

    Raises `Refused` INVALID_PAYLOAD for fields that only the service sets.
    """
    values = dict(fields)
    # Null leaves the id to the service.
    if values.get("id", "") is None:
        del values["id"]
    _refuse_owned(values, SERVER_OWNED)
    return _with_clean_name(values)


def checked_changes(payload: object) -> FieldValues:
    """Return a client's changes of a file.

    Raises `Refused` INVALID_PAYLOAD for fields that only the service sets, or only at creation.
    """
    if not isinstance(payload, Mapping):
        raise no_object()
    _refuse_owned(payload, SERVER_OWNED | CREATE_ONLY)
    return _with_clean_name(payload)


def checked_batch(payload: object, check: Callable[[object], FieldValues]) -> object:
    """Return changes of several rows, each of them checked.

    Raises `Refused` INVALID_PAYLOAD for a body of another shape.
    """
    if isinstance(payload, list):
        return [_checked_element(element, check) for element in payload]
    if not isinstance(payload, Mapping) or "data" not in payload:
        raise invalid_payload(
            "The body must be an array of objects with their ids, or hold data with keys or query"
        )
    return {**payload, "data": check(payload["data"])}


def require_text(value: object, *, field: str) -> str:
    """Return a text; raises `Refused` INVALID_PAYLOAD for anything else."""
    if not isinstance(value, str):
        raise invalid_payload(f'"{field}" must be a text', field=field, value=abbreviated(value))
    return value


def pop_location(fields: FieldValues) -> str | None:
    """Remove the storage location from a client's values, and return it.

    Raises `Refused` INVALID_PAYLOAD.
    """
    location = fields.pop("storage", None)
    if location is None:
        return None
    return require_text(location, field="storage")


def decode_base64(data: object) -> bytes:
    """Return a content from base64, alone or in a data address."""
    if not isinstance(data, str):
        raise _not_base64()
    # `data:image/png;base64,iVBOR…`, as browsers make it of a file.
    without_scheme = re.sub(r"^data:[^,]*;base64,", "", data)
    try:
        # Encoders break the lines, and the strict decoder takes no space.
        return base64.b64decode(re.sub(r"\s", "", without_scheme), validate=True)
    except (binascii.Error, ValueError):
        raise _not_base64() from None


def _not_base64() -> Refused:
    return invalid_payload('"data" must be the content in base64', field="data")


def _checked_element(
    element: object, check: Callable[[object], FieldValues]
) -> Mapping[str, object]:
    """Return a change of one of several rows, whose id is in it."""
    if not isinstance(element, Mapping) or not isinstance(element.get("id"), str):
        raise invalid_payload('Each element must be an object with its "id"', field="id")
    # The id names the row here; as a change of the row the check would refuse it.
    return {"id": element["id"], **check(without(element, ("id",)))}


def _with_clean_name(fields: Mapping[str, object]) -> FieldValues:
    """Return fields with a clean name for downloads."""
    values = dict(fields)
    if "filename_download" in values:
        name = require_text(values["filename_download"], field="filename_download")
        values["filename_download"] = clean_name(name)
    return values


def _refuse_owned(fields: Mapping[str, object], owned: frozenset[str]) -> None:
    """Refuse fields that clients cannot set, all of them in one answer."""
    # Sorted, because the order of a set differs from process to process.
    problems: list[Problem] = []
    for name in sorted(owned & fields.keys()):
        refused = invalid_payload("The service sets it", collection=FILES, field=name)
        problems += refused.problems
    if problems:
        raise Refused(problems)
