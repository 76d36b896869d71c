"""Flows for tests: made in a line, their queued runs done by a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from cms.cli.worker import tasks_of
from cms.config import Config
from cms.jobs.job_worker import drain
from tests.client import Client
from tests.things import Stage

Json = dict[str, Any]


def step(key: str, kind: str, options: Json | None = None, **ends: str) -> Json:
    """Return an operation; `resolve` and `reject` name the keys of those that follow."""
    return {"key": key, "type": kind, "options": options or {}, **ends}


def make_flow(
    admin: Client, trigger: str, options: Json | None, steps: Sequence[Json], **values: object
) -> str:
    """Make a flow whose first step is the first one, and return its id."""
    ids = {entry["key"]: str(uuid4()) for entry in steps}
    operations = []
    for entry in steps:
        ends: Json = {end: ids[entry[end]] for end in ("resolve", "reject") if end in entry}
        operations.append({**entry, **ends, "id": ids[entry["key"]]})
    body = {"name": "A flow", "trigger": trigger, "options": options, "operations": operations}
    if steps:
        body["operation"] = ids[steps[0]["key"]]
    answer = admin.post("/flows", {**body, **values})
    assert answer.status == 200, answer.text
    return str(answer.data["id"])


def work(stage: Stage, config: Config) -> None:
    """Do all jobs that are queued, as a worker would."""
    ours = replace(config, database_url=stage.dsn)
    database = stage.admin.app.store.database
    # Nightly tasks would queue jobs of their own, which a test at their hour would find.
    tasks = [task for task in tasks_of(ours, database) if task.cron is None]
    drain(ours, database, tasks)


def runs(admin: Client, flow: str) -> list[Json]:
    answer = admin.get(f"/flows/{flow}/runs", sort="date_created")
    assert answer.status == 200, answer.text
    data: list[Json] = answer.data
    return data
