"""The documented examples in processes of their own, behind servers as people run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from cms.app import create_app
from cms.auth import accounts
from cms.config import load
from tests.client import ADMIN_EMAIL, Client
from tests.embedding.documented import DJANGO, FLASK, write_example
from tests.embedding.hosts import EMAIL, PASSWORD
from tests.smoke.running import TIMEOUT_SECONDS, environment, free_port
from tests.things import admin_token
from tests.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.slow]

CONTENT = bytes(range(256)) * 40_000

GUNICORN = ("-m", "gunicorn", "--bind=127.0.0.1:{port}")
SERVERS = {
    "flask, gunicorn": (*GUNICORN, "flask_shop:app"),
    "flask, gunicorn with threads that loads before it forks": (
        *GUNICORN,
        "--preload",
        "--workers=2",
        "--threads=4",
        "flask_shop:app",
    ),
    "flask, waitress": ("-m", "waitress", "--listen=127.0.0.1:{port}", "flask_shop:app"),
    "django, gunicorn with threads": (*GUNICORN, "--threads=4", "shop.wsgi"),
    "django, runserver": ("-m", "django", "runserver", "--noreload", "127.0.0.1:{port}"),
}


class Site(requests.Session):
    """A browser at a running site; it follows no redirects."""

    def __init__(self, port: int, server: str) -> None:
        super().__init__()
        self.server = server
        self.origin = f"http://127.0.0.1:{port}"

    def request(  # type: ignore[override]  # a path stands for the address
        self, method: str, url: str, *args: Any, **more: Any
    ) -> requests.Response:
        more.setdefault("timeout", TIMEOUT_SECONDS)
        more["allow_redirects"] = False
        return super().request(method, f"{self.origin}{url}", *args, **more)

    def sign_in(self) -> None:
        if self.server.startswith("flask"):
            form = {"email": EMAIL, "password": PASSWORD}
            answer = self.post("/login", data=form)
        else:
            self.get("/admin/login/")
            token = {"csrfmiddlewaretoken": self.cookies["csrftoken"]}
            form = {"username": "ada", "password": PASSWORD, **token}
            answer = self.post("/admin/login/", data=form)
        assert answer.status_code == 302, answer.text


@pytest.fixture(params=list(SERVERS))
def open_site(
    request: pytest.FixtureRequest, tmp_path: Path, dsn: str
) -> Iterator[Callable[[], Site]]:
    """Run an example behind a server; yields what makes a browser."""
    framework = request.param.partition(",")[0]
    write_example(tmp_path, FLASK if framework == "flask" else DJANGO, dsn)
    fill(tmp_path, dsn)
    environ = {
        "PYTHONPATH": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
    }
    if framework == "django":
        manage(tmp_path, environ, "migrate", "--verbosity=0")
        manage(tmp_path, environ, "collectstatic", "--noinput", "--verbosity=0")
        who = ("--username=ada", f"--email={EMAIL}")
        manage(tmp_path, environ, "createsuperuser", "--noinput", *who)
    with running(tmp_path, SERVERS[request.param], environ) as port:
        yield lambda: Site(port, request.param)


def fill(folder: Path, dsn: str) -> None:
    """Make Ada an administrator, and an item whose key has a slash."""
    config = load({}, folder=folder / "content")
    accounts.create_user(dsn, email=EMAIL, password="not used", role=None)
    api = Client(create_app(config))
    admin = api.bearing(admin_token(config, dsn))
    (role,) = admin.get("/users", **{"filter[email][_eq]": ADMIN_EMAIL, "fields": "role"}).data
    (ada,) = admin.get("/users", **{"filter[email][_eq]": EMAIL}).data
    assert admin.patch(f"/users/{ada['id']}", role).status == 200
    key = {"field": "id", "type": "string", "schema": {"is_primary_key": True}}
    collection = {"collection": "pages", "schema": {}, "fields": [key]}
    assert admin.post("/collections", collection).status == 200
    assert admin.post("/items/pages", {"id": "a/b"}).status == 200
    api.close()


def manage(folder: Path, environ: dict[str, str], *words: str) -> None:
    command = [sys.executable, "-m", "django", *words]
    subprocess.run(command, cwd=folder, env={**os.environ, **environ}, check=True)


@contextmanager
def running(folder: Path, words: tuple[str, ...], environ: dict[str, str]) -> Iterator[int]:
    """Run a server until it answers, and end it afterwards."""
    port = free_port()
    arguments = [word.format(port=port) for word in words]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment(folder, port, **environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        await_answer(process, port, folder / "log")
        yield port
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
        _, alive = psutil.wait_procs(children, TIMEOUT_SECONDS)
        assert alive == []
    assert "Traceback" not in (folder / "log").read_text()


def await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            requests.get(f"http://127.0.0.1:{port}/cms/server/ping", timeout=5)
        except requests.RequestException:
            return False
        return True

    eventually(answers, otherwise=log.read_text)


def test_the_whole_example_works(open_site: Callable[[], Site]) -> None:
    stranger = open_site()
    assert stranger.get("/cms/items/pages").status_code == 403
    with open_site() as ada:
        ada.sign_in()
        own = {"Origin": ada.origin}
        if "runserver" not in ada.server:  # it passes on no target
            assert ada.get("/cms/items/pages/a%2Fb").json()["data"] == {"id": "a/b"}
        assert ada.post("/cms/items/pages", json={"id": "x"}).status_code == 403
        assert ada.post("/cms/items/pages", json={"id": "x"}, headers=own).status_code == 200
        assert "navy" in ada.get("/static/shop.css").text
        files_are_streamed(ada, own)
        refused_bodies_harm_nothing(ada, own)
        described = ada.get("/cms/server/specs/oas").json()
        assert described["servers"][0]["url"] == "/cms"


def files_are_streamed(ada: Site, own: dict[str, str]) -> None:
    answer = ada.post("/cms/files", files={"file": ("a.bin", CONTENT)}, headers=own)
    path = f"/cms/assets/{answer.json()['data']['id']}"
    assert ada.get(path).content == CONTENT
    part = ada.get(path, headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, CONTENT[1000:2000])
    # The same connection serves the application around the service as before.
    assert ada.get("/static/shop.css").status_code == 200


def refused_bodies_harm_nothing(ada: Site, own: dict[str, str]) -> None:
    """A body that nobody reads must not be taken for a request, and no server may stumble."""
    body = b"x" * 1_000_000
    headers = {**own, "Content-Type": "text/plain"}
    assert ada.post("/cms/items/pages", data=body, headers=headers).status_code == 415
    assert ada.get("/cms/items/pages").status_code == 200
    assert ada.post("/cms/nowhere", data=body, headers=headers).status_code == 404
    assert ada.get("/cms/items/pages").status_code == 200
