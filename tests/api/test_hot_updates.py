"""Updates of fields without an index write the row alone, and to none of its indexes (HOT)."""

from __future__ import annotations

import pytest

from tests.people import login, person, quick_hashes
from tests.statistics import statistics_of
from tests.things import Stage, Table, field, table

pytestmark = pytest.mark.release

UPDATES = 20


def changed_often(stage: Stage, things: Table, name: str) -> tuple[int, int]:
    """Change a field of an item many times; return the updates, and how many were HOT."""
    (item,) = things.add({"title": "new", "place": 0})
    before = statistics_of(stage, things.name)
    for number in range(UPDATES):
        stage.admin.patch(f"{things.path}/{item['id']}", {name: number})
    after = statistics_of(stage, things.name).since(before)
    return after.updates, after.hot_updates


def indexed_things(stage: Stage, *more: dict[str, object]) -> Table:
    return table(
        stage.admin,
        field("title", "string", is_unique=True),
        field("place", "integer"),
        *more,
    )


def test_a_change_of_a_field_without_an_index_touches_no_index(stage: Stage) -> None:
    things = indexed_things(stage)
    assert changed_often(stage, things, "place") == (UPDATES, UPDATES)


def test_a_date_of_the_last_change_touches_no_index_unless_it_has_one(stage: Stage) -> None:
    things = indexed_things(stage, field("changed", "timestamp", special="date-updated"))
    assert changed_often(stage, things, "place") == (UPDATES, UPDATES)
    indexed = field("changed", "timestamp", special="date-updated", is_indexed=True)
    others = indexed_things(stage, indexed)
    updates, hot_updates = changed_often(stage, others, "place")
    # Two changes within a millisecond leave the date as it is.
    assert updates == UPDATES
    assert hot_updates < UPDATES / 2


def test_a_login_touches_no_index_of_the_users(stage: Stage) -> None:
    with quick_hashes():
        email = person(stage)
        login(stage.anonymous, email)
        before = statistics_of(stage, "system_users")
        for _ in range(UPDATES):
            login(stage.anonymous, email, "wrong")
            assert login(stage.anonymous, email).status == 200
        after = statistics_of(stage, "system_users").since(before)
    assert (after.updates, after.hot_updates) == (2 * UPDATES, 2 * UPDATES)
