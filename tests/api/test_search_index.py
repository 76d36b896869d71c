"""Collections that are asked to be searchable get indexes that serve searches."""

from __future__ import annotations

import pytest

from cms.structure import indexes
from tests.client import Client
from tests.statements import counted
from tests.things import Stage, Table, field, table

SEARCH_INDEXES = (
    "SELECT count(*) FROM pg_indexes WHERE tablename = '{}' AND indexdef LIKE '%system_fold%'"
)


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


@pytest.mark.release
@pytest.mark.parametrize("large_bytes", [indexes.LARGE_BYTES, 0])
def test_a_search_is_served_by_the_indexes(
    stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    monkeypatch.setattr(indexes, "LARGE_BYTES", large_bytes)  # at 0 they are built after the commit
    things = table(admin, field("name", "string"), field("note", "text"))
    stage.execute(
        f"INSERT INTO {things.name} (name, note) SELECT 'Émile ' || md5(n::text), repeat('x', 100)"
        f" FROM generate_series(1, 20000) AS n; ANALYZE {things.name}"
    )
    assert "Seq Scan" in plan_of(things, "emile+c4ca")
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert "BitmapOr" in plan_of(things, "emile+c4ca4")
    assert things.column("id", "search=EMILE+c4ca4238a0") == [1]
    looked_at = f"SELECT count(*) FROM pg_stats WHERE tablename LIKE '{things.name}%fold%'"
    assert stage.value(looked_at) == 2  # without this a rare word is taken for a frequent one


def test_a_search_is_planned_for_its_word_however_often_others_were_searched(
    stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    things = table(admin, field("name", "string"), searchable=True)
    things.add({"name": "a"})
    with counted(monkeypatch) as seen:
        assert things.column("id", "search=a") == things.column("id", "search=A") == [1]
    prepared = stage.admin.app.store.database.fetch("SELECT statement FROM pg_prepared_statements")
    assert len(set(seen)) == 1
    assert seen[0] not in {text for (text,) in prepared}


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
