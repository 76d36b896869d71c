"""Settings that have no effect are named: misspelt variables, and what flows name in vain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cms.cli.flow_findings import flow_findings
from cms.cli.session import misspelt_settings
from cms.cli.structure_findings import WARNING
from cms.config import load
from cms.flows.operations import OPERATIONS
from tests.active_flows import make_flow, step
from tests.client import Client
from tests.things import Stage, field, table


def misspelt(environ: Mapping[str, str], folder: Path) -> list[str]:
    config = load(environ, folder=folder)
    return [each.split()[0] for each in misspelt_settings(config, environ, folder=folder)]


def test_variables_that_resemble_a_setting_are_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DATABASE_POOL_SIZES=3\nEMAIL_FROM=cms@example.com\n")
    environ = {
        "DATABSE_URL": "postgresql://x",
        "ADMIN_PASWORD_FILE": "secret.txt",
        "PUBLIC_URL": "http://127.0.0.1",
        "HOME": "/root",
        "HOSTNAME": "a",
        "LANG": "C",
        "SECRETS": "kept",
        "FLOWS_ENV_ALLOW_LIST": "SECRETS",
        "STORAGE_LOCATIONS": "local",
        "STORAGE_LOCAL_ROOT": "uploads",
    }
    assert misspelt(environ, tmp_path) == [
        "ADMIN_PASWORD_FILE",
        "DATABASE_POOL_SIZES",
        "DATABSE_URL",
    ]
    assert misspelt({"PATH": "/bin", "PORT": "8055"}, tmp_path / "none") == []


def test_what_flows_name_in_vain_and_what_they_lack_is_named(stage: Stage, admin: Client) -> None:
    pages = table(admin, field("title", "string"))
    event = {"type": "action", "scope": ["items.create", "items.creat"], "collectons": []}
    event["collections"] = [pages.name, "nope"]
    mail = {"to": "a@example.com", "subject": "a", "template": "nowhere", "own_note": "kept"}
    steps = [
        step("read", "item-read", {"collection": "gone"}, resolve="mail"),
        step("mail", "mail", mail, resolve="known"),
        step("known", "mail", {**mail, "template": "share"}, resolve="any"),
        step("any", "item-read", {"collection": "{{$trigger.collection}}", "querry": {}}),
    ]
    flow = make_flow(admin, "event", event, steps, name="News")
    make_flow(admin, "schedule", {}, [step("log", "log")], name="Later", status="inactive")
    found = flow_findings(stage.dsn, OPERATIONS, mail_templates=frozenset({"share"}))
    assert sorted(each.text for each in found if each.level == WARNING) == [
        "flow Later: its options.cron: it is needed",
        "flow Later: operation log: options.message: it is needed",
        "flow News: collections names nope, which is not there",
        "flow News: operation any: the option querry has no effect: query?",
        "flow News: operation mail: template names nowhere, which is not there",
        "flow News: operation read: collection names gone, which is not there",
        "flow News: scope names items.creat, which is not there",
        "flow News: the option collectons has no effect: collections?",
    ]
    assert admin.delete(f"/flows/{flow}").status == 204


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_many_to_any_relation_has_no_list(admin: Client, method: str) -> None:
    pages = table(admin, field("item", "string"), field("kind", "string"))
    meta = {"one_collection_field": "kind", "one_allowed_collections": [pages.name]}
    body = {"collection": pages.name, "field": "item", "related_collection": None, "meta": meta}
    listing = {**meta, "one_field": "used_in"}
    if method == "POST":
        answer = admin.post("/relations", {**body, "meta": listing})
    else:
        assert admin.post("/relations", body).status == 200
        answer = admin.patch(f"/relations/{pages.name}/item", {"meta": listing})
    assert (answer.status, answer.errors[0]["field"]) == (400, "meta.one_field")
