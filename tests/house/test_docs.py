"""The documentation names everything that the service knows by name, so that it stays complete."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from falcon.inspect import inspect_routes

from cms.app import create_app
from cms.config import Config
from cms.errors import STATUS
from cms.flows.definition.operation_types import OPERATION_TYPES
from cms.flows.definition.trigger_types import SCOPES, TRIGGER_TYPES
from cms.query.language.aggregates import AGGREGATES
from cms.query.language.operators import OPERATORS
from cms.schema.meta_settings import COLUMN_SCHEMA
from cms.schema.types import TYPES

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


FUNCTIONS = {name for field_type in TYPES.values() for name in field_type.functions}


def page(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.parametrize("code", STATUS)
def test_every_error_is_documented_with_its_status(code: str) -> None:
    assert f"| `{code}` | {STATUS[code]} |" in page("errors.md")


@pytest.mark.parametrize("name", [*OPERATORS, *sorted(FUNCTIONS), *AGGREGATES])
def test_every_operator_function_and_aggregate_is_documented(name: str) -> None:
    assert f"`{name}`" in page("query-language.md")


@pytest.mark.parametrize("name", OPERATION_TYPES)
def test_every_operation_of_flows_is_documented_with_its_options(name: str) -> None:
    (line,) = re.findall(rf"^\| `{name}` \| (.*?) \|", page("flows.md"), re.MULTILINE)
    assert set(re.findall("`(.*?)`", line)) == set(OPERATION_TYPES[name].options)


@pytest.mark.parametrize("name", TRIGGER_TYPES)
def test_every_trigger_of_flows_is_documented_with_its_options(name: str) -> None:
    lines = re.findall(rf"^\| `{name}` \| (.*?) \|", page("flows.md"), re.MULTILINE)
    assert set(re.findall("`(.*?)`", lines[0])) == set(TRIGGER_TYPES[name].options)


@pytest.mark.parametrize("scope", sorted(SCOPES))
def test_every_event_of_flows_is_documented(scope: str) -> None:
    events = page("flows.md").split("\n### Events\n")[1].split("\n| `type` |")[0]
    named = re.findall("`(.*?)`", events)
    subject, _, verb = scope.partition(".")
    is_written = subject in named and f"items.{verb}" in named and verb != "sort"
    assert scope in named or is_written


@pytest.mark.parametrize("name", TYPES)
def test_every_field_type_is_documented(name: str) -> None:
    assert name in page("structure.md") or name in page("items.md")


@pytest.mark.parametrize("name", COLUMN_SCHEMA)
def test_every_setting_of_a_column_is_documented(name: str) -> None:
    assert name in page("structure.md")


def test_every_route_is_documented(settings: Config) -> None:
    app = create_app(replace(settings, database_url="postgresql://nowhere"))
    documentation = "".join(path.read_text() for path in DOCS.glob("*.md"))
    paths = [route.path.replace("{key}", "{id}") for route in inspect_routes(app)]
    assert [path for path in paths if path not in documentation] == []


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    for file in [ROOT / "README.md", *DOCS.glob("**/*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", file.read_text()):
            page_file = file.parent / target if target else file
            assert page_file.exists(), f"{file.name} links to {target}"
            if anchor:
                anchors = anchors_of(page_file.read_text())
                assert anchor in anchors, f"{file.name} links to {target}#{anchor}"


def anchors_of(page_text: str) -> set[str]:
    """Return the anchors of the headings of a page, as they are made on the web."""
    headings = re.findall(r"^#+ (.+)$", page_text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_examples_take_the_address_of_the_service_from_one_variable() -> None:
    wrong: list[str] = []
    for path in DOCS.glob("*.md"):
        # This page is pasted as a whole, and so names its address.
        if path.name != "example.md":
            commands = re.findall(r"^ *curl .*", path.read_text(), re.MULTILINE)
            wrong += [command for command in commands if re.search(r"localhost|:8055", command)]
    assert wrong == []


def test_the_code_map_names_every_folder_and_no_module_that_is_not_there() -> None:
    code_map = page("code-map.md")
    paths = [f"/{file.relative_to(ROOT)}" for file in ROOT.glob("cms/**/*.py")]
    paths += [f"/{file.relative_to(ROOT)}" for file in ROOT.glob("tests/**/*.py")]
    named = re.findall(r"(?<![\w*/])[\w/]+\.py\b", code_map)
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []
    folders = {Path(path).parent.name for path in paths if path.startswith("/cms/")}
    assert [name for name in folders if not re.search(rf"\b{name}\b", code_map)] == []


def test_what_serves_the_version_before_is_listed_for_its_removal() -> None:
    section = page("code-map.md").split("\n## What the next version may remove\n")[1]
    section = section.split("\n## ")[0]
    files = [*ROOT.glob("cms/**/*.py"), *ROOT.glob("sql/queries/*.sql"), ROOT / "sql/schema.sql"]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    serving = {file for file, text in texts.items() if "version before" in text}
    assert serving == set(re.findall(r"(?:cms|sql)/[\w/]+\.(?:py|sql)", section))
    listed = re.findall(r"`(\w+)`", section)
    assert [name for name in listed if not any(name in text for text in texts.values())] == []


def test_what_is_reported_as_missing_is_not_there(settings: Config) -> None:
    app = create_app(replace(settings, database_url="postgresql://nowhere"))
    routes = {route.path for route in inspect_routes(app)}
    missing = re.findall(
        r"`(/[a-z/]+)`", page("directus.md").split("## Not here")[1].split("## Answers")[0]
    )
    assert "/versions" in missing
    assert routes.isdisjoint(missing)
