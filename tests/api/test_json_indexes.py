"""`cms index`: indexes of paths into JSON, which reads use, and the findings of `cms doctor`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner, Result

from cms.cli import cms, structure_findings
from cms.database.connections import standalone_transaction
from cms.store import json_path_record
from cms.store.json_path_record import JsonPathRecord
from tests.client import Client
from tests.members import may, member_of, new_role
from tests.things import Stage, Table, field, table
from tests.waiting import eventually

pytestmark = pytest.mark.release

ROWS = 3_000


def index_of(things: Table, column: str) -> str:
    """Return the beginning of the names of indexes over a column, or over paths into it."""
    return f"{things.name}_{column}_"


@pytest.fixture(scope="module")
def documents(stage: Stage, admin: Client) -> Table:
    """Many documents, as json and as jsonb, with statistics."""
    documents = table(
        admin,
        field("meta", "json"),
        field("title", "string"),
        field("kept", "text", special="cast-json"),
    )
    stage.execute(
        f"""ALTER TABLE "{documents.name}" ADD other jsonb, ADD list text[];
        INSERT INTO "{documents.name}" (meta, other)
        SELECT document, document::jsonb FROM (
            SELECT json_build_object('price', n % 1000, 'kind', 'kind ' || n % 500, 'a''b', n)
                AS document
            FROM generate_series(1, {ROWS}) AS n
        ) AS documents;
        ANALYZE "{documents.name}" """
    )
    return documents


def index(shell: CliRunner, *words: str) -> Result:
    return shell.invoke(cms, ["index", *words])


def plan_of(things: Table, query_string: str) -> str:
    path = quote(f"{things.path}?{query_string}", safe="")
    return str(things.api.get(f"/utils/explain?path={path}").data["plan"])


@pytest.mark.quick(1)
@pytest.mark.parametrize("column", ["meta", "other"])
def test_reads_by_a_path_use_its_index(shell: CliRunner, documents: Table, column: str) -> None:
    reads = [
        f"filter[{column}.price][_eq]=5",
        f"filter[{column}.price]=5",
        f"filter[{column}.price][_in]=5,6,red",
        f"filter[{column}.price][_gt]=998",
        f"filter[{column}.price][_gte]=998",
        f"filter[{column}.price][_lt]=2",
        f"filter[{column}.price][_lte]=2",
        f"filter[{column}.price][_between]=5,6",
        f"sort={column}.price&limit=5",
        f"sort=-{column}.price&limit=5",
    ]
    for read in reads:
        assert index_of(documents, column) not in plan_of(documents, read), read
    before = [documents.read(read).data for read in reads]
    result = index(shell, documents.name, f"{column}.price")
    assert (result.exit_code, result.output) == (
        0,
        f"{documents.name} has an index of {column}.price.\n",
    )
    for read in reads:
        assert index_of(documents, column) in plan_of(documents, read), read
    assert [sorted_by_id(documents.read(read).data) for read in reads] == list(
        map(sorted_by_id, before)
    )
    assert index(shell, documents.name, f"{column}.price", "--drop").exit_code == 0
    assert index_of(documents, column) not in plan_of(documents, reads[0])


def sorted_by_id(items: list[dict[str, Any]]) -> list[int]:
    # Of the first five by price, equal ones may be any: only their number counts then.
    return sorted(item["id"] for item in items) if len(items) != 5 else [5]


@pytest.mark.release
def test_a_statement_that_is_prepared_for_long_still_uses_the_index(
    stage: Stage, shell: CliRunner, documents: Table
) -> None:
    assert index(shell, documents.name, "meta.kind").exit_code == 0
    for number in range(20):
        assert len(documents.read(f"filter[meta.kind][_eq]=kind {number}&fields=id").data) == 6
    scans = f"""SELECT sum(idx_scan) FROM pg_stat_user_indexes
        WHERE relname = '{documents.name}'
            AND starts_with(indexrelname, '{index_of(documents, "meta")}')"""
    # Sessions report what they count after a second, at the end of their next statement.
    eventually(lambda: documents.read("limit=1").data and (stage.value(scans) or 0) >= 20)
    assert index(shell, documents.name, "meta.kind", "--drop").exit_code == 0


def test_a_role_with_a_rule_on_items_uses_the_index_too(
    stage: Stage, shell: CliRunner, documents: Table
) -> None:
    role = new_role(stage, may(documents.name, permissions={"meta.price": {"_eq": 7}}))
    seen = Table(member_of(stage, role), documents.name)
    assert index(shell, documents.name, "meta.price").exit_code == 0
    assert len(seen.read("fields=id").data) == 3
    user = stage.value(f"SELECT id FROM system_users WHERE role = '{role}'")
    path = quote(f"{documents.path}?fields=id", safe="")
    explained = documents.api.get(f"/utils/explain?path={path}&user={user}").data
    assert index_of(documents, "meta") in str(explained["plan"])
    assert index(shell, documents.name, "meta.price", "--drop").exit_code == 0


@pytest.mark.release
def test_indexes_are_listed_made_once_and_dropped(shell: CliRunner, documents: Table) -> None:
    assert index(shell, documents.name).output == "There is no index.\n"
    assert index(shell, documents.name, "title").exit_code == 0
    assert f"  {index_of(documents, 'title')}" in index(shell, documents.name).output
    for path in ("meta.a'b", "meta.tags.0", "other.price"):
        assert index(shell, documents.name, path).exit_code == 0
    again = index(shell, documents.name, "meta.a'b")
    assert again.output == f"{documents.name} has an index of meta.a'b already.\n"
    listed = [line.split("  ")[:2] for line in index(shell, documents.name).output.splitlines()]
    names = ["meta.a'b", "meta.tags.0", "other.price", "title"]
    assert listed == [[documents.name, name] for name in names]
    assert all(
        line in index(shell).output for line in index(shell, documents.name).output.splitlines()
    )
    assert "procrastinate" not in index(shell).output
    for name in names:
        assert index(shell, documents.name, name, "--drop").exit_code == 0
    missing = index(shell, documents.name, "title", "--drop")
    assert missing.exit_code == 1
    assert "has no index of title that could be dropped" in missing.output


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["none"], 'There is no collection "none"'),
        (["none", "a"], 'There is no table "none"'),
        (["system_files", "metadata.a"], "a table of the service itself"),
        (["{things}", "none.a"], 'has no field "none"'),
        (["{things}", "meta."], 'has no field "meta"'),
        (["{things}", "meta"], "name the path"),
        (["{things}", "kept.a"], "columns of type json and jsonb"),
        (["{things}", "list.0"], "columns of type json and jsonb"),
        (["{things}", "title.a"], "columns of type json and jsonb"),
        (["--drop"], "--drop needs a collection"),
    ],
)
def test_what_can_have_no_index_is_refused(
    shell: CliRunner, documents: Table, words: list[str], part: str
) -> None:
    result = index(shell, *(word.format(things=documents.name) for word in words))
    assert result.exit_code != 0
    assert part in result.output


def test_a_text_too_long_for_its_index_is_refused_and_leaves_no_index(
    stage: Stage, shell: CliRunner, admin: Client
) -> None:
    things = table(admin, field("meta", "json"))
    long = "".join(f"{number * 7919 % 10_007:x}" for number in range(4_000))
    things.add({"meta": {"text": long}})
    result = index(shell, things.name, "meta.text")
    assert result.exit_code == 1
    assert "could not be built" in result.output
    assert stage.value("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0
    assert things.api.delete(f"{things.path}/1").status == 204
    assert index(shell, things.name, "meta.text").exit_code == 0
    answer = things.api.post(things.path, {"meta": {"text": long}})
    assert 400 <= answer.status < 500, answer
    # An array is no key of the index, however long it is.
    assert things.api.post(things.path, {"meta": {"text": [long]}}).status == 200


@pytest.mark.release
def test_a_field_with_an_index_of_a_path_can_change_name_and_type(
    stage: Stage, shell: CliRunner, admin: Client
) -> None:
    things = table(admin, field("meta", "json"))
    things.add({"meta": {"a": 1}})
    assert index(shell, things.name, "meta.a").exit_code == 0
    assert admin.patch(f"/fields/{things.name}/meta", {"field": "data"}).status == 200
    assert index(shell, things.name).output.startswith(f"{things.name}  data.a  ")
    assert admin.patch(f"/fields/{things.name}/data", {"type": "text"}).status == 200
    assert index(shell, things.name).output == "There is no index.\n"
    assert things.column("data") == ['{"a":1}']


def findings_of(stage: Stage, things: Table) -> list[str]:
    """The paths of a collection that `cms doctor` asks an index for."""
    catalogue = stage.admin.app.store.snapshots.current().catalogue
    with standalone_transaction(stage.dsn) as transaction:
        texts = [
            finding.text for finding in structure_findings.json_findings(transaction, catalogue)
        ]
    return [text.partition(" by ")[2].partition(",")[0] for text in texts if things.name in text]


@pytest.mark.release
def test_the_doctor_names_paths_that_large_tables_are_searched_by_without_an_index(
    stage: Stage, shell: CliRunner, documents: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.execute("DELETE FROM system_json_paths")
    monkeypatch.setattr(
        stage.admin.app.store, "json_path_record", JsonPathRecord(stage.admin.app.store.database)
    )
    role = new_role(
        stage, may(documents.name, permissions={"meta.owner": {"_eq": "$CURRENT_USER"}})
    )
    for query in (
        "filter[meta.price]=5",
        "filter[meta.price]=6",
        "sort=-other.price",
        "sort=id,meta.second",
        "filter[meta.kind][_contains]=x",
        "fields=meta.shown",
    ):
        assert documents.read(query).status == 200
    assert documents.read("export=csv&filter[meta.exported]=5&limit=1").status == 200
    assert Table(member_of(stage, role), documents.name).read("limit=1").status == 200
    assert findings_of(stage, documents) == []  # the table is small
    monkeypatch.setattr(structure_findings, "LARGE_BYTES", 1_000)
    expected = ["meta.exported", "meta.owner", "meta.price", "other.price"]
    assert findings_of(stage, documents) == expected
    assert index(shell, documents.name, "meta.price").exit_code == 0
    assert findings_of(stage, documents) == ["meta.exported", "meta.owner", "other.price"]
    assert index(shell, documents.name, "meta.price", "--drop").exit_code == 0
    report = shell.invoke(cms, ["doctor"])
    assert f"run `cms index {documents.name} meta.price`" in report.output


@pytest.mark.parametrize("first", ["the real path", "made-up paths"])
def test_made_up_paths_crowd_out_none_that_recurs(
    stage: Stage, documents: Table, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    store = stage.admin.app.store
    monkeypatch.setattr(store, "json_path_record", JsonPathRecord(store.database))
    monkeypatch.setattr(json_path_record, "MAX_PATHS", 3)
    stage.execute("DELETE FROM system_json_paths")
    made_up = [f"meta.{name}" for name in "abcdefg"]
    real = ["meta.real"] * 9
    for path in real + made_up if first == "the real path" else made_up + real:
        assert documents.read(f"filter[{path}]=5&limit=1").status == 200
    uses = f"SELECT uses FROM system_json_paths WHERE collection = '{documents.name}' AND path = "
    assert stage.value(f"{uses}'meta.real'") == 8
    # In another process all begin anew, with as many paths as fit.
    monkeypatch.setattr(store, "json_path_record", JsonPathRecord(store.database))
    for path in made_up:
        assert documents.read(f"filter[{path}]=5&limit=1").status == 200
    assert stage.value(f"{uses}'meta.real'") == 8


def test_paths_that_are_used_no_more_are_forgotten(
    stage: Stage, documents: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stage.admin.app.store
    monkeypatch.setattr(store, "json_path_record", JsonPathRecord(store.database))
    stage.execute(
        "DELETE FROM system_json_paths;"
        "INSERT INTO system_json_paths VALUES ('gone', 'meta.old', CURRENT_DATE - 91, 64)"
    )
    assert documents.read("filter[meta.new]=5&limit=1").status == 200
    assert stage.value("SELECT array_agg(path) FROM system_json_paths") == ["meta.new"]


def test_the_record_of_paths_is_bounded_and_never_fails_a_read(
    stage: Stage, documents: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stage.admin.app.store
    monkeypatch.setattr(store, "json_path_record", JsonPathRecord(store.database))
    monkeypatch.setattr(json_path_record, "MAX_PATHS", 3)
    for number in range(5):
        assert documents.read(f"filter[meta.many{number}]=5&limit=1").status == 200
    assert documents.read(f"filter[meta.{'long' * 60}]=5&limit=1").status == 200
    count = f"SELECT count(*) FROM system_json_paths WHERE collection = '{documents.name}'"
    assert stage.value(count) == 3
    stage.execute("ALTER TABLE system_json_paths RENAME TO away")
    monkeypatch.setattr(store, "json_path_record", JsonPathRecord(store.database))
    assert documents.read("filter[meta.price]=5&limit=1").status == 200
    stage.execute("ALTER TABLE away RENAME TO system_json_paths")
