"""/auth/login/{provider}/acs, /metadata and /slo: what a provider of SAML calls (docs/sso.md)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

import falcon

from cms.errors import Problem, Refused, invalid_payload, invalid_provider
from cms.files.media_types import without_parameters
from cms.http.external_logins import ExternalLogins, answer_of, send_browser
from cms.http.requests.request import Request
from cms.http.requests.request_body import read_limited
from cms.sso.external_users import end_sessions_of
from cms.sso.saml import MAX_MESSAGE_BYTES, SamlClient


def _client(logins: ExternalLogins, name: str) -> SamlClient:
    client = logins.providers.clients.get(logins.providers.provider(name).name)
    if not isinstance(client, SamlClient):
        raise invalid_provider("This provider does not speak SAML.")
    return client


class AnswerResource:
    def __init__(self, logins: ExternalLogins) -> None:
        self._logins = logins

    def on_post(self, request: Request, response: falcon.Response, provider: str) -> None:
        """Take the answer of a provider, which the browser brings in a form.

        Browsers send this form without the cookie of the login, for it comes from another site. So
        the answer is kept, and the browser sent on to where it has that cookie.
        """
        client = _client(self._logins, provider)
        form = _form(request)
        message = form.get("SAMLResponse")
        if not message:
            raise invalid_payload('"SAMLResponse" is missing', field="SAMLResponse")
        client.take_answer(message)
        state = urlencode({"state": form.get("RelayState", "")})
        send_browser(response, f"{client.addresses.finish}?{state}")
        # Another status could make the browser send the form again.
        response.status = falcon.HTTP_303


class MetadataResource:
    def __init__(self, logins: ExternalLogins) -> None:
        self._logins = logins

    def on_get(self, request: Request, response: falcon.Response, provider: str) -> None:
        """Describe this service to a provider."""
        response.content_type = "application/samlmetadata+xml"
        response.data = _client(self._logins, provider).metadata()


class SingleLogoutResource:
    def __init__(self, logins: ExternalLogins) -> None:
        self._logins = logins

    def on_get(self, request: Request, response: falcon.Response, provider: str) -> None:
        """Begin a logout at the provider, or take its message: a request, or an answer."""
        client = _client(self._logins, provider)
        parameters = answer_of(request)
        if "session" in parameters:
            send_browser(response, client.logout_request_url(parameters["session"]))
            return
        name, url = client.ended_session(parameters)
        if name:
            login_provider = self._logins.providers.provider(provider)
            end_sessions_of(self._logins.store, login_provider, name, client=request.client)
        if url:
            send_browser(response, url)
        else:
            response.status = falcon.HTTP_204


def _form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; raises `Refused` for another body, or one that is too long."""
    if without_parameters(request.content_type) != falcon.MEDIA_URLENCODED:
        raise Refused(Problem("UNSUPPORTED_MEDIA_TYPE", "Send a form."))
    body = read_limited(request.stream, 2 * MAX_MESSAGE_BYTES)
    try:
        return dict(parse_qsl(body.decode("ascii"), max_num_fields=20))
    except ValueError:
        raise invalid_payload("The form cannot be read") from None
