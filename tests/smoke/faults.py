"""Writers that keep a service busy while it is being killed, and what must
hold of its database whatever happened.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import requests

from tests.waiting import eventually

TIMEOUT_SECONDS = 60.0
WRITERS = 4
IMPORTED = 30
TABLES = ("people", "posts", "tags", "comments", "steps", "posts_tags")

Json = dict[str, Any]


@dataclass
class AcknowledgedWrites:
    """What a writer got answers for: the tags that are there with their sizes,
    those that are gone, whole writes …

    A tag of whose last write nothing was heard is in neither.
    """

    tags: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    invited: set[str] = field(default_factory=set)
    answered: int = 0
    unheard: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shared:
    """What all writers write to: keys of posts, and the role that they invite to."""

    posts: list[int]
    role: str


class Writer:
    """One client, which hears successes, nothing at all, or 503 with a
    time to try again; all else is wrong.
    """

    def __init__(self, url: str, token: str, shared: Shared, seed: int) -> None:
        self.ledger = AcknowledgedWrites()
        self._url = url
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"
        self._shared = shared
        self._random = Random(seed)

    def work(self, ended: threading.Event) -> None:
        def batch() -> None:
            self._batch(ended)

        actions = [
            self._tag,
            self._resize,
            self._resize,
            self._drop,
            self._post,
            self._import,
            self._invite,
            self._share,
            batch,
        ]
        while not ended.is_set():
            self._random.choice(actions)()

    def _send(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Return what stands under `data`, True for an empty answer, None when nothing was
        heard.
        """
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {"Content-Type": "application/json", **headers}
        try:
            answer = self._session.request(
                method, self._url + path, data=sent, headers=all_headers, timeout=TIMEOUT_SECONDS
            )
        except requests.Timeout as fault:
            self.ledger.wrong.append(f"{method} {path}: {fault}")
            return None
        except requests.RequestException:
            self.ledger.unheard += 1
            return None
        if answer.status_code not in (200, 204):
            self.ledger.unheard += 1
            if answer.status_code != 503 or "Retry-After" not in answer.headers:
                self.ledger.wrong.append(f"{method} {path}: {answer.status_code} {answer.text}")
            return None
        self.ledger.answered += 1
        return answer.json()["data"] if answer.content else True

    def _tag(self) -> None:
        name = f"tag {uuid4()}"
        answer = self._send("POST", "/items/tags", {"name": name})
        if answer:
            self.ledger.tags[name] = answer["id"], None

    def _resize(self) -> None:
        if not self.ledger.tags:
            return
        name, (key, _) = self._random.choice([*self.ledger.tags.items()])
        del self.ledger.tags[name]
        size = self._random.randrange(1_000_000)
        if self._send("PATCH", f"/items/tags/{key}", {"size": size}):
            self.ledger.tags[name] = key, size

    def _drop(self) -> None:
        if not self.ledger.tags:
            return
        name, (key, _) = self._random.choice([*self.ledger.tags.items()])
        del self.ledger.tags[name]
        if self._send("DELETE", f"/items/tags/{key}"):
            self.ledger.gone.add(name)

    def _post(self) -> None:
        name = f"whole {uuid4()}"
        if self._send("POST", "/items/posts", whole(name)):
            self.ledger.whole.add(name)

    def _import(self) -> None:
        name = f"import {uuid4()}"
        rows = "".join(f"{name},{size}\n" for size in range(IMPORTED))
        if self._send(
            "POST",
            "/utils/import/tags",
            f"name,size\n{rows}".encode(),
            **{"Content-Type": "text/csv"},
        ):
            self.ledger.imported.add(name)

    def _invite(self) -> None:
        address = f"{uuid4()}@example.com"
        if self._send("POST", "/users/invite", {"email": address, "role": self._shared.role}):
            self.ledger.invited.add(address)

    def _share(self) -> None:
        """Give a post that all writers share a new state; of two such
        writes one comes after the other.
        """
        title = f"shared {uuid4()}"
        body = {
            "title": title,
            "comments": [{"text": title}, {"text": title}],
            "author": {"name": title},
            "tags": [{"tags_id": {"name": title}}],
        }
        self._send("PATCH", f"/items/posts/{self._random.choice(self._shared.posts)}", body)

    def _batch(self, ended: threading.Event) -> None:
        """Send a batch until it is answered: whatever became of the ones before, it is done
        once.
        """
        name = f"whole {uuid4()}"
        body = whole(name)
        operations = [
            {
                "id": "author",
                "method": "create",
                "collection": "people",
                "data": body.pop("author"),
            },
            {
                "id": "post",
                "method": "create",
                "collection": "posts",
                "data": {"author": {"$result": "author.id"}},
            },
            {
                "method": "update",
                "collection": "posts",
                "key": {"$result": "post.id"},
                "data": body,
            },
        ]
        while not self._send(
            "POST", "/batch", {"operations": operations}, **{"Idempotency-Key": name}
        ):
            if ended.wait(0.05):
                return
        self.ledger.whole.add(name)


def whole(name: str) -> Json:
    """Return a post of which all must be there or nothing."""
    return {
        "title": name,
        "author": {"name": name},
        "comments": [{"text": name}, {"text": name}],
        "steps": [{"text": name}, {"text": name}],
        "tags": [{"tags_id": {"name": name}}],
    }


@contextmanager
def busy(writers: list[Writer]) -> Iterator[None]:
    """Let the writers write meanwhile; what they begin they end."""
    ended = threading.Event()
    threads = [threading.Thread(target=writer.work, args=(ended,)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def await_answers(writers: list[Writer], number: int) -> None:
    """Wait until the writers have been answered so many more times."""
    wanted = number + sum(writer.ledger.answered for writer in writers)
    eventually(lambda: sum(writer.ledger.answered for writer in writers) >= wanted)


# What must hold

_AGREE = {
    "a row has one create in the activity": """
        SELECT count(*) FROM {table} AS t LEFT JOIN (
            SELECT item, count(*) AS n FROM system_activity
            WHERE collection = '{table}' AND action = 'create' GROUP BY item
        ) AS a ON a.item = t.id::text WHERE a.n IS DISTINCT FROM 1""",
    "what was created is there, or was deleted once": """
        SELECT count(*) FROM system_activity AS c LEFT JOIN {table} AS t ON t.id::text = c.item
        WHERE c.collection = '{table}' AND c.action = 'create' AND (t.id IS NULL)::int IS DISTINCT
            FROM (
            SELECT count(*) FROM system_activity AS d
            WHERE d.collection = '{table}' AND d.action = 'delete' AND d.item = c.item
        )""",
    "what was changed was created": """
        SELECT count(*) FROM system_activity AS u WHERE u.collection = '{table}' AND NOT EXISTS (
            SELECT FROM system_activity AS c
            WHERE c.collection = '{table}' AND c.action = 'create' AND c.item = u.item
        )""",
    "an act has one revision": """
        SELECT count(*) FROM system_activity AS a WHERE a.collection = '{table}' AND (
            SELECT count(*) FROM system_revisions AS r
            WHERE r.activity = a.id AND r.collection = a.collection AND r.item = a.item
        ) <> 1 AND (a.action <> 'update' OR EXISTS (
            SELECT FROM system_revisions AS r WHERE r.activity = a.id OFFSET 1
        ))""",
    "a revision has its act": """
        SELECT count(*) FROM system_revisions AS r WHERE r.collection = '{table}' AND NOT EXISTS (
            SELECT FROM system_activity AS a
            WHERE a.id = r.activity AND a.collection = r.collection AND a.item = r.item
        )""",
    "a row is what its last revision says": """
        SELECT count(*) FROM {table} AS t LEFT JOIN LATERAL (
            SELECT r.data FROM system_revisions AS r
            WHERE r.collection = '{table}' AND r.item = t.id::text ORDER BY r.id DESC LIMIT 1
        ) AS last ON TRUE
        WHERE last.data::jsonb - 'changed' IS DISTINCT FROM to_jsonb(t) - 'changed'""",
}
_WHOLE = {
    "who is invited is in the activity once, and has one job that sends the mail": """
        SELECT count(*) FROM system_users AS u WHERE u.status = 'invited' AND (
            SELECT count(*) FROM system_activity AS a WHERE a.collection = 'system_users' AND a.item
                = u.id::text
        ) + 10 * (
            SELECT count(*) FROM procrastinate_jobs AS j WHERE j.args #>> '{payload,to,0}' = u.email
        ) <> 11""",
    "a mail goes to somebody": """
        SELECT count(*) FROM procrastinate_jobs AS j
        WHERE j.task_name = 'mail' AND NOT EXISTS (
            SELECT FROM system_users AS u WHERE u.email = j.args #>> '{payload,to,0}'
        )""",
    "an import is whole": f"""
        SELECT count(*) FROM (
            SELECT FROM tags WHERE name LIKE 'import%' GROUP BY name HAVING count(*) <> {IMPORTED}
        ) AS part""",
    "a nested write is whole": """
        SELECT count(*) FROM posts AS p LEFT JOIN people AS a ON a.id = p.author AND a.name =
            p.title
        WHERE p.title IS NULL OR p.title NOT LIKE 'new%' AND (
            a.id IS NULL
            OR (SELECT count(*) FROM comments AS c WHERE c.post = p.id AND c.text = p.title) <> 2
            OR (SELECT count(*) FROM comments AS c WHERE c.post = p.id) <> 2
            OR (SELECT count(*) FROM posts_tags AS j JOIN tags AS t ON t.id = j.tags_id
                WHERE j.posts_id = p.id AND t.name = p.title) <> 1
            OR p.title LIKE 'whole%' AND (SELECT count(*) FROM steps AS s WHERE s.post = p.id) <>
                2)""",
    "what is part of a write is nowhere without it": """
        SELECT count(*) FROM people AS a
        WHERE a.name LIKE 'whole%' AND (SELECT count(*) FROM posts AS p WHERE p.title = a.name) <>
            1""",
    "a comment's revision knows the one of its post": """
        SELECT count(*) FROM system_revisions AS r JOIN system_activity AS a ON a.id = r.activity
        WHERE a.collection = 'comments' AND a.action = 'create' AND NOT EXISTS (
            SELECT FROM system_revisions AS p WHERE p.id = r.parent AND p.collection = 'posts'
        )""",
}


def connected(dsn: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Look at one moment of the database, which may still recover from what
    was killed after it gave its answers.
    """

    def connection() -> psycopg.Connection[tuple[Any, ...]] | None:
        try:
            return psycopg.connect(
                dsn, options="-c default_transaction_isolation=repeatable\\ read"
            )
        except psycopg.OperationalError:
            return None

    return eventually(connection)


def check(dsn: str, writers: list[Writer]) -> None:
    """Look at one moment of the database: rows and history agree, and
    what the writers got as answers is true.
    """
    with connected(dsn) as moment:
        questions = {
            f"{name} ({table})": sql.format(table=table)
            for name, sql in _AGREE.items()
            for table in TABLES
        }
        for name, sql in {**questions, **_WHOLE}.items():
            violations = moment.execute(sql.encode()).fetchone()
            assert violations == (0,), f"not so {violations} times: {name}"
        tags: dict[str, int | None] = dict(
            moment.execute("SELECT name, size FROM tags WHERE name LIKE 'tag %'")
        )
        invited = {
            email
            for (email,) in moment.execute(
                "SELECT email FROM system_users WHERE status = 'invited'"
            )
        }
        imported = {
            name for (name,) in moment.execute("SELECT name FROM tags WHERE name LIKE 'import %'")
        }
        posts = {
            title
            for (title,) in moment.execute("SELECT title FROM posts WHERE title LIKE 'whole %'")
        }
    for writer in writers:
        ledger = writer.ledger
        assert ledger.wrong == [], ledger.wrong
        assert {name: tags.get(name, "gone") for name in ledger.tags} == {
            name: ledger.tags[name][1] for name in ledger.tags
        }
        assert not ledger.gone & tags.keys()
        assert ledger.whole <= posts
        assert ledger.imported <= imported
        assert ledger.invited <= invited
