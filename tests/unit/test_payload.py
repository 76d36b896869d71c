"""What the service writes into an item itself, whatever the client sent."""

from __future__ import annotations

import pytest

from cms.schema.auto_fields import (
    Writer,
    auto_fields_of,
    auto_values_of,
    complete_change,
    complete_new,
)
from cms.schema.model import Collection, Field, Kind
from cms.schema.payload import ItemParser, MutableRowValues
from cms.schema.types import TYPES
from tests.unit.library import column

SOMEBODY = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
NOBODY = Writer.now(None, None)


def marked(special: str, *, is_nullable: bool = True) -> Collection:
    fields = {
        "by": Field(
            "things",
            "by",
            TYPES["uuid"],
            (special,),
            column("by", "uuid", "uuid", is_nullable=is_nullable),
        ),
        "title": Field("things", "title", TYPES["text"], (), column("title", "text", "text")),
    }
    return Collection("things", Kind.TABLE, fields, None)


def written(collection: Collection, item: dict[str, object], *, new: bool) -> MutableRowValues:
    values = ItemParser(collection, lambda name: False).read(item).values
    complete = complete_new if new else complete_change
    auto_fields = auto_fields_of(collection, new=new)
    complete(values, auto_fields, auto_values_of(auto_fields, NOBODY))
    return values


@pytest.mark.parametrize(
    "special", ["user-created", "role-created", "user-updated", "role-updated"]
)
def test_nobody_writes_in_anothers_name(special: str) -> None:
    new = special.endswith("created")
    assert written(marked(special), {"by": SOMEBODY}, new=new) == {"by": None}
    assert written(marked(special), {"title": "a"}, new=new) == {"by": None, "title": "a"}


def test_a_change_by_nobody_leaves_a_name_that_must_be_there() -> None:
    assert written(marked("user-updated", is_nullable=False), {"title": "a"}, new=False) == {
        "title": "a"
    }


def test_a_change_that_writes_nothing_sets_no_automatic_field() -> None:
    assert written(marked("user-updated"), {}, new=False) == {}
