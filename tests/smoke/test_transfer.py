"""`cms import`, `cms export` and `cms schema`: files in and out of a real service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import requests
import yaml

from tests.smoke.running import Service, command_apart, command_fed, free_port, new_folder, serving

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class TransferService:
    """A running service with a collection `things` of two rows; `run` is `cms` in its folder."""

    service: Service
    token: str

    def run(self, *words: str, fed: str | None = None, **more: str) -> CompletedProcess[str]:
        environ = {"PORT": str(self.service.port), **more}
        if fed is not None:
            return command_fed(self.service.folder, *words, fed=fed, **environ)
        return command_apart(self.service.folder, *words, **environ)

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.request(
            method,
            f"http://127.0.0.1:{self.service.port}{path}",
            json=body,
            headers=headers,
            timeout=60,
        )
        assert answer.ok, answer.text
        return answer

    def file(self, name: str, text: str) -> str:
        path = self.service.folder / name
        path.write_text(text)
        return str(path)


@pytest.fixture(scope="module")
def shop() -> Iterator[TransferService]:
    with (
        new_folder() as folder,
        serving(folder, ADMIN_PASSWORD=PASSWORD, FILES_MAX_UPLOAD_SIZE="1mb") as service,
    ):
        login = requests.post(
            f"http://127.0.0.1:{service.port}/auth/login",
            json={"email": "admin@example.com", "password": PASSWORD},
            timeout=60,
        )
        shop = TransferService(service, login.json()["data"]["access_token"])
        fields = [{"field": "name", "type": "string"}, {"field": "size", "type": "integer"}]
        shop.call("POST", "/collections", {"collection": "things", "schema": {}, "fields": fields})
        shop.call("POST", "/items/things", [{"name": "a", "size": 1}, {"name": "b"}])
        yield shop


def test_what_was_exported_is_imported_again(shop: TransferService, tmp_path: Path) -> None:
    written = tmp_path / "things.jsonl"
    assert shop.run("export", "things", str(written), "--format", "jsonl").returncode == 0
    assert [json.loads(line)["name"] for line in written.read_text().splitlines()] == ["a", "b"]
    again = shop.run("import", "things", str(written))
    assert (again.returncode, again.stdout) == (0, "things: 0 created, 2 updated\n")


def test_files_come_and_go_through_pipes(shop: TransferService) -> None:
    imported = shop.run("import", "things", "-", "--format", "csv", fed="id,name\n50,piped\n")
    assert (imported.returncode, imported.stdout) == (0, "things: 1 created, 0 updated\n")
    rule = json.dumps({"id": {"_eq": 50}})
    exported = shop.run("export", "things", "--filter", rule, "--fields", "id,name")
    assert (exported.returncode, exported.stdout.splitlines()) == (0, ["id,name", "50,piped"])
    shop.call("DELETE", "/items/things/50")


def test_what_the_service_refuses_is_reported_line_by_line(shop: TransferService) -> None:
    imported = shop.run("import", "things", shop.file("bad.csv", "name,size\nc,1\nd,x\ne,y\n"))
    assert imported.returncode == 1
    assert imported.stdout == ""
    assert [line.partition(":")[0] for line in imported.stderr.splitlines()] == [
        "Error",
        "line 3",
        "line 4",
    ]
    assert shop.call("GET", "/items/things?aggregate[count]=*").json()["data"] == [{"count": 2}]
    hidden = shop.run("export", "things", "--token", "nobody")
    assert (hidden.returncode, hidden.stdout) == (1, "")
    assert hidden.stderr.startswith("Error: The service answers 401:\n")


def test_what_cannot_be_done_is_reported_before_anything_is_sent(shop: TransferService) -> None:
    unknown = shop.run("import", "things", shop.file("things.txt", "name\nx\n"))
    assert (unknown.returncode, "--format" in unknown.stderr) == (2, True)
    assert shop.run("import", "things", "no-such-file.csv").returncode == 2
    silent = shop.run(
        "import", "things", shop.file("x.csv", ""), "--url", f"http://127.0.0.1:{free_port()}"
    )
    assert silent.returncode == 1
    assert silent.stderr.startswith("Error: Nothing answers at ")


def test_a_body_without_a_length_is_received_as_well_up_to_the_limit(shop: TransferService) -> None:
    address = f"http://127.0.0.1:{shop.service.port}/utils/import/things"
    headers = {"Authorization": f"Bearer {shop.token}", "Content-Type": "text/csv"}
    for rows, status in ((20_000, 413), (5_000, 200)):
        lines = (b"%s,%d\n" % (b"x" * 100, n) for n in range(rows))
        answer = requests.post(
            address, data=_joined(b"name,size\n", lines), headers=headers, timeout=60
        )
        assert answer.status_code == status, answer.text
    assert answer.json() == {"data": {"created": 5_000, "updated": 0}}
    shop.call(
        "DELETE",
        "/items/things",
        {"query": {"filter": {"size": {"_gte": 0}, "name": {"_starts_with": "xxx"}}}},
    )


def _joined(header: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    yield header
    yield from lines


def test_a_snapshot_of_the_structure_is_a_file(shop: TransferService, tmp_path: Path) -> None:
    document = shop.call("GET", "/schema/snapshot").json()["data"]
    for name, read in (("schema.yaml", yaml.safe_load), ("schema.json", json.loads)):
        written = tmp_path / name
        assert shop.run("schema", "snapshot", str(written)).returncode == 0
        assert read(written.read_text()) == document
    printed = shop.run("schema", "snapshot")
    assert yaml.safe_load(printed.stdout) == document
    former = written.read_text()
    assert shop.run("schema", "snapshot", str(written), "--token", "nobody").returncode == 1
    assert written.read_text() == former


def test_types_are_a_file(shop: TransferService, tmp_path: Path) -> None:
    for language, line in (
        ("typescript", "  things: Things[];"),
        ("python", "class Things(TypedDict, total=False):"),
    ):
        file = tmp_path / f"types.{language}"
        assert shop.run("types", str(file), "--language", language).returncode == 0
        assert line in file.read_text().splitlines()
        printed = shop.run("types", "--language", language)
        assert printed.stdout == file.read_text()
    assert shop.run("types").returncode == 2
    assert shop.run("types", "--language", "cobol").returncode == 2
    former = file.read_text()
    refused = shop.run("types", str(file), "--language", "python", "--token", "nobody")
    assert (refused.returncode, file.read_text()) == (1, former)


@pytest.mark.parametrize("words", [("demo",), ("export", "things")])
def test_a_command_with_another_secret_than_the_service_fails_with_that_reason(
    shop: TransferService, words: tuple[str, ...]
) -> None:
    refused = shop.run(*words, SECRET="another-secret-" * 3)
    assert refused.returncode == 1
    assert "Its SECRET is not the one of this folder" in refused.stderr
    assert "INVALID_TOKEN" not in refused.stderr
    assert refused.stdout == ""


def test_a_token_that_was_given_and_is_refused_is_reported_in_the_words_of_the_service(
    shop: TransferService,
) -> None:
    refused = shop.run("export", "things", "--token", "nonsense")
    assert refused.returncode == 1
    assert "SECRET" not in refused.stderr
