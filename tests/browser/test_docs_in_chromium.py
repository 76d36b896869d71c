"""/docs in a real browser: what it shows, and that it asks nobody but the service."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from PIL import Image

from tests.node_packages import install
from tests.smoke.running import new_folder, serving

pytestmark = [pytest.mark.slow, pytest.mark.release]

Json = dict[str, Any]

ACCOUNT = {"email": "admin@example.com", "password": "correct horse battery staple"}
HERE = Path(__file__).parent
PREFIXES = ("", "/cms")
VISIT_SECONDS = 120
NOTE = 'Its usual <b id="of-the-note">name</b> <img src=x onerror="throw 1">'
PLANETS = {
    "collection": "planets",
    "schema": {},
    "fields": [{"field": "name", "type": "string", "schema": {}, "meta": {"note": NOTE}}],
}


class Visit(dict[str, Any]):
    """What visit.mjs has seen; `service` is the address and `picture` the screenshot."""

    service: str
    picture: Path


@contextmanager
def service(prefix: str) -> Iterator[str]:
    """Run the service below a prefix and yield its address."""
    account = {"ADMIN_EMAIL": ACCOUNT["email"], "ADMIN_PASSWORD": ACCOUNT["password"]}
    with new_folder() as folder, serving(folder, SCRIPT_NAME=prefix, **account) as running:
        yield f"http://127.0.0.1:{running.port}{prefix}"


def post(url: str, body: Json, token: str = "") -> Json:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = requests.post(url, json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    data: Json = answer.json()["data"]
    return data


def session_cookie(url: str) -> str:
    """Log in as a browser does, and return the cookie of the session."""
    body = {**ACCOUNT, "mode": "session"}
    cookies = requests.post(f"{url}/auth/login", json=body, timeout=30).cookies
    return str(cookies["cms_session_token"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    install(HERE, folder, "visit.mjs")
    return folder


@pytest.fixture(scope="module", params=PREFIXES)
def visit(request: pytest.FixtureRequest, folder: Path) -> Visit:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is needed: the Debian package chromium")
    picture = folder / "docs.png"
    with service(request.param) as url:
        token = post(f"{url}/auth/login", ACCOUNT)["access_token"]
        post(f"{url}/collections", PLANETS, token)
        post(f"{url}/items/planets", {"name": "Jupiter"}, token)
        done = subprocess.run(
            ["node", "visit.mjs", chromium, url, token, str(picture), session_cookie(url)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=VISIT_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    visit = Visit(json.loads(done.stdout))
    visit.service = url
    visit.picture = picture
    return visit


def test_the_page_shows_what_the_public_role_may_use(visit: Visit) -> None:
    assert "post-/auth/login" in visit["public"]
    assert "get-/items/planets" not in visit["public"]
    assert "post-/collections" not in visit["public"]


def test_with_a_token_it_shows_the_operations_of_a_collection(visit: Visit) -> None:
    of_planets = {name for name in visit["own"] if "/items/planets" in name}
    row = "/items/planets/-key-"
    assert of_planets == {
        *(f"{method}-/items/planets" for method in ("get", "post", "patch", "delete")),
        *(f"{method}-{row}" for method in ("get", "patch", "delete")),
    }
    assert "post-/collections" in visit["own"]


def test_with_the_cookie_of_a_session_it_shows_the_same_without_a_token(visit: Visit) -> None:
    assert visit["ofSession"] == visit["own"]


def test_an_operation_is_called_with_the_token(visit: Visit) -> None:
    assert visit["status"] == 200


def test_nothing_is_asked_of_another_host(visit: Visit) -> None:
    requested = visit["requests"]
    assert f"{visit.service}/docs/rapidoc-min.js" in requested
    assert f"{visit.service}/items/planets" in {url.partition("?")[0] for url in requested}
    schemes = {urlsplit(url).scheme for url in requested}
    assert schemes <= {"http", "data", "blob"}
    assert {url for url in requested if url.startswith("http")} == {
        url for url in requested if url.startswith(f"{visit.service}/")
    }


def test_nothing_goes_wrong_on_the_page(visit: Visit) -> None:
    assert visit["problems"] == []


def test_notes_are_shown_and_not_run(visit: Visit) -> None:
    assert visit["note"].endswith(NOTE)
    assert visit["html"] == 0


def test_a_script_without_the_nonce_is_refused(visit: Visit) -> None:
    assert visit["foreignScript"] == "refused"


def test_a_wrong_token_is_reported_and_none_is_stored(visit: Visit) -> None:
    assert visit["message"] == "The access token is not valid."
    assert visit["stored"] == 0


def test_the_screenshot_shows_the_page(visit: Visit) -> None:
    with Image.open(visit.picture) as picture:
        assert picture.size == (1300, 900)
        colours = picture.convert("RGB").getcolors(maxcolors=1_000_000)
    # Bars, texts, methods in colours: a page that stays blank has a few.
    assert colours is not None
    assert len(colours) > 100
