"""Well-known sample databases are used table by table and view by view, by an administrator and by
a member who sees neither each row nor each column.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import pytest

from cms.config import Config
from tests.client import with_other_status
from tests.file_imports import post_file
from tests.sample_databases import (
    COLLECTIONS,
    NO_ORDER,
    SQL,
    Caller,
    Relation,
    Sample,
    Shape,
    load,
)
from tests.things import Json, Table, staged

pytestmark = pytest.mark.quick(8)

TEXTS = {"string", "text"}
NUMBERS = {"integer", "float", "decimal"}
SET_BY_TRIGGERS = {"last_update", "fulltext"}


@dataclass(frozen=True)
class Visit:
    """A collection of a sample, with one of the callers."""

    sample: Sample
    shape: Shape
    caller: Caller

    @property
    def rows(self) -> list[Json]:
        """The rows that the caller is to see, by their keys."""
        return self.sample.rows(self.caller, self.shape)

    def read(self, **query: object) -> list[Json]:
        """Return what a query finds, without what another one would have found in its order."""
        whole = {"fields": self.caller.columns(self.shape), "limit": -1, **query}
        items: list[Json] = self.caller.client.search(self.shape.path, whole).data
        return items

    def has(self, item: Json) -> bool:
        """Tell whether the caller finds an item by its key."""
        return bool(self.read(filter=self.shape.filter_of(item)))


@pytest.fixture(scope="module")
def sample(
    request: pytest.FixtureRequest,
    stage_settings: Config,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[Sample]:
    """The database that a test names."""
    with staged(stage_settings, make_database, template) as stage:
        yield load(stage, request.param)


@pytest.fixture(params=["admin", "member"])
def visit(request: pytest.FixtureRequest, sample: Sample, name: str) -> Visit:
    return Visit(sample, sample.shapes[name], sample.callers[request.param])


def as_set(values: Iterable[Any]) -> list[Any]:
    """Bring values of any kind into an order that does not depend on the one that they have."""
    return sorted(values, key=as_text)


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.fixture
def filled(sample: Sample) -> Iterator[None]:
    """Take back what a test writes."""
    yield
    sample.fill()


def of_each(cases: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("sample", "name"), cases, indirect=["sample"], scope="module")


every_collection = of_each(COLLECTIONS)


@every_collection
def test_the_fields_tell_the_key(visit: Visit) -> None:
    fields = visit.sample.stage.admin.get(f"/fields/{quote(visit.shape.name)}").data
    marked = {each["field"] for each in fields if (each["schema"] or {}).get("is_primary_key")}
    assert marked == set(visit.shape.key)


@every_collection
def test_the_list_has_every_row_and_counts_them(visit: Visit) -> None:
    rows = visit.rows
    answer = visit.caller.client.get(f"{visit.shape.path}?limit=-1&meta=*")
    columns = visit.caller.columns(visit.shape)
    assert as_set({name: item[name] for name in columns} for item in answer.data) == as_set(rows)
    assert answer.body["meta"]["total_count"] == len(rows)
    assert answer.body["meta"]["filter_count"] == len(rows)
    hidden = visit.caller.hidden.get(visit.shape.name)
    assert not [item for item in answer.data if hidden in item]


@every_collection
def test_relations_are_read_in_both_directions(visit: Visit) -> None:
    items = visit.caller.client.get(f"{visit.shape.path}?limit=-1&fields=*.*").data
    expected = [with_related(visit, row) for row in visit.rows]
    assert as_set(restricted(visit, item) for item in items) == as_set(expected)


def with_related(visit: Visit, row: Json) -> Json:
    """Return a row with the related rows of both sides that the caller sees."""
    item: Json = dict(row)
    for relation in visit.shape.relations:
        rows = visit.sample.rows(visit.caller, visit.sample.shapes[relation.one])
        ones = [one for one in rows if points_to(visit, relation, row, one)]
        item[relation.field] = ones[0] if ones else None
    for relation in visit.shape.lists:
        rows = visit.sample.rows(visit.caller, visit.sample.shapes[relation.many])
        item[relation.alias] = as_set(
            many for many in rows if points_to(visit, relation, many, row)
        )
    return item


def points_to(visit: Visit, relation: Relation, many: Json, one: Json) -> bool:
    """Tell whether the foreign key of a row is the key of another."""
    key = visit.sample.shapes[relation.one].key
    return [many[column] for column in relation.columns] == [one[column] for column in key]


def restricted(visit: Visit, item: Json) -> Json:
    """Return the columns of an item, and those of the items that it is related to."""
    shapes = visit.sample.shapes
    columns = visit.caller.columns
    result = {name: item[name] for name in columns(visit.shape)}
    for relation in visit.shape.relations:
        one = item[relation.field]
        result[relation.field] = one and {key: one[key] for key in columns(shapes[relation.one])}
    for relation in visit.shape.lists:
        many = columns(shapes[relation.many])
        items = item[relation.alias]
        result[relation.alias] = as_set({name: each[name] for name in many} for each in items)
    return result


@every_collection
def test_items_are_sorted_by_each_column(visit: Visit) -> None:
    rows = visit.rows
    for column in visit.caller.columns(visit.shape):
        if visit.shape.columns[column]["type"] in NO_ORDER:
            refused = visit.caller.client.search(visit.shape.path, {"sort": [column]})
            assert refused.codes == ["INVALID_QUERY"], refused
            continue
        rising = [item[column] for item in visit.read(sort=[column])]
        falling = [item[column] for item in visit.read(sort=[f"-{column}"])]
        assert falling == rising[::-1], column
        assert as_set(rising) == as_set(row[column] for row in rows), column
        numbers = [value for value in rising if isinstance(value, int | float)]
        assert numbers == sorted(numbers), column


@every_collection
def test_a_filter_by_a_value_of_a_column_finds_its_rows(visit: Visit) -> None:
    rows = visit.rows
    for column in visit.caller.columns(visit.shape):
        for value in {str(row[column]): row[column] for row in rows}.values():
            condition = {"_null": True} if value is None else {"_eq": value}
            expected = [row for row in rows if row[column] == value]
            if visit.shape.columns[column]["type"] == "binary":
                condition = {"_null": value is None}
                expected = [row for row in rows if (row[column] is None) == (value is None)]
            elif isinstance(value, list):
                condition = {"_contains": value[0]} if value else {"_empty": True}
                expected = [row for row in rows if value[:1] == (row[column] or [])[:1]]
            items = visit.read(filter={column: condition})
            assert as_set(items) == as_set(expected), (column, value)


@every_collection
def test_groups_by_a_column_count_its_rows(visit: Visit) -> None:
    rows = visit.rows
    for column in visit.caller.columns(visit.shape):
        query = {"groupBy": [column], "aggregate": {"count": "*"}, "limit": -1}
        answer = visit.caller.client.search(visit.shape.path, query)
        if visit.shape.columns[column]["type"] in NO_ORDER:
            assert answer.codes == ["INVALID_QUERY"], answer
            continue
        counts = Counter(as_text(row[column]) for row in rows)
        assert {as_text(each[column]): each["count"] for each in answer.data} == counts, column


@every_collection
def test_an_item_is_read_by_its_key(visit: Visit) -> None:
    rows = visit.rows if visit.shape.key else []
    for row in rows:
        fields = ",".join(quote(name) for name in row)
        assert visit.caller.client.get(f"{visit.shape.path_of(row)}?fields={fields}").data == row
    everything = visit.sample.rows(visit.sample.callers["admin"], visit.shape)
    hidden = [row for row in everything if visit.shape.key and not visit.has(row)]
    assert len(hidden) == len(everything) - len(rows) or not visit.shape.key
    for row in hidden:
        assert visit.caller.client.get(visit.shape.path_of(row)).status == 404


@every_collection
def test_a_search_for_a_word_finds_its_row(visit: Visit) -> None:
    for column in visit.caller.columns(visit.shape):
        if visit.shape.columns[column]["type"] not in TEXTS:
            continue
        for row in visit.rows:
            word = re.search(r"\w+", row[column] or "")
            if word and not visit.shape.columns[column]["meta"]:
                assert row in visit.read(search=word[0]), (column, word)


@every_collection
@pytest.mark.usefixtures("filled")
def test_items_are_exported_and_imported_again(visit: Visit) -> None:
    table = Table(visit.caller.client, quote(visit.shape.name))
    rows = without_changing(visit.rows)
    fields = ",".join(quote(name) for name in visit.caller.columns(visit.shape))
    for form in ("json", "jsonl", "csv"):
        exported = visit.caller.client.get(
            f"{visit.shape.path}?limit=-1&fields={fields}&export={form}"
        )
        assert exported.status == 200, exported
        imported = post_file(table, exported.content, form=form)
        assert imported.status == (200 if visit.shape.is_writable else 403), imported
        kept = without_changing(visit.rows)
        if form == "csv":
            kept = [{key: value or None for key, value in row.items()} for row in kept]
            rows = [{key: value or None for key, value in row.items()} for row in rows]
        assert kept == rows, form


def without_changing(rows: list[Json]) -> list[Json]:
    """Leave out what triggers change whenever a row is written."""
    return [{key: row[key] for key in row if key != "last_update"} for row in rows]


@every_collection
@pytest.mark.usefixtures("filled")
def test_items_are_created_and_deleted(visit: Visit) -> None:
    client = visit.caller.client
    path = visit.shape.path
    if not visit.shape.is_writable:
        answers = [client.post(path, visit.rows[0]), client.delete(path, {"query": {"limit": -1}})]
        assert with_other_status(answers, 403) == []
        return
    before = visit.rows
    for selection in ("key", "keys", "query"):
        item = created(visit, {})
        assert visit.has(item)
        if selection == "key":
            answer = client.delete(visit.shape.path_of(item))
        elif selection == "keys":
            answer = client.delete(path, [visit.shape.key_of(item)])
        else:
            answer = client.delete(path, {"query": {"filter": visit.shape.filter_of(item)}})
        assert answer.status == 204, answer
        assert not visit.has(item)
    assert [row for row in visit.rows if row in before] == before


def created(visit: Visit, related_items: Json) -> Json:
    """Create an item and what it is related to, and return its columns as they are read again."""
    copy = visit.sample.copy_of(visit.caller, visit.shape, visit.rows[0])
    answer = visit.caller.client.post(visit.shape.path, copy | related_items)
    (item,) = visit.read(filter=visit.shape.filter_of(answer.data))
    assert item == {name: answer.data[name] for name in item}
    sent = {name: value for name, value in copy.items() if not isinstance(value, dict)}
    assert {name: item[name] for name in sent if name not in SET_BY_TRIGGERS} == {
        name: value for name, value in sent.items() if name not in SET_BY_TRIGGERS
    }
    return item


@every_collection
@pytest.mark.usefixtures("filled")
def test_an_item_is_changed_by_key_keys_query_and_in_an_array(visit: Visit) -> None:
    client = visit.caller.client
    path = visit.shape.path
    row, *others = visit.rows
    if not visit.shape.is_writable:
        assert client.patch(path, {"query": {"limit": -1}, "data": row}).status == 403
        return
    key = visit.shape.key_of(row)
    query = {"filter": visit.shape.filter_of(row)}
    own = {name: row[name] for name in visit.shape.key}
    for number, call in enumerate(("key", "keys", "query", "array"), start=1):
        data = changes(visit.shape, row, number)
        if call == "key":
            answer = client.patch(visit.shape.path_of(row), data)
        elif call == "array":
            answer = client.patch(path, [own | data])
        else:
            selection = {"keys": [key]} if call == "keys" else {"query": query}
            answer = client.patch(path, {**selection, "data": data})
        (item,) = [answer.data] if call == "key" else answer.data
        assert {name: item[name] for name in data} == data, call
        assert [each for each in visit.rows if visit.shape.key_of(each) == key] == [
            {name: item[name] for name in row}
        ]
    assert [each for each in visit.rows if visit.shape.key_of(each) != key] == others


def changes(shape: Shape, row: Json, number: int) -> Json:
    """Return another value for each text and number that may have any, none of a key."""
    kept = {name for each in shape.relations for name in each.columns}.union(shape.key)
    data: Json = {}
    for name, value in row.items():
        field = shape.columns[name]
        if name in kept or field["meta"]:
            continue
        if field["type"] in TEXTS:
            data[name] = f"{number}%"
        elif field["type"] in NUMBERS:
            data[name] = (value or 0) + number
    return data


@every_collection
@pytest.mark.usefixtures("filled")
def test_an_item_is_created_with_the_items_of_its_lists(visit: Visit) -> None:
    shapes = visit.sample.shapes
    for relation in visit.shape.lists:
        many = Visit(visit.sample, shapes[relation.many], visit.caller)
        if not many.shape.is_writable:
            continue
        item = created(visit, {relation.alias: [entry_of(many, relation)]})
        query = {"fields": [f"{relation.alias}.*"], "filter": visit.shape.filter_of(item)}
        (answered,) = visit.caller.client.search(visit.shape.path, query).data
        (entry,) = answered[relation.alias]
        assert points_to(visit, relation, entry, item)
        assert many.has(entry)


def entry_of(many: Visit, relation: Relation) -> Json:
    """Return a new item for a list, without the columns that lead to the owner of that."""
    entry = many.sample.copy_of(many.caller, many.shape, many.rows[0])
    for other in many.shape.relations:
        if not set(relation.columns).isdisjoint(other.columns):
            for column in other.columns:
                entry.pop(column, None)
    return entry


@pytest.mark.parametrize("sample", SQL, indirect=True, scope="module")
def test_the_descriptions_name_every_table_and_view(sample: Sample) -> None:
    api = sample.stage.admin
    paths = api.get("/server/specs/oas").body["paths"]
    types = api.get("/server/specs/types?language=typescript").text
    for shape in sample.shapes.values():
        assert f"/items/{shape.name}" in {unquote(path) for path in paths}
        assert re.search(rf'^  "?{shape.name}"?: ', types, re.M), shape.name
