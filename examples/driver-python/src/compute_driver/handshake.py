# SPDX-License-Identifier: Apache-2.0
"""The handshake of hashicorp/go-plugin, with certificates for this start alone.

The agent puts its certificate into the environment. The plugin creates its own, serves on a socket that only a
holder of the agent's key can use, and prints one line that names the socket and the plugin's certificate:

    1|1|unix|/run/compute-agent/plugins/plugin-dir1/plugin2|grpc|MIIB...
"""

from __future__ import annotations

import base64
import datetime
import fcntl
import os
import sys
import tempfile
from collections.abc import Mapping

import grpc

CORE_PROTOCOL = 1  # go-plugin's own
PROTOCOL = 1  # the major version of compute.driver.v1

COOKIE = ("COMPUTE_DRIVER_COOKIE", "d0a5e4c2-6f0e-4c53-9a8e-compute-agent")
LOG_LEVEL = "COMPUTE_DRIVER_LOG_LEVEL"
REQUEST_ID = "x-openstack-request-id"  # in the metadata of calls that serve the request of a client
CLIENT_CERT = "PLUGIN_CLIENT_CERT"
SOCKET_DIR = "PLUGIN_UNIX_SOCKET_DIR"
VERSIONS = "PLUGIN_PROTOCOL_VERSIONS"


class Refused(Exception):
    """The plugin cannot be served to the process that started it."""


def started_by_agent(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the agent started this process, not an operator."""
    return environ.get(COOKIE[0]) == COOKIE[1]


def claim_stdout() -> int:
    """Keeps standard output for the handshake: later output goes to standard error, line by line.

    Returns its descriptor. Raises SystemExit if there is none.
    """
    try:
        saved = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as e:
        sys.exit(f"there is no standard output for the handshake with the agent: {e}")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return saved


def check_versions(environ: Mapping[str, str]) -> None:
    """Raises Refused for an agent of another protocol version."""
    spoken = environ.get(VERSIONS, "")
    if spoken and str(PROTOCOL) not in spoken.split(","):
        raise Refused(f"the agent speaks version {spoken} of the driver protocol, this plugin version {PROTOCOL}")


def socket_path(environ: Mapping[str, str]) -> str:
    """Returns a new path of a socket, in the agent's directory for them."""
    directory = environ.get(SOCKET_DIR)
    if not directory:
        raise Refused(f"{SOCKET_DIR} is not set: another program than compute-agent started this plugin")
    path = tempfile.mktemp(prefix="plugin", dir=directory)  # no other user can write there
    if len(path.encode()) > 107:
        raise Refused(f"the path of the socket is too long, the system allows 107 bytes: {path}")
    return path


def credentials(environ: Mapping[str, str]) -> tuple[grpc.ServerCredentials, str]:
    """Returns credentials of a server that accepts only the holder of the agent's key, and its certificate for the handshake."""
    agent = environ.get(CLIENT_CERT, "")
    if not agent.startswith("-----BEGIN CERTIFICATE-----"):
        raise Refused(f"{CLIENT_CERT} holds no certificate: this plugin serves over mutual TLS only. compute-agent always sets it; a host of "
                      "go-plugin's own must be started with AutoMTLS")
    key, certificate, der = _certificate()
    creds = grpc.ssl_server_credentials([(key, certificate)], root_certificates=agent.encode(), require_client_auth=True)
    return creds, base64.b64encode(der).decode().rstrip("=")


def line(path: str, certificate: str) -> str:
    """The line of the handshake."""
    return f"{CORE_PROTOCOL}|{PROTOCOL}|unix|{path}|grpc|{certificate}\n"


def _certificate() -> tuple[bytes, bytes, bytes]:
    """A key and a certificate signed with it, both PEM, and the certificate as DER. The name is the one that go-plugin expects."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1)).not_valid_after(now + datetime.timedelta(days=30 * 365))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return (
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate.public_bytes(pem),
        certificate.public_bytes(serialization.Encoding.DER),
    )
