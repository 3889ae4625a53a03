"""Files from an address, whole and with the right SHA-256, or not at all."""

import hashlib
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.request import Request, urlopen

from fairbench.errors import DownloadError, FairbenchError, first_line
from fairbench.files import replacing

LARGEST = 4 << 30
"""The most bytes that are taken from an address: no file of weights has more."""
_PATIENCE = 60.0


def fetch(url: str, path: Path, sha256: str) -> Path:
    """Download a file; it is there whole, with the right SHA-256, or not at all.

    No more than ``LARGEST`` bytes are taken from an address that may be anybody's, and a server that falls silent for
    ``_PATIENCE`` seconds is given up.

    Raises
    ------
    DownloadError
        The network or the disk failed, or another file lies at the address.
    """
    request = Request(url, headers={"User-Agent": "fairbench"})
    try:
        with urlopen(request, timeout=_PATIENCE) as reply, replacing(path) as temporary:
            found = _copy(reply, temporary)
            if found != sha256:
                raise DownloadError(f"its SHA-256 begins with {found[:12]}, not {sha256[:12]}")
    except (FairbenchError, OSError, HTTPException, ValueError) as error:
        said = str(error) if isinstance(error, FairbenchError) else first_line(error)
        raise DownloadError(f"could not be fetched from {url} ({said.rstrip('.')})") from error
    return path


def _copy(reply: BinaryIO, path: Path) -> str:
    """Write what is read, up to the limit, and return its SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as stream:
        while part := _read(reply):
            size += len(part)
            if size > LARGEST:
                raise DownloadError(f"larger than {LARGEST:,} bytes")
            digest.update(part)
            stream.write(part)
    return digest.hexdigest()


def _read(reply: BinaryIO) -> bytes:
    try:
        return reply.read(1 << 20)
    except (OSError, HTTPException) as error:  # of the network; errors of the disk are told apart
        raise DownloadError(first_line(error)) from error
