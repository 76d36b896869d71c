"""The requests of authlib, sent with a deadline for all that one login asks of its provider."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

import orjson
from authlib.integrations.requests_client import OAuth2Session
from requests import PreparedRequest, RequestException, Response
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from cms.config.providers import Provider
from cms.outgoing.outgoing_addresses import AddressDenied, AddressFilter
from cms.outgoing.outgoing_requests import (
    FetchError,
    FetchLimits,
    OutgoingRequest,
    ResponseTooLarge,
    fetch,
)
from cms.sso.provider_errors import ProviderError

MAX_SECONDS = 10.0
"""For all requests of one login, so that a slow provider holds a thread no longer."""
MAX_BYTES = 1 << 20

# The addresses are settings: the operator may name any, even within the own network.
_ANY_ADDRESS = AddressFilter(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))


class ProviderTransport(BaseAdapter):
    """Sends requests to a provider until the deadline; raises `ProviderError`."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._provider = provider
        self._deadline = time.monotonic() + MAX_SECONDS

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send a request of `requests`, whatever timeouts it names."""
        url = request.url or ""
        if not self._provider.allows_address(url):
            raise ProviderError("an address of it does not begin with https")
        body = request.body
        if isinstance(body, str):
            body = body.encode()
        outgoing = OutgoingRequest(
            url,
            method=request.method or "GET",
            headers=_sent_headers(request.headers),
            body=body,
            follows_redirects=False,
        )
        seconds = max(self._deadline - time.monotonic(), 0.001)
        try:
            with fetch(outgoing, _ANY_ADDRESS, limits=FetchLimits(seconds, MAX_BYTES)) as answer:
                response = Response()
                response.status_code = answer.status
                response.headers = CaseInsensitiveDict(answer.headers)
                response.raw = io.BytesIO(b"".join(answer.chunks))
        except ResponseTooLarge:
            raise ProviderError(f"an answer has more than {MAX_BYTES} bytes") from None
        except (FetchError, AddressDenied) as error:
            raise ProviderError(str(error)) from None
        response.request = request
        response.url = url
        return response

    def close(self) -> None:
        """Nothing is kept open."""


def fetch_object(
    session: OAuth2Session, url: str, source: str, *, token: str | None = None
) -> Mapping[str, Any]:
    """GET the JSON object at an address, with an access token if there is one.

    `source` names it in the text of a `ProviderError`.
    """
    headers = {"Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        # The token is sent as it came: authlib would look at its dates, and renew it.
        response = session.get(url, headers=headers, withhold_token=True, allow_redirects=False)
    except (RequestException, ValueError) as error:
        # Only the kind of the error is reported, because its text may hold the token.
        raise ProviderError(f"a request cannot be sent ({type(error).__name__})") from None
    if response.status_code != 200:
        raise ProviderError(f"{source} answers with status {response.status_code}")
    try:
        value = orjson.loads(response.content)
    except ValueError:
        raise ProviderError(f"{source} answers with something that is not JSON") from None
    if not isinstance(value, dict):
        raise ProviderError(f"{source} answers with something that is no object")
    return value


def _sent_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    # The length is counted again; an answer comes plain or as gzip.
    left_out = ("content-length", "accept-encoding", "connection")
    return {name: value for name, value in headers.items() if name.lower() not in left_out}
