"""Showing the pages on this machine: a web server that only this machine reaches."""

import errno
import io
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from fairbench.errors import OutcomesError

ADDRESS = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of what is asked for."""

    def send_head(self) -> "io.BytesIO | BinaryIO | None":
        """Find the file; an address that no file can have is one that is not there."""
        try:
            return super().send_head()
        except ValueError:  # a zero byte
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

    def end_headers(self) -> None:
        """Let a page that was built again be seen."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away in the middle of a page."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of a folder's files, bound to this machine's own address; ``serve_forever`` starts it.

    Raises
    ------
    OutcomesError
        The port is in use, or may not be used.
    """
    try:
        return _Server((ADDRESS, port), partial(_Quiet, directory=str(folder)))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OutcomesError(f"port {port} is in use; choose another with --port, or 0 for any.") from error
        raise OutcomesError(f"port {port}: {error.strerror or error}; choose another with --port.") from error
