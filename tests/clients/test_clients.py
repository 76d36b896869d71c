"""Clients and generators made for Directus and for OpenAPI work unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
import requests

from tests.node_packages import install
from tests.sdk.test_sdk import EMAIL, PASSWORD, service
from tests.sdk.test_typescript import compile_errors
from tests.things import field

pytestmark = [pytest.mark.slow, pytest.mark.release]

HERE = Path(__file__).parent
RUN_SECONDS = 240  # on a machine that runs other tests beside

DIRECTUS_TYPESCRIPT_GEN = """
import { createDirectus, readItems, rest } from '@directus/sdk';
import type { Schema } from './schema.js';

const client = createDirectus<Schema>('http://localhost').with(rest());
const fields = ['title', 'views', 'tags'] as const;
const posts = await client.request(readItems('blog_posts', { fields, sort: ['-views'] }));
const title: string | null | undefined = posts[0]!.title;
const views: number | null | undefined = posts[0]!.views;
const names: string | null | undefined = ([] as Schema['authors'])[0]!.name;
console.log(title, views, names);
"""
OPENAPI_TYPESCRIPT = """
import type { components, operations, paths } from './schema.js';

type Answer = paths['/items/blog_posts']['get']['responses'][200]['content']['application/json'];
const answer = {} as Answer;
const title: string | null | undefined = answer.data[0]!.title;
const count: number | undefined = answer.meta?.filter_count;
const author = answer.data[0]!.author;
const name = typeof author === 'object' ? author?.name : undefined;
type NewPost = components['schemas']['NewItem_blog_posts'];
const post: NewPost = { title: 'Ants', author: { name: 'Ann' } };
type Query = NonNullable<operations['get.items.blog_posts']['parameters']['query']>;
const filter = '{"views":{"_gt":5}}';
const query: Query = { filter, fields: ['title', 'author.name'], limit: 2, export: 'csv' };
const motto: string | null | undefined = ({} as components['schemas']['Item_front']).motto;
const any: components['schemas']['Row'] = { anything: 1 };
console.log(title, count, name, post, query, motto, any);
"""
WRONG = """
const wrong: number = answer.data[0]!.title;
const unknown = answer.data[0]!.nothing;
const other: Query = { export: 'pdf' };
"""
PYTHON = """
import sys
from blog import AuthenticatedClient, Client
from blog.api.auth import post_auth_login
from blog.api.items import delete_items_blog_posts_key, get_items_blog_posts, get_items_front
from blog.api.items import patch_items_blog_posts_key, post_items_blog_posts
from blog.models import ItemChangeBlogPosts, NewItemBlogPosts, PostAuthLoginBody

url, email, password = sys.argv[1:]
body = PostAuthLoginBody(email=email, password=password)
token = post_auth_login.sync(client=Client(url), body=body).data.access_token
client = AuthenticatedClient(url, token)

views = {"Ants": 5, "Bees": 9, "Crabs": 7}
posts = [NewItemBlogPosts(title=title, views=number) for title, number in views.items()]
ants, bees, crabs = post_items_blog_posts.sync(client=client, body=posts).data
assert (ants.title, bees.views) == ("Ants", 9), (ants, bees)
shown = {"fields": ["title", "views"], "filter_": '{"views":{"_gt":5}}', "sort": ["-views"]}
page = get_items_blog_posts.sync(client=client, **shown, limit=1, meta=["filter_count"])
assert [post.to_dict() for post in page.data] == [{"title": "Bees", "views": 9}], page
assert page.meta.filter_count == 2, page
change = ItemChangeBlogPosts.from_dict({"published": "2020-02-03T04:05:06Z", "tags": ["a", "b"]})
changed = patch_items_blog_posts_key.sync(crabs.id, client=client, body=change).data
assert (changed.published.year, changed.tags) == (2020, ["a", "b"]), changed
assert delete_items_blog_posts_key.sync_detailed(bees.id, client=client).status_code == 204
left = get_items_blog_posts.sync(client=client, sort=["title"]).data
assert [post.title for post in left] == ["Ants", "Crabs"], left
assert get_items_front.sync(client=client).data.motto is None
refused = get_items_blog_posts.sync(client=client, sort=["nothing"])
assert refused.errors[0].extensions.code == "INVALID_QUERY", refused
"""


class Blog(NamedTuple):
    """A running service with posts and their authors."""

    url: str
    log: Path
    token: str


@pytest.fixture(scope="module")
def blog() -> Iterator[Blog]:
    with service() as running:
        url = f"http://127.0.0.1:{running.port}"
        yield Blog(url, running.output, filled(url))


def filled(url: str) -> str:
    """Make the collections; return an administrator's token."""
    session = requests.Session()

    def post(path: str, body: object) -> str:
        answer = session.post(f"{url}{path}", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["data"].get("access_token"))

    token = post("/auth/login", {"email": EMAIL, "password": PASSWORD})
    session.headers["Authorization"] = f"Bearer {token}"
    fields = [
        *(field("status", "string"), field("title", "string"), field("views", "integer")),
        *(field("author", "integer"), field("published", "timestamp"), field("tags", "csv")),
    ]
    names = [field("name", "string")]
    mottos = {"meta": {"singleton": True}, "fields": [field("motto", "string")]}
    post("/collections", {"collection": "authors", "schema": {}, "fields": names})
    post("/collections", {"collection": "blog_posts", "schema": {}, "fields": fields})
    post("/collections", {"collection": "front", "schema": {}, **mottos})
    author = {"collection": "blog_posts", "field": "author", "related_collection": "authors"}
    post("/relations", {**author, "meta": {"one_field": "posts"}})
    return token


@pytest.fixture(autouse=True)
def empty(blog: Blog) -> None:
    headers = {"Authorization": f"Bearer {blog.token}"}
    for name in ("blog_posts", "authors"):
        everything = {"query": {"limit": -1}}
        path = f"{blog.url}/items/{name}"
        answer = requests.delete(path, json=everything, headers=headers, timeout=30)
        assert answer.status_code == 204, answer.text


@pytest.fixture(scope="module")
def packages() -> Iterator[Path]:
    """A folder with all clients that npm has."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        install(HERE, folder, *(script.name for script in HERE.glob("*.mjs")))
        yield folder


@pytest.fixture(scope="module")
def environment() -> Iterator[Path]:
    """A folder with an environment of Python that has a generator of clients."""
    uv = [sys.executable, "-m", "uv"]
    words = ["pip", "install", "--python", "venv", "--require-hashes", "--requirement"]
    with TemporaryDirectory() as name:
        folder = Path(name)
        run(folder, *uv, "venv", "--python", sys.executable, "venv")
        done = ended(folder, *uv, *words, str(HERE / "requirements.lock"))
        if done.returncode:
            pytest.skip(f"the packages cannot be installed: {done.stderr}")
        yield folder


def ended(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    programs = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


def run(folder: Path, *words: str) -> str:
    """Run a program in a folder; return what it printed."""
    done = ended(folder, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def saved_document(blog: Blog, folder: Path) -> str:
    headers = {"Authorization": f"Bearer {blog.token}"}
    answer = requests.get(f"{blog.url}/server/specs/oas", headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    path = folder / "openapi.json"
    path.write_text(answer.text)
    return str(path)


@pytest.mark.parametrize("program", ["refine.mjs", "nuxt.mjs"])
def test_clients_of_frameworks_work_unchanged(blog: Blog, packages: Path, program: str) -> None:
    run(packages, "node", program, blog.url, EMAIL, PASSWORD, str(blog.log))


def test_directus_typescript_gen_makes_the_schema_of_the_sdk(blog: Blog, packages: Path) -> None:
    login = ("--host", blog.url, "--email", EMAIL, "--password", PASSWORD)
    types = run(packages, "node_modules/.bin/directus-typescript-gen", *login)
    assert compile_errors(packages, types, DIRECTUS_TYPESCRIPT_GEN) == ""


def test_openapi_typescript_makes_types_of_rows_and_parameters(blog: Blog, packages: Path) -> None:
    document = saved_document(blog, packages)
    types = run(packages, "node_modules/.bin/openapi-typescript", document)
    errors = compile_errors(packages, types, OPENAPI_TYPESCRIPT + WRONG)
    codes = re.findall(r"^program.*error (\w+)", errors, re.MULTILINE)
    assert codes == ["TS2322", "TS2339", "TS2322"], errors


def test_openapi_python_client_makes_a_client_that_reads_and_writes(
    blog: Blog, environment: Path
) -> None:
    document = saved_document(blog, environment)
    words = ("generate", "--path", document, "--meta", "none", "--output-path", "blog")
    assert "Unable to parse" not in run(environment, "openapi-python-client", *words)
    (environment / "program.py").write_text(PYTHON)
    run(environment, "venv/bin/python", "program.py", blog.url, EMAIL, PASSWORD)
