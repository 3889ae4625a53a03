"""Showing the pages on this machine: a web server that only this machine reaches."""

import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fairbench.errors import OutcomesError

ADDRESS = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of what is asked for."""

    def end_headers(self) -> None:
        """Let a page that was built again be seen."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of a folder's files, bound to this machine's own address; ``serve_forever`` starts it.

    Raises
    ------
    OutcomesError
        The port is in use, or may not be used.
    """
    try:
        return ThreadingHTTPServer((ADDRESS, port), partial(_Quiet, directory=str(folder)))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OutcomesError(f"port {port} is in use; choose another with --port, or 0 for any.") from error
        raise OutcomesError(f"port {port}: {error.strerror or error}; choose another with --port.") from error
