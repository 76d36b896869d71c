"""Extensions: an application, a worker and a command line with more than the service's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import falcon
import pytest
from click.testing import CliRunner

from cms.app import create_app
from cms.cli import command_line
from cms.cli.worker import tasks_of
from cms.config import Config
from cms.database.connections import Fetch
from cms.extensions import OWN, Extensions
from cms.files.storage import Storages
from cms.flows.definition.options import Option, Options
from cms.flows.run import OperationType, RenderedOptions, Run, Services
from cms.health.checks import Check, CheckResult, Part
from cms.items.write.hooks import HOOKS
from cms.jobs.job_worker import drain
from cms.jobs.task import Job, Task, defer
from cms.option_checks import text
from cms.store.context import RequestContext
from cms.store.store import Store
from cms.store.table_hooks import HookedRow, TableHooks, unprocessable
from tests.active_flows import make_flow, runs, step
from tests.client import Client
from tests.things import admin_token, field

ADD_NOTE = "INSERT INTO notes (text) VALUES ($1)"


class GreetingResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        response.media = {
            "collections": sorted(self._store.snapshots.current().catalogue.collections)
        }


def before_articles(
    fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow], deleted_keys: Sequence[str]
) -> None:
    if deleted_keys or any(row.values.get("title") == "refused" for row in rows):
        raise unprocessable("The hook refuses it")


def after_articles(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    for row in rows:
        fetch(ADD_NOTE, (f"wrote {row.key}: {row.values['title']}",))


def greet(options: RenderedOptions, run: Run) -> object:
    return f"Hello {options['name']}"


def note_tasks(services: Services) -> Iterable[Task]:
    def note(job: Job) -> None:
        with services.store.database.transaction() as transaction:
            transaction.execute(ADD_NOTE, (job.payload["text"],))

    return [Task("note", note)]


def greeting_parts(config: Config, store: Store, storages: Storages) -> Iterable[Part]:
    yield Part("greeting", None, Check(lambda: CheckResult({"words": 2}), threshold_ms=1000))


@click.command("greet")
@click.pass_obj
def greet_command(extensions: Extensions) -> None:
    click.echo(f"{len(extensions.routes)} route")


EXTENSIONS = Extensions(
    routes={"/extensions/greeting": GreetingResource},
    hooks={**HOOKS, "articles": TableHooks(before=before_articles, after=after_articles)},
    operations={
        **OWN.operations,
        "greet": OperationType(Options({"name": Option(text, is_required=True)}), greet),
    },
    tasks=(*OWN.tasks, note_tasks),
    commands=(greet_command,),
    checks=(*OWN.checks, greeting_parts),
)


@pytest.fixture
def dsn(module_dsn: str) -> str:
    return module_dsn


@pytest.fixture
def api(config: Config, dsn: str) -> Iterator[Client]:
    """An administrator of the application with extensions."""
    client = Client(create_app(config, extensions=EXTENSIONS)).bearing(admin_token(config, dsn))
    for name, title in (("articles", "title"), ("notes", "text")):
        body = {"collection": name, "schema": {}, "fields": [field(title, "string")]}
        assert client.post("/collections", body).status == 200
    yield client
    for name in ("articles", "notes"):
        client.delete(f"/collections/{name}")
    client.close()


@pytest.fixture
def plain(config: Config, api: Client, dsn: str) -> Iterator[Client]:
    """An administrator of an application without them, over the same database."""
    client = Client(create_app(config)).bearing(admin_token(config, dsn))
    yield client
    client.close()


@pytest.fixture
def shell(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(import_module("cms.cli.flows"), "start_logging", lambda config: None)
    return CliRunner(env={"DATABASE_URL": dsn, "SECRET": "only-for-tests-" * 3})


def notes(api: Client) -> list[Any]:
    return [note["text"] for note in api.get("/items/notes", sort="id").data]


def work(api: Client, config: Config) -> None:
    """Do all jobs that are queued, as a worker with extensions would."""
    database = api.app.store.database
    tasks = tasks_of(config, database, EXTENSIONS)
    drain(config, database, [task for task in tasks if task.cron is None])


def test_a_further_route_is_answered_beside_the_service_s_own(api: Client, plain: Client) -> None:
    answer = api.get("/extensions/greeting")
    assert answer.status == 200
    assert "articles" in answer.body["collections"]
    assert plain.get("/extensions/greeting").status == 404
    assert api.get("/server/specs/oas").status == 200


def test_further_hooks_run_before_and_after_writes(api: Client, plain: Client) -> None:
    created = api.post("/items/articles", {"title": "one"})
    assert created.status == 200
    key = created.data["id"]
    assert api.patch(f"/items/articles/{key}", {"title": "two"}).status == 200
    many = [{"title": "three"}, {"title": "refused"}]
    for refused in (
        api.post("/items/articles", {"title": "refused"}),
        api.post("/items/articles", many),
        api.patch(f"/items/articles/{key}", {"title": "refused"}),
        api.delete(f"/items/articles/{key}"),
    ):
        assert refused.codes == ["UNPROCESSABLE_CONTENT"], refused
    assert notes(api) == [f"wrote {key}: one", f"wrote {key}: two"]
    assert plain.delete(f"/items/articles/{key}").status in (200, 204)


def test_the_hooks_of_the_service_still_run_beside_further_ones(api: Client) -> None:
    assert api.post("/roles", {"name": "Editors", "parent": "no role"}).status == 400
    flow = {"name": "wrong", "operations": [step("one", "no-such-type")]}
    refused = api.post("/flows", flow)
    assert refused.codes == ["FAILED_VALIDATION"]
    assert "greet" in refused.text


def test_a_further_operation_is_checked_and_run_in_requests_workers_and_commands(
    api: Client, plain: Client, config: Config, shell: CliRunner
) -> None:
    incomplete = {"name": "wrong", "operations": [step("hello", "greet", {"name": 5})]}
    assert api.post("/flows", incomplete).codes == ["FAILED_VALIDATION"]
    greeting = step("hello", "greet", {"name": "{{$trigger.body.name}}"})
    webhook = make_flow(api, "webhook", {"method": "POST"}, [greeting])
    assert api.post(f"/flows/trigger/{webhook}", {"name": "you"}).data == "Hello you"
    # Without the extension the operation cannot be saved, and a run comes to no such step.
    assert plain.post("/flows", {"name": "wrong", "operations": [greeting]}).status == 422
    assert plain.post(f"/flows/trigger/{webhook}", {"name": "you"}).status == 422
    event = {"type": "action", "scope": ["items.create"], "collections": ["articles"]}
    action = make_flow(api, "event", event, [step("hello", "greet", {"name": "worker"})])
    assert api.post("/items/articles", {"title": "one"}).status == 200
    work(api, config)
    (run,) = runs(api, action)
    assert run["steps"][0]["result"] == "Hello worker"
    result = shell.invoke(command_line(EXTENSIONS), ["flows", "run", action])
    assert 'The flow returns "Hello worker"' in result.output, result.output


def test_a_worker_does_the_jobs_of_a_further_task(api: Client, config: Config) -> None:
    with api.app.store.database.transaction() as transaction:
        defer(transaction.execute, "note", {"text": "by the worker"})
    work(api, config)
    assert notes(api) == ["by the worker"]


def test_health_has_a_further_check(api: Client, plain: Client) -> None:
    assert api.get("/server/health").data["greeting"]["words"] == 2
    assert "greeting" not in plain.get("/server/health").data


def test_the_command_line_has_a_further_command(shell: CliRunner) -> None:
    result = shell.invoke(command_line(EXTENSIONS), ["greet"])
    assert (result.exit_code, result.output) == (0, "1 route\n")
    assert "greet" not in shell.invoke(command_line(replace(EXTENSIONS, commands=())), []).output
