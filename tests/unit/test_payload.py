"""What the service writes into an item itself, whatever the client sent (decisions, section 5)."""

from __future__ import annotations

import pytest

from cms.schema.model import Collection, Column, Field, Kind
from cms.schema.payload import Values, Writer, values_of_change, values_of_new

SOMEBODY = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
NOBODY = Writer.now(None, None, admin=True)


def marked(special: str, *, nullable: bool = True) -> Collection:
    column = Column("by", "uuid", "uuid", None, None, None, None, nullable, False, False, None)
    return Collection("things", Kind.TABLE, {"by": Field("things", "by", "uuid", (special,), column)}, None)


def written(special: str, item: dict[str, object]) -> Values:
    make = values_of_new if special.endswith("created") else values_of_change
    return make(marked(special), [item], NOBODY)[0]


@pytest.mark.parametrize("special", ["user-created", "role-created", "user-updated", "role-updated"])
def test_nobody_writes_in_anothers_name(special: str) -> None:
    assert written(special, {"by": SOMEBODY}) == {"by": None}
    assert written(special, {}) == {"by": None}


def test_a_change_by_nobody_leaves_a_name_that_must_be_there() -> None:
    assert values_of_change(marked("user-updated", nullable=False), [{}], NOBODY) == [{}]
