"""Operands that PostgreSQL does not know while it plans: those of the request, and no others."""

from __future__ import annotations

import pytest

from cms.items.read.hidden_operands import with_hidden_operands
from cms.query.language.ast import Caller, CallerKey, Constant, Slot
from cms.query.plan.bindings import Placeholder, unchanged

SENT = Placeholder(Slot(0), unchanged, "sent")
OF_A_RULE = Placeholder(Constant("x"), unchanged, "rule")
OF_THE_CALLER = Placeholder(CallerKey(Caller.USER), unchanged, "caller")


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a = $1::text AND b", SENT, "a = (SELECT $1::text)::text AND b"),
        (
            "a = $1::double precision)",
            Slot(0),
            "a = (SELECT $1::double precision)::double precision)",
        ),
        ("a = ANY ($1::integer[])", SENT, "a = ANY ((SELECT $1::integer[])::integer[])"),
        ('a = $1::"own"."mood"', SENT, 'a = (SELECT $1::"own"."mood")::"own"."mood"'),
        ("a = $1::text", OF_A_RULE, "a = $1::text"),
        ("a = $1::uuid", OF_THE_CALLER, "a = $1::uuid"),
        ("a LIMIT $1::bigint", Slot(0), "a LIMIT $1::bigint"),
        ("a OFFSET $1::bigint", Slot(0), "a OFFSET $1::bigint"),
        ("\"a \"\"$1::text\" = 'it''s $1::text'", SENT, "\"a \"\"$1::text\" = 'it''s $1::text'"),
    ],
)
def test_operands_of_the_request_are_hidden(text: str, value: object, expected: str) -> None:
    assert with_hidden_operands(text, [value]) == expected
