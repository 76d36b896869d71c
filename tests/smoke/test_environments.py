"""docs/environments.md: its commands lead a structure from a laptop to production."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from tests.smoke.running import TIMEOUT_SECONDS, Service, environment, new_folder, serving

pytestmark = pytest.mark.slow

GUIDE = Path("docs/environments.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
GIT_NAMES = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
ACCOUNT = {"email": "admin@example.com", "password": "correct horse battery"}
FIELDS = [{"field": "title", "type": "string"}]
ARTICLES = {"collection": "articles", "schema": {}, "meta": {}, "fields": FIELDS}


@dataclass(frozen=True)
class Environment:
    service: Service
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return requests.request(
            method, self.url + path, json=body, headers=headers, timeout=TIMEOUT_SECONDS
        )

    def has_articles(self) -> bool:
        return self.call("GET", "/collections/articles").status_code == 200


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[], Environment]]:
    """Start a service in a folder of its own."""
    with ExitStack() as stack:

        def start_one() -> Environment:
            folder = stack.enter_context(new_folder())
            password = ACCOUNT["password"]
            service = stack.enter_context(serving(folder, ADMIN_PASSWORD=password))
            login = f"http://127.0.0.1:{service.port}/auth/login"
            answer = requests.post(login, json=ACCOUNT, timeout=TIMEOUT_SECONDS)
            return Environment(service, answer.json()["data"]["access_token"])

        yield start_one


def test_the_guide_leads_from_a_laptop_to_production(start: Callable[[], Environment]) -> None:
    laptop = start()
    staging = start()
    production = start()
    variables = {
        "STAGING_URL": staging.url,
        "STAGING_TOKEN": staging.token,
        "PRODUCTION_URL": production.url,
        "PRODUCTION_TOKEN": production.token,
    }

    def run(script: str) -> subprocess.CompletedProcess[str]:
        folder = laptop.service.folder
        author = dict.fromkeys((f"GIT_{name}" for name in GIT_NAMES), "ann")
        environ = environment(folder, laptop.service.port, **variables, **author)
        programs = f"{Path(sys.executable).parent}:{environ['PATH']}"
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env={**environ, "PATH": programs},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    save, compare, apply, check, revert = COMMANDS
    begin = "git init -q && cms schema snapshot schema.yaml && git add schema.yaml"
    assert run(f"{begin} && git commit -qm Begin").returncode == 0
    assert laptop.call("POST", "/collections", ARTICLES).ok
    assert run(save).returncode == 0
    compared = run(compare)
    assert (compared.returncode, compared.stderr) == (0, "")
    assert compared.stdout in GUIDE
    applied = run(apply)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert staging.has_articles()
    assert production.has_articles()
    assert run(check).returncode == 0
    assert production.call("PATCH", "/collections/articles", {"meta": {"icon": "x"}}).ok
    checked = run(check)
    assert (checked.returncode, checked.stdout) == (
        1,
        '~ collection articles\n    meta.icon: "x" → null\n',
    )
    refused = run(revert.replace("--allow-destructive", ""))
    assert refused.returncode == 1
    assert "allow_destructive" in refused.stderr
    assert run(f"git checkout -q HEAD -- schema.yaml\n{revert}").returncode == 0
    assert not staging.has_articles()
    failed = run("cms schema diff schema.yaml --token nobody")
    assert (failed.returncode, failed.stdout) == (2, "")
