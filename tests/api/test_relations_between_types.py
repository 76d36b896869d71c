"""A relation without a foreign key leads nowhere while column and key cannot be compared."""

from __future__ import annotations

from itertools import combinations_with_replacement

import psycopg
import pytest
from psycopg import sql

from cms.cli.structure_findings import dangling_settings
from cms.database.connections import standalone_transaction
from cms.schema.types import TYPES
from cms.schema.types.comparable import are_comparable
from cms.store.snapshot import load_snapshot
from tests.client import Answer
from tests.things import Stage, field, table

LEADING = (
    "fields=owner.name",
    "filter[owner][name]=b",
    "sort=owner.name",
    "deep[owner][_filter][name]=b",
)
BACK = (
    "fields=things.name",
    "filter[things][_some][name]=a",
    "filter[$FOLLOW({name},owner)][name]=a",
    "sort=things.name",
    "fields=count(things)",
)
REMADE = {
    "uuid": "uuid PRIMARY KEY DEFAULT gen_random_uuid()",
    "text": "text PRIMARY KEY DEFAULT 'a'",
    "date": "date PRIMARY KEY DEFAULT '2024-01-01'",
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", REMADE)
def test_a_relation_whose_target_was_made_again_with_another_key_leads_nowhere(
    stage: Stage, kind: str
) -> None:
    owners = f"owners_of_{kind}"
    things = table(stage.admin, field("name", "string"), field("owner", "integer"))
    stage.execute(f"CREATE TABLE {owners} (id serial PRIMARY KEY, name text)")
    body = {
        "collection": things.name,
        "field": "owner",
        "related_collection": owners,
        "meta": {"one_field": "things"},
    }
    assert stage.admin.post("/relations", body).status == 200
    path = f"/items/{owners}"
    assert stage.admin.post(path, {"name": "b", "things": [{"name": "a"}]}).status == 200
    for query in LEADING:
        assert things.read(query).status == 200, query

    stage.execute(
        f"DROP TABLE {owners} CASCADE; CREATE TABLE {owners} (id {REMADE[kind]}, name text)"
    )
    assert things.read("fields=*.*").data == [{"id": 1, "name": "a", "owner": 1}]
    made = stage.admin.post(path, {"name": "c"}).data
    assert stage.admin.get(path, fields="*.*").data == [made]
    answers = [things.read(query) for query in LEADING]
    answers += [stage.admin.get(f"{path}?{query.format(name=things.name)}") for query in BACK]
    answers += [
        stage.admin.post(things.path, {"owner": {"name": "d"}}),
        stage.admin.patch(f"{things.path}/1", {"owner": {"name": "d"}}),
        stage.admin.post(path, {"name": "d", "things": [{"name": "e"}]}),
        stage.admin.patch(f"{path}/{made['id']}", {"things": [1]}),
    ]
    assert [answer for answer in answers if answer.status != 400] == []
    assert stage.admin.patch(f"{things.path}/1", {"owner": 7}).data["owner"] == 7
    assert stage.admin.delete(f"{path}/{made['id']}").status == 204
    with standalone_transaction(stage.dsn) as transaction:
        sentences = list(dangling_settings(load_snapshot(transaction).catalogue))
    reason = f"because the key of {owners} has another type than the column"
    assert f"relation {things.name}.owner: it leads nowhere, {reason}" in sentences

    # It leads on as soon as the types fit again.
    stage.execute(
        f"DROP TABLE {owners}; CREATE TABLE {owners} (id bigint PRIMARY KEY, name text);"
        f"INSERT INTO {owners} VALUES (7, 'f')"
    )
    assert things.read("fields=owner.name").data == [{"owner": {"name": "f"}}]


def test_a_relation_to_users_by_a_text_leads_nowhere(stage: Stage) -> None:
    things = table(stage.admin, field("author", "string"))
    with stage.side_door.connection() as connection:
        connection.execute(
            b"INSERT INTO system_relations (many_collection, many_field, one_collection) "
            b"VALUES (%s, 'author', 'system_users')",
            [things.name],
        )
    stage.execute("SELECT 1")
    things.add({"author": "somebody"})
    assert things.read("fields=*.*").data == [{"id": 1, "author": "somebody"}]
    refused: Answer = things.read("fields=author.email")
    assert (refused.status, refused.codes) == (400, ["INVALID_QUERY"])


def test_types_are_comparable_where_postgresql_compares_them(stage: Stage) -> None:
    names = {name for kind in TYPES.values() for name in kind.base_types}
    names |= {"name", "timetz", "bit", "varbit", "cidr", "inet", "money", "interval", "oid"}
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        known = connection.execute("SELECT array_agg(typname::text) FROM pg_type").fetchone()
        assert known
        # Those of extensions are not everywhere; json and the like are no keys.
        compared = sorted(names & set(known[0]) - {"json", "jsonb", "bool"})
        for pair in combinations_with_replacement(compared, 2):
            first, second = map(sql.Identifier, pair)
            question = sql.SQL("SELECT NULL::pg_catalog.{} = NULL::pg_catalog.{}")
            try:
                connection.execute(question.format(first, second))
            except psycopg.errors.UndefinedFunction:
                possible = False
            else:
                possible = True
            assert are_comparable(*pair) == possible, pair
