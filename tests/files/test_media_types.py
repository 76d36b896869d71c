"""The media type of a content: its bytes decide, and name and declared
type only among what these may be.
"""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from io import BytesIO

import pytest

from cms.files.media_types import HEAD_BYTES, charset_of, is_allowed, media_type_of
from tests.files.images import picture


def packed() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "x")
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return buffer.getvalue()


GLB = b"glTF\2\0\0\0\x64\0\0\0\x20\0\0\0JSON{}"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize(
    ("content", "name", "declared", "kind"),
    [
        (picture("JPEG"), "a.png", "image/png", "image/jpeg"),
        (picture("PNG"), "a", None, "image/png"),
        (picture("GIF"), "a", None, "image/gif"),
        (picture("WEBP"), "a", None, "image/webp"),
        (picture("AVIF"), "a", None, "image/avif"),
        (picture("TIFF"), "a", None, "image/tiff"),
        (picture("BMP"), "a", None, "image/bmp"),
        (b"%PDF-1.7\n", "a.html", "text/html", "application/pdf"),
        (packed(), "a.zip", None, "application/zip"),
        (packed(), "a.docx", None, DOCX),
        (packed(), "a", DOCX, DOCX),
        (packed(), "a.png", "image/png", "application/zip"),
        (gzip.compress(b"x", mtime=0), "a.gz", None, "application/gzip"),
        (tarred(), "a", None, "application/x-tar"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "a", None, "audio/wav"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "a", None, "video/mp4"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "a.m4a", "audio/mp4", "audio/mp4"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif", "a", None, "image/heif"),
        (b"\xff\xfb\x90\x64\0", "a", None, "audio/mpeg"),
        (b"OggS\0\x02", "a.ogg", None, "audio/ogg"),
        (b"wOF2\0\x01", "a", None, "font/woff2"),
        (b"hello", "a", None, "text/plain"),
        (b"hello", "a.md", None, "text/markdown"),
        (b"a,b\n1,2\n", "a.csv", "application/vnd.ms-excel", "text/csv"),
        (b'{"a": 1}', "a", "application/json; charset=utf-8", "application/json"),
        (b"function a() {}", "a.js", None, "text/javascript"),
        (b"hello", "a.png", "image/png", "text/plain"),
        (b"BMW makes cars, ID3 is one, FORMs, BZh", "a", "audio/mpeg", "text/plain"),
        ("grüße".encode()[:4], "a.txt", None, "text/plain"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a.png", "image/png", "image/svg+xml"),
        (
            b"\xef\xbb\xbf <?xml version='1.0'?><!-- x --><!DOCTYPE svg><svg/>",
            "a.txt",
            None,
            "image/svg+xml",
        ),
        (
            b"<?xml version='1.0'?><s:svg xmlns:s='http://www.w3.org/2000/svg'/>",
            "a",
            None,
            "image/svg+xml",
        ),
        (b"\n <!DOCTYPE html><p>", "a.jpg", "image/jpeg", "text/html"),
        (b"<!-- x --><script>alert(1)</script>", "a.txt", "text/plain", "text/html"),
        ("<html>".encode("utf-16"), "a.txt", None, "text/html"),
        (b"<?xml version='1.0'?><html xmlns='x'>", "a.xml", None, "application/xhtml+xml"),
        (b"<?xml version='1.0'?><feed/>", "a", None, "application/xml"),
        (b"plain words", "a.html", None, "text/html"),
        (b"\0\1\2\3", "a.png", "image/png", "application/octet-stream"),
        (b"\0\1\2\3", "a.bin", "application/x-thing", "application/x-thing"),
        (b"\0\1\2\3", "a", "nonsense", "application/octet-stream"),
        (b"\0\1\2\3", "a.txt", "text/html", "application/octet-stream"),
        (b"", "a.txt", None, "text/plain"),
        # A declared type counts unless the bytes contradict it.
        (GLB, "a.glb", "model/gltf-binary", "model/gltf-binary"),
        (GLB, "a.glb", None, "model/gltf-binary"),
        (GLB, "a.glb", "text/html", "model/gltf-binary"),
        (b"\0\1\2\3", "a", "model/gltf-binary", "application/octet-stream"),
        (b"stl".ljust(84, b"\0"), "a", "model/stl", "model/stl"),
        (b"stl".ljust(84, b"\0"), "a.stl", None, "model/stl"),
        (b"solid x\nfacet normal 0 0 1\n", "a.stl", None, "model/stl"),
        (b"\xff\xf1\x50\x80\x01\x1f\xfc", "a.aac", "audio/aac", "audio/aac"),
        (b"\xff\xf9\x50\x80\x01\x1f\xfc", "a", None, "audio/aac"),
        (b"AC1032\0\0\0\0\0\0\x03", "a.dwg", "application/acad", "application/acad"),
        (b"AC1032\0\0\0\0\0\0\x03", "a.dwg", None, "image/vnd.dwg"),
        (b"words", "a", "application/x-my-format", "application/x-my-format"),
        (packed(), "a.sketch", "application/x-sketch", "application/x-sketch"),
        (packed(), "a.png", "application/pdf", "application/zip"),
        (packed(), "a", "text/html", "application/zip"),
        (b"\0\1\2\3", "a", "image/x-thing", "image/x-thing"),
        (b"\0\1\2\3", "a.docx", None, "application/octet-stream"),
        (b"words", "a.doc", "application/msword", "text/plain"),
        (b"words", "a", "audio/mpeg", "text/plain"),
        (b"#EXTM3U", "a", "audio/x-mpegurl", "audio/x-mpegurl"),
        (b'{"a": 1}', "a.json", "text/plain", "application/json"),
        (b'{"a": 1}', "a.json", "text/x-mine", "text/x-mine"),
        (picture("JPEG"), "a", "image/jpg", "image/jpeg"),
        (b"<?xml version='1.0'?><gpx/>", "a", "application/gpx+xml", "application/gpx+xml"),
        (b"<?xml version='1.0'?><gpx/>", "a", "text/html", "application/xml"),
        (b"<?xml version='1.0'?><rss><![CDATA[<svg >]]>", "a", None, "application/xml"),
        (b"--x\nContent-Type: text/html\n", "a", "multipart/mixed", "text/plain"),
    ],
)
def test_the_bytes_decide(content: bytes, name: str, declared: str | None, kind: str) -> None:
    assert media_type_of(content[:HEAD_BYTES], name=name, declared=declared) == kind


@pytest.mark.parametrize("declared", [None, "image/svg+xml", "text/plain", "image/png", "text/x-a"])
@pytest.mark.parametrize(
    "prolog",
    [
        "<!--" + "x" * 60_000 + "-->",
        "<?xml version='1.0'?><!--" + "x" * 60_000 + "-->",
        "<!-- x -->" * 6_000,
        "<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN' 'svg11.dtd'>",
        "<?xml version='1.0'?>\n<!DOCTYPE x [<!ENTITY y 'z'>]>",
        "<?xml version='1.0'?><?xml-stylesheet href='a'?>",
        "<?anything?>",
        "\ufeff",
    ],
)
def test_an_image_of_markup_is_recognised_behind_what_may_precede_it(
    prolog: str, declared: str | None
) -> None:
    content = (prolog + "<svg xmlns='http://www.w3.org/2000/svg'/>").encode()
    assert media_type_of(content[:HEAD_BYTES], name="a.txt", declared=declared) == "image/svg+xml"


@pytest.mark.parametrize(
    ("head", "kind", "charset"),
    [
        (b"hello", "text/plain", "utf-8"),
        ("grüße".encode(), "text/csv", "utf-8"),
        ("grüße".encode("latin-1"), "text/csv", None),
        ("grüße".encode("utf-16"), "text/plain", "utf-16"),
        (("x" * (HEAD_BYTES - 1) + "ü").encode()[:HEAD_BYTES], "text/plain", "utf-8"),
        ("grü".encode()[:-1], "text/plain", None),
        (b"{}", "application/json", None),
    ],
)
def test_the_charset_of_a_text_is_detected(head: bytes, kind: str, charset: str | None) -> None:
    assert charset_of(head, kind) == charset


def test_a_list_of_types_admits_its_types_and_families() -> None:
    assert is_allowed("image/png", ["application/pdf", "image/*"])
    assert is_allowed("image/png", ["*/*"])
    assert not is_allowed("image/svg+xml", ["image/png", "text/*"])
