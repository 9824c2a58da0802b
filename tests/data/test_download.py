import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ancl import ScenarioError
from tests.lab import DownloadProgress, Published, Remote, download, fetch, import_from

CONTENT = bytes(range(256)) * 400


class Server(ThreadingHTTPServer):
    """Serves files on this machine; may cut a connection after some bytes, or ignore ranges."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.ranges = True
        self.asked: list[str | None] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        content = self.server.files.get(self.path[1:])
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        goes_on = bool(wanted) and self.server.ranges
        if goes_on and start >= len(content):
            self.send_error(416)
            return
        body = content[start:] if goes_on else content
        self.send_response(206 if goes_on else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])
        if cut < len(body):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.files["file.bin"] = CONTENT
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def remote(server: Server, *names: str) -> Remote:
    urls = tuple(server.url(name) for name in names or ("file.bin",))
    return Remote("file.bin", md5(CONTENT).hexdigest(), urls)


def quiet(have: int, total: int | None) -> None:
    """Progress that nobody watches."""


def announce(remote: Remote) -> DownloadProgress:
    return quiet


def test_a_file_arrives_with_progress(tmp_path: Path, server: Server) -> None:
    told: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file.bin"
    download(remote(server), target, lambda have, total: told.append((have, total)))
    assert target.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in target.parent.iterdir()] == ["file.bin"]


def test_a_cut_connection_is_gone_on_with(tmp_path: Path, server: Server) -> None:
    server.cuts = [1_000, 30_000]
    download(remote(server), tmp_path / "file.bin", quiet)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-", "bytes=31000-"]


def test_a_later_call_goes_on_with_what_is_there(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:5_000])
    download(remote(server), tmp_path / "file.bin", quiet)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == ["bytes=5000-"]


def test_a_server_without_ranges_starts_anew(tmp_path: Path, server: Server) -> None:
    server.ranges, server.cuts = False, [1_000]
    download(remote(server), tmp_path / "file.bin", quiet)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-"]


def test_a_part_longer_than_the_file_is_dropped(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    download(remote(server), tmp_path / "file.bin", quiet)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_the_next_address_is_tried_after_a_wrong_checksum(tmp_path: Path, server: Server) -> None:
    server.files["wrong.bin"] = CONTENT[::-1]
    wanted = remote(server, "missing.bin", "wrong.bin", "file.bin")
    download(wanted, tmp_path / "file.bin", quiet)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_no_file(tmp_path: Path, server: Server) -> None:
    server.files["wrong.bin"] = CONTENT[::-1]
    with pytest.raises(ScenarioError, match=r"wrong.bin: the file there has another checksum"):
        download(remote(server, "wrong.bin"), tmp_path / "file.bin", quiet)
    assert list(tmp_path.iterdir()) == []


def test_without_a_connection_the_message_says_what_to_do(tmp_path: Path, server: Server) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file.bin"
        wanted = replace(remote(server), urls=(url,))
        with pytest.raises(
            ScenarioError, match=r"put it at .*file.bin, and run the same"
        ) as caught:
            download(wanted, tmp_path / "file.bin", quiet)
    assert url in str(caught.value)


def test_a_server_that_always_cuts_is_given_up(tmp_path: Path, server: Server) -> None:
    server.cuts = [100] + [0] * 50
    with pytest.raises(ScenarioError, match="could not be fetched"):
        download(remote(server), tmp_path / "file.bin", quiet)
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:100]


@pytest.mark.parametrize("which", ["packed_cifar100", "packed_tinyimagenet"])
def test_fetching_downloads_unpacks_and_checks(
    tmp_path: Path, server: Server, request: pytest.FixtureRequest, which: str
) -> None:
    data, archive = request.getfixturevalue(which)
    server.files[archive.name] = archive.read_bytes()
    data = replace(data, files=(replace(data.files[0], urls=(server.url(archive.name),)),))
    root = tmp_path / "root"
    source = fetch(data, root, announce)
    assert source.fingerprint == data.load_from(archive).fingerprint
    assert [p.name for p in root.iterdir()] == [data.folder]
    server.files.clear()
    assert fetch(data, root, announce).fingerprint == source.fingerprint  # nothing to do


def test_offline_refuses_to_try_and_takes_a_file_put_there_by_hand(
    tmp_path: Path, packed_cifar100: tuple[Published, Path]
) -> None:
    data, archive = packed_cifar100
    root = tmp_path / "root"
    with pytest.raises(ScenarioError, match=r"--offline was given.*root/cifar-100-python.tar.gz"):
        fetch(data, root, announce, offline=True)
    root.mkdir()
    (root / archive.name).write_bytes(archive.read_bytes())
    assert len(fetch(data, root, announce, offline=True).train) == 12


def test_fetching_files_that_are_no_archive(
    tmp_path: Path, server: Server, mnist: Published, write_mnist: Callable[..., None]
) -> None:
    write_mnist(tmp_path / "there", packed=True)
    files = []
    for file in mnist.files:
        content = (tmp_path / "there" / file.name).read_bytes()
        server.files[file.name] = content
        files.append(Remote(file.name, md5(content).hexdigest(), (server.url(file.name),)))
    source = fetch(replace(mnist, files=tuple(files)), tmp_path / "root", announce)
    assert len(source.train) == 20
    assert len(list((tmp_path / "root/MNIST/raw").iterdir())) == 4


def test_importing_an_archive_or_a_folder(
    tmp_path: Path, packed_cifar100: tuple[Published, Path], write_cifar100: Callable[[Path], None]
) -> None:
    data, archive = packed_cifar100
    one = import_from(data, archive, tmp_path / "one")
    write_cifar100(tmp_path / "mine")
    other = import_from(data, tmp_path / "mine" / "cifar-100-python", tmp_path / "other")
    assert one.fingerprint == other.fingerprint
    for root in ("one", "other"):
        files = sorted(p.name for p in (tmp_path / root / "cifar-100-python").iterdir())
        assert files == ["meta", "test", "train"]
        assert [p.name for p in (tmp_path / root).iterdir()] == ["cifar-100-python"]
    assert archive.exists()
    with pytest.raises(ScenarioError, match="already there"):
        import_from(data, archive, tmp_path / "one")


def test_importing_something_else_leaves_nothing(
    tmp_path: Path, packed_cifar100: tuple[Published, Path], mnist: Published
) -> None:
    data, archive = packed_cifar100
    root = tmp_path / "root"
    with pytest.raises(ScenarioError, match="There is no file or folder"):
        import_from(data, tmp_path / "nothing", root)
    with pytest.raises(ScenarioError, match="has no readable file train"):
        import_from(data, archive.parent, root)
    with pytest.raises(ScenarioError, match="not one file but 4"):
        import_from(mnist, archive, root)
    archive.write_bytes(b"something else")
    with pytest.raises(ScenarioError, match="its MD5 is"):
        import_from(data, archive, root)
    assert not root.exists()
