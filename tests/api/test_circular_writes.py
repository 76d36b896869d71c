"""Rows that point to each other, made in one call."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage, field, table


@pytest.fixture(scope="module", autouse=True)
def cycle(admin: Client) -> None:
    key = field("id", "uuid", is_primary_key=True)
    fields = {
        "teams": [key, field("name", "string"), field("captain", "uuid"), field("above", "uuid")],
        "players": [
            key,
            field("name", "string"),
            field("team", "uuid"),
            field("guest_of", "uuid", is_nullable=False),
        ],
    }
    for name, items in fields.items():
        assert (
            admin.post("/collections", {"collection": name, "schema": {}, "fields": items}).status
            == 200
        )
    for column, target, one_field in (
        ("teams/captain", "players", None),
        ("teams/above", "teams", "below"),
        ("players/team", "teams", "players"),
        ("players/guest_of", "teams", "guests"),
    ):
        collection, name = column.split("/")
        body = {
            "collection": collection,
            "field": name,
            "related_collection": target,
            "meta": {"one_field": one_field},
        }
        assert admin.post("/relations", body).status == 200


@pytest.fixture
def host(admin: Client) -> str:
    """A team for players to be guests of."""
    return key_of(admin.post("/items/teams", {"id": str(uuid4())}).data)


def key_of(item: Json) -> str:
    return str(item["id"])


def test_an_object_may_point_to_the_item_that_holds_it(admin: Client, host: str) -> None:
    team = str(uuid4())
    player = str(uuid4())
    captain = {"id": player, "team": team, "guest_of": host}
    created = admin.post(
        "/items/teams?fields=captain.team,players.id", {"id": team, "captain": captain}
    ).data
    assert created == {"captain": {"team": team}, "players": [{"id": player}]}
    activities = admin.get(
        "/activity",
        **{"filter[item][_in]": f"{team},{player}", "sort": "id", "fields": "action,item"},
    )
    assert [(activity["action"], activity["item"]) for activity in activities.data] == [
        ("create", player),
        ("create", team),
        ("update", player),
    ]
    last = admin.get(f"/items/players/{player}/revisions?sort=-id&limit=1").data[0]
    assert (last["delta"], last["data"]["team"]) == ({"team": team}, team)
    around = admin.get(f"/items/teams/{team}/revisions").data[0]["id"]
    assert [one["parent"] for one in admin.get(f"/items/players/{player}/revisions").data] == [
        around,
        around,
    ]


def test_an_item_may_point_to_a_row_of_its_list(admin: Client, host: str) -> None:
    team = str(uuid4())
    player = str(uuid4())
    sent = {"id": team, "captain": player, "players": [{"id": player, "guest_of": host}]}
    created = admin.post("/items/teams?fields=captain.id,players.id", sent).data
    assert created == {"captain": {"id": player}, "players": [{"id": player}]}
    other = str(uuid4())
    second = str(uuid4())
    changed = {
        "captain": second,
        "players": {"create": [{"id": second, "guest_of": other}]},
        "above": {"id": other},
    }
    assert admin.patch(f"/items/teams/{team}?fields=captain.id", changed).data == {
        "captain": {"id": second}
    }
    third = str(uuid4())
    changed = {"captain": third, "players": {"create": [{"id": third, "guest_of": host}]}}
    assert admin.patch(f"/items/teams/{team}?fields=captain.id", changed).data == {
        "captain": {"id": third}
    }
    revisions = admin.get(f"/items/teams/{team}/revisions?sort=-id&limit=1").data
    assert revisions[0]["delta"] == {"captain": third}
    assert admin.get(f"/items/players/{third}/revisions").data[0]["parent"] == revisions[0]["id"]


def test_a_row_that_is_there_may_point_to_the_new_one(admin: Client, host: str) -> None:
    team = str(uuid4())
    player = str(uuid4())
    admin.post("/items/players", {"id": player, "guest_of": host, "team": host})
    captain = {"id": player, "team": team, "guest_of": team}
    created = admin.post(
        "/items/teams?fields=captain.team,captain.guest_of", {"id": team, "captain": captain}
    ).data
    assert created == {"captain": {"team": team, "guest_of": team}}


def test_items_of_an_array_point_to_each_other_whatever_fields_they_name(admin: Client) -> None:
    one, two, three, four = (str(uuid4()) for _ in range(4))
    sent = [
        {"id": one, "above": None},
        {"id": two},
        {"id": three, "above": two},
        {"id": four, "above": one, "name": "x"},
    ]
    assert [item["above"] for item in admin.post("/items/teams", sent).data] == [
        None,
        None,
        two,
        one,
    ]
    nested = [
        {"id": str(uuid4()), "above": one},
        {"id": (five := str(uuid4()))},
        {"id": str(uuid4()), "captain": None},
    ]
    assert (
        admin.post(
            "/items/teams", [*nested, {"id": str(uuid4()), "above": five, "name": "y"}]
        ).status
        == 200
    )


def test_where_the_column_takes_no_null_there_is_no_cycle(stage: Stage, admin: Client) -> None:
    team = str(uuid4())
    before = stage.value("SELECT count(*) FROM system_activity")
    answer = admin.post(
        "/items/teams", {"id": team, "captain": {"id": str(uuid4()), "guest_of": team}}
    )
    assert (answer.status, answer.codes, answer.errors[0]["field"]) == (
        400,
        ["INVALID_FOREIGN_KEY"],
        "guest_of",
    )
    assert admin.get(f"/items/teams/{team}").status == 404
    assert stage.value("SELECT count(*) FROM system_activity") == before


def test_a_conflict_of_deferred_keys_is_reported_with_its_place(
    stage: Stage, admin: Client
) -> None:
    stage.execute("CREATE UNIQUE INDEX one_captaincy ON teams (captain)")
    player = str(uuid4())
    host = {"id": str(uuid4())}
    teams = [
        {"captain": player},
        {"captain": player, "players": [{"id": player, "guest_of": host}]},
    ]
    answer = admin.post("/items/teams", teams)
    stage.execute("DROP INDEX one_captaincy")
    fault = answer.errors[0]
    assert (fault["code"], fault["value"], fault["index"]) == ("RECORD_NOT_UNIQUE", player, 1)
    assert fault["path"] == ["captain"]


def test_rules_hold_for_what_the_cycle_has_become(stage: Stage, host: str) -> None:
    inside = {"permissions": {"team": {"_nnull": True}}}
    coach = member(
        stage,
        *(may("teams", action=action) for action in ("create", "read")),
        may("players", action="create", **inside),
        may("players"),
    )
    team = str(uuid4())
    player = {"id": str(uuid4()), "guest_of": host}
    assert coach.post("/items/teams", {"id": team, "captain": player}).status == 403
    created = coach.post(
        "/items/teams?fields=captain.team", {"id": team, "captain": player | {"team": team}}
    ).data
    assert created == {"captain": {"team": team}}


def test_without_a_cycle_nothing_is_written_twice(admin: Client, host: str) -> None:
    team, above, player = (str(uuid4()) for _ in range(3))
    sent = {
        "id": team,
        "above": {"id": above},
        "players": [{"id": player, "guest_of": host, "team": team}],
    }
    assert admin.post("/items/teams?fields=id", sent).status == 200
    activities = admin.get(
        "/activity", **{"filter[item][_in]": f"{team},{above},{player}", "fields": "action"}
    ).data
    assert activities == [{"action": "create"}] * 3


def test_an_item_may_point_to_one_before_it_whatever_fields_they_name(admin: Client) -> None:
    tree = table(admin, field("name", "string"), field("parent", "integer"))
    admin.post(
        "/relations", {"collection": tree.name, "field": "parent", "related_collection": tree.name}
    )
    problems = [
        {"name": "a", "parent": None},
        {"id": 2, "name": "b"},
        {"id": 3, "name": "c", "parent": 2},
    ]
    assert [problem["parent"] for problem in admin.post(tree.path, problems).data] == [
        None,
        None,
        2,
    ]
