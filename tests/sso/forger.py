"""A provider that gives the wrong answers that a test sets.

No real provider signs tokens with no algorithm, sends a gigabyte or lets single bytes drip; so what
the service does with such answers is shown with a server that was written for it. Logins that end
well are those at oidc-provider, in the other files.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode

import trustme
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from tests.sso.site import Browser, Site, query_of, target_of

CLIENT = "cms"
CLIENT_SECRET = "a-secret-of-thirty-two-characters"
ALGORITHMS = list(JWSRegistry.algorithms)

Key = RSAKey | ECKey | OctKey
Json = dict[str, Any]
Claims = Mapping[str, object]
Raw = Callable[["Handler"], None]
"""Writes an answer as a whole, its head too."""


def rsa(kid: str) -> RSAKey:
    """Return a new private key."""
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


def public(key: Key) -> Json:
    """Return the public part of a key as a JWK."""
    return dict(key.as_dict(private=False))


@dataclass
class Forger:
    """What the provider answers; a test changes it. A claim that is None is left out."""

    issuer: str = ""
    key: Key = field(default_factory=lambda: rsa("one"))
    published: list[Json] | None = None
    """The keys that it tells; where it is None, that of `key`."""
    algorithm: str = "RS256"
    header: Json = field(default_factory=dict)
    claims: Json = field(default_factory=dict)
    """Claims of the ID token that differ from the right ones."""
    token: Json = field(default_factory=dict)
    """Members of the answer of the token endpoint that differ from the right ones."""
    id_token: str | None = None
    document: Json = field(default_factory=dict)
    profile: Json = field(default_factory=lambda: {"sub": "alice", "email": "alice@example.com"})
    raw: dict[str, Raw] = field(default_factory=dict)
    """Answers by path that are no JSON."""
    requests: Counter[str] = field(default_factory=Counter)
    nonce: str = ""

    def settings(self, name: str, **more: str) -> dict[str, str]:
        options = {
            "driver": "openid",
            "client_id": CLIENT,
            "client_secret": CLIENT_SECRET,
            "issuer_url": f"{self.issuer}/.well-known/openid-configuration",
            "allow_public_registration": "true",
            **more,
        }
        return {f"AUTH_{name}_{option}".upper(): value for option, value in options.items()}

    def answer_url(self, site: Site, browser: Browser, **more: str) -> str:
        """Begin a login and return where the provider sends the browser with its answer."""
        sent = browser.get(site.login_url("openid"))
        assert sent.status_code == 302, sent.text
        query = query_of(target_of(sent))
        self.nonce = query["nonce"]
        answer = {"code": "a-code", "state": query["state"], **more}
        return f"{site.callback('openid')}?{urlencode(answer)}"

    def answers(self) -> dict[str, Callable[[], Json]]:
        return {
            "/.well-known/openid-configuration": self._document,
            "/keys": self._keys,
            "/token": self._token,
            "/me": lambda: self.profile,
        }

    def _document(self) -> Json:
        right = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/me",
            "jwks_uri": f"{self.issuer}/keys",
        }
        return without_none(right | self.document)

    def _keys(self) -> Json:
        if self.published is None:
            return {"keys": [public(self.key)]}
        return {"keys": self.published}

    def _token(self) -> Json:
        right = {"access_token": "an-access-token", "token_type": "Bearer", "expires_in": 3600}
        return without_none({**right, "id_token": self.id_token or self._id_token(), **self.token})

    def _id_token(self) -> str:
        now = int(time.time())
        right = {
            "iss": self.issuer,
            "sub": "alice",
            "aud": CLIENT,
            "iat": now,
            "exp": now + 600,
            "nonce": self.nonce,
        }
        header = {"alg": self.algorithm, "kid": self.key.kid, **self.header}
        # Not as a JWT: its library would not write half a character.
        payload = json.dumps(without_none(right | self.claims))
        signed: str = jws.serialize_compact(
            without_none(header), payload, self.key, algorithms=ALGORITHMS
        )
        return signed


def without_none(values: Claims) -> Json:
    return {name: value for name, value in values.items() if value is not None}


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one forger."""

    forger: Forger

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.forger.requests[path] += 1
        if path in self.forger.raw:
            self.forger.raw[path](self)
            return
        answer = self.forger.answers().get(path)
        if answer is None:
            self.send_text("not here", status=404)
        else:
            self.send_text(json.dumps(answer()))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.fields = {name: values[0] for name, values in parse_qs(body).items()}
        self.do_GET()

    def send_text(self, text: str, *, status: int = 200, **headers: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Write no line for each request."""


@contextmanager
def running_forger(authority: trustme.CA | None = None) -> Iterator[Forger]:
    """Run a provider that a test lets answer wrongly; with `authority` it speaks TLS."""
    forger = Forger()
    handler = type("ForgersHandler", (Handler,), {"forger": forger})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    forger.issuer = f"http://127.0.0.1:{server.server_port}"
    if authority is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        forger.issuer = f"https://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield forger
    finally:
        server.shutdown()
        server.server_close()
