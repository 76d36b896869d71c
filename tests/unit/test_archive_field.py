"""The field by which archived items differ from active ones."""

from __future__ import annotations

from typing import Any

import pytest

from cms.schema.model import Collection, Field, Kind
from cms.schema.types import TYPES


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        ({"archive_field": "status"}, "status"),
        ({"archive_field": "dropped"}, None),
        ({"archive_field": None}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_field_is_one_that_is_set_and_exists(
    meta: dict[str, Any] | None, name: str | None
) -> None:
    # A field may have any name that PostgreSQL takes, also that of Python's null.
    fields = {name: Field("articles", name, TYPES["string"]) for name in ("status", "None")}
    field = Collection("articles", Kind.TABLE, fields, fields.get("id"), meta).archive_field
    assert (field.name if field else None) == name
