"""No answer depends on items that a rule hides, or on values that are hidden in some items."""

from __future__ import annotations

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, make_collections

VISIBLE = {"shown": {"_eq": True}}
TESTS = ("_eq=x", "_neq=x", "_gt=m", "_in=x,y", "_null=true", "_contains=x", "_between=a,z")
READS = (
    "fields=id,{0}&sort={0}&limit=5&meta=*",
    "fields=id&sort=-{0}&limit=3&meta=filter_count,filter_count_estimate",
    "aggregate[count]={0}&groupBy={0}",
    "aggregate[countDistinct]={0}&aggregate[min]={0}&aggregate[max]={0}",
)
OF_PEOPLE = [
    *(f"people?filter[{{0}}][{test.replace('=', ']=')}&meta=*" for test in TESTS),
    *(f"people?{read}" for read in READS),
]
OF_TEAMS = [
    template
    for test in TESTS
    for operand in (test.replace("=", "]="),)
    for template in (
        f"teams?filter[people][{{0}}][{operand}&fields=id,people.{{0}}",
        f"teams?filter[people][_none][{{0}}][{operand}&meta=total_count",
        f"teams?filter[$FOLLOW(people,team)][_none][{{0}}][{operand}",
        f"people?filter[team][people][{{0}}][{operand}&fields=id,team.people.id",
    )
]
OTHERS = [
    "teams?fields=id,count(people)&sort=-count(people)",
    "teams?groupBy=count(people)&aggregate[count]=*",
    "teams?sort=people.name&fields=id",
    "teams?sort=-people.secret&fields=id",
    "people?search=x&sort=_relevance&highlight=true&limit=4&meta=*",
    "people?search=x&sort=-_relevance",
    "teams?search=x&meta=*",
    "people?export=csv&limit=-1",
    "teams?fields=*.*.*&deep[people][_sort]=-name&deep[people][_limit]=2",
]
QUERIES = [
    *(query.format(name) for name in ("name", "secret") for query in (*OF_PEOPLE, *OF_TEAMS)),
    *OTHERS,
]
CHANGES = (
    "UPDATE people SET name = 'x', secret = 'x', team = 1 WHERE NOT shown",
    "UPDATE people SET name = NULL, secret = 'y', team = NULL WHERE NOT shown",
    "UPDATE people SET secret = 'x' WHERE shown AND name <> 'open'",
    "UPDATE people SET secret = NULL WHERE shown AND name <> 'open'",
    "UPDATE teams SET name = 'x' WHERE NOT shown",
    "INSERT INTO people (name, secret, shown, team)"
    " SELECT 'x', 'x', false, 1 FROM generate_series(1, 3000)",
    "DELETE FROM people WHERE NOT shown",
)


@pytest.fixture(scope="module")
def caller(stage: Stage) -> Client:
    """May read teams and people that are shown, and the secret of those that are open."""
    shown = {"field": "shown", "type": "boolean"}
    name = {"field": "name", "type": "string"}
    people = [name, {"field": "secret", "type": "string"}, shown]
    make_collections(
        stage.admin,
        {"teams": [name, shown], "people": [*people, {"field": "team", "type": "integer"}]},
        [("people", "team", "teams", {"one_field": "people"})],
    )
    stage.execute("""
        INSERT INTO teams (name, shown) VALUES ('a', true), ('b', true), ('h', false);
        INSERT INTO people (name, secret, shown, team)
            SELECT CASE n % 5 WHEN 0 THEN 'open' ELSE 'x' || n END, 's' || n, true, 1 + n % 2
            FROM generate_series(1, 20) AS n;
        INSERT INTO people (name, secret, shown, team)
            SELECT 'h' || n, 's', false, 1 + n % 3 FROM generate_series(1, 20) AS n;
        """)
    is_open = {"_and": [VISIBLE, {"name": {"_eq": "open"}}]}
    return member(
        stage,
        may("teams", permissions=VISIBLE),
        may("people", "id", "name", "shown", "team", permissions=VISIBLE),
        may("people", "id", "secret", permissions=is_open),
    )


def told(answer: Answer) -> tuple[int, bytes, str | None]:
    assert answer.status in (200, 400), answer
    return answer.status, answer.content, answer.headers.get("etag")


@pytest.mark.release
def test_no_answer_depends_on_what_is_hidden(stage: Stage, caller: Client) -> None:
    before = {query: told(caller.get(f"/items/{query}")) for query in QUERIES}
    assert sum(status == 200 for status, *_ in before.values()) > len(QUERIES) * 0.9
    for change in CHANGES:
        stage.execute(f"{change}; ANALYZE people; ANALYZE teams")
        for query, expected in before.items():
            assert told(caller.get(f"/items/{query}")) == expected, (change, query)
