"""The server of the pages: nothing outside the folder, and no traceback for what a browser does."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from fairbench.reports.site.serving import server


@pytest.fixture
def port(tmp_path) -> Iterator[int]:
    (tmp_path / "site" / "models").mkdir(parents=True)
    (tmp_path / "site" / "index.html").write_text("pages")
    (tmp_path / "site" / "large").write_bytes(bytes(20_000_000))
    (tmp_path / "secret").write_text("secret")
    with server(tmp_path / "site", 0) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving.server_port
        serving.shutdown()
        thread.join()


def asked(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


PLACES = [
    "/../secret",
    "/%2e%2e/secret",
    "/..%2fsecret",
    "/models/../../secret",
    "/models/..%5c..%5csecret",
    "//secret",
]


@pytest.mark.parametrize("path", [*PLACES, "/%00", "/index.html%00", "/" + "a" * 5000])
def test_what_is_not_in_the_folder_is_not_there(port, path, capfd):
    assert asked(port, path).split(b"\r\n")[0].startswith(b"HTTP/1.0 404")
    assert asked(port, "/").endswith(b"pages")
    assert capfd.readouterr() == ("", "")


def test_a_browser_that_goes_away_is_no_error(port, capfd):
    for _ in range(3):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets on close
        connection.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        connection.recv(10)
        connection.close()
    assert asked(port, "/").endswith(b"pages")
    assert capfd.readouterr() == ("", "")
