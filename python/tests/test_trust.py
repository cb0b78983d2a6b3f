"""Whom a driver attaches to: nodes of its own user, and nobody who poses as one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import aktis

#: Another user of this machine.
MALLORY = 54321
ADDRESS = "192.0.2.1:6388"

FALSE_NODE = """
import os, socket, sys
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[3]))
os.umask(0)
directory = sys.argv[1]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(os.path.join(directory, "attach.sock"))
with open(os.path.join(directory, "address"), "w") as file:
    file.write(sys.argv[2] + "\\n")
listener.listen()
print("listening", flush=True)
received = 0
while sys.stdin.read(1):
    driver, _ = listener.accept()
    received += len(driver.recv(1 << 16))
    driver.close()
print("received", received, flush=True)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")


@pytest.fixture
def trap() -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A directory of another user in which a process of that user listens as a node does."""
    base = Path(tempfile.mkdtemp(prefix="aktis-trap-"))
    base.chmod(0o755)
    node = base / "aktis-0" / "node"
    node.mkdir(parents=True)
    for path in (node.parent, node):
        os.chown(path, MALLORY, MALLORY)
    # It changes its user by itself: another user may not be able to read this interpreter.
    command = [sys.executable, "-c", FALSE_NODE, str(node), ADDRESS, str(MALLORY)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        yield node.parent, process
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(base)


def refusal(address: str | None) -> str:
    with pytest.raises(ConnectionError) as refused:
        aktis.init(address)
    return str(refused.value)


def test_a_node_in_the_directory_of_another_user_is_refused(
    trap: tuple[Path, subprocess.Popen[str]], no_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = trap
    monkeypatch.setenv("AKTIS_DIRECTORY", str(directory))
    told = f"{directory} belongs to user {MALLORY}, not to user 0"
    for address in ("auto", ADDRESS, str(directory), str(directory / "node")):
        assert told in refusal(address)
        monkeypatch.setenv("AKTIS_ADDRESS", address)
        assert told in refusal(None)


def test_a_process_of_another_user_gets_nothing_from_a_driver(
    trap: tuple[Path, subprocess.Popen[str]], no_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, mallory = trap
    for path in (directory, directory / "node"):
        os.chown(path, 0, 0)
        path.chmod(0o700)
    monkeypatch.setenv("AKTIS_DIRECTORY", str(directory))
    for address in ("auto", ADDRESS, str(directory)):
        assert f"is a process of user {MALLORY} (pid {mallory.pid})" in refusal(address)
    said, _ = mallory.communicate("...")
    assert said == "received 0\n"
