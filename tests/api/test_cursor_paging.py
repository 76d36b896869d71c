"""Pages behind the last item of the page before: `meta.next_cursor` and `page[after]`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client import Client
from tests.members import may, member, member_of, new_role
from tests.statements import counted
from tests.things import Stage, Table, field, table

Json = dict[str, Any]


@pytest.fixture(scope="module")
def authors(admin: Client) -> Table:
    authors = table(admin, field("name", "string"))
    authors.add({"name": "Ann"}, {"name": None}, {"name": "Bo"})
    return authors


@pytest.fixture(scope="module")
def books(admin: Client, authors: Table) -> Table:
    """Items with many equal values and nulls, in which only the key decides."""
    books = table(
        admin,
        field("title", "string"),
        field("shelf", "integer", is_nullable=False, default_value=0),
        field("price", "decimal", numeric_precision=20, numeric_scale=6),
        field("weight", "float"),
        field("out", "timestamp"),
        field("is_lent", "boolean"),
        field("author", "integer"),
        field("tags", "csv"),
    )
    relation = {
        "collection": books.name,
        "field": "author",
        "related_collection": authors.name,
        "meta": {"one_field": "books"},
    }
    assert admin.post("/relations", relation).status == 200
    titles = ["a", "B", "ä", "", None, "long " * 40, 'with "quotes" and \\', "\U0001f4d6"]
    rows = []
    for number in range(40):
        rows.append(
            {
                "title": titles[number % 8],
                "shelf": number % 3,
                "price": None if number % 5 == 0 else f"{number % 4}.000001",
                "weight": None if number % 6 == 0 else (number % 7) / 3,
                "out": None if number % 4 == 0 else f"2001-01-0{number % 9 + 1}T00:00:00.123Z",
                "is_lent": [True, False, None][number % 3],
                "author": [1, 2, 3, None][number % 4],
                "tags": ["x"] * (number % 4),
            }
        )
    books.add(*rows)
    return books


def pages(api: Client, path: str, **params: object) -> Iterator[list[Json]]:
    """Yield the items of each page, up to the one without a next."""
    answer = api.get(f"{path}?{urlencode({**params, 'meta': 'next_cursor'})}")
    for _ in range(1000):
        yield answer.data
        cursor = answer.body["meta"]["next_cursor"]
        if cursor is None:
            return
        answer = api.get(f"{path}?{urlencode({**params, 'page[after]': cursor})}")
    raise AssertionError("the pages do not end")


def first_cursor(api: Client, path: str, **params: object) -> str:
    answer = api.get(f"{path}?{urlencode({**params, 'limit': 2, 'meta': 'next_cursor'})}")
    cursor = answer.body["meta"]["next_cursor"]
    assert isinstance(cursor, str), answer
    return cursor


TERMS = [
    *("id", "title", "shelf", "price", "weight", "out", "is_lent", "author"),
    *("author.name", "author.id", "year(out)", "count(tags)"),
    *("author.books.title", "author.books.price", "author.books.author.books.year(out)"),
]
sorts = st.lists(
    st.builds(lambda minus, term: minus + term, st.sampled_from(["", "-"]), st.sampled_from(TERMS)),
    max_size=3,
)


@pytest.mark.release
@given(
    sort=sorts,
    limit=st.integers(1, 41),
    filters=st.sampled_from([{}, {"shelf": {"_lt": 2}}, {"title": {"_nnull": True}}]),
)
def test_all_pages_together_are_the_list_whatever_its_order(
    books: Table, sort: list[str], limit: int, filters: Json
) -> None:
    params = {"sort": ",".join(sort), "fields": "id", "filter": json.dumps(filters)}
    whole = books.get(**params, limit=-1).data
    read = list(pages(books.api, books.path, **params, limit=limit))
    assert [item for page in read for item in page] == whole
    assert {len(page) for page in read[:-1]} <= {limit}
    assert len(read) == max(1, -(-len(whole) // limit))


def test_the_last_page_has_no_next_also_when_it_is_full(books: Table) -> None:
    for params in ({"limit": 40}, {"limit": 41}, {"limit": -1}, {"limit": 0}, {}):
        answer = books.get(**params, meta="next_cursor")
        assert answer.body["meta"] == {"next_cursor": None}
    assert len(books.get(limit=40, meta="next_cursor").data) == 40
    assert books.get(limit=0, meta="next_cursor").data == []


def test_counts_come_beside_the_cursor_and_a_page_behind_another_has_one_unasked(
    books: Table,
) -> None:
    first = books.get(limit=5, meta="*")
    assert set(first.body["meta"]) == {"total_count", "filter_count", "next_cursor"}
    cursor = first.body["meta"]["next_cursor"]
    second = books.read(f"limit=5&page[after]={cursor}")
    assert set(second.body["meta"]) == {"next_cursor"}
    counted = books.read(f"limit=5&meta=filter_count&page[after]={cursor}")
    # The count is that of the list, not of what is left of it.
    assert counted.body["meta"]["filter_count"] == 40


def test_a_cursor_goes_on_behind_a_page_that_was_counted(books: Table) -> None:
    for page in ({"page": 2}, {"offset": 5}):
        answer = books.get(limit=5, meta="next_cursor", **page)
        cursor = answer.body["meta"]["next_cursor"]
        assert books.column("id", f"limit=3&page[after]={cursor}") == [11, 12, 13], page


def test_search_takes_cursors_in_its_body_as_well(books: Table) -> None:
    query = {"limit": 3, "sort": ["-title"], "fields": ["id"], "filter": {"shelf": {"_eq": 1}}}
    whole = books.api.search(books.path, {**query, "limit": -1}).data
    answer = books.api.search(books.path, {**query, "meta": ["next_cursor"]})
    read = answer.data
    while answer.body["meta"]["next_cursor"]:
        page = {"after": answer.body["meta"]["next_cursor"]}
        answer = books.api.search(books.path, {**query, "page": page})
        read += answer.data
    assert read == whole


def test_pages_stay_what_they_are_while_items_come_and_go(stage: Stage) -> None:
    notes = stage.empty_table(field("title", "string"), field("rank", "integer"))
    notes.add(*({"title": f"n{number}", "rank": number} for number in range(10)))
    cursor = first_cursor(notes.api, notes.path, sort="rank")
    # The last item of the page before goes, another moves to its front, and one comes in before.
    assert notes.api.delete(f"{notes.path}/2").status == 204
    assert notes.api.patch(f"{notes.path}/9", {"rank": -1}).status == 200
    notes.add({"title": "new", "rank": 0})
    assert notes.column("id", f"sort=rank&page[after]={cursor}") == [3, 4, 5, 6, 7, 8, 10]


def test_a_page_with_a_cursor_is_not_sent_twice(books: Table) -> None:
    path = f"{books.path}?limit=3&meta=*"
    etag = books.api.get(path).headers["etag"]
    assert books.api.send("GET", path, **{"If-None-Match": etag}).status == 304


def test_limit_and_fields_may_change_from_page_to_page(books: Table) -> None:
    cursor = first_cursor(books.api, books.path, sort="-shelf")
    both = books.read(f"sort=-shelf&fields=id,title&limit=7&page[after]={cursor}").data
    alone = books.read(f"sort=-shelf&fields=id&limit=7&page%5Bafter%5D={cursor}").data
    assert [item["id"] for item in both] == [item["id"] for item in alone]


@pytest.mark.parametrize(
    "other",
    [
        {"sort": "-title"},
        {"sort": "title,id"},
        {"sort": "title", "filter": '{"shelf":{"_eq":1}}'},
        {"sort": "title", "search": "a"},
        {},
    ],
)
def test_a_cursor_of_another_query_is_refused(books: Table, other: Json) -> None:
    cursor = first_cursor(books.api, books.path, sort="title")
    assert books.get(sort="title", **{"page[after]": cursor}).status == 200
    answer = books.get(**other, **{"page[after]": cursor})
    assert answer.status == 400
    assert answer.codes == ["INVALID_QUERY"]
    assert answer.errors[0]["parameter"] == "page[after]"


def test_a_cursor_of_another_collection_or_caller_is_refused(
    stage: Stage, books: Table, authors: Table
) -> None:
    reader = member(stage, may(books.name))
    other = member(stage, may(books.name))
    cursor = first_cursor(reader, books.path)
    path = f"?page[after]={cursor}"
    assert reader.get(books.path + path).status == 200
    for client, collection in ((other, books), (books.api, books), (stage.anonymous, books)):
        assert client.get(collection.path + path).status in (400, 403)
    own = first_cursor(books.api, books.path)
    assert books.api.get(f"{authors.path}?page[after]={own}").status == 400


@pytest.mark.parametrize(
    "beside", ["offset=1", "aggregate[count]=*", "groupBy=shelf", "group=shelf", "offset=0"]
)
def test_a_cursor_is_refused_beside_another_place_or_groups(books: Table, beside: str) -> None:
    cursor = first_cursor(books.api, books.path)
    answer = books.read(f"page[after]={cursor}&{beside}")
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


@pytest.mark.parametrize(
    "token",
    ["x", "AAAA", "A" * 5000, "é", "{}", "==", "A" * 38, "....", "-_-_" * 12],
)
def test_a_token_that_nobody_made_is_refused(books: Table, token: str) -> None:
    answer = books.get(**{"page[after]": token})
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])
    answer = books.api.search(books.path, {"page": {"after": token}})
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


@pytest.mark.parametrize(
    "page",
    [{}, {"before": "x"}, {"after": ""}, {"after": 1}, {"after": None}, {"after": ["x"]}, []],
)
def test_a_page_of_another_form_is_refused(books: Table, page: object) -> None:
    answer = books.api.search(books.path, {"page": page})
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


def test_each_changed_character_of_a_token_spoils_it(books: Table) -> None:
    cursor = first_cursor(books.api, books.path, sort="title")
    for index in range(0, len(cursor) - 1, 7):
        other = "A" if cursor[index] != "A" else "B"
        changed = cursor[:index] + other + cursor[index + 1 :]
        assert books.get(sort="title", **{"page[after]": changed}).status == 400


def test_only_lists_take_cursors(books: Table) -> None:
    cursor = quote(first_cursor(books.api, books.path))
    for path in (
        f"{books.path}?deep[author][books][_page][after]={cursor}&fields=author.books.id",
        f"{books.path}?export=json&page[after]={cursor}",
        f"{books.path}/1?page[after]={cursor}",
    ):
        assert books.api.get(path).status == 400, path
    update = {"query": {"page": {"after": cursor}}, "data": {"title": "x"}}
    assert books.api.patch(books.path, update).status == 400


def test_a_write_by_query_takes_no_item_more_for_a_cursor(stage: Stage) -> None:
    notes = stage.empty_table(field("title", "string"))
    notes.add({}, {}, {})
    change = {"query": {"limit": 1, "meta": "*"}, "data": {"title": "x"}}
    assert notes.api.patch(notes.path, change).status == 200
    assert notes.column("title") == ["x", None, None]
    assert len(notes.api.get(f"{notes.path}?export=json&limit=2&meta=*").body) == 2


def test_a_cursor_reveals_nothing_that_the_caller_may_not_read(stage: Stage) -> None:
    notes = stage.empty_table(field("title", "string"), field("pin", "string"))
    notes.add(*({"title": f"title {number}", "pin": f"pin {number}"} for number in range(4)))
    reader = member(stage, may(notes.name, "title"))
    cursor = first_cursor(reader, notes.path, sort="title")
    sealed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    assert b"title" not in sealed
    assert cursor != first_cursor(member(stage, may(notes.name, "title")), notes.path, sort="title")
    assert reader.get(f"{notes.path}?sort=pin&meta=next_cursor").status == 403


def test_rules_and_hidden_values_hold_on_every_page(stage: Stage) -> None:
    notes = stage.empty_table(field("title", "string"), field("status", "string"))
    notes.add(
        *(
            {"title": f"t{number % 5}", "status": "draft" if number % 3 else "public"}
            for number in range(20)
        )
    )
    reader = member(
        stage,
        may(notes.name, "id", "status", permissions={"id": {"_lt": 18}}),
        may(notes.name, "title", permissions={"status": {"_eq": "public"}}),
    )
    for sort in ("title", "-title", "status,-title"):
        whole = reader.get(f"{notes.path}?sort={sort}&limit=-1").data
        read = [item for page in pages(reader, notes.path, sort=sort, limit=3) for item in page]
        assert read == whole, sort


def test_a_collection_without_a_key_has_no_cursor(stage: Stage) -> None:
    stage.execute("CREATE VIEW keyless AS SELECT 1 AS one UNION ALL SELECT 1")
    answer = stage.admin.get("/items/keyless?meta=*&limit=1")
    assert answer.data == [{"one": 1}]
    assert answer.body["meta"] == {"total_count": 2, "filter_count": 2}


def test_the_revisions_of_an_item_are_read_by_cursor(stage: Stage) -> None:
    notes = stage.empty_table(field("title", "string"))
    notes.add({}, {})
    for number in range(4):
        notes.api.patch(f"{notes.path}/1", {"title": f"{number}"})
    path = f"{notes.path}/1/revisions"
    whole = notes.api.get(path).data
    assert len(whole) == 5
    assert [item for page in pages(notes.api, path, limit=2) for item in page] == whole
    cursor = first_cursor(notes.api, path)
    assert notes.api.get(f"{notes.path}/2/revisions?page[after]={cursor}").status == 400


def test_groups_and_singletons_have_no_cursor(stage: Stage, books: Table) -> None:
    grouped = books.read("groupBy=shelf&aggregate[count]=*&meta=*")
    assert len(grouped.data) == 3
    assert "next_cursor" not in grouped.body["meta"]
    single = table(stage.admin, field("title", "string"), singleton=True)
    assert single.read("meta=next_cursor").status == 200


@pytest.mark.parametrize(
    ("sort", "range_of_index"),
    [("", "(id > "), ("-rank", "(rank <= "), ("rank", "(rank >= ")],
)
def test_a_far_page_is_read_from_where_it_begins_in_the_index(
    stage: Stage, sort: str, range_of_index: str
) -> None:
    notes = stage.empty_table(
        field("rank", "integer", is_nullable=False, is_indexed=True, default_value=0)
    )
    stage.execute(
        f"INSERT INTO {notes.name} (rank) SELECT n FROM generate_series(1, 5000) AS n;"
        f"ANALYZE {notes.name}"
    )
    middle = notes.get(sort=sort, offset=2500, limit=1, meta="next_cursor")
    cursor = middle.body["meta"]["next_cursor"]
    path = quote(f"{notes.path}?sort={sort}&limit=5&page[after]={cursor}")
    (plan,) = stage.admin.get(f"/utils/explain?path={path}").data["plan"]
    conditions = [node["Index Cond"] for node in nodes(plan["Plan"]) if "Index Cond" in node]
    assert len(conditions) == 1
    assert conditions[0].replace(f"{notes.name}_1.", "").startswith(range_of_index)


def nodes(plan: Json) -> Iterator[Json]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


@pytest.mark.parametrize("name", ["p%61ge[after]", "page[%61fter]", "page%5Ba%66ter%5D"])
def test_a_cursor_is_its_callers_also_under_a_name_in_another_encoding(
    stage: Stage, books: Table, name: str
) -> None:
    role = new_role(stage, may(books.name))
    owner = member_of(stage, role)
    other = member_of(stage, role)
    path = f"{books.path}?{name}={first_cursor(owner, books.path)}"
    assert owner.get(path).status == 200
    answer = other.get(path)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["citext", "citext NOT NULL", "char(3)"])
def test_texts_with_an_order_of_their_own_have_pages(stage: Stage, kind: str) -> None:
    stage.execute("CREATE EXTENSION IF NOT EXISTS citext")
    notes = table(stage.admin)
    stage.execute(
        f"ALTER TABLE {notes.name} ADD code {kind} DEFAULT '';"
        f"INSERT INTO {notes.name} (code) SELECT unnest('{{a,A,B,b,C,A,a}}'::text[])"
    )
    for sort in ("code", "-code", "code,-id"):
        whole = notes.get(sort=sort).data
        read = [item for page in pages(notes.api, notes.path, sort=sort, limit=2) for item in page]
        assert read == whole, sort


def test_the_length_of_a_cursor_reveals_nothing_of_a_hidden_key(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE hidden_keys (id text PRIMARY KEY, title text);"
        "INSERT INTO hidden_keys VALUES ('a', ''), ('b a much longer key', ''), ('c', '')"
    )
    reader = member(stage, may("hidden_keys", "title"))
    lengths = set()
    for limit in (1, 2):
        answer = reader.get(f"/items/hidden_keys?limit={limit}&meta=next_cursor")
        lengths.add(len(answer.body["meta"]["next_cursor"]))
    assert len(lengths) == 1


def test_a_far_page_by_a_key_of_fixed_length_is_read_from_the_index(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE codes (id char(8) PRIMARY KEY);"
        "INSERT INTO codes SELECT lpad(n::text, 6, '0') FROM generate_series(1, 5000) AS n;"
        "ANALYZE codes"
    )
    cursor = first_cursor(stage.admin, "/items/codes")
    path = quote(f"/items/codes?limit=5&page[after]={cursor}")
    (plan,) = stage.admin.get(f"/utils/explain?path={path}").data["plan"]
    assert any("Index Cond" in node for node in nodes(plan["Plan"]))


def test_a_cursor_does_not_reveal_which_collections_are_hidden(stage: Stage) -> None:
    single = table(stage.admin, field("title", "string"), singleton=True)
    many = table(stage.admin, field("title", "string"))
    reader = member(stage)
    for name in (single.name, many.name, "never_made"):
        answer = reader.get(f"/items/{name}?page[after]=x")
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer


MANY_TERMS = [
    *("title", "-shelf", "price", "-weight", "out", "-is_lent", "author", "-author.name"),
    *("year(out)", "-month(out)", "day(out)", "-hour(out)", "minute(out)", "-second(out)"),
    *("weekday(out)", "-count(tags)"),
]


def test_the_statement_of_a_page_grows_with_the_terms_and_not_with_their_square(
    books: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def characters(*sort: str) -> int:
        params = {"sort": ",".join(sort), "fields": "id"}
        cursor = first_cursor(books.api, books.path, **params)
        with counted(monkeypatch) as seen:
            assert books.get(**params, **{"page[after]": cursor}).status == 200
        return max(map(len, seen))

    first_half = characters(*MANY_TERMS[:8])
    second_half = characters(*MANY_TERMS[8:])
    assert characters(*MANY_TERMS) < first_half + second_half
    assert characters(*MANY_TERMS[:8], *["title", "-shelf"] * 20) == first_half
