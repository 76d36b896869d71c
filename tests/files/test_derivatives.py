"""Transformed images over HTTP: made once, kept beside the original, gone with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from PIL import Image

from cms.config import Config
from cms.config.locations import Location
from cms.files.image_pool import ImagePool
from cms.files.storage import Storage
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client
from tests.files.forms import FileService, file_service
from tests.files.pictures import corners, decoded, encoded, quarters
from tests.members import may, member
from tests.statements import counted

JPEG = encoded(quarters((200, 100)), "JPEG")

Another = Callable[..., Client]


@pytest.fixture(scope="module")
def photo(files: FileService) -> dict[str, Any]:
    added: dict[str, Any] = files.add(JPEG, "photo.jpg")
    return added


@pytest.fixture
def renders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been rendered, by the format that came out."""
    seen: list[str] = []
    render = ImagePool.render

    def counted(self: ImagePool, *arguments: Any, **named: Any) -> str:
        seen.append(render(self, *arguments, **named))
        return seen[-1]

    monkeypatch.setattr(ImagePool, "render", counted)
    return seen


def asset(client: Client, file: dict[str, Any], query: str = "", **headers: str) -> Answer:
    return client.send("GET", f"/assets/{file['id']}?{query}", **headers)


def kept(files: FileService, file: dict[str, Any]) -> list[str]:
    """Return the derivatives that lie beside a content."""
    folder = files.folder / file["storage"] / f"{file['filename_disk'].partition('.')[0]}__"
    return sorted(path.suffix for path in folder.glob("*"))


def test_an_image_is_transformed_and_named_for_its_format(
    files: FileService, photo: dict[str, Any]
) -> None:
    answer = asset(files.admin, photo, "width=40&format=webp")
    assert (answer.status, answer.headers["content-type"]) == (200, "image/webp")
    assert answer.headers["content-disposition"] == 'inline; filename="photo.webp"'
    assert decoded(answer.content).size == (40, 20)
    part = asset(files.admin, photo, "width=40&format=webp", Range="bytes=0-3")
    assert (part.status, part.content) == (206, b"RIFF")


def test_a_derivative_is_made_once_and_then_served(
    files: FileService, photo: dict[str, Any], renders: list[str]
) -> None:
    first = asset(files.admin, photo, "width=41")
    again = asset(files.admin, photo, "fit=inside&width=41&quality=80")
    assert (first.content, first.headers["etag"]) == (again.content, again.headers["etag"])
    assert renders == ["jpg"]
    assert (
        asset(files.admin, photo, "width=41", **{"If-None-Match": first.headers["etag"]}).status
        == 304
    )
    assert asset(files.admin, photo).headers["etag"] != first.headers["etag"]


def test_a_client_that_holds_a_derivative_has_none_made(
    files: FileService, photo: dict[str, Any], renders: list[str]
) -> None:
    assert asset(files.admin, photo, "width=42", **{"If-None-Match": "*"}).status == 304
    assert renders == []


def test_a_small_derivative_stays_in_memory_and_its_file_decides_who_may_see_it(
    files: FileService, renders: list[str]
) -> None:
    file = files.add(JPEG, "photo.jpg")
    first = asset(files.admin, file, "width=44")
    folder = files.folder / file["storage"] / f"{file['filename_disk'].partition('.')[0]}__"
    shutil.rmtree(folder)
    again = asset(files.admin, file, "width=44")
    assert (again.status, again.content, renders) == (200, first.content, ["jpg"])
    assert asset(files.stage.anonymous, file, "width=44").status == 403
    files.admin.delete(f"/files/{file['id']}")
    assert asset(files.admin, file, "width=44").status == 404


def test_a_derivative_that_a_proxy_sends_from_a_folder_is_always_there(
    files: FileService, another: Another, renders: list[str]
) -> None:
    file = files.add(JPEG, "photo.jpg")
    client = another(assets_sendfile="/protected")
    for _ in range(2):
        sent = asset(client, file, "width=45").headers["x-accel-redirect"]
        path = files.folder / sent.removeprefix("/protected/")
        assert path.is_file()
        path.unlink()
    assert renders == ["jpg", "jpg"]


def test_a_large_derivative_is_read_from_its_location(
    files: FileService, renders: list[str]
) -> None:
    noise = Image.effect_noise((200, 200), 100)
    file = files.add(encoded(noise, "PNG"), "noise.png")
    assert len(asset(files.admin, file, "width=900").content) > 2**18
    folder = files.folder / file["storage"] / f"{file['filename_disk'].partition('.')[0]}__"
    shutil.rmtree(folder)
    assert asset(files.admin, file, "width=900").status == 200
    assert renders == ["png", "png"]


def test_parameters_and_accept_headers_may_be_long(
    files: FileService, photo: dict[str, Any]
) -> None:
    transforms = quote(json.dumps([["flip"]]) + " " * 2_000)
    for accept in ("image/webp", "image/webp," * 500):
        answer = asset(files.admin, photo, f"transforms={transforms}&format=auto", Accept=accept)
        assert (answer.status, answer.headers["content-type"]) == (200, "image/webp")


@pytest.mark.release
def test_many_who_ask_at_once_have_it_made_once(
    files: FileService, photo: dict[str, Any], renders: list[str], another: Another
) -> None:
    clients = [another(), another()]

    def get(number: int) -> bytes:
        answer = asset(clients[number % 2], photo, "width=43&format=png")
        assert answer.status == 200
        return answer.content

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(get, range(16)))) == 1
    assert renders == ["png"]


def test_the_best_format_is_the_clients(files: FileService, photo: dict[str, Any]) -> None:
    for accept, media_type in (
        ("image/avif,image/webp", "image/avif"),
        ("image/webp,*/*", "image/webp"),
    ):
        answer = asset(files.admin, photo, "format=auto&width=20", Accept=accept)
        assert (answer.headers["content-type"], answer.headers["vary"]) == (
            media_type,
            "Accept, Origin",
        )
    answer = asset(files.admin, photo, "format=auto&width=20", Accept="*/*")
    assert answer.headers["content-type"] == "image/jpeg"
    clear = files.add(encoded(Image.new("RGBA", (30, 30), (1, 2, 3, 4)), "WEBP"), "clear.webp")
    assert asset(files.admin, clear, "format=auto&width=20").headers["content-type"] == "image/png"
    assert asset(files.admin, clear, "format=auto&width=20").headers["content-type"] == "image/png"


def test_the_files_focal_point_is_what_a_crop_shows(files: FileService) -> None:
    file = files.add(JPEG, "photo.jpg")
    files.admin.patch(f"/files/{file['id']}", {"focal_point_x": 1, "focal_point_y": 0})
    assert set(corners(decoded(asset(files.admin, file, "width=20&height=20").content))) == {
        "green",
        "white",
    }
    left = asset(files.admin, file, "width=20&height=20&focal_point_x=0&focal_point_y=0")
    assert set(corners(decoded(left.content))) == {"red", "blue"}


def test_operations_are_reported_in_json(files: FileService, photo: dict[str, Any]) -> None:
    transforms = quote(json.dumps([["flip"], ["resize", {"width": 40}]]))
    image = decoded(asset(files.admin, photo, f"transforms={transforms}&format=png").content)
    assert (image.size, corners(image)) == ((40, 20), ("blue", "white", "red", "green"))


def test_other_files_come_untouched(files: FileService) -> None:
    file = files.add(b"some text", "a.txt")
    assert asset(files.admin, file, "width=5&format=webp").content == b"some text"
    assert asset(files.admin, file, "width=none").status == 400


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("width=6001", "width"),
        ("width=1&width=2", "width"),
        ("format=bmp", "format"),
        ("key=nothing", "key"),
    ],
)
def test_a_wrong_parameter_is_reported(
    files: FileService, photo: dict[str, Any], query: str, parameter: str
) -> None:
    answer = asset(files.admin, photo, query)
    assert (answer.status, answer.codes) == (400, ["ILLEGAL_ASSET_TRANSFORMATION"])
    assert answer.errors[0]["parameter"] == parameter
    assert answer.headers["cache-control"] == "no-cache"


def test_a_broken_image_is_reported_and_nothing_is_kept(files: FileService) -> None:
    file = files.add(JPEG[:100], "broken.jpg")
    answer = asset(files.admin, file, "width=5")
    assert (answer.status, answer.codes) == (400, ["ILLEGAL_ASSET_TRANSFORMATION"])
    assert "broken" in answer.errors[0]["reason"]
    assert kept(files, file) == []
    assert asset(files.admin, file).status == 200


def test_derivatives_go_with_their_content(files: FileService) -> None:
    file = files.add(JPEG, "photo.jpg")
    for query in ("width=10", "width=20&format=png"):
        assert asset(files.admin, file, query).status == 200
    assert kept(files, file) == [".jpg", ".png"]
    blue = encoded(Image.new("RGB", (50, 50), "blue"), "PNG")
    assert files.send("PATCH", f"/files/{file['id']}", ("file", blue, "blue.png")).status == 200
    assert kept(files, file) == []
    assert set(corners(decoded(asset(files.admin, file, "width=10").content))) == {"blue"}
    now = files.admin.get(f"/files/{file['id']}").data
    assert kept(files, now) == [".png"]
    files.admin.delete(f"/files/{file['id']}")
    assert kept(files, now) == []


def test_what_is_made_while_its_file_goes_does_not_stay(
    files: FileService, monkeypatch: pytest.MonkeyPatch, renders: list[str]
) -> None:
    file = files.add(JPEG, "photo.jpg")
    render = ImagePool.render

    def late(self: ImagePool, *arguments: Any, **named: Any) -> str:
        form = render(self, *arguments, **named)
        assert files.admin.delete(f"/files/{file['id']}").status == 204
        return form

    monkeypatch.setattr(ImagePool, "render", late)
    assert asset(files.admin, file, "width=10").status == 200
    assert renders == ["jpg"]
    assert kept(files, file) == []


# What the settings allow


@pytest.fixture
def allow(files: FileService) -> Iterator[Callable[..., None]]:
    """Set what may be transformed."""

    def allow(allowed: str, *presets: dict[str, Any]) -> None:
        with psycopg.connect(files.stage.dsn, autocommit=True) as connection:
            connection.execute(
                "UPDATE system_settings SET storage_asset_transform = %s, "
                "storage_asset_presets = %s",
                (allowed, json.dumps(presets)),
            )

    yield allow
    allow("all")


def test_the_settings_decide_what_may_be_transformed(
    files: FileService, photo: dict[str, Any], allow: Callable[..., None]
) -> None:
    tiny = {
        "key": "tiny",
        "width": 12,
        "height": 12,
        "fit": "cover",
        "quality": 50,
        "format": "webp",
    }
    allow("presets", tiny, {"key": "blurred", "transforms": [["blur", 2.5]]})
    assert decoded(asset(files.admin, photo, "key=tiny").content).size == (12, 12)
    assert asset(files.admin, photo, "key=blurred").status == 200
    assert asset(files.admin, photo, "key=system-small-cover").status == 200
    assert asset(files.admin, photo, "width=12").status == 400
    allow("none", tiny)
    assert asset(files.admin, photo, "key=tiny").status == 400
    assert decoded(asset(files.admin, photo, "key=system-medium-contain").content).size == (
        300,
        150,
    )
    assert asset(files.admin, photo, "download").status == 200


# Other places than a folder


@pytest.mark.release
@pytest.mark.parametrize("sendfile", ["", "/protected"])
def test_originals_in_a_bucket_are_transformed_beside_it(
    sendfile: str,
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
    s3_server: str,
) -> None:
    bucket = Location(
        "s3",
        "s3",
        "assets",
        bucket="files",
        endpoint=s3_server,
        key="key",
        secret="secret",
        force_path_style=True,
    )
    folder = tmp_path_factory.mktemp("bucket")
    changes = {"locations": (bucket,), "assets_sendfile": sendfile}
    with file_service(settings, folder, make_database, template, **changes) as files:
        file = files.add(JPEG, "photo.jpg")
        for _ in range(2):
            assert decoded(asset(files.admin, file, "width=20").content).size == (20, 10)
        # The second time without a round trip to the bucket.
        storage = Storage(bucket)
        storage.delete([path for path in _paths(storage) if "__" in path])
        assert decoded(asset(files.admin, file, "width=20").content).size == (20, 10)
        assert len(_paths(storage)) == 1
        answer = asset(files.admin, file)
        assert answer.content == JPEG
        assert asset(files.admin, file, Range="bytes=2-5").content == JPEG[2:6]
        assert files.admin.send("HEAD", f"/assets/{file['id']}").headers["content-length"] == str(
            len(JPEG)
        )
        files.admin.delete(f"/files/{file['id']}")
        assert _paths(storage) == []


def _paths(storage: Storage) -> list[str]:
    return [content.path for content in storage.list()]


def test_a_stored_image_takes_one_statement_with_rights_and_freshness(
    files: FileService, photo: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"id": {"_eq": photo["id"]}}
    some = member(files.stage, may("system_files", "title", permissions=rule))
    query = "width=20&format=webp"
    for client in (files.admin, some):
        first = asset(client, photo, query)
        with counted(monkeypatch) as statements:
            assert asset(client, photo, query).content == first.content
            assert len(statements) == 1
            tag = first.headers["etag"]
            assert asset(client, photo, query, **{"If-None-Match": tag}).status == 304
            assert len(statements) == 2


@pytest.mark.release
def test_a_session_cookie_takes_one_more_statement_as_a_logout_moves_no_counter(
    files: FileService, photo: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    login = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD, "mode": "session"}
    cookies = files.stage.anonymous.post("/auth/login", login).cookies
    cookie = "; ".join(f"{name}={cookie.value}" for name, cookie in cookies.items())
    asset(files.stage.anonymous, photo, Cookie=cookie)
    with counted(monkeypatch) as statements:
        assert asset(files.stage.anonymous, photo, Cookie=cookie).status == 200
        assert len(statements) == 2
