"""An identity provider of SAML that runs for the tests: samlp in a process of Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

HERE = Path(__file__).parent
SECONDS = 60


@dataclass(frozen=True)
class KeyPair:
    """A private key and a certificate of it, as PEM."""

    key: str
    certificate: str

    @property
    def bare_certificate(self) -> str:
        return "".join(self.certificate.splitlines()[1:-1])


def new_key_pair() -> KeyPair:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return KeyPair(pem.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode())


@dataclass(frozen=True)
class Form:
    """What the provider's page makes the browser send."""

    response: str
    relay_state: str


@dataclass(frozen=True)
class IdentityProvider:
    """A running provider."""

    address: str
    keys: KeyPair

    @property
    def metadata(self) -> str:
        return requests.get(f"{self.address}/metadata", timeout=SECONDS).text

    def configure(self, **options: Any) -> None:
        """Set whom it logs in, and how its answers are made."""
        requests.post(f"{self.address}/options", json=options, timeout=SECONDS).raise_for_status()

    def log_in(self, url: str) -> Form:
        """Follow a browser's way to the provider, and return the form that it is to send back."""
        page = requests.get(url, timeout=SECONDS)
        assert page.status_code == 200, page.text
        values = {
            name: unescape(value)
            for name, value in re.findall(r'name="(\w+)"\s+value="([^"]*)"', page.text)
        }
        return Form(values["SAMLResponse"], values.get("RelayState", ""))


def installed_packages(folder: Path) -> Path:
    """Install the provider into a folder, or skip where that cannot be done."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are needed")
    for name in ("package.json", "package-lock.json", "identity_provider.cjs"):
        shutil.copy(HERE / name, folder)
    words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )
    if done.returncode:
        pytest.skip(f"samlp cannot be installed: {done.stderr}")
    return folder


@contextmanager
def identity_provider(folder: Path) -> Iterator[IdentityProvider]:
    """Run the provider of a folder with its packages."""
    keys = new_key_pair()
    (folder / "key.pem").write_text(keys.key)
    (folder / "certificate.pem").write_text(keys.certificate)
    words = ["node", "identity_provider.cjs", "key.pem", "certificate.pem"]
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout
            port = int(process.stdout.readline())
            yield IdentityProvider(f"http://127.0.0.1:{port}", keys)
        finally:
            process.terminate()
