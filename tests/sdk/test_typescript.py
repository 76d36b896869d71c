"""The types in TypeScript compile, and the SDK takes them as its schema."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.client import Client
from tests.members import may, member
from tests.sdk.test_sdk import PACKAGES
from tests.things import Stage, field

pytestmark = [pytest.mark.slow, pytest.mark.release]

PATH = "/server/specs/types?language=typescript"
COMPILE_SECONDS = 120

PROGRAM = """
import { createDirectus, rest } from 'PACKAGE';
import { readItem, readItems, readSingleton, createItem, updateItem } from 'PACKAGE';
import type { Schema, Type1st, Schema2, SystemUsers } from './schema.js';

const client = createDirectus<Schema>('http://localhost').with(rest());

export async function program(): Promise<void> {
  const posts = await client.request(readItems('blog_posts', {
    fields: ['id', 'title', 'class', { author: ['name'], comments: ['text'], editor: ['email'] }],
    filter: { title: { _eq: 'x' }, author: { name: { _contains: 'y' } } },
    sort: ['-title'],
  }));
  const id: number = posts[0]!.id;
  const title: string | null = posts[0]!.title;
  const name: string | null | undefined = posts[0]!.author?.name;
  const texts: (string | null)[] | undefined = posts[0]!.comments?.map((comment) => comment.text);
  const email: string | null | undefined = posts[0]!.editor?.email;
  const front = await client.request(readSingleton('front'));
  const motto: string | null = front.motto;
  const post = await client.request(readItem('blog_posts', 1));
  const mood: 'glad' | 'sad' | null = post.mood;
  const tags: string[] | null = post.tags;
  const odd: string | null = post['a b'];
  await client.request(createItem('blog_posts', { title: 'x', score: 1.5 }));
  await client.request(updateItem('1st', 1, { id: 2 }));
  const dated = await client.request(readItems('schema', {
    fields: ['from', 'year(from)'],
    filter: { from: { _lt: '$NOW' } },
  }));
  const from: string = dated[0]!.from;
  await client.request(createItem('schema', { from: '2024-01-31' }));
  const others: [Type1st, Schema2, SystemUsers] | undefined = undefined;
  console.log(id, title, name, texts, email, motto, mood, tags, odd, from, others);
}
"""

WRONG = (
    "await client.request(readItems('nothing'));",
    "await client.request(readItems('blog_posts', { fields: ['nothing'] }));",
    "await client.request(readItems('blog_posts', { fields: [{ author: ['nothing'] }] }));",
    "await client.request(readItems('front')).then((rows) => rows[0].motto);",
    "const n: number = (await client.request(readItem('blog_posts', 1))).title;",
    "await client.request(createItem('blog_posts', { title: 5 }));",
)


@pytest.fixture(scope="module", autouse=True)
def collections(stage: Stage) -> None:
    make_collections(stage)


def make_collections(stage: Stage) -> None:
    """Make collections with relations, and with names that programming languages reserve."""
    definitions: dict[str, list[dict[str, object]]] = {
        "authors": [field("name", "string")],
        "blog_posts": [
            field("title", "string"),
            field("class", "string"),
            field("tags", "csv"),
            field("score", "decimal"),
            field("data", "json"),
            field("author", "integer"),
            field("editor", "uuid"),
        ],
        "comments": [field("text", "text"), field("post", "integer")],
        "none": [field("import", "boolean")],
        "schema": [field("from", "date", is_nullable=False)],
    }
    for name, fields in definitions.items():
        created = stage.admin.post(
            "/collections", {"collection": name, "schema": {}, "fields": fields}
        )
        assert created.status == 200, created
    front = {"collection": "front", "schema": {}, "meta": {"singleton": True}}
    fields = [field("motto", "string")]
    assert stage.admin.post("/collections", {**front, "fields": fields}).status == 200
    relations = (
        ("blog_posts", "author", "authors", "blog_posts"),
        ("blog_posts", "editor", "system_users", None),
        ("comments", "post", "blog_posts", "comments"),
    )
    for collection, name, target, back in relations:
        relation = {
            "collection": collection,
            "field": name,
            "related_collection": target,
            "meta": {"one_field": back},
        }
        assert stage.admin.post("/relations", relation).status == 200
    stage.execute("CREATE TYPE mood AS ENUM ('glad', 'sad')")
    stage.execute('ALTER TABLE blog_posts ADD COLUMN mood mood, ADD COLUMN "a b" text')
    stage.execute('CREATE TABLE "1st" (id int PRIMARY KEY)')
    stage.execute('CREATE TABLE "blog-posts" (id int PRIMARY KEY, "__x" text, "int" int)')


def types(client: Client, path: str = PATH) -> str:
    answer = client.get(path)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    return answer.text


def compile_errors(folder: Path, schema: str, program: str) -> str:
    (folder / "schema.ts").write_text(schema)
    (folder / "program.ts").write_text(program)
    options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext"]
    words = ["node", "node_modules/typescript/bin/tsc", *options, "--skipLibCheck", "program.ts"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
    )
    assert bool(done.returncode) == bool(done.stdout), done.stderr
    return done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_the_types_are_the_schema_of_the_sdk(stage: Stage, installed: Path, package: str) -> None:
    program = PROGRAM.replace("PACKAGE", package)
    assert compile_errors(installed, types(stage.admin), program) == ""


def test_a_program_that_is_wrong_does_not_compile(stage: Stage, installed: Path) -> None:
    schema = types(stage.admin)
    head = PROGRAM.replace("PACKAGE", PACKAGES[-1]).partition("export async")[0]
    lines = [f"export async function f{n}() {{ {wrong} }}" for n, wrong in enumerate(WRONG)]
    errors = compile_errors(installed, schema, head + "\n".join(lines))
    first = head.count("\n") + 1
    assert {
        int(error.split("(")[1].split(",")[0]) for error in errors.splitlines() if "(" in error
    } >= {first + number for number in range(len(WRONG))}, errors


def test_the_types_of_a_caller_with_few_rights_compile(stage: Stage, installed: Path) -> None:
    caller = member(stage, may("blog_posts", "id", "author", "comments"), may("authors", "name"))
    schema = types(caller)
    assert "comments: " not in schema
    assert (
        compile_errors(
            installed,
            schema,
            "import type { Schema } from './schema.js';\nexport type S = Schema;\n",
        )
        == ""
    )
