"""/shares: who may share what, logins by a share, invitations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest

from cms.hashing.hash_parameters import HashParameters
from cms.hashing.passwords import Passwords
from cms.processes import slots
from tests.client import Answer
from tests.members import may, member_of, new_role
from tests.people import QUICK, Outbox, hash_again_together, outcome
from tests.sharing import Magazine, keys
from tests.things import field, table

Json = dict[str, Any]
WRONG = (401, ["INVALID_CREDENTIALS"])
FORBIDDEN = (403, ["FORBIDDEN"])


@pytest.fixture(autouse=True)
def room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody refused, where more are logged in at once than half of the threads."""
    monkeypatch.setattr(slots, "MAX_SECONDS_OF_OTHERS", 20.0)


def set_share(mag: Magazine, share: Json, assignment: str) -> None:
    mag.stage.execute(f"UPDATE system_shares SET {assignment} WHERE id = '{share['id']}'")


# Shares as items


def test_a_creator_reads_changes_and_deletes_own_shares(mag: Magazine) -> None:
    share = mag.share(name="For Ann", password="open sesame", max_uses=3)
    assert share["user_created"] == mag.writer_id
    assert (share["password"], share["times_used"]) == ("**********", 0)
    path = f"/shares/{share['id']}"
    stored = mag.stage.value(f"SELECT password FROM system_shares WHERE id = '{share['id']}'")
    assert stored.startswith("$argon2id$")
    changed = mag.writer.patch(path, {"name": "For Ben", "max_uses": None}).data
    assert (changed["name"], changed["max_uses"]) == ("For Ben", None)
    # An application sends back all that it has read.
    assert mag.admin.patch(path, {**changed, "name": "For Cho"}).data["name"] == "For Cho"
    other = member_of(mag.stage, mag.role)
    for method, body in (("GET", None), ("PATCH", {"name": "x"}), ("DELETE", None)):
        assert other.send(method, path, body).status == 404
    assert mag.writer.delete(path).status == 204


@pytest.mark.parametrize(
    "body",
    [
        {"item": "5"},  # a draft, which the rule of `share` does not allow
        {"item": "99"},
        {"item": "none"},
        {"collection": "notes", "item": "1"},  # without a permission to share
        {"collection": "no_such", "item": "1"},
        {"collection": "system_users", "item": "1"},
        {"user_created": "00000000-0000-4000-8000-000000000000"},
    ],
)
def test_only_what_may_be_shared_is(mag: Magazine, body: Json) -> None:
    values = {"collection": "articles", "item": "2", "role": mag.role, **body}
    assert mag.writer.post("/shares", values).codes[0] in ("FORBIDDEN", "INVALID_FOREIGN_KEY")
    assert mag.writer.post("/shares", [values]).status in (400, 403)


def test_administrators_share_what_exists(mag: Magazine) -> None:
    assert mag.share(mag.admin, item="5")["item"] == "5"
    for values in ({"item": "99"}, {"collection": "system_users"}, {"collection": "no_such"}):
        body = {"collection": "articles", "item": "1", **values}
        assert outcome(mag.admin.post("/shares", body)) == FORBIDDEN


def test_the_role_is_the_creators_own_or_a_parent_of_it(mag: Magazine) -> None:
    parent = new_role(mag.stage)
    own = new_role(
        mag.stage,
        may("articles"),
        may("articles", action="share"),
        app_access=True,
        parent=parent,
    )
    child = new_role(mag.stage, parent=own)
    admin_role = mag.admin.get("/users/me").data["role"]
    writer = member_of(mag.stage, own)
    for role in (own, parent, None):
        share = mag.share(writer, role=role)
        assert share["role"] == role
    for role in (child, admin_role, mag.role):
        body = {"collection": "articles", "item": "2", "role": role}
        assert outcome(writer.post("/shares", body)) == FORBIDDEN
        assert outcome(writer.patch(f"/shares/{share['id']}", {"role": role})) == FORBIDDEN
        assert mag.share(mag.admin, role=role)["role"] == role


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "change",
    [
        {"item": "1"},
        {"collection": "authors"},
        {"times_used": 0},
    ],
)
def test_nobody_moves_a_share(mag: Magazine, change: Json) -> None:
    share = mag.share()
    set_share(mag, share, "times_used = 2")
    assert mag.writer.patch(f"/shares/{share['id']}", change).status in (403, 422)
    assert mag.admin.patch(f"/shares/{share['id']}", change).status == 422


def test_nobody_gives_a_share_to_another_creator(mag: Magazine) -> None:
    share = mag.share()
    change = {"user_created": mag.users[0]}
    assert mag.writer.patch(f"/shares/{share['id']}", change).status == 403
    changed = mag.admin.patch(f"/shares/{share['id']}", change)
    assert changed.status == 422 or changed.data["user_created"] == mag.writer_id


@pytest.mark.parametrize("value", [0, -1, True, "x"])
def test_uses_are_counted_from_one(mag: Magazine, value: object) -> None:
    body = {"collection": "articles", "item": "2", "max_uses": value}
    assert mag.writer.post("/shares", body).status in (400, 422)


# Logins


def test_a_share_without_a_password_needs_none(mag: Magazine) -> None:
    share = mag.share()
    answer = mag.use(share)
    assert answer.data.keys() == {"access_token", "refresh_token", "expires"}
    assert answer.headers["cache-control"] == "no-store"
    guest = mag.stage.anonymous.bearing(answer.data["access_token"])
    assert guest.get("/items/articles/2?fields=title").data == {"title": "Shared"}
    assert mag.writer.get(f"/shares/{share['id']}").data["times_used"] == 1


def test_a_password_is_needed_and_wrong_ones_wait(mag: Magazine) -> None:
    share = mag.share(password="open sesame")
    limit = mag.admin.get("/settings").data["auth_login_attempts"]
    for password in (None, "wrong"):
        assert outcome(mag.use(share, password)) == WRONG
    assert mag.use(share, "open sesame").status == 200
    for _ in range(limit):
        assert outcome(mag.use(share, "wrong")) == WRONG
    assert outcome(mag.use(share, "open sesame")) == WRONG
    set_share(mag, share, "login_after = now()")
    assert mag.use(share, "open sesame").status == 200
    assert mag.writer.get(f"/shares/{share['id']}").data["times_used"] == 2


def test_of_parallel_guesses_as_many_count_as_of_others(
    mag: Magazine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All guesses are compared at once, before the first is counted; the right one is the last."""
    share = mag.share(password="open sesame")
    limit = mag.admin.get("/settings").data["auth_login_attempts"]
    set_share(mag, share, f"failed_logins = {limit - 1}")
    all_compared = Barrier(4)
    wrong_counted = Event()
    matches = Passwords.matches

    def compared(own: Passwords, stored: str | None, password: str, *, reveals_match: bool) -> bool:
        answer = matches(own, stored, password, reveals_match=reveals_match)
        all_compared.wait(timeout=30)
        if answer:
            wrong_counted.wait(timeout=30)
        return answer

    monkeypatch.setattr(Passwords, "matches", compared)
    with ThreadPoolExecutor(4) as threads:
        right = threads.submit(mag.use, share, "open sesame")
        wrong = list(threads.map(lambda _: outcome(mag.use(share, "wrong")), range(3)))
        wrong_counted.set()
        assert wrong == [WRONG] * 3
        assert outcome(right.result()) == WRONG
    # Guesses behind the limit are not counted either, or one burst would take half a minute.
    failed = f"SELECT failed_logins FROM system_shares WHERE id = '{share['id']}'"
    assert mag.stage.value(failed) == limit


def test_a_password_hashed_by_older_parameters_is_hashed_again_by_a_use(
    mag: Magazine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two uses at once have both read the older hash, and one of them replaces it."""
    share = mag.share(password="open sesame")
    older = Passwords(HashParameters(2, 16, 2)).hashed("open sesame")
    set_share(mag, share, f"password = '{older}'")
    hash_again_together(monkeypatch)
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda _: mag.use(share, "open sesame"), range(2)))
    assert [answer.status for answer in answers] == [200, 200]
    for answer in answers:
        token = {"refresh_token": answer.data["refresh_token"]}
        assert mag.stage.anonymous.post("/auth/refresh", token).status == 200
    stored = mag.stage.value(f"SELECT password FROM system_shares WHERE id = '{share['id']}'")
    assert stored.startswith(QUICK.prefix)
    assert mag.writer.get(f"/shares/{share['id']}").data["times_used"] == 2


@pytest.mark.parametrize("share", ["00000000-0000-4000-8000-000000000000", "none", "x" * 1000])
def test_an_unknown_share_is_a_wrong_password(mag: Magazine, share: str) -> None:
    body = {"share": share, "password": "x"}
    assert outcome(mag.stage.anonymous.post("/shares/auth", body)) == WRONG
    assert outcome(mag.stage.anonymous.get(f"/shares/info/{share}")) == FORBIDDEN


@pytest.mark.parametrize(
    "dates", ["date_start = now() + interval '1 hour'", "date_end = now() - interval '1 second'"]
)
def test_before_and_after_its_dates_there_is_no_share(mag: Magazine, dates: str) -> None:
    share = mag.share()
    set_share(mag, share, dates)
    assert outcome(mag.use(share)) == WRONG
    assert outcome(mag.stage.anonymous.get(f"/shares/info/{share['id']}")) == FORBIDDEN


def test_no_token_outlives_the_share(mag: Magazine) -> None:
    share = mag.share()
    set_share(mag, share, "date_end = now() + interval '5 seconds'")
    for mode in ("json", "cookie", "session"):
        assert 0 < mag.use(share, mode=mode).data["expires"] <= 5_000
    condition = f"share = '{share['id']}' AND expires > now() + interval '6 seconds'"
    assert mag.stage.value(f"SELECT count(*) FROM system_sessions WHERE {condition}") == 0


def test_of_parallel_uses_as_many_succeed_as_are_left(mag: Magazine) -> None:
    share = mag.share(max_uses=3)
    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(lambda _: mag.use(share).status, range(12)))
    assert sorted(statuses) == [200] * 3 + [401] * 9
    assert mag.writer.get(f"/shares/{share['id']}").data["times_used"] == 3


def refresh(mag: Magazine, token: str) -> Answer:
    return mag.stage.anonymous.post("/auth/refresh", {"refresh_token": token})


def test_a_session_is_renewed_and_ended(mag: Magazine) -> None:
    token = mag.use(mag.share()).data["refresh_token"]
    renewed = refresh(mag, token).data
    guest = mag.stage.anonymous.bearing(renewed["access_token"])
    assert guest.get("/items/articles/2").status == 200
    body = {"refresh_token": renewed["refresh_token"]}
    assert mag.stage.anonymous.post("/auth/logout?all=true", body).status == 204
    assert outcome(refresh(mag, renewed["refresh_token"])) == WRONG


def test_values_that_are_sent_back_unchanged_end_no_session(mag: Magazine) -> None:
    share = mag.share(password="open sesame", date_end="2999-01-01T00:00:00Z")
    guest = mag.stage.anonymous.bearing(mag.use(share, "open sesame").data["access_token"])
    path = f"/shares/{share['id']}"
    names = ("password", "role", "date_start", "date_end")
    same = {name: mag.writer.get(path).data[name] for name in names}
    assert mag.writer.patch(path, {**same, "name": "Another name"}).status == 200
    # A change of the settings has every process look at its sessions again.
    mag.admin.patch("/settings", {"project_name": "Magazine"})
    assert guest.get("/items/articles/2").status == 200
    assert mag.writer.patch(path, {**same, "date_end": "2998-01-01T00:00:00Z"}).status == 200
    assert guest.get("/items/articles/2").status == 401


@pytest.mark.parametrize(
    "change", [{"password": "another"}, {"date_end": "2999-01-01T00:00:00Z"}, {"role": None}, None]
)
def test_a_changed_or_deleted_share_is_not_renewed(mag: Magazine, change: Json | None) -> None:
    share = mag.share(password="open sesame")
    tokens = mag.use(share, "open sesame").data
    path = f"/shares/{share['id']}"
    if change is None:
        mag.writer.delete(path)
    else:
        assert mag.writer.patch(path, change).status == 200
    assert outcome(refresh(mag, tokens["refresh_token"])) == WRONG
    guest = mag.stage.anonymous.bearing(tokens["access_token"])
    assert guest.get("/items/articles/2").codes == ["INVALID_TOKEN"]


def test_everybody_may_know_what_a_login_needs(mag: Magazine) -> None:
    end = "2999-01-01T00:00:00.000Z"
    share = mag.share(password="open sesame", max_uses=3, date_end=end, name="private")
    info = mag.stage.anonymous.get(f"/shares/info/{share['id']}").data
    assert info == {
        "id": share["id"],
        "collection": "articles",
        "item": "2",
        "password": "**********",
        "max_uses": 3,
        "times_used": 0,
        "date_start": None,
        "date_end": end,
    }


# Invitations


def test_the_creator_and_administrators_mail_the_link(mag: Magazine, mails: Outbox) -> None:
    share = mag.share(name="For Ann")
    body = {"share": share["id"], "emails": ["ann@example.com", "ben@example.com"]}
    for client in (mag.writer, mag.admin):
        assert client.post("/shares/invite", body).status == 204
    assert [mail.to for mail in mails.sent] == body["emails"] * 2
    assert mails.link == f"http://127.0.0.1:8055/admin/shared/{share['id']}"
    guest = mag.open(share)
    for client in (member_of(mag.stage, mag.role), mag.stage.anonymous, guest):
        assert outcome(client.post("/shares/invite", body)) == FORBIDDEN


@pytest.mark.parametrize(
    "body",
    [
        {"emails": []},
        {"emails": "ann@example.com"},
        {"emails": ["no address"]},
        {"share_url": "https://evil.example/"},
    ],
)
def test_wrong_invitations_are_refused(mag: Magazine, mails: Outbox, body: Json) -> None:
    full = {"share": mag.share()["id"], "emails": ["ann@example.com"], **body}
    assert mag.writer.post("/shares/invite", full).codes == ["INVALID_PAYLOAD"]
    assert mails.sent == []


def test_uses_move_no_counter_and_changes_do(mag: Magazine) -> None:
    def version() -> int:
        return int(mag.stage.value("SELECT access FROM system_version"))

    share = mag.share(password="open sesame")
    before = version()
    mag.use(share, "open sesame")
    mag.use(share, "wrong")
    assert version() == before
    mag.writer.patch(f"/shares/{share['id']}", {"role": None})
    assert version() > before


def test_a_share_shows_what_everybody_sees_as_well(mag: Magazine) -> None:
    reader = mag.open(mag.share())
    before = keys(reader, "/items/articles")
    assert reader.get("/items/notes").status == 403
    # Variables of the Public role stand for nobody, and not for the role of the share.
    draft = {"_or": [{"status": {"_eq": "draft"}}, {"title": {"_eq": "$CURRENT_ROLE"}}]}
    named_after_role = mag.admin.post("/items/articles", {"title": mag.role}).data["id"]
    permissions = [
        mag.admin.post("/permissions", {**permission, "role": None}).data["id"]
        for permission in (
            may("notes", "id"),
            may("articles", "id", "title", permissions=draft),
            may("system_files", "id", permissions={"id": {"_eq": mag.files[3]}}),
        )
    ]
    try:
        assert keys(reader, "/items/notes") == keys(mag.stage.anonymous, "/items/notes") == [1]
        assert reader.get("/items/notes?fields=text").status == 403
        drafts = keys(mag.stage.anonymous, "/items/articles")
        assert drafts == [5]
        assert keys(reader, "/items/articles") == sorted({*before, *drafts})
        assert mag.admin.get("/items/articles/5?fields=title").data == {"title": "Draft child"}
        hidden = {"title": "Draft child", "parent": None}
        assert reader.get("/items/articles/5?fields=title,parent").data == hidden
        assert mag.stage.anonymous.get(f"/assets/{mag.files[3]}").status == 200
        assert keys(reader, "/files") == sorted([mag.files[0], mag.files[3]])
        assert reader.get(f"/assets/{mag.files[3]}").status == 200
        assert reader.get(f"/assets/{mag.files[4]}").status == 404
    finally:
        mag.admin.delete("/permissions", permissions)
        mag.admin.delete(f"/items/articles/{named_after_role}")
    assert keys(reader, "/items/articles") == before
    assert reader.get("/items/notes").status == 403


def test_a_share_shows_nothing_once_its_table_has_no_primary_key(mag: Magazine) -> None:
    things = table(mag.admin, field("a", "string"))
    (thing,) = things.add({"a": "x"})
    role = new_role(mag.stage, may(things.name))
    share = {"collection": things.name, "item": str(thing["id"]), "role": role}
    key = mag.admin.post("/shares", share).data["id"]
    token = mag.stage.anonymous.post("/shares/auth", {"share": key}).data["access_token"]
    reader = mag.stage.anonymous.bearing(token)
    assert reader.get(things.path).data == [thing]
    mag.stage.execute(f"ALTER TABLE {things.name} DROP CONSTRAINT {things.name}_pkey")
    mag.admin.post("/utils/cache/clear")
    assert reader.get(things.path).status == 403
    assert reader.get("/settings").status == 200
