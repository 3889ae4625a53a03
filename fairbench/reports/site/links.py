"""Names of files and addresses of links in the pages."""

import re
from pathlib import Path
from urllib.parse import quote

from fairbench.provenance import sha256_plain


def file_name(text: str) -> str:
    """Return a name that is one file's in every system; another text gives another name."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip(".")[:100]
    return plain if plain == text else f"{plain}-{sha256_plain(text.encode())[:8]}"


def safe_address(address: str) -> str | None:
    """Return an address that may become a link: http or https and nothing else."""
    return address if re.match(r"https?://[^\s<>\"'`\\]+$", address) else None


def path_address(path: str | Path) -> str:
    """Return a relative path as it stands in a link."""
    return quote(str(path))
