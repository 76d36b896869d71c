"""meta=filter_count_estimate: quick, and silent about what rules hide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.statements import counted
from tests.things import Stage, Table, field, table

pytestmark = pytest.mark.release

ESTIMATE = "filter_count_estimate"
ROWS = 4_000


@pytest.fixture(scope="module")
def employees(stage: Stage, admin: Client) -> Table:
    """4,000 things of two owners; the salaries of the other owner lie far above the own ones."""
    made = table(
        admin,
        field("owner", "string"),
        field("salary", "integer"),
        field("name", "string"),
        field("number", "integer"),
    )
    stage.execute(
        f'INSERT INTO "{made.name}" (owner, salary, name, number) '
        "SELECT CASE WHEN n % 2 = 0 THEN 'me' ELSE 'other' END, "
        "CASE WHEN n % 2 = 0 THEN n % 100 ELSE 1000 + n % 100 END, 'n' || n % 10, n "
        f"FROM generate_series(1, {ROWS}) AS n"
    )
    return made


def estimate(caller: Client, things: Table, query: str = "") -> int:
    number: int = _meta(caller, things, query)[ESTIMATE]
    return number


def _meta(caller: Client, things: Table, query: str, names: str = ESTIMATE) -> dict[str, Any]:
    meta: dict[str, Any] = caller.get(f"{things.path}?fields=id&limit=1&meta={names}&{query}").body[
        "meta"
    ]
    return meta


def test_administrators_get_what_postgresql_expects(
    employees: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as seen:
        assert estimate(employees.api, employees) == pytest.approx(ROWS, rel=0.05)
    assert not [text for text in seen if "count(*) FILTER" in text]
    assert estimate(employees.api, employees, "filter[name][_eq]=n3") == pytest.approx(400, rel=0.3)
    assert estimate(employees.api, employees, "filter[salary][_lt]=0") < 50


def test_it_stands_beside_other_counts_only_where_it_is_asked_for(employees: Table) -> None:
    assert set(_meta(employees.api, employees, "", "*")) == {
        "total_count",
        "filter_count",
        "next_cursor",
    }
    both = _meta(employees.api, employees, "filter[name][_eq]=n3", f"{ESTIMATE},filter_count")
    assert list(both) == ["filter_count", ESTIMATE]
    page = _meta(employees.api, employees, "", f"{ESTIMATE},next_cursor")
    assert set(page) == {ESTIMATE, "next_cursor"}
    everything = _meta(employees.api, employees, "", f"*,{ESTIMATE}")
    assert set(everything) == {"total_count", "filter_count", ESTIMATE, "next_cursor"}
    search = employees.api.search(employees.path, {"meta": [ESTIMATE], "limit": 1})
    assert set(search.body["meta"]) == {ESTIMATE}


def test_it_counts_a_few_rows_exactly_for_callers_with_rules(
    stage: Stage, employees: Table
) -> None:
    rule = {"_and": [{"owner": {"_eq": "me"}}, {"number": {"_lte": 500}}]}
    caller = member(stage, may(employees.name, permissions=rule))
    assert estimate(caller, employees) == 250
    assert estimate(caller, employees, "filter[salary][_lt]=10") == 25
    assert estimate(caller, employees, "filter[salary][_gte]=1000") == 0


def test_it_estimates_many_rows_by_a_sample_for_callers_with_rules(
    stage: Stage, employees: Table
) -> None:
    caller = member(stage, may(employees.name, permissions={"owner": {"_eq": "me"}}))
    assert estimate(caller, employees) == pytest.approx(ROWS / 2, rel=0.1)
    assert estimate(caller, employees, "filter[salary][_lt]=50") == pytest.approx(ROWS / 4, rel=0.2)


@pytest.mark.quick(1)
@pytest.mark.parametrize("others", ["1000", "5000"])
def test_hidden_values_change_no_estimate(stage: Stage, others: str) -> None:
    """Two tables that differ in what is hidden answer the same to every filter."""
    answers = []
    for hidden in (others, "0"):
        made = stage.empty_table(field("owner", "string"), field("salary", "integer"))
        stage.execute(
            f'INSERT INTO "{made.name}" (owner, salary) '
            "SELECT CASE WHEN n % 2 = 0 THEN 'me' ELSE 'other' END, "
            f"CASE WHEN n % 2 = 0 THEN n % 100 ELSE {hidden} + n % 100 END "
            "FROM generate_series(1, 4000) AS n; "
            f'ANALYZE "{made.name}"'
        )
        caller = member(stage, may(made.name, permissions={"owner": {"_eq": "me"}}))
        masked = member(
            stage,
            may(made.name, "id", "owner"),
            may(made.name, "salary", permissions={"owner": {"_eq": "me"}}),
        )
        filters = [f"filter[salary][_gte]={limit}" for limit in (0, 10, 50, 99, 1000, 5050)]
        answers.append(
            [estimate(client, made, query) for client in (caller, masked) for query in filters]
        )
    assert answers[0] == answers[1]
    assert answers[0][-1] == 0


def test_a_rule_of_a_related_collection_counts_as_one(stage: Stage, admin: Client) -> None:
    owners = table(admin, field("name", "string"), field("secret", "string"))
    made = table(admin, field("owner", "integer"))
    relation = {
        "collection": made.name,
        "field": "owner",
        "related_collection": owners.name,
        "meta": {"one_field": "made"},
    }
    assert admin.post("/relations", relation).status == 200
    owners.add({"name": "a", "secret": "x"}, {"name": "b", "secret": "y"})
    stage.execute(
        f'INSERT INTO "{made.name}" (owner) SELECT n % 2 + 1 FROM generate_series(1, 40) n'
    )
    caller = member(stage, may(made.name), may(owners.name, permissions={"name": {"_eq": "a"}}))
    assert estimate(caller, made, "filter[owner][secret][_eq]=x") == 20
    assert estimate(caller, made, "filter[owner][secret][_eq]=y") == 0


def test_it_goes_with_groups_and_searches(employees: Table) -> None:
    path = f"{employees.path}?groupBy=name&aggregate[count]=*&meta={ESTIMATE}"
    answer = employees.api.get(path)
    assert len(answer.data) == 10
    assert answer.body["meta"][ESTIMATE] == pytest.approx(ROWS, rel=0.05)
    assert estimate(employees.api, employees, "search=n3") > 0


def test_an_emptied_table_is_analyzed_once(
    stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = table(admin, field("name", "string"))
    fill = f"INSERT INTO \"{made.name}\" (name) SELECT repeat('x', 100) FROM generate_series(1, "
    # No estimate is asked for before it is empty again, so that there are no statistics of columns.
    stage.execute(f'{fill} 30); DELETE FROM "{made.name}"')
    assert _analyzed(made, monkeypatch)
    assert not _analyzed(made, monkeypatch)
    stage.execute(f"{fill} 200)")
    assert _analyzed(made, monkeypatch)
    assert estimate(made.api, made) == pytest.approx(200, rel=0.05)


def _analyzed(made: Table, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the service analyzes a table before an estimate."""
    with counted(monkeypatch) as seen:
        estimate(made.api, made)
    return any(text.startswith("ANALYZE") for text in seen)


def test_other_names_are_refused(employees: Table) -> None:
    answer = employees.api.get(f"{employees.path}?meta=total_count_estimate")
    assert answer.codes == ["INVALID_QUERY"]
    assert ESTIMATE in answer.text
