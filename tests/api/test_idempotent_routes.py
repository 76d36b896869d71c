"""Every POST that changes something is done once with an Idempotency-Key."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from falcon.inspect import inspect_routes

from cms.config import Config
from tests.active_flows import make_flow, runs, step
from tests.api.described_calls import parameters_of, require_described_body
from tests.api.test_tfa import SECRET, code
from tests.client import Answer, Client
from tests.files.forms import BOUNDARY, FileService, file_service, form
from tests.files.sources import Source, source
from tests.members import new_role
from tests.people import PASSWORD, Outbox, login, outbox, person
from tests.things import field, table

WITHOUT = {
    "/shares/auth": "it is a login",
    "/schema/diff": "it changes nothing",
    "/users/me/tfa/generate": "it changes nothing",
    "/utils/hash/generate": "it changes nothing",
    "/utils/hash/verify": "it changes nothing",
}
"""Routes that take no key, and why; those under /auth besides."""


@dataclass(frozen=True)
class Example:
    """A call that changes something."""

    path: str
    body: object = None
    client: Client | None = None
    raw: bytes | None = None
    media: str = "application/json"


@dataclass(frozen=True)
class RouteSetup:
    files: FileService
    mails: Outbox
    server: Source

    @property
    def admin(self) -> Client:
        return self.files.admin


@pytest.fixture(scope="module")
def setup(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[RouteSetup]:
    allowed = (ipaddress.ip_network("127.0.0.1"),)
    with ExitStack() as stack:
        mails = stack.enter_context(outbox())
        server = stack.enter_context(source())
        folder = tmp_path_factory.mktemp("files")
        files = file_service(
            settings, folder, make_database, template, import_ip_allow_list=allowed
        )
        yield RouteSetup(stack.enter_context(files), mails, server)


@pytest.fixture(scope="module")
def document(setup: RouteSetup) -> Any:
    """The document of OpenAPI for administrators."""
    return setup.admin.get("/server/specs/oas").body


def items(setup: RouteSetup) -> Example:
    return Example(table(setup.admin, field("name", "string")).path, {"name": "a"})


def collections(setup: RouteSetup) -> Example:
    return Example("/collections", {"collection": "made_once", "schema": {}})


def fields(setup: RouteSetup) -> Example:
    return Example(f"/fields/{table(setup.admin).name}", {"field": "name", "type": "string"})


def relations(setup: RouteSetup) -> Example:
    things = table(setup.admin, field("other", "integer"))
    return Example(
        "/relations",
        {"collection": things.name, "field": "other", "related_collection": things.name},
    )


def batch(setup: RouteSetup) -> Example:
    things = table(setup.admin, field("name", "string"))
    return Example(
        "/batch",
        {"operations": [{"method": "create", "collection": things.name, "data": {"name": "a"}}]},
    )


def sort(setup: RouteSetup) -> Example:
    things = table(setup.admin, field("place", "integer"), sort_field="place")
    things.add({}, {}, {})
    return Example(f"/utils/sort/{things.name}", {"item": 1, "to": 2})


def importing(setup: RouteSetup) -> Example:
    things = table(setup.admin, field("name", "string"))
    return Example(f"/utils/import/{things.name}", raw=b"name\na\n", media="text/csv")


def exporting(setup: RouteSetup) -> Example:
    things = table(setup.admin, field("name", "string"))
    return Example(f"/utils/export/{things.name}", {"format": "csv", "query": {}, "file": {}})


def revert(setup: RouteSetup) -> Example:
    things = table(setup.admin, field("name", "string"))
    things.add({"name": "a"})
    things.api.patch(f"{things.path}/1", {"name": "b"})
    return Example(
        f"/utils/revert/{things.api.get(f'{things.path}/1/revisions?sort=id').data[0]['id']}"
    )


def operation(setup: RouteSetup) -> Example:
    flow = setup.admin.post("/flows", {"name": "one", "trigger": "manual"}).data["id"]
    body = {"flow": flow, "key": "once", "type": "log", "options": {"message": "Once."}}
    return Example("/operations", body)


def webhook(setup: RouteSetup) -> Example:
    flow = make_flow(setup.admin, "webhook", {"method": "POST"}, [])
    return Example(f"/flows/trigger/{flow}", ["any JSON"])


def retry(setup: RouteSetup) -> Example:
    stop = step("stop", "throw-error", {"message": "No."})
    flow = make_flow(setup.admin, "webhook", {"method": "POST"}, [stop])
    assert setup.admin.post(f"/flows/trigger/{flow}").status == 422
    (run,) = runs(setup.admin, flow)
    return Example(f"/flows/runs/{run['id']}/retry")


def notification(setup: RouteSetup) -> Example:
    recipient = setup.admin.get("/users/me").data["id"]
    return Example("/notifications", {"recipient": recipient, "subject": "once"})


def share(setup: RouteSetup) -> Example:
    things = table(setup.admin)
    things.add({})
    return Example("/shares", {"collection": things.name, "item": "1"})


def share_invitation(setup: RouteSetup) -> Example:
    key = setup.admin.post("/shares", share(setup).body).data["id"]
    return Example("/shares/invite", {"share": key, "emails": ["once@example.com"]})


def panel(setup: RouteSetup) -> Example:
    dashboard = setup.admin.post("/dashboards", {"name": "one"}).data["id"]
    return Example("/panels", {"dashboard": dashboard, "type": "label"})


def comment(path: str) -> Callable[[RouteSetup], Example]:
    def make(setup: RouteSetup) -> Example:
        things = table(setup.admin)
        things.add({})
        return Example(path, {"collection": things.name, "item": 1, "comment": "Once."})

    return make


def upload(setup: RouteSetup) -> Example:
    raw = form(("title", "Once"), ("file", "some text", "a.txt"))
    return Example("/files", raw=raw, media=f'multipart/form-data; boundary="{BOUNDARY}"')


def from_elsewhere(setup: RouteSetup) -> Example:
    return Example("/files/import", {"url": setup.server.page("/once.txt", b"text")})


def permission(setup: RouteSetup) -> Example:
    body = {
        "role": new_role(setup.files.stage),
        "collection": table(setup.admin).name,
        "action": "read",
        "fields": ["*"],
    }
    return Example("/permissions", body)


def invite(setup: RouteSetup) -> Example:
    return Example(
        "/users/invite", {"email": "invited@example.com", "role": new_role(setup.files.stage)}
    )


def accept(setup: RouteSetup) -> Example:
    role = new_role(setup.files.stage)
    assert (
        setup.admin.post("/users/invite", {"email": "accepts@example.com", "role": role}).status
        == 204
    )
    return Example(
        "/users/invite/accept",
        {"token": setup.mails.token, "password": PASSWORD},
        setup.files.stage.anonymous,
    )


def register(setup: RouteSetup) -> Example:
    setup.admin.patch("/settings", {"public_registration": True})
    return Example(
        "/users/register",
        {"email": "new@example.com", "password": PASSWORD},
        setup.files.stage.anonymous,
    )


def second_factor(call: str) -> Callable[[RouteSetup], Example]:
    def make(setup: RouteSetup) -> Example:
        anonymous = setup.files.stage.anonymous
        secret = SECRET if call == "disable" else None
        otp = {"otp": code(steps=-1)} if secret else {}
        answer = login(anonymous, person(setup.files.stage, tfa_secret=secret), **otp)
        user = anonymous.bearing(answer.data["access_token"])
        body = {"otp": code()} if secret else {"secret": SECRET, "otp": code()}
        return Example(f"/users/me/tfa/{call}", body, user)

    return make


def difference(setup: RouteSetup) -> Example:
    document = setup.admin.get("/schema/snapshot").data
    name = table(setup.admin).name
    diff = setup.admin.post("/schema/diff", document).data
    assert setup.admin.get(f"/collections/{name}").status == 200
    return Example("/schema/apply", {**diff, "allow_destructive": True})


def recovery_codes(setup: RouteSetup) -> Example:
    anonymous = setup.files.stage.anonymous
    answer = login(anonymous, person(setup.files.stage, tfa_secret=SECRET), otp=code())
    user = anonymous.bearing(answer.data["access_token"])
    return Example("/users/me/tfa/recovery-codes", {"password": PASSWORD}, user)


EXAMPLES: dict[str, Callable[[RouteSetup], Example]] = {
    "/activity/comment": comment("/activity/comment"),
    "/batch": batch,
    "/collections": collections,
    "/comments": comment("/comments"),
    "/dashboards": lambda setup: Example("/dashboards", {"name": "once"}),
    "/fields/{collection}": fields,
    "/files": upload,
    "/files/import": from_elsewhere,
    "/flows": lambda setup: Example("/flows", {"name": "once", "trigger": "manual"}),
    "/flows/trigger/{key}": webhook,
    "/flows/runs/{key}/retry": retry,
    "/folders": lambda setup: Example("/folders", {"name": "once"}),
    "/items/{collection}": items,
    "/notifications": notification,
    "/operations": operation,
    "/panels": panel,
    "/permissions": permission,
    "/presets": lambda setup: Example("/presets", {"bookmark": "once"}),
    "/relations": relations,
    "/roles": lambda setup: Example("/roles", {"name": "once"}),
    "/schema/apply": difference,
    "/shares": share,
    "/shares/invite": share_invitation,
    "/translations": lambda setup: Example(
        "/translations", {"language": "en-US", "key": "once", "value": "Once"}
    ),
    "/users": lambda setup: Example("/users", {"email": "once@example.com"}),
    "/users/invite": invite,
    "/users/invite/accept": accept,
    "/users/me/tfa/disable": second_factor("disable"),
    "/users/me/tfa/enable": second_factor("enable"),
    "/users/me/tfa/recovery-codes": recovery_codes,
    "/users/register": register,
    "/utils/cache/clear": lambda setup: Example("/utils/cache/clear"),
    "/utils/export/{collection}": exporting,
    "/utils/import/{collection}": importing,
    "/utils/revert/{revision}": revert,
    "/utils/sort/{collection}": sort,
}


def test_every_route_that_takes_post_is_here(setup: RouteSetup) -> None:
    routes = inspect_routes(setup.files.stage.anonymous.app)
    posting = {
        route.path
        for route in routes
        if any(method.method == "POST" and not method.internal for method in route.methods)
    }
    assert {
        path for path in posting if not path.startswith("/auth")
    } == EXAMPLES.keys() | WITHOUT.keys()


@pytest.mark.release
@pytest.mark.parametrize("route", EXAMPLES)
def test_a_call_that_comes_again_is_done_once(setup: RouteSetup, document: Any, route: str) -> None:
    """The document of OpenAPI describes the call as it is accepted."""
    example = EXAMPLES[route](setup)

    def call(path: str = example.path) -> Answer:
        headers = {"Idempotency-Key": f"once {route}", "Content-Type": example.media}
        return (example.client or setup.admin).send(
            "POST", path, example.body, raw=example.raw, **headers
        )

    first = call()
    assert first.status in (200, 204), first.text
    described = document["paths"][route]["post"]
    if example.raw is None:
        require_described_body(document, described, example.body)
    else:
        assert example.media.partition(";")[0] in described["requestBody"]["content"]
    before = _traces(setup)
    again = call()
    assert (again.status, again.content) == (first.status, first.content)
    assert _traces(setup) == before
    assert call(f"{example.path}?another=request").codes == ["UNPROCESSABLE_CONTENT"]
    assert _traces(setup) == before


def test_the_document_of_openapi_says_which_calls_take_a_key(document: Any) -> None:
    keyed = set()
    for route in EXAMPLES.keys() | WITHOUT.keys():
        if "Idempotency-Key" in parameters_of(document["paths"][route]["post"]):
            keyed.add(route)
    assert keyed == EXAMPLES.keys()


def _traces(setup: RouteSetup) -> Any:
    """Return what every call leaves something of: the history, mails, files, runs of flows, the
    counter of the structure.
    """
    count = setup.files.stage.value(
        """
        SELECT (SELECT count(*) FROM system_activity) + (SELECT structure FROM system_version)
            + (SELECT count(*) FROM system_flow_runs)
        """
    )
    return count, len(setup.mails.mails), len(setup.files.contents()), len(setup.server.seen)
