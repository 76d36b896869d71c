"""Clients that write the same rows at once: nobody gets a 5xx, and what
stands afterwards is what somebody meant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import psycopg
import pytest
from psycopg import sql

from cms.app import create_app
from cms.config import Config
from tests.api.nesting import item, make_relations
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client, with_other_status
from tests.databases import drop_database
from tests.things import Json, Table
from tests.waiting import eventually

pytestmark = pytest.mark.release

CLIENTS = 6
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
    "wait_event_type = 'Lock'"
)


@pytest.fixture(scope="module")
def dsn(make_database: Callable[..., str], template: str) -> Iterator[str]:
    """A database that soon notices a deadlock."""
    dsn = make_database(template)
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET deadlock_timeout = '10ms'").format(name))
    yield dsn
    drop_database(dsn)


@pytest.fixture(scope="module")
def admin(settings: Config, dsn: str) -> Iterator[Client]:
    """An application with a connection for every client."""
    client = Client(create_app(replace(settings, database_url=dsn, database_pool_size=CLIENTS)))
    admin = client.login(ADMIN_EMAIL, ADMIN_PASSWORD)
    make_relations(admin)
    yield admin
    client.close()


def together(work: Callable[[int], list[Answer]]) -> list[Answer]:
    """Let every client do its work at once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return [answer for answers in pool.map(work, range(CLIENTS)) for answer in answers]


def test_batches_over_the_same_rows_in_any_order_all_pass(admin: Client) -> None:
    tags = Table(admin, "tags").add(*({"name": f"t{n}"} for n in range(8)))
    keys = [tag["id"] for tag in tags]

    def work(client: int) -> list[Answer]:
        random = Random(client)
        answers = []
        for round_number in range(6):
            random.shuffle(keys_here := keys.copy())
            changes: list[Json] = [
                {
                    "id": key,
                    **({"name": f"{client}"} if random.random() < 0.5 else {"size": round_number}),
                }
                for key in keys_here
            ]
            answers.append(admin.patch("/items/tags", changes))
        return answers

    assert with_other_status(together(work), 200) == []


def test_nested_writes_over_the_same_rows_all_pass(admin: Client) -> None:
    people = [person["id"] for person in Table(admin, "people").add({"name": "p1"}, {"name": "p2"})]
    tags = [
        tag["id"] for tag in Table(admin, "tags").add({"name": "a"}, {"name": "b"}, {"name": "c"})
    ]
    posts = [row["id"] for row in Table(admin, "posts").add({"title": "x"}, {"title": "y"})]

    def work(client: int) -> list[Answer]:
        random = Random(client)
        answers = []
        for number in range(5):
            chosen = random.sample(tags, 2)
            body: Json = {
                "title": f"{client} {number}",
                "author": {"id": random.choice(people), "pin": str(client)},
                "tags": [{"tags_id": {"id": tag, "size": client}} for tag in chosen],
                "comments": [{"text": f"{client} {number} {n}"} for n in range(2)],
            }
            answers.append(admin.patch(f"/items/posts/{random.choice(posts)}", body))
        return answers

    assert with_other_status(together(work), 200) == []
    for post in posts:
        post_read = item(admin, f"posts/{post}", "title,tags.tags_id,comments.text")
        assert len(post_read["tags"]) in (0, 2)
        assert [comment["text"][:-2] for comment in post_read["comments"]] in (
            [],
            [post_read["title"]] * 2,
        )


def test_rows_taken_to_and_fro_end_up_with_somebody(admin: Client) -> None:
    posts = [item["id"] for item in Table(admin, "posts").add({}, {})]
    comments = [
        row["id"] for row in Table(admin, "comments").add(*({"text": str(n)} for n in range(4)))
    ]

    def work(client: int) -> list[Answer]:
        random = Random(client)
        return [
            admin.patch(
                f"/items/posts/{random.choice(posts)}",
                {"comments": {"update": random.sample(comments, 3)}},
            )
            for _ in range(6)
        ]

    assert with_other_status(together(work), 200) == []
    assert {
        key["post"]
        for key in Table(admin, "comments")
        .get(**{"filter[id][_in]": ",".join(map(str, comments))})
        .data
    } <= set(posts)


def test_a_row_that_somebody_takes_meanwhile_is_not_dropped(admin: Client, dsn: str) -> None:
    here, there = (
        row["id"] for row in Table(admin, "posts").add({"comments": [{"text": "a"}]}, {})
    )
    (comment,) = item(admin, f"posts/{here}", "comments")["comments"]
    answers: list[Answer] = []
    service = threading.Thread(
        target=lambda: answers.append(admin.patch(f"/items/posts/{here}", {"comments": []}))
    )
    with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as watch:
        other.execute("UPDATE comments SET post = %s WHERE id = %s", (there, comment))
        service.start()
        eventually(lambda: watch.execute(WAITING).fetchone() != (0,))
        other.commit()
        service.join()
    assert answers[0].status == 200
    assert item(admin, f"posts/{there}", "comments") == {"comments": [comment]}


def test_of_equal_unique_values_one_gets_in(admin: Client) -> None:
    def work(client: int) -> list[Answer]:
        return [
            admin.post("/items/people", {"name": "only"}),
            admin.post("/items/posts", {"author": {"name": "nested only"}}),
            admin.post("/items/people", [{"name": f"own {client}"}, {"name": "batch only"}]),
        ]

    answers = together(work)
    assert sorted(answer.status for answer in answers) == [200] * 3 + [400] * (3 * CLIENTS - 3)
    key = {
        (answer.codes[0], answer.errors[0]["field"]) for answer in answers if answer.status == 400
    }
    assert key == {("RECORD_NOT_UNIQUE", "name")}


def test_deletes_beside_changes_succeed_or_are_not_found(admin: Client) -> None:
    tags = [tag["id"] for tag in Table(admin, "tags").add(*({"name": "x"} for _ in range(12)))]

    def work(client: int) -> list[Answer]:
        order = Random(client).sample(tags, 6)
        if client % 2:
            return [admin.delete("/items/tags", order[:2]), admin.delete(f"/items/tags/{order[2]}")]
        return [admin.patch("/items/tags", {"keys": order, "data": {"size": client}})]

    assert with_other_status(together(work), 200, 204, 404) == []


def test_rows_that_a_query_finds_are_taken_once(admin: Client) -> None:
    posts = Table(admin, "posts").add(*({"title": "free"} for _ in range(40)))

    def work(client: int) -> list[Answer]:
        query = {"filter": {"title": {"_eq": "free"}}, "sort": "id", "limit": 4}
        body = {"query": query, "data": {"title": f"taken by {client}"}}
        return [admin.patch("/items/posts?fields=id", body) for _ in range(4)]

    taken = [item["id"] for answer in together(work) for item in answer.data]
    assert len(taken) == len(set(taken))
    assert set(taken) <= {post["id"] for post in posts}


def test_deletes_of_what_a_query_finds_all_pass(admin: Client) -> None:
    Table(admin, "tags").add(*({"name": "old"} for _ in range(60)))

    def work(client: int) -> list[Answer]:
        return [
            admin.delete(
                "/items/tags", {"query": {"filter": {"name": {"_eq": "old"}}, "limit": 15}}
            )
        ]

    assert with_other_status(together(work), 204) == []


def test_batches_that_come_to_the_same_rows_in_any_order_all_pass(admin: Client) -> None:
    keys = [tag["id"] for tag in Table(admin, "tags").add(*({"name": "x"} for _ in range(10)))]

    def work(client: int) -> list[Answer]:
        random = Random(client)
        answers = []
        for _ in range(4):
            order = [{"filter": {"id": {"_eq": key}}} for key in random.sample(keys, len(keys))]
            change: Json = {"method": "update", "collection": "tags", "data": {"size": client}}
            answers.append(
                admin.post(
                    "/batch", {"operations": [{**change, "query": query} for query in order]}
                )
            )
        return answers

    assert with_other_status(together(work), 200) == []


def test_writes_in_a_cycle_all_pass(admin: Client) -> None:
    people = [person["id"] for person in Table(admin, "people").add(*({} for _ in range(5)))]

    def work(client: int) -> list[Answer]:
        random = Random(client)
        answers = []
        for number in range(6):
            first, second, third = random.sample(people, 3)
            staff = [
                {
                    "id": second,
                    "pin": str(number),
                    "staff": {"update": [{"id": third, "staff": [first]}]},
                }
            ]
            boss = {"id": second, "boss": {"id": third, "boss": {"id": first, "pin": str(client)}}}
            body = {"staff": {"update": staff}} if random.random() < 0.5 else {"boss": boss}
            answers.append(admin.patch(f"/items/people/{first}", body))
        return answers

    answers = together(work)
    assert with_other_status(answers, 200, 400) == []
    assert not {code for answer in answers if answer.status == 400 for code in answer.codes} - {
        "INVALID_FOREIGN_KEY"
    }
