"""oidc-provider, an OpenID Connect provider that others wrote, in a process of its own."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from joserfc.jwk import ECKey, RSAKey

HERE = Path(__file__).parent
INSTALL_SECONDS = 120
ANSWER_SECONDS = 30

POST_CLIENT = "posts-its-secret"
BASIC_CLIENT = "sends-a-header"
ES256_CLIENT = "wants-es256"
PS256_CLIENT = "wants-ps256"
REFRESH_CLIENT = "gets-refresh-tokens"
CLIENT_SECRET = "a-secret-of-clients"

Json = Mapping[str, Any]

ALICE: Json = {
    "email": "alice@example.com",
    "email_verified": True,
    "given_name": "Alice",
    "family_name": "Liddell",
    "groups": ["editors", "staff"],
    "profile": {"id": 4711, "login": "alice", "email": None, "user": {"email": "alice@work.test"}},
}
BOB: Json = {
    "email": "Bob@Example.COM",
    "email_verified": False,
    "given_name": "Bob",
    "family_name": "Roberts",
    "groups": [],
    "profile": {"id": 4712, "login": "bob", "email": "bob@example.com"},
}


def rsa_key(kid: str) -> Json:
    """Return a new private key as a JWK."""
    key = RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})
    return dict(key.as_dict(private=True))


def ec_key(kid: str) -> Json:
    """Return a new private key on the curve P-256 as a JWK."""
    key = ECKey.generate_key("P-256", {"kid": kid, "use": "sig"})
    return dict(key.as_dict(private=True))


@dataclass(frozen=True)
class Setup:
    """What a provider knows: its clients come back to `callbacks` and leave to `departures`."""

    callbacks: Sequence[str]
    departures: Sequence[str] = ()
    keys: Sequence[Json] = field(default_factory=lambda: (rsa_key("rsa-1"), ec_key("ec-1")))
    accounts: Mapping[str, Json] = field(default_factory=lambda: {"alice": ALICE, "bob": BOB})

    def as_json(self) -> Json:
        return {
            "port": 0,
            "clients": [
                self._client(POST_CLIENT, token_endpoint_auth_method="client_secret_post"),
                self._client(BASIC_CLIENT, token_endpoint_auth_method="client_secret_basic"),
                self._client(ES256_CLIENT, id_token_signed_response_alg="ES256"),
                self._client(PS256_CLIENT, id_token_signed_response_alg="PS256"),
                self._client(REFRESH_CLIENT, grant_types=["authorization_code", "refresh_token"]),
            ],
            "keys": self.keys,
            "accounts": self.accounts,
        }

    def _client(self, name: str, **more: object) -> Json:
        return {
            "client_id": name,
            "client_secret": CLIENT_SECRET,
            "redirect_uris": self.callbacks,
            "post_logout_redirect_uris": self.departures,
            **more,
        }


@dataclass
class RunningProvider:
    """A process of provider.mjs."""

    process: subprocess.Popen[str]
    setup: Setup
    issuer: str = ""

    def change(self, **changes: Any) -> None:
        """Put a provider with another setup on the same port."""
        self.setup = replace(self.setup, **changes)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(self.setup.as_json()) + "\n")
        self.process.stdin.flush()
        readable, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        line = self.process.stdout.readline() if readable else ""
        assert line, "the provider does not start"
        self.issuer = json.loads(line)["issuer"]

    @property
    def discovery_url(self) -> str:
        return f"{self.issuer}/.well-known/openid-configuration"

    def settings(self, name: str, *, client: str = POST_CLIENT, **more: str) -> dict[str, str]:
        """Return the settings of the service for this provider, `more` of them by option."""
        options = {
            "driver": "openid",
            "client_id": client,
            "client_secret": CLIENT_SECRET,
            "issuer_url": self.discovery_url,
            "scope": "openid profile email groups",
            **more,
        }
        return {f"AUTH_{name}_{option}".upper(): value for option, value in options.items()}


@contextmanager
def running_provider(folder: Path, setup: Setup) -> Iterator[RunningProvider]:
    """Run a provider until the block ends."""
    process = subprocess.Popen(
        ["node", "provider.mjs"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        provider = RunningProvider(process, setup)
        try:
            provider.change()
            yield provider
        finally:
            process.kill()
