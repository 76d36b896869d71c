"""Browsers that log in at the identity provider."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from tests.client import Answer
from tests.sso.saml.identity_provider import (
    Form,
    IdentityProvider,
)
from tests.things import Stage

PUBLIC = "http://127.0.0.1:8055"
BASE = f"{PUBLIC}/auth/login/campus"
ACS = f"{BASE}/acs"
APP = "https://app.example.com/in"
CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims"
NS = {
    "p": "urn:oasis:names:tc:SAML:2.0:protocol",
    "a": "urn:oasis:names:tc:SAML:2.0:assertion",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
}
REFUSED = (401, ["INVALID_CREDENTIALS"])
EDITORS = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


RESPONSE_SIGNED = {"signResponse": True, "signAssertion": False}
ASSERTION_SIGNED = {"signResponse": False, "signAssertion": True}


def user(name: str, **attributes: object) -> dict[str, object]:
    """A user as the provider knows it."""
    return {
        "id": name,
        "attributes": {
            f"{CLAIMS}/emailaddress": f"{name}@example.com",
            f"{CLAIMS}/givenname": "Ada",
            f"{CLAIMS}/surname": "Lovelace",
            **attributes,
        },
    }


class Browser:
    """A browser with the cookies of one login."""

    def __init__(self, stage: Stage, name: str = "campus") -> None:
        self.stage = stage
        self.path = f"/auth/login/{name}"
        self.cookies: dict[str, str] = {}

    def get(self, path: str) -> Answer:
        return self._send("GET", path)

    def begin(self, redirect: str | None = None) -> str:
        """Begin a login, and return where the browser is sent."""
        query = f"?redirect={quote(redirect)}" if redirect else ""
        answer = self.get(f"{self.path}{query}")
        assert answer.status == 302, answer
        return answer.headers["location"]

    def post_form(self, form: Form) -> Answer:
        """Send the provider's form, as a browser does from another site: without cookies."""
        return self.stage.anonymous.send(
            "POST",
            f"{self.path}/acs",
            raw=urlencode({"SAMLResponse": form.response, "RelayState": form.relay_state}),
            **{"Content-Type": "application/x-www-form-urlencoded"},
        )

    def send_form(self, form: Form) -> Answer:
        """Send the form and follow the redirect within the service."""
        answer = self.post_form(form)
        if answer.status != 303:
            return answer
        location = answer.headers["location"]
        assert location.startswith(PUBLIC)
        return self.get(location.removeprefix(PUBLIC))

    def _send(self, method: str, path: str) -> Answer:
        headers = {}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        answer = self.stage.anonymous.send(method, path, **headers)
        for name, cookie in answer.cookies.items():
            self.cookies[name] = cookie.value
        return answer


class Login:
    """Logs users in from the first page to the last."""

    def __init__(self, stage: Stage, provider: IdentityProvider) -> None:
        self.stage = stage
        self.provider = provider

    def form(
        self, browser: Browser, who: dict[str, object], redirect: str | None = None, **saml: Any
    ) -> Form:
        acs = f"{PUBLIC}{browser.path}/acs"
        self.provider.configure(user=who, acs=acs, saml=saml)
        return self.provider.log_in(browser.begin(redirect))

    def __call__(self, who: dict[str, object], redirect: str | None = None, **saml: Any) -> Answer:
        browser = Browser(self.stage)
        return browser.send_form(self.form(browser, who, redirect, **saml))


def users_named(stage: Stage, name: str) -> int:
    with stage.side_door.connection() as connection:
        query = b"SELECT count(*) FROM system_users WHERE external_identifier = %s"
        row = connection.execute(query, [name]).fetchone()
        assert row
        return int(row[0])
