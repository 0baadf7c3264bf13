"""Certificates for tests: an authority of one's own, and what it vouches for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


def can_make() -> bool:
    """Whether this system has what makes certificates."""
    return shutil.which("openssl") is not None


def make_certificate(folder: Path, name: str = "owner", hosts: str = "IP:127.0.0.1,DNS:localhost") -> Certificate:
    """Makes one that vouches for itself, for these hosts, for a day: it is its own authority."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", f"/CN={name}", "-addext", f"subjectAltName={hosts}"]
    subprocess.run([*command, "-out", str(made.certificate), "-keyout", str(made.key)], check=True, capture_output=True)
    made.key.chmod(0o600)
    return made
