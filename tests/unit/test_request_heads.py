"""What the head of a request becomes in the environ that the application gets."""

from __future__ import annotations

import tracemalloc

import pytest

from cms.web.request_head import RequestHead


def head(*headers: tuple[bytes, bytes], target: bytes = b"/", prefix: str = "") -> RequestHead:
    request_head = RequestHead({"SCRIPT_NAME": prefix})
    request_head.add_target(target)
    for name, value in headers:
        request_head.add_header(name, value)
    return request_head


def completed(target: bytes, prefix: str = "") -> tuple[object, object]:
    request_head = head(target=target, prefix=prefix)
    request_head.complete("GET", "1.1")
    return request_head.environ["PATH_INFO"], request_head.environ["QUERY_STRING"]


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/items/a%20b?x=%20", "/items/a b", "x=%20"),
        (b"/a?b?c#d", "/a", "b?c"),
        (b"http://elsewhere/a?b", "/a", "b"),
        (b"http://elsewhere", "/", ""),
        (b"*", "*", ""),
    ],
)
def test_a_target_of_any_form_has_a_path_and_a_query(target: bytes, path: str, query: str) -> None:
    assert completed(target) == (path, query)


def test_the_path_begins_behind_the_prefix() -> None:
    assert completed(b"/cms/items", "/cms") == ("/items", "")
    with pytest.raises(ValueError, match="not below /cms"):
        completed(b"/items", "/cms")


def test_repeated_headers_are_joined_and_cookies_by_a_semicolon() -> None:
    environ = head(
        (b"Accept", b"a"), (b"accept", b"b"), (b"Cookie", b"c"), (b"Cookie", b"d")
    ).environ
    assert (environ["HTTP_ACCEPT"], environ["HTTP_COOKIE"]) == ("a,b", "c; d")


@pytest.mark.parametrize("name", [b"Host", b"Content-Type"])
def test_a_header_that_could_mean_either_value_is_refused(name: bytes) -> None:
    with pytest.raises(ValueError, match="twice"):
        head((name, b"a"), (name, b"b"))


def test_a_name_with_an_underscore_never_stands_for_one_with_a_hyphen() -> None:
    assert "HTTP_X_FORWARDED_FOR" not in head((b"X_Forwarded-For", b"1.2.3.4")).environ


def test_chunks_are_refused_from_clients_of_http_1_0() -> None:
    with pytest.raises(ValueError, match="no chunks"):
        head((b"Transfer-Encoding", b"chunked")).complete("POST", "1.0")


@pytest.mark.parametrize(
    ("headers", "size"),
    [([], 0), ([(b"Content-Length", b"12")], 12), ([(b"Transfer-Encoding", b"chunked")], None)],
)
def test_the_size_of_a_body_is_announced_or_unknown(
    headers: list[tuple[bytes, bytes]], size: int | None
) -> None:
    assert head(*headers).content_length == size


def test_names_that_a_client_makes_up_stay_in_no_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(200):
            head((b"X-%05d" % number + b"x" * 50_000, b"value"))
        allocated_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allocated_bytes < 1_000_000
