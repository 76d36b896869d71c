"""The page docs/example.md, pasted into a shell beside a real service."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
import requests

from tests.smoke.calls import url
from tests.smoke.pasting import ROOT, blocks_of, require_shown_answers
from tests.smoke.running import TIMEOUT_SECONDS, Service, command_apart, new_folder, serving

pytestmark = pytest.mark.slow

SECRET = "zirconium"
FILE = "6f1d0a52-0c1b-4a8e-9d52-000000000002"
DRAFT = {
    "slug": SECRET,
    "title": SECRET,
    "author": {"name": SECRET},
    "cover": FILE,
    "tags": [{"tags_id": {"name": SECRET}}],
    "translations": [{"languages_code": "de", "title": SECRET, "summary": SECRET}],
    "sections": [
        {"collection": "headings", "item": {"text": SECRET}},
        {"collection": "paragraphs", "item": {"text": SECRET}},
    ],
}
PUBLISHED = {
    "/items/articles": 1,
    "/items/authors": 1,
    "/items/articles_tags": 2,
    "/items/articles_translations": 2,
    "/items/articles_sections": 2,
    "/items/headings": 1,
    "/items/paragraphs": 1,
    "/files": 1,
}
"""How many items the page has published of each collection that the public may read."""

QUERIES = (
    "limit=-1",
    "limit=-1&fields=*.*.*.*",
    f"search={SECRET}",
    "filter[articles][id][_nnull]=true&fields=articles.*.*",
    "filter[articles_id][status]=draft&fields=*.*",
    'filter={"$FOLLOW(articles,cover)":{"status":"draft"}}&fields=*.*',
    'filter={"$FOLLOW(articles_sections,item,collection)":{"_none":{}}}',
    "sort=articles_id.title&fields=articles_id.*.*",
    "deep[articles][_filter][status]=draft&fields=*.*.*",
    "deep[sections][_search]=zirconium&fields=*.*.*",
    "aggregate[min]=text&aggregate[max]=title&groupBy=id",
    "groupBy=title",
    "groupBy=text",
    *(f"limit=-1&export={form}" for form in ("csv", "json", "jsonl", "xml", "yaml")),
)


Headers = dict[str, str]


def test_the_example_of_the_documentation_works_and_shows_no_draft_to_the_public() -> None:
    page = blocks_of((ROOT / "docs" / "example.md").read_text())
    assert len(page) > 10
    with new_folder() as folder, serving(folder) as service:
        require_shown_answers(service, page)
        token = command_apart(folder, "user", "token", "--email", "admin@example.com").stdout
        admin = {"Authorization": f"Bearer {token.strip()}"}
        drafts = paths_of_a_draft(service, admin)
        document = read(service, "/server/specs/oas", admin).json()
        paths = [path for path, calls in document["paths"].items() if "get" in calls]
        assert PUBLISHED.keys() < set(paths)
        require_hidden(service, paths, drafts, admin)
        for path, count in PUBLISHED.items():
            require_count(service, path, count)


def paths_of_a_draft(service: Service, admin: Headers) -> list[str]:
    """Make a draft with parts of every kind, and return the paths of all of these."""
    file = requests.post(
        url(service, "/files"),
        headers=admin,
        data={"id": FILE, "title": SECRET},
        files={"file": (f"{SECRET}.txt", SECRET.encode(), "text/plain")},
        timeout=TIMEOUT_SECONDS,
    )
    assert file.ok, file.text
    article = requests.post(
        url(service, "/items/articles?fields=*.*"),
        headers=admin,
        json=DRAFT,
        timeout=TIMEOUT_SECONDS,
    )
    assert article.ok, article.text
    made = article.json()["data"]
    return [
        f"/files/{FILE}",
        f"/items/articles/{made['id']}",
        f"/items/authors/{made['author']['id']}",
        f"/items/articles_tags/{made['tags'][0]['id']}",
        f"/items/articles_translations/{made['translations'][0]['id']}",
        f"/items/articles_sections/{made['sections'][0]['id']}",
        f"/items/headings/{made['sections'][0]['item']}",
        f"/items/paragraphs/{made['sections'][1]['item']}",
    ]


def require_hidden(service: Service, paths: list[str], drafts: list[str], admin: Headers) -> None:
    """Require that no address of the service shows anything of the draft to the public."""
    for path in drafts:
        assert read(service, path, admin).ok, path
        assert not read(service, path).ok, path
        collection, key = path.rsplit("/", 1)
        name = collection.replace("/files", "/items/system_files").removeprefix("/items/")
        assert not read(service, f"/permissions/me/{name}/{key}").ok, path
        assert not read(service, f"{path}/revisions").ok, path
        operation = {"method": "read", "collection": name, "key": key}
        batch = {"operations": [operation]}
        answer = requests.post(url(service, "/batch"), json=batch, timeout=TIMEOUT_SECONDS)
        assert not answer.ok, path
    # The administrator finds the words, so that it says something where the public does not.
    for path in ("/items/articles", f"/assets/{FILE}", "/revisions", f"/files?search={SECRET}"):
        assert SECRET in read(service, path, admin).text
    keys = [SECRET, *(path.rsplit("/", 1)[1] for path in drafts)]
    for address in addresses(paths, keys):
        answer = read(service, address)
        assert not answer.ok or not {SECRET, FILE} & words_of(answer), address


def addresses(paths: list[str], keys: list[str]) -> Iterator[str]:
    """Yield every address of the service, with the keys of the draft and with all queries."""
    for path in paths:
        names = re.findall(r"{.*?}", path)
        for values in itertools.product(sorted(set(keys)), repeat=len(names)):
            yield re.sub(r"{.*?}", "{}", path).format(*values)
        if not names:
            yield from (f"{path}?{query}" for query in QUERIES)


def words_of(answer: requests.Response) -> set[str]:
    """Return the words of an answer, a key being one."""
    return set(re.findall(r"[\w-]+", answer.text))


def require_count(service: Service, path: str, count: int) -> None:
    """Require a number of items in a list, in its counts, in aggregates and in a search by body."""
    listed = read(service, f"{path}?meta=*").json()
    assert len(listed["data"]) == count, listed
    assert listed["meta"]["total_count"] == listed["meta"]["filter_count"] == count, path
    assert read(service, f"{path}?aggregate[count]=*").json()["data"] == [{"count": count}], path
    query = {"query": {"aggregate": {"count": "*"}, "filter": {"_or": [{}]}}}
    answer = requests.request("SEARCH", url(service, path), json=query, timeout=TIMEOUT_SECONDS)
    assert answer.json()["data"] == [{"count": count}], path


def read(service: Service, path: str, headers: Headers | None = None) -> requests.Response:
    return requests.get(url(service, path), headers=headers, timeout=TIMEOUT_SECONDS)
