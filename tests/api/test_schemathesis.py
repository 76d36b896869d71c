"""Schemathesis makes calls out of the document of OpenAPI; every answer is as documented."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.smoke.running import new_folder, serving

pytestmark = [pytest.mark.slow, pytest.mark.release]

Json = dict[str, Any]

ACCOUNT = {"email": "admin@example.com", "password": "correct horse battery staple"}
TOKEN_OF_THE_MEMBER = "a-static-token-of-a-member"
RUN_SECONDS = 300  # on a busy machine; alone, a run takes a tenth
EXAMPLES = 3
"""Calls of one operation: there are two hundred operations."""

CALLS = {
    # Schemathesis cannot turn the schema of filters around, to send what it does not permit.
    "reads": ("--phases", "fuzzing", "--mode", "positive", "--include-method", "GET"),
    "writes": ("--phases", "fuzzing", "--mode", "all", "--exclude-method", "GET"),
    # Every value of every parameter; of all operations these would be many thousands of calls.
    "values": ("--phases", "coverage", "--mode", "positive", "--include-path", "/schema/snapshot"),
}
"""What is called; writes also with values that the document does not permit."""
RUNS = {
    ("admin", "reads"): 80,
    ("admin", "writes"): 100,
    ("admin", "values"): 1,
    ("member", "reads"): 50,
    ("member", "writes"): 50,
}
"""How many operations are called at least, by the caller."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
"""Not those of methods: OpenAPI 3.1 has no place for SEARCH and QUERY, which the service answers.
Not those of credentials: every operation can be called without. Not those of values: whether a
value is accepted depends on the structure and on rows as well."""

EXCLUDED = {
    r"(post|patch|delete)\.(collections|fields|relations)\b.*": "the document would be another one",
    r"post\.schema\.apply": "the document would be another one",
    r"post\.utils\.cache\.clear": "every process reads the structure anew, for each of the calls",
    r"post\.auth\.logout": "it would end the session that the calls are made with",
    r"patch\.users(\.me)?": "it would change the caller's own token, password and status",
    r"patch\.settings": "other rules would hold for passwords and registrations",
}
"""Operations that would change what the other calls depend on, with the reason."""


def field(name: str, kind: str, **schema: object) -> Json:
    return {"field": name, "type": kind, "schema": schema}


AUTHORS = {
    "collection": "authors",
    "schema": {},
    "fields": [field("name", "string", max_length=40), field("born", "date")],
}
BOOKS = {
    "collection": "books",
    "schema": {},
    "fields": [
        field("title", "string", is_nullable=False),
        field("author", "integer"),
        field("pages", "integer"),
        field("price", "decimal"),
        field("weight", "float"),
        field("sold", "bigInteger"),
        field("in_print", "boolean"),
        field("tags", "csv"),
        field("more", "json"),
        field("code", "uuid"),
        field("read_at", "time"),
        field("printed", "dateTime"),
        field("entered", "timestamp"),
    ],
}
FRONT = {
    "collection": "front",
    "schema": {},
    "meta": {"singleton": True},
    "fields": [field("motto", "string")],
}
AUTHOR_OF = {
    "collection": "books",
    "field": "author",
    "related_collection": "authors",
    "meta": {"one_field": "books"},
}
BOOK = {
    "title": "One",
    "pages": 3,
    "price": 1.5,
    "weight": 0.25,
    "sold": 2**60,
    "in_print": True,
    "tags": ["a", "b"],
    "more": {"a": [1, None]},
    "code": "5e0c39b4-0b0e-4d5c-8a0e-0d3f1b6a7c11",
    "read_at": "12:30:00",
    "printed": "2020-02-03T04:05:06",
    "entered": "2020-02-03T04:05:06Z",
}
PERMISSIONS = (
    ("books", "read", ["id", "title", "author", "tags", "entered"]),
    ("books", "create", ["title", "pages"]),
    ("books", "update", ["pages"]),
    ("authors", "read", ["*"]),
    ("authors", "delete", ["*"]),
    ("system_files", "read", ["*"]),
    ("system_files", "create", ["*"]),
)


@dataclass(frozen=True)
class Library:
    """A running service with books and their authors; tokens by the names of callers."""

    url: str
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    account = {"ADMIN_EMAIL": ACCOUNT["email"], "ADMIN_PASSWORD": ACCOUNT["password"]}
    with new_folder() as folder, serving(folder, ACCESS_TOKEN_TTL="1h", **account) as running:
        url = f"http://127.0.0.1:{running.port}"
        yield Library(url, filled(url))


def filled(url: str) -> dict[str, str]:
    """Make the collections and a user; return the tokens of that user and of the administrator."""
    session = requests.Session()

    def post(path: str, body: object) -> Any:
        answer = session.post(f"{url}{path}", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    token = post("/auth/login", ACCOUNT)["access_token"]
    session.headers["Authorization"] = f"Bearer {token}"
    for collection in (AUTHORS, BOOKS, FRONT):
        post("/collections", collection)
    post("/relations", AUTHOR_OF)
    post("/items/authors", [{"name": "Ann", "born": "1980-02-03", "books": [BOOK]}, {}])
    role = post("/roles", {"name": "Readers", "app_access": True})["id"]
    for name, action, fields in PERMISSIONS:
        grant = {"role": role, "collection": name, "action": action, "fields": fields}
        post("/permissions", {**grant, "permissions": {}})
    member = {"email": "ann@example.com", "role": role, "token": TOKEN_OF_THE_MEMBER}
    post("/users", member)
    return {"admin": token, "member": TOKEN_OF_THE_MEMBER}


def command(library: Library, caller: str, calls: str, report: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{library.url}/server/specs/oas"),
        *("--header", f"Authorization: Bearer {library.tokens[caller]}"),
        *("--max-examples", str(EXAMPLES), *CALLS[calls]),
        *("--generation-deterministic", "--no-shrink", "--continue-on-failure"),
        *("--suppress-health-check", "too_slow"),  # as it may be where others work as well
        *("--checks", ",".join(CHECKS), "--warnings", "off", "--no-color"),
        *("--report-json-path", str(report)),
        *("--exclude-operation-id-regex", f"^({'|'.join(EXCLUDED)})$"),
    ]


@pytest.mark.parametrize(("caller", "calls"), RUNS)
def test_every_answer_is_as_documented(
    library: Library, tmp_path: Path, caller: str, calls: str
) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        command(library, caller, calls, report),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads(report.read_text())
    assert run["complete"]
    assert run["operations"]["tested"] == run["operations"]["selected"] >= RUNS[caller, calls]
