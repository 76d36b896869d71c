"""Reads from a real streaming replica that stands still: who writes reads what it has written, and
nobody reads by rights that have been withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cms.auth import accounts
from cms.database.migrate import migrate
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.files.images import picture
from tests.machines.installation import Client, Installation, installation
from tests.machines.replica import Servers, replicated
from tests.rate_limits.redis_server import RedisServer, redis_server
from tests.smoke.running import new_folder

pytestmark = [pytest.mark.release, pytest.mark.slow]

LOGIN = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
ADDRESS = {"X-Forwarded-For": "192.0.2.1"}


@dataclass(frozen=True)
class Replicated:
    servers: Servers
    machines: Installation
    writer: Client
    reader: Client
    """Another administrator, who only reads."""
    redis: RedisServer

    def readers_rows(self) -> int:
        return len(self.reader.data("GET", "/items/notes"))


@pytest.fixture(scope="module")
def whole_site() -> Iterator[Replicated]:
    with replicated() as servers, new_folder() as folder, redis_server() as redis:
        migrate(servers.primary)
        accounts.first_admin(servers.primary, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
        settings = {
            "DATABASE_READ_URL": servers.replica,
            "DATABASE_READ_LAG": "60s",
            "REDIS": redis.address,
        }
        with installation(folder, servers.primary, settings, web=2) as machines:
            first = machines.first.login()
            role = first.data("GET", "/users/me?fields=role")["role"]
            deputy = {"email": "deputy@example.com", "role": role, "token": "r" * 40}
            first.data("POST", "/users", deputy)
            fields = [{"field": "text", "type": "string"}]
            table = {"collection": "notes", "schema": {}, "fields": fields}
            first.data("POST", "/collections", table)
            servers.await_replica()
            yield Replicated(servers, machines, first, Client(first.url, "r" * 40), redis)


@pytest.fixture
def paused_replica(whole_site: Replicated) -> Iterator[Replicated]:
    """The installation with a replica that stands still during the test."""
    whole_site.servers.stand_still()
    yield whole_site
    whole_site.servers.go_on()


def test_a_writer_reads_what_it_has_written_at_every_machine(paused_replica: Replicated) -> None:
    before = paused_replica.readers_rows()
    key = paused_replica.writer.data("POST", "/items/notes", {"text": "mine"})["id"]
    for machine in paused_replica.machines.web:
        writer = paused_replica.writer.at(machine)
        assert writer.data("GET", f"/items/notes/{key}")["text"] == "mine"
        assert len(writer.data("GET", "/items/notes")) == before + 1
        assert "mine" in writer.send("GET", "/items/notes?export=csv").text
    # The others read from the replica, which does not have it.
    assert paused_replica.readers_rows() == before
    assert paused_replica.reader.send("GET", f"/items/notes/{key}").status_code == 404
    paused_replica.servers.go_on()
    assert paused_replica.readers_rows() == before + 1
    paused_replica.servers.stand_still()


def test_everybody_sees_changes_of_structure(paused_replica: Replicated) -> None:
    paused_replica.writer.data("POST", "/fields/notes", {"field": "more", "type": "integer"})
    for machine in paused_replica.machines.web:
        writer = paused_replica.writer.at(machine)
        assert writer.send("GET", "/items/notes?fields=more").status_code == 200
        assert writer.data("GET", "/fields/notes/more")["field"] == "more"
        assert paused_replica.reader.at(machine).send("GET", "/items/notes?fields=more").ok


def test_a_file_that_was_just_uploaded_is_delivered_to_its_owner(
    paused_replica: Replicated,
) -> None:
    form = {"file": ("a.png", picture("PNG"), "image/png")}
    key = paused_replica.writer.send("POST", "/files", files=form).json()["data"]["id"]
    assert paused_replica.writer.send("GET", f"/assets/{key}").content == picture("PNG")


def test_a_file_that_was_replaced_is_delivered_to_everybody(paused_replica: Replicated) -> None:
    def upload(method: str, path: str, format_name: str) -> str:
        form = {"file": ("a.png", picture(format_name), "image/png")}
        key: str = paused_replica.writer.send(method, path, files=form).json()["data"]["id"]
        return key

    key = upload("POST", "/files", "PNG")
    paused_replica.servers.go_on()
    paused_replica.servers.stand_still()
    assert paused_replica.reader.send("GET", f"/assets/{key}").content == picture("PNG")
    upload("PATCH", f"/files/{key}", "GIF")
    # The replica shows the row of the former content, which is no longer there.
    assert paused_replica.reader.send("GET", f"/assets/{key}").content == picture("GIF")
    assert paused_replica.reader.send("GET", f"/assets/{key}?width=2").status_code == 200
    paused_replica.writer.data("DELETE", f"/files/{key}")
    assert paused_replica.reader.send("GET", f"/assets/{key}").status_code == 404


def test_a_session_is_good_at_once_at_every_machine_and_ends_at_once(
    paused_replica: Replicated,
) -> None:
    machines = [Client(machine.url) for machine in paused_replica.machines.web]
    body = {**LOGIN, "mode": "session"}
    login = machines[0].send("POST", "/auth/login", json=body, headers=ADDRESS)
    cookie = {"Cookie": f"cms_session_token={login.cookies['cms_session_token']}", **ADDRESS}
    for machine in machines:
        assert machine.send("GET", "/users/me", headers=cookie).status_code == 200
    headers = {**cookie, "Origin": machines[1].url}
    logout = machines[1].send("POST", "/auth/logout", json={"mode": "session"}, headers=headers)
    assert logout.status_code == 204
    for machine in machines:
        assert machine.send("GET", "/users/me", headers=cookie).status_code == 401


def test_without_redis_a_writer_reads_its_own_at_the_machine_where_it_has_written(
    paused_replica: Replicated,
) -> None:
    paused_replica.redis.kill()
    try:
        key = paused_replica.writer.data("POST", "/items/notes", {"text": "alone"})["id"]
        assert paused_replica.writer.data("GET", f"/items/notes/{key}")["text"] == "alone"
        assert "Redis does not answer" in paused_replica.machines.web[0].log_text()
        assert "Traceback" not in paused_replica.machines.log_text()
    finally:
        paused_replica.redis.start()


def test_rights_that_are_withdrawn_end_at_once_whatever_the_replica_knows(
    paused_replica: Replicated,
) -> None:
    role, key = reader_role(paused_replica)
    token = "w" * 40
    person = {"email": f"{role}@example.com", "role": role, "token": token, "status": "active"}
    user = paused_replica.writer.data("POST", "/users", person)["id"]
    paused_replica.servers.go_on()
    paused_replica.servers.stand_still()
    holders = [Client(machine.url, token) for machine in paused_replica.machines.web]
    assert [one.send("GET", "/items/notes").status_code for one in holders] == [200, 200]
    paused_replica.writer.data("DELETE", f"/permissions/{key}")
    assert [one.send("GET", "/items/notes").status_code for one in holders] == [403, 403]
    assert [one.send("GET", "/server/specs/oas").ok for one in holders] == [True, True]
    paused_replica.writer.data("PATCH", f"/users/{user}", {"status": "suspended"})
    for path in ("/items/notes", "/users/me", "/items/notes?export=csv", "/permissions/me"):
        assert [one.send("GET", path).status_code for one in holders] == [401, 401], path


def reader_role(paused_replica: Replicated) -> tuple[str, int]:
    """Make a role that may read notes; return its id, and that of its permission."""
    role = paused_replica.writer.data("POST", "/roles", {"name": "Readers"})["id"]
    permission = {"role": role, "collection": "notes", "action": "read", "fields": ["*"]}
    return role, paused_replica.writer.data("POST", "/permissions", permission)["id"]


def test_a_session_that_has_ended_stays_so_long_after_its_logout(
    paused_replica: Replicated,
) -> None:
    """From elsewhere than the logout came, as when nobody is known as a writer any more."""
    first, second = (Client(machine.url) for machine in paused_replica.machines.web)
    login = first.send("POST", "/auth/login", json={**LOGIN, "mode": "session"}, headers=ADDRESS)
    cookie = {"Cookie": f"cms_session_token={login.cookies['cms_session_token']}"}
    # The replica does not know the session yet, and the holder has moved.
    assert second.send("GET", "/users/me", headers=cookie).status_code == 200
    paused_replica.servers.go_on()
    paused_replica.servers.stand_still()
    headers = {**cookie, **ADDRESS, "Origin": first.url}
    assert first.send("POST", "/auth/logout", json={"mode": "session"}, headers=headers).ok
    paused_replica.redis.kill()
    try:
        forget_writers(paused_replica)
        assert second.send("GET", "/users/me", headers=cookie).status_code == 401
    finally:
        paused_replica.redis.start()


def forget_writers(paused_replica: Replicated) -> None:
    """Start the second machine again: it has seen none of the writes, and asks no Redis."""
    machine = paused_replica.machines.web[1]
    assert machine.stop() == 0, machine.log_text()
    machine.start()
    machine.await_answer()


def test_the_token_of_a_new_login_is_good_from_everywhere(paused_replica: Replicated) -> None:
    person = {"email": "new@example.com", "password": ADMIN_PASSWORD, "status": "active"}
    paused_replica.writer.data("POST", "/users", person)
    paused_replica.servers.go_on()
    paused_replica.servers.stand_still()
    token = paused_replica.machines.first.login("new@example.com").token
    for machine in paused_replica.machines.web:
        assert Client(machine.url, token).data("GET", "/users/me")


def test_reads_that_change_nothing_are_those_of_the_replica(paused_replica: Replicated) -> None:
    before = paused_replica.readers_rows()
    paused_replica.writer.data("POST", "/items/notes", {"text": "newer"})
    assert paused_replica.readers_rows() == before
