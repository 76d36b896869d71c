"""/docs: the page that shows the document of OpenAPI, as it is sent (tests/browser opens it)."""

from __future__ import annotations

import re
from collections.abc import Callable
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.client import Client
from tests.things import Stage

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "cms" / "openapi" / "page"
FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "rapidoc-min.js": "text/javascript; charset=utf-8",
}


def nonces(client: Client) -> set[str]:
    """The nonces of one answer: those of its policy and of its scripts."""
    answer = client.get("/docs")
    policy = answer.headers["content-security-policy"]
    return {*re.findall(r"'nonce-([^']+)'", policy), *re.findall(r'nonce="([^"]+)"', answer.text)}


def test_anybody_gets_the_page(stage: Stage) -> None:
    answer = stage.anonymous.get("/docs")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-frame-options"] == "DENY"


def test_scripts_have_a_nonce_that_is_new_each_time(stage: Stage) -> None:
    first = nonces(stage.anonymous)
    assert len(first) == 1
    assert nonces(stage.anonymous).isdisjoint(first)
    text = stage.anonymous.get("/docs").text
    assert len(re.findall("<script ", text)) == len(re.findall('<script nonce="', text))


def test_the_policy_permits_nothing_of_other_hosts_and_no_inline_script(stage: Stage) -> None:
    header = stage.anonymous.get("/docs").headers["content-security-policy"]
    policy = {part.split()[0]: part.split()[1:] for part in header.split("; ")}
    assert policy["default-src"] == ["'none'"]
    assert policy["connect-src"] == ["'self'"]
    assert policy["frame-ancestors"] == ["'none'"]
    (script,) = policy["script-src"]
    assert script.startswith("'nonce-")
    own = {"'self'", "'none'", "'unsafe-inline'", "data:", "blob:", script}
    assert {source for sources in policy.values() for source in sources} <= own


def test_every_address_of_the_page_is_relative(stage: Stage) -> None:
    """So that it works below any prefix."""
    text = stage.anonymous.get("/docs").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', text)
    own = {f"docs/{name}" for name in FILES}
    assert set(addresses) == {*own, "data:,", "server/specs/oas"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_sent_once_for_each_version(stage: Stage, name: str) -> None:
    path = f"/docs/{name}"
    answer = stage.anonymous.get(path)
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers["content-type"] == FILES[name]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"
    tag = answer.headers["etag"]
    again = stage.anonymous.send("GET", path, **{"If-None-Match": tag})
    assert (again.status, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "content-type" not in again.headers


@pytest.mark.parametrize(
    "name", ["nothing.js", "page.html", "..%2Fdocs_page.py", "%2Fetc%2Fpasswd", "..", "%00"]
)
def test_nothing_else_is_sent(stage: Stage, name: str) -> None:
    assert stage.anonymous.get(f"/docs/{name}").codes == ["NOT_FOUND"]


def test_a_setting_removes_the_page(make_client: Callable[..., Client]) -> None:
    client = make_client(openapi_docs=False)
    assert client.get("/docs").status == 404
    assert client.get("/docs/page.js").status == 404
    assert "/docs" not in client.get("/server/specs/oas").body["paths"]


def test_the_files_and_the_licence_are_in_the_wheel() -> None:
    configuration = ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    patterns = configuration["options.package_data"]["cms.openapi"].split(", ")
    names = {f"page/{path.name}" for path in FOLDER.iterdir()}
    assert {*(f"page/{name}" for name in FILES), "page/rapidoc-min.js.LICENSE.txt"} <= names
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in names)


def test_an_address_with_a_slash_at_its_end_leads_to_the_page(stage: Stage) -> None:
    answer = stage.anonymous.get("/docs/")
    assert (answer.status, answer.headers["location"]) == (308, "../docs")
