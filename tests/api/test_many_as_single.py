"""Many items in one call leave the rows, the history and the faults
that as many calls of one item leave.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given, note
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from tests.client import Answer, Client
from tests.examples import example_count
from tests.file_imports import post_file
from tests.members import may, member
from tests.model.test_reads import cases_for_each
from tests.things import Json, Stage, Table, field, table

cases = settings_of(
    cases_for_each, max_examples=example_count(60), phases=[Phase.generate, Phase.shrink]
)

FIELDS = (
    field("name", "string", is_nullable=False, max_length=4),
    {**field("size", "integer"), "meta": {"validation": {"size": {"_neq": 13}}}},
    field("large", "bigInteger"),
    field("price", "decimal", numeric_precision=4, numeric_scale=1),
    field("live", "boolean", default_value=True),
    field("more", "json"),
    field("note", "string"),
    field("made", "timestamp", special="date-created"),
    field("by", "uuid", special="user-created"),
    field("token", "uuid", special="uuid"),
)
FREE = ("id", "made", "token")
"""What differs from call to call."""

VALUES: dict[str, st.SearchStrategy[object]] = {
    "name": st.sampled_from(["a", "bc", "é'\"\\", "", "abcd", "abcde", None, 7, True]),
    "size": st.sampled_from([0, 1, 13, -7, 2**31, None, "12", "x", True]),
    "large": st.sampled_from([1, 2**63 - 1, -(2**63), 2**63, None, []]),
    "price": st.sampled_from([1, 1.5, 999.9, 1000, "2", None, "x"]),
    "live": st.sampled_from([True, False, "true", None, 2]),
    "more": st.sampled_from([{"a": [1]}, [1, None], "a", 0, None]),
    "note": st.sampled_from(["a", "", None]),
    "made": st.sampled_from(["2001-01-01T00:00:00Z", None, "x"]),
    "id": st.none(),
    "nowhere": st.just(1),
}
USUAL = ("name", "size", "large", "note")


@st.composite
def payloads(draw: st.DrawFn) -> list[Json]:
    """Draw items that name the same fields, now and then one that does not."""
    names = [
        *USUAL,
        *draw(
            st.lists(st.sampled_from(sorted(VALUES.keys() - set(USUAL))), unique=True, max_size=2)
        ),
    ]
    sound = draw(st.booleans())
    items = [
        {name: draw(_value(name, sound=sound)) for name in names}
        for _ in range(draw(st.integers(2, 6)))
    ]
    if draw(st.integers(0, 3)) == 0:
        items[-1].pop(draw(st.sampled_from(names)))
    return items


def _value(name: str, *, sound: bool) -> st.SearchStrategy[object]:
    kinds = {
        "name": st.sampled_from(["a", "bc", "abcd"]),
        "size": st.integers(0, 4),
        "large": st.integers(0, 9),
    }
    odd = {
        "name": st.sampled_from(["a", "abcd", "abcde"]),
        "size": st.sampled_from([1, -(2**31), 2**31, -(2**31) - 1]),
    }
    return kinds.get(name, VALUES[name]) if sound else odd.get(name, VALUES[name]) | VALUES[name]


@dataclass(frozen=True)
class Outcome:
    """What calls have left: faults by the position of their item, rows, and history."""

    faults: list[tuple[int, Json]]
    rows: list[Json]
    history: list[tuple[object, ...]]


def singly(api: Client, things: Table, items: Sequence[Json]) -> list[tuple[int, Json]]:
    answers = [api.post(things.path, item) for item in items]
    return [(index, error) for index, answer in enumerate(answers) for error in _faults(answer)]


def together(api: Client, things: Table, items: Sequence[Json]) -> list[tuple[int, Json]]:
    return [(error.pop("index", 0), error) for error in _faults(api.post(things.path, list(items)))]


def imported(api: Client, things: Table, items: Sequence[Json]) -> list[tuple[int, Json]]:
    body = "".join(json.dumps(item) + "\n" for item in items)
    answer = post_file(things, body, form="jsonl", api=api)
    return [(error.pop("line") - 1, error) for error in _faults(answer)]


def _faults(answer: Answer) -> list[Json]:
    return answer.errors if answer.status >= 300 else []


@pytest.mark.release
@pytest.mark.parametrize("way", [together, imported])
@pytest.mark.parametrize("admin", [True, False])
def test_many_items_are_checked_and_written_as_each_alone(
    stage: Stage, way: Callable[..., list[tuple[int, Json]]], *, admin: bool
) -> None:
    things = table(stage.admin, *FIELDS)
    rights = {
        "validation": {"size": {"_neq": 12}},
        "presets": {"note": "p"},
        "permissions": {"size": {"_lt": 4}},
    }
    granted = [may(things.name, action="create", **rights), may(things.name, "id", "name", "size")]
    api = stage.admin if admin else member(stage, *granted)
    with psycopg.connect(stage.dsn, autocommit=True) as connection:

        @cases
        @given(items=payloads())
        def compare(items: list[Json]) -> None:
            alone = outcome(connection, things, singly(api, things, items))
            many = outcome(connection, things, way(api, things, items))
            note(f"{alone}\n{many}")
            if ended := [fault for _, fault in alone.faults if fault["code"] == "FORBIDDEN"]:
                assert {fault["code"] for _, fault in many.faults} >= {"FORBIDDEN"} or len(
                    alone.faults
                ) > len(ended)
                assert not many.rows
            elif alone.faults:
                assert many == Outcome(alone.faults, [], [])
            else:
                assert many == alone

        compare()


def outcome(
    connection: psycopg.Connection, things: Table, faults: list[tuple[int, Json]]
) -> Outcome:
    """Return what is there, and take it away."""
    rows = connection.execute(
        f"SELECT to_jsonb(t) FROM {things.name} AS t ORDER BY id".encode()
    ).fetchall()
    history = connection.execute(
        'SELECT a.action, a."user", r.data, r.delta FROM system_activity AS a '
        "LEFT JOIN system_revisions AS r ON r.activity = a.id "
        "WHERE a.collection = %s ORDER BY a.item::integer",
        [things.name],
    ).fetchall()
    for name in (things.name, "system_revisions", "system_activity"):
        connection.execute(f"DELETE FROM {name}".encode())
    return Outcome(
        [
            (index, {name: value for name, value in fault.items() if name != "path"})
            for index, fault in faults
        ],
        [_shared(row) for (row,) in rows],
        [(action, user, _shared(data), _shared(delta)) for action, user, data, delta in history],
    )


def _shared(shared: Any) -> Json:
    return {name: value for name, value in (shared or {}).items() if name not in FREE}
