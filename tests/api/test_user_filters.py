"""Filter flows see the users that the service itself makes and changes for a caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cms.hashing.passwords import Passwords
from cms.processes import slots
from tests.active_flows import make_flow, step
from tests.client import Answer, Client
from tests.members import new_role
from tests.people import PASSWORD, Outbox, login, of_user, outcome, person
from tests.things import Stage

Json = dict[str, Any]

REFUSE = step("stop", "throw-error", {"code": "CLOSED", "status": 409, "message": "Not today."})


@pytest.fixture(autouse=True)
def _open_and_without_flows(admin: Client) -> Iterator[None]:
    registration = {"public_registration": True, "public_registration_verify_email": True}
    assert (
        admin.patch("/settings", {**registration, "public_registration_role": None}).status == 200
    )
    yield
    flows = [flow["id"] for flow in admin.get("/flows", fields="id").data]
    assert not flows or admin.delete("/flows", flows).status == 204


def filter_flow(admin: Client, steps: Sequence[Json], *scope: str, **options: object) -> str:
    return make_flow(admin, "event", {"type": "filter", "scope": list(scope), **options}, steps)


def script(code: str) -> Json:
    """Return the step of a script on the payload, whose result is what is written."""
    return step(
        "change", "exec", {"code": f"module.exports = ({{ $trigger: {{ payload }} }}) => ({code});"}
    )


def seen(admin: Client, flow: str) -> list[Json]:
    """Return what caused the runs of a flow, in their order."""
    runs = admin.get(f"/flows/{flow}/runs", sort="date_created", fields="steps").data
    return [run["steps"][0]["result"] for run in runs]


def register(stage: Stage, email: str, **values: object) -> Answer:
    return stage.anonymous.post("/users/register", {"email": email, "password": PASSWORD, **values})


def show(**ends: str) -> Json:
    """Return the step that keeps what has caused the run."""
    return step("show", "transform", {"json": "{{$trigger}}"}, **ends)


def test_a_registration_passes_the_filters_of_new_users_without_its_password(
    stage: Stage, admin: Client, mails: Outbox
) -> None:
    role = new_role(stage)
    assert admin.patch("/settings", {"public_registration_role": role}).status == 200
    flow = filter_flow(admin, [show()], "users.create", **{"return": "$trigger.payload"})
    assert register(stage, "ann@example.com", first_name="Ann").status == 204
    payload = {"email": "ann@example.com", "first_name": "Ann", "role": role, "status": "draft"}
    (event,) = seen(admin, flow)
    assert event == {"event": "users.create", "collection": "system_users", "payload": payload}
    assert of_user(stage, "ann@example.com", "first_name") == "Ann"


def test_a_filter_fills_the_profile_of_who_registers(
    stage: Stage, admin: Client, mails: Outbox
) -> None:
    code = """{ ...payload, email: payload.email.toLowerCase(), title: "Guest", tags: ["new"],
        first_name: payload.first_name.trim(), email_notifications: false }"""
    filter_flow(admin, [script(code)], "users.create")
    answer = register(stage, "Bea@Example.com", first_name=" Bea ", last_name="Lee")
    assert answer.status == 204
    columns = "first_name || last_name || title || tags || email_notifications"
    assert of_user(stage, "bea@example.com", columns) == 'BeaLeeGuest["new"]false'
    # Its creation is one entry of the history, with all of it.
    user = of_user(stage, "bea@example.com", "id::text")
    of_it = {"filter": f'{{"item": {{"_eq": "{user}"}}}}', "fields": "action,revisions.data"}
    (entry,) = admin.get("/activity", **of_it).data
    assert (entry["action"], entry["revisions"][0]["data"]["title"]) == ("create", "Guest")
    assert stage.anonymous.get("/users/register/verify-email", token=mails.token).status == 200
    assert login(stage.anonymous, "bea@example.com").status == 200


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "code",
    [
        '{ ...payload, role: "ROLE" }',
        '{ ...payload, status: "active" }',
        '{ ...payload, password: "known to the flow" }',
        '{ ...payload, token: "0123456789abcdef" }',
        '{ ...payload, email: "elsewhere@example.com" }',
        '{ ...payload, id: "00000000-0000-4000-8000-000000000001" }',
        "{ ...payload, nothing: 1 }",
        "{ ...payload, email_notifications: null }",
        "{ ...payload, title: {} }",
    ],
)
def test_a_filter_gives_who_registers_no_rights(
    stage: Stage, admin: Client, mails: Outbox, code: str
) -> None:
    role = new_role(stage, admin_access=True)
    filter_flow(admin, [script(code.replace("ROLE", role))], "users.create")
    known = person(stage)
    answers = [register(stage, email) for email in ("cyd@example.com", known)]
    assert answers[0].status in (400, 403, 422), answers[0].text
    assert answers[0].text == answers[1].text
    assert of_user(stage, "cyd@example.com", "id") is None
    assert of_user(stage, "elsewhere@example.com", "id") is None
    assert mails.mails == []


def test_a_refused_registration_does_not_reveal_whether_there_is_an_account(
    stage: Stage, admin: Client, mails: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = filter_flow(admin, [show(resolve="stop"), REFUSE], "users.create")
    known = person(stage)
    work: list[str] = []

    def hashed(_own: Passwords, password: str) -> str:
        work.append("hash")
        return "hash"

    def matches(_own: Passwords, stored: str | None, password: str) -> bool:
        work.append("compare")
        return False

    monkeypatch.setattr(Passwords, "hashed", hashed)
    monkeypatch.setattr(Passwords, "matches", matches)
    answers = [register(stage, email) for email in ("dee@example.com", known)]
    assert [outcome(answer) for answer in answers] == [(409, ["CLOSED"])] * 2
    assert answers[0].text == answers[1].text
    assert work == ["compare", "hash"] * 2
    assert of_user(stage, "dee@example.com", "id") is None
    assert seen(admin, flow) == []


def test_flows_run_alike_for_addresses_with_and_without_an_account(
    stage: Stage, admin: Client, mails: Outbox
) -> None:
    flow = filter_flow(admin, [show()], "users.create", **{"return": "$trigger.payload"})
    known = person(stage)
    before = of_user(stage, known, "row_to_json(system_users)::text")
    emails = ["eve@example.com", "eve@example.com", known]
    assert [register(stage, email).status for email in emails] == [204] * 3
    events = seen(admin, flow)
    assert [event["payload"].pop("email") for event in events] == emails
    assert events == [events[0]] * 3
    assert of_user(stage, known, "row_to_json(system_users)::text") == before


@pytest.mark.release
def test_registrations_at_the_same_time_all_pass(
    stage: Stage, admin: Client, mails: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Six threads are more than the half of this process's that may hash or run scripts.
    monkeypatch.setattr(slots, "MAX_SECONDS", 20.0)
    monkeypatch.setattr(slots, "MAX_SECONDS_OF_OTHERS", 20.0)
    filter_flow(admin, [script('{ ...payload, title: "Guest" }')], "users.create")
    emails = [f"many{number}@example.com" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(lambda email: register(stage, email).status, emails))
    assert statuses == [204] * 12
    assert [of_user(stage, email, "title") for email in emails] == ["Guest"] * 12


def test_the_end_of_a_registration_is_a_change_of_the_user(
    stage: Stage, admin: Client, mails: Outbox
) -> None:
    register(stage, "fay@example.com")
    user = of_user(stage, "fay@example.com", "id::text")
    refusing = filter_flow(admin, [REFUSE], "users.update")
    verify = "/users/register/verify-email"
    assert outcome(stage.anonymous.get(verify, token=mails.token)) == (409, ["CLOSED"])
    assert of_user(stage, "fay@example.com", "status") == "draft"
    assert admin.delete(f"/flows/{refusing}").status == 204
    code = '{ ...payload, title: "Member" }'
    flow = filter_flow(admin, [show(resolve="change"), script(code)], "users.update")
    assert stage.anonymous.get(verify, token=mails.token).status == 200
    assert of_user(stage, "fay@example.com", "status || title") == "activeMember"
    event = {"event": "users.update", "collection": "system_users"}
    assert seen(admin, flow) == [{**event, "payload": {"status": "active"}, "keys": [user]}]


def test_invitations_pass_the_filters_of_users(stage: Stage, admin: Client, mails: Outbox) -> None:
    role = new_role(stage)
    other = new_role(stage)
    code = '{ ...payload, title: `${payload.status ?? "again"}` }'
    flow = filter_flow(
        admin, [show(resolve="change"), script(code)], "users.create", "users.update"
    )
    invite = "/users/invite"
    emails = ["gil@example.com", "Hal@example.com", "hal@EXAMPLE.com"]
    assert admin.post(invite, {"email": emails, "role": role}).status == 204
    assert [of_user(stage, email, "title") for email in emails[:2]] == ["invited"] * 2
    new = [event["payload"] for event in seen(admin, flow)]
    assert new == [{"email": email, "role": role, "status": "invited"} for email in emails[:2]]
    assert admin.post(invite, {"email": emails[0].upper(), "role": other}).status == 204
    event = seen(admin, flow)[-1]
    assert (event["event"], event["payload"]) == ("users.update", {"role": other})
    assert of_user(stage, "gil@example.com", "title || role") == f"again{other}"
    # Who accepts changes: of the password the flow learns nothing.
    body = {"token": mails.token, "password": "my own words"}
    assert stage.anonymous.post("/users/invite/accept", body).status == 204
    event = seen(admin, flow)[-1]
    assert (event["event"], event["payload"]) == ("users.update", {"status": "active"})
    assert login(stage.anonymous, "gil@example.com", "my own words").status == 200


def test_a_refused_invitation_leaves_nothing(stage: Stage, admin: Client, mails: Outbox) -> None:
    role = new_role(stage)
    is_second = {"$trigger": {"payload": {"email": {"_contains": "second"}}}}
    condition = step("second", "condition", {"filter": is_second})
    filter_flow(
        admin,
        [
            {**condition, "resolve": "stop", "reject": "fine"},
            REFUSE,
            step("fine", "log", {"message": "Fine"}),
        ],
        "users.create",
    )
    taken = person(stage)
    invite = "/users/invite"
    body = {"email": ["first@example.com", "second@example.com"], "role": role}
    assert outcome(admin.post(invite, body)) == (409, ["CLOSED"])
    assert mails.mails == []
    assert of_user(stage, "first@example.com", "id") is None
    # A taken address is told before any flow runs.
    again = admin.post(invite, {"email": ["second@example.com", taken], "role": role})
    assert outcome(again) == (400, ["RECORD_NOT_UNIQUE"])
    members = [stage.anonymous.post(invite, body)]
    assert [outcome(answer) for answer in members] == [(403, ["FORBIDDEN"])]


def test_a_refused_acceptance_leaves_the_invitation(
    stage: Stage, admin: Client, mails: Outbox
) -> None:
    role = new_role(stage)
    assert admin.post("/users/invite", {"email": "ian@example.com", "role": role}).status == 204
    flow = filter_flow(admin, [REFUSE], "users.update")
    body = {"token": mails.token, "password": "my own words"}
    accept = "/users/invite/accept"
    assert outcome(stage.anonymous.post(accept, body)) == (409, ["CLOSED"])
    assert of_user(stage, "ian@example.com", "status") == "invited"
    assert admin.delete(f"/flows/{flow}").status == 204
    assert stage.anonymous.post(accept, body).status == 204


def test_a_new_password_is_no_event(stage: Stage, admin: Client, mails: Outbox) -> None:
    filter_flow(admin, [REFUSE], "users.update")
    known = person(stage)
    assert stage.anonymous.post("/auth/password/request", {"email": known}).status == 204
    body = {"token": mails.token, "password": "of the owner alone"}
    assert stage.anonymous.post("/auth/password/reset", body).status == 204
