"""The page docs/existing-databases.md: its SQL makes a database, and its commands are
pasted beside a real service, which has no other rights than those of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from psycopg.conninfo import make_conninfo

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config
from cms.database.migrate import migrate
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client, with_other_status
from tests.databases import drop_database, run_sql
from tests.smoke.pasting import ROOT, blocks_of, require_shown_answers
from tests.smoke.running import new_folder, serving
from tests.things import Json, admin_token

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "existing-databases.md").read_text()
ADDRESS = "postgresql://cms:change-me@127.0.0.1/shop"


def section(heading: str) -> str:
    """Return the text under a heading, up to the next one."""
    return re.split(r"\n##+ ", PAGE.split(f"\n{heading}\n")[1])[0]


def sql_of(heading: str) -> list[str]:
    """Return the statements of a section."""
    blocks = re.findall(r"```sql\n(.*?)```", section(heading), re.DOTALL)
    return [each.strip() for block in blocks for each in block.split(";\n") if each.strip()]


CREATE_ROLE, *GRANTS = sql_of("### 2. A role")
READING = sql_of("### To read")
WRITING = [*READING, *sql_of("### To write")]
CHANGING = [READING[0], *sql_of("### To change the structure")]


@pytest.fixture
def shop(make_database: Callable[..., str]) -> Iterator[str]:
    """The superuser's address of the page's database, which has an owner and the role `cms`."""
    dsn = make_database()
    run_sql(dsn, f"CREATE ROLE shop_owner LOGIN; {CREATE_ROLE}")
    run_sql(dsn, "ALTER SCHEMA public OWNER TO shop_owner")
    for statement in sql_of("### 1. A database"):
        run_sql(owner_of(dsn), statement)
    yield dsn
    drop_database(dsn)
    run_sql(make_conninfo(dsn, dbname="postgres"), "DROP ROLE cms; DROP ROLE shop_owner")


def owner_of(shop: str) -> str:
    return make_conninfo(shop, user="shop_owner")


def give(shop: str, statements: list[str]) -> None:
    """Run grants as the owner; that of the owner itself is a superuser's."""
    for statement in statements:
        run_sql(shop if statement.startswith("GRANT shop_owner") else owner_of(shop), statement)


@contextmanager
def service(settings: Config, shop: str) -> Iterator[Client]:
    """Yield the administrator's client of a service whose role is `cms`."""
    dsn = make_conninfo(shop, user="cms")
    migrate(dsn)
    accounts.first_admin(dsn, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
    config = replace(settings, database_url=dsn, database_pool_size=3)
    client = Client(create_app(config))
    yield client.bearing(admin_token(config, dsn))
    client.close()


def test_the_commands_of_the_page_print_what_it_shows(shop: str) -> None:
    give(shop, GRANTS)
    address = make_conninfo(shop, user="cms")
    page = PAGE.split("### 3. The service")[1].split("\n## ")[0]
    start, *blocks = blocks_of(page.replace(ADDRESS, address.replace("'", "")))
    assert "cms serve" in start.commands
    assert len(blocks) > 4
    with new_folder() as folder, serving(folder, DATABASE_URL=address) as running:
        require_shown_answers(running, blocks)


def reads(api: Client) -> list[Answer]:
    names = ("customers", "orders", "products", "order_items", "sales", "later")
    return [api.get(f"/items/{name}?fields=*.*&meta=*&search=a") for name in names]


def writes(api: Client) -> list[Answer]:
    order: Json = {"customer_id": {"name": "Dan"}}
    return [
        api.post("/items/orders?fields=*.*", order),
        api.post("/items/later", [{"name": "a"}, {"name": "b"}]),
        api.patch("/items/products/1", {"price": 3}),
        api.patch("/items/later", {"query": {"limit": -1}, "data": {"name": "c"}}),
        api.delete("/items/orders/2"),
        api.delete("/items/later", {"query": {"limit": -1}}),
        api.post("/collections", {"collection": "notes", "schema": {}}),
        api.post("/fields/notes", {"field": "order", "type": "integer"}),
        api.post(
            "/relations", {"collection": "notes", "field": "order", "related_collection": "orders"}
        ),
        api.post("/items/notes", {"order": 1}),
    ]


def changes(api: Client) -> list[Answer]:
    return [
        api.post("/fields/products", {"field": "colour", "type": "string"}),
        api.patch("/fields/products/colour", {"schema": {"is_indexed": True}}),
        api.patch("/fields/products/name", {"type": "string", "schema": {"max_length": 80}}),
        api.patch("/collections/products", {"meta": {"searchable": True}}),
        api.delete("/fields/products/colour"),
    ]


def make_later(shop: str) -> None:
    """Make a table after the rights were given."""
    run_sql(owner_of(shop), "CREATE TABLE later (id serial PRIMARY KEY, name text)")


def test_a_role_with_the_rights_to_read_reads_and_writes_nothing(
    settings: Config, shop: str
) -> None:
    give(shop, READING)
    make_later(shop)
    with service(settings, shop) as api:
        assert with_other_status(reads(api), 200) == []
        refused = api.post("/items/customers", {"name": "Dan"})
        assert (refused.status, refused.codes) == (500, ["DATABASE_RIGHTS"]), refused
        assert api.patch("/fields/customers/name", {"meta": {"note": "n"}}).status == 200


def test_a_role_with_the_rights_to_write_changes_no_table_of_others(
    settings: Config, shop: str
) -> None:
    give(shop, WRITING)
    make_later(shop)
    with service(settings, shop) as api:
        assert with_other_status([*reads(api), *writes(api)], 200, 204) == []
        for refused in changes(api)[:1]:
            assert (refused.status, refused.codes) == (500, ["DATABASE_RIGHTS"]), refused
    assert run_sql(shop, "SELECT to_regclass('system_users')::text") == [("system_users",)]


def test_a_member_of_the_owner_changes_the_structure(settings: Config, shop: str) -> None:
    give(shop, CHANGING)
    make_later(shop)
    with service(settings, shop) as api:
        answers = [*reads(api), *writes(api), *changes(api)]
        assert with_other_status(answers, 200, 204) == []


@pytest.mark.parametrize("number", range(len(WRITING)))
def test_no_right_of_the_page_is_given_in_vain(settings: Config, shop: str, number: int) -> None:
    if number == 0:
        with pytest.raises(Exception, match="permission denied for schema"):
            migrate(make_conninfo(shop, user="cms"))
        return
    give(shop, [*WRITING[:number], *WRITING[number + 1 :]])
    make_later(shop)
    with service(settings, shop) as api:
        assert with_other_status([*reads(api), *writes(api)], 200, 204)
