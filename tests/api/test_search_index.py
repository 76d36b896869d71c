"""Collections that are asked to be searchable get indexes that serve searches."""

from __future__ import annotations

import pytest

from cms.cli.structure_findings import structure_findings
from cms.database.connections import standalone_transaction
from cms.store.snapshot import load_snapshot
from cms.structure import indexes, search_indexes
from tests.client import Client
from tests.index_building import indexed_words
from tests.members import may, member
from tests.statements import counted
from tests.things import Stage, Table, field, table
from tests.waiting import eventually

pytestmark = pytest.mark.release

SEARCH_INDEXES = (
    "SELECT count(*) FROM pg_indexes WHERE tablename = '{}' AND indexdef LIKE '%system_fold%'"
)
READY = {"state": "ready", "progress": 1.0}


def indexes_of(stage: Stage, things: Table) -> int:
    count: int = stage.value(SEARCH_INDEXES.format(things.name))
    return count


def plan_of(things: Table, word: str) -> str:
    """The plan of a search when reading the whole table costs a lot."""
    return str(
        things.api.get(f"/utils/explain?path={things.path}?search={word}&fields=id").data["plan"]
    )


def test_a_searchable_collection_has_an_index_for_each_text_and_one_for_each_number(
    stage: Stage, admin: Client
) -> None:
    fields = (
        field("name", "string"),
        field("note", "text"),
        field("size", "integer"),
        field("secret", "hash"),
    )
    things = table(admin, *fields, searchable=True)
    assert indexes_of(stage, things) == 2
    assert admin.get(f"/fields/{things.name}/size").data["schema"]["is_indexed"]
    assert admin.get(f"/collections/{things.name}").data["meta"]["searchable"] is True


def test_indexes_come_and_go_with_what_is_asked(stage: Stage, admin: Client) -> None:
    things = table(admin, field("name", "string"), field("note", "text"))
    assert indexes_of(stage, things) == 0
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert indexes_of(stage, things) == 2
    admin.patch(f"/fields/{things.name}/note", {"meta": {"searchable": False}})
    assert indexes_of(stage, things) == 1
    admin.post(f"/fields/{things.name}", field("more", "text"))
    assert indexes_of(stage, things) == 2
    admin.patch(f"/fields/{things.name}/more", {"field": "renamed"})
    assert indexes_of(stage, things) == 2
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": False}})
    assert indexes_of(stage, things) == 0


def test_indexes_of_whole_words_go_with_the_next_change_and_hinder_none(
    stage: Stage, admin: Client
) -> None:
    things = table(admin, field("name", "string"), field("note", "text"), searchable=True)
    for columns in (["name"], ["note"], ["name", "note"]):
        stage.execute(f"CREATE INDEX ON {things.name} {indexed_words(*columns)}")
    assert things.add({"name": "cat", "note": "7"})
    assert things.column("id", "search=CAT&sort=_relevance") == [1]
    assert admin.patch(f"/fields/{things.name}/note", {"type": "integer"}).status == 200
    assert indexes_of(stage, things) == 1
    stage.execute(f"CREATE INDEX ON {things.name} {indexed_words('name')}")
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert indexes_of(stage, things) == 1
    stage.execute(f"CREATE INDEX ON {things.name} {indexed_words('name')}")
    assert admin.delete(f"/fields/{things.name}/name").status == 204
    assert indexes_of(stage, things) == 0


def test_the_answer_says_that_the_indexes_of_a_small_table_are_made(admin: Client) -> None:
    body = {"collection": "made", "schema": {}, "fields": [field("title", "string")]}
    made = admin.post("/collections", {**body, "meta": {"searchable": True}})
    assert made.data["meta"]["search_index"] == READY
    admin.patch("/collections/made", {"meta": {"searchable": False}})
    again = admin.patch("/collections/made", {"meta": {"searchable": True}})
    assert again.data["meta"]["search_index"] == READY


@pytest.mark.release
@pytest.mark.parametrize("large_bytes", [indexes.LARGE_BYTES, 0])
def test_a_search_is_served_by_the_indexes(
    stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    monkeypatch.setattr(indexes, "LARGE_BYTES", large_bytes)  # at 0 a thread builds them
    things = table(admin, field("name", "string"), field("note", "text"))
    stage.execute(
        f"INSERT INTO {things.name} (name, note) SELECT 'Émile ' || md5(n::text), repeat('x', 100)"
        f" FROM generate_series(1, 20000) AS n; ANALYZE {things.name}"
    )
    assert "Seq Scan" in plan_of(things, "emile+c4ca")
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    record = f"/collections/{things.name}"
    eventually(lambda: admin.get(record).data["meta"]["search_index"]["state"] == "ready")
    assert "BitmapOr" in plan_of(things, "emile+c4ca4")
    assert things.column("id", "search=EMILE+c4ca4238a0") == [1]
    looked_at = (
        "SELECT count(*) FROM pg_stats JOIN pg_indexes ON pg_stats.tablename = indexname"
        f" WHERE pg_indexes.tablename = '{things.name}' AND indexdef LIKE '%fold%'"
    )
    assert stage.value(looked_at) == 2  # without this a rare word is taken for a frequent one


def test_a_search_is_planned_for_its_word_however_often_others_were_searched(
    stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    things = table(admin, field("name", "string"), searchable=True)
    things.add({"name": "a"})
    with counted(monkeypatch) as seen:
        assert things.column("id", "search=a") == things.column("id", "search=A") == [1]
    prepared = stage.admin.app.store.database.fetch("SELECT statement FROM pg_prepared_statements")
    # A thread of the test before may end its job meanwhile.
    (search,) = {statement for statement in seen if things.name in statement}
    assert search not in {text for (text,) in prepared}


def test_an_answer_is_the_same_with_and_without_the_indexes(stage: Stage, admin: Client) -> None:
    things = table(admin, field("name", "string"), field("size", "integer"))
    things.add(
        {"name": "Ångström 5%"}, {"name": "angstrom"}, {"name": None, "size": 5}, {"name": "5\\_"}
    )
    words = ("ANGSTRÖM", "5", "5%25", "%25", "_", "\\", "zz", "m+5")
    before = [things.column("id", f"search={word}") for word in words]
    assert before == [[1, 2], [1, 3, 4], [1], [1], [4], [4], [], [1]]
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert [things.column("id", f"search={word}") for word in words] == before


def test_the_doctor_names_large_collections_that_are_searched_without_an_index(
    stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_indexes, "SLOW_SEARCH_BYTES", 0)
    things = table(admin, field("name", "string"), field("size", "integer"))
    things.add({"name": "a"})

    def is_named() -> bool:
        with standalone_transaction(stage.dsn) as transaction:
            catalogue = load_snapshot(transaction).catalogue
            return things.name in search_indexes.slow_searches(transaction, catalogue)

    assert is_named()
    (finding,) = [one for one in structure_findings(stage.dsn) if "searches: " in one.text]
    assert (finding.level, things.name in finding.text) == ("warning", True)
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert not is_named()
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": False}})
    assert is_named()
    admin.patch(f"/fields/{things.name}/name", {"meta": {"searchable": False}})
    assert not is_named()


def test_an_index_needs_a_searched_field_in_a_searchable_collection(
    stage: Stage, admin: Client
) -> None:
    for of_collection, of_field, count in (
        (False, True, 0),
        (False, False, 0),
        (True, True, 1),
        (True, False, 0),
        (True, None, 1),
    ):
        note = {"field": "note", "type": "text", "meta": {"searchable": of_field}}
        things = table(admin, note, searchable=of_collection)
        things.add({"note": "word"})
        assert indexes_of(stage, things) == count
        expected = [] if of_field is False else [1]
        assert things.column("id", "search=word") == expected, (of_collection, of_field)
        searchable = admin.get(f"/fields/{things.name}/note").data["meta"]["searchable"]
        assert searchable is (of_field is not False)


def test_an_index_serves_a_caller_who_may_read_the_field_in_some_items_only(
    stage: Stage, admin: Client
) -> None:
    things = table(admin, field("name", "string"), field("own", "boolean"), searchable=True)
    stage.execute(
        f"INSERT INTO {things.name} (name, own) SELECT repeat(md5(n::text), 5), TRUE"
        f" FROM generate_series(1, 5000) AS n; ANALYZE {things.name}"
    )
    mine = may(things.name, "name", permissions={"own": {"_eq": True}})
    reader = Table(member(stage, may(things.name, "id", "own"), mine), things.name)
    assert reader.column("id", "search=c4ca4238a0b9") == [1]
    user = reader.api.get("/users/me?fields=id").data["id"]
    plan = admin.get(f"/utils/explain?user={user}&path={things.path}?search=c4ca4238a0b9").data
    assert "Bitmap Index Scan" in str(plan["plan"])
