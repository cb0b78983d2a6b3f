"""Folders and modules of a driver (`working_dir`, `py_modules`) on other nodes, by what is in them.

On one machine workers use them where they are. On a cluster a driver packs them into archives, which are
objects like others; a worker finds one by its digest, and unpacks it into a folder that all workers of its
machine share.

1. The same content has the same digest, whenever and wherever it was packed: what is in an archive is sorted,
   and has no times and no owners.
2. An archive stays while the session of the process that published it lasts.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aktis import _cache
from aktis._keys import OwnNamespace

ARCHIVE_BYTES_MAX = 512 << 20
FINGERPRINT_FILES_MAX = 10_000
FOLDERS_MAX = 32
FETCH_SECONDS_MAX = 600
ALWAYS_EXCLUDED = (".git", "__pycache__")
KEYS = OwnNamespace("aktis.folders")

# Digests of what was published, by session, path, what is left out, and the state of what is there.
_published: dict[tuple[int, str, tuple[str, ...], str], str] = {}
# The sessions that keep something.
_keeping: set[int] = set()


class FolderError(Exception):
    """Why a folder cannot travel, or is not there, in words."""


# --- the driver's side ------------------------------------------------------------------------


def paths(environment: Mapping[str, Any]) -> list[str]:
    """What of a runtime environment, in its plain form, has to travel."""
    directory = environment.get("working_dir")
    return ([directory] if directory else []) + list(environment.get("py_modules") or ())


def packed(environment: Mapping[str, Any]) -> dict[str, bytes]:
    """What has to travel, as archives by path."""
    excluded = tuple(environment.get("excludes") or ())
    return {path: pack(path, excluded) for path in paths(environment)}


def publish(environment: Mapping[str, Any]) -> dict[str, str]:
    """The digest of each path that has to travel; the current session keeps the archives. On one machine
    there are none."""
    from aktis import _session

    runtime = _session.ensure()
    if not _session.is_attached():
        return {}
    excluded = tuple(environment.get("excludes") or ())
    found = {}
    for path in paths(environment):
        key = (runtime.number(), path, excluded, fingerprint(path))
        if key not in _published:
            _published[key] = keep(pack(path, excluded))
        found[path] = _published[key]
    return found


def keep(archive: bytes) -> str:
    """Has the current session keep an archive for workers; gives its digest."""
    from aktis import _objects, _session
    from aktis.util import debug

    name = digest(archive)
    _keeping.add(_session.ensure().number())
    if not debug.kv_exists(_key(name), namespace=KEYS):
        reference = _objects.put(archive)
        reference.__reduce__()  # its id may be anywhere from now on: it stays until the session ends
        debug.kv_put(_key(name), reference.binary(), namespace=KEYS)
    return name


def withdraw() -> None:
    """The current session ends, and with it all archives of its job."""
    from aktis import _session
    from aktis.util import debug

    number = _session.ensure().number()
    if number in _keeping:
        _keeping.discard(number)
        debug.kv_del(_key(""), del_by_prefix=True, namespace=KEYS)


def _key(digest: str) -> str:
    """Archives of one job are not those of another, which may end earlier."""
    from aktis import _session

    return f"{_session.job_id().hex()}.{digest}"


def digest(archive: bytes) -> str:
    """The name of an archive: its content."""
    import hashlib

    return hashlib.sha256(archive).hexdigest()


def fingerprint(path: str) -> str:
    """Changes when the files at a path do, so that no worker goes on with what it imported before."""
    import hashlib
    import itertools

    state = hashlib.sha1(usedforsecurity=False)
    for name, full in itertools.islice(_files(path, ()), FINGERPRINT_FILES_MAX):
        with contextlib.suppress(OSError):
            status = os.lstat(full)
            state.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return state.hexdigest()


def pack(path: str, excluded: Iterable[str]) -> bytes:
    """What is at a path, as an archive."""
    import io
    import tarfile

    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, full in _files(path, excluded):
                _add(archive, name, full, path, ARCHIVE_BYTES_MAX - buffer.tell())
                if buffer.tell() > ARCHIVE_BYTES_MAX:
                    raise _too_large(path)
    except OSError as error:
        raise FolderError(f"{path!r} cannot be sent to other nodes: {error}") from error
    return buffer.getvalue()


def _too_large(path: str) -> FolderError:
    return FolderError(
        f"{path!r} has more than {ARCHIVE_BYTES_MAX >> 20} MiB, too much to be sent to other nodes\n"
        "hint: leave large files out with runtime_env['excludes'], or put() them"
    )


def _files(path: str, excluded: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What is at a path: names from its own name on, in order, and where they are. Folders come before what
    is in them."""
    from fnmatch import fnmatch

    patterns = [pattern.strip("/") for pattern in excluded]
    base = os.path.basename(path)

    def is_wanted(name: str) -> bool:
        inside = name.removeprefix(f"{base}/")
        last = os.path.basename(name)
        return last not in ALWAYS_EXCLUDED and not any(
            fnmatch(inside, pattern) or fnmatch(last, pattern) for pattern in patterns
        )

    yield base, path
    if not os.path.isdir(path):
        return
    for folder, folders, files in os.walk(path):
        here = os.path.join(base, os.path.relpath(folder, path)) if folder != path else base
        folders[:] = sorted(name for name in folders if is_wanted(os.path.join(here, name)))
        for name in sorted([*folders, *files]):
            if is_wanted(os.path.join(here, name)):
                yield os.path.join(here, name), os.path.join(folder, name)


def _add(archive: Any, name: str, full: str, root: str, bytes_max: int) -> None:
    """Adds one file, folder or link. A link that leads out of the archive becomes what it leads to.

    A file that is larger than what may be added is refused before it is read."""
    import tarfile

    member = archive.gettarinfo(full, arcname=name)
    if member is None or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return  # sockets and the like have no content
    if member.issym() and full != root:
        target = os.path.normpath(os.path.join(os.path.dirname(full), member.linkname))
        leads_out = os.path.isabs(member.linkname) or not target.startswith(root + os.sep)
        if leads_out and os.path.isdir(full):
            raise FolderError(f"{full!r} is a link to a folder outside of {root!r}, which does not travel")
        if leads_out and not os.path.exists(full):
            raise FolderError(f"{full!r} is a link that leads nowhere")
    if member.islnk() or (member.issym() and (full == root or leads_out)):
        status = os.stat(full)
        member.type = tarfile.DIRTYPE if os.path.isdir(full) else tarfile.REGTYPE
        member.size = 0 if member.isdir() else status.st_size
        member.mode, member.linkname = status.st_mode & 0o777, ""
    member.mode |= 0o700 if member.isdir() else 0o400
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    if member.isreg():
        if member.size > bytes_max:
            raise _too_large(root)
        with open(full, "rb") as file:
            archive.addfile(member, file)
    else:
        archive.addfile(member)


# --- the worker's side ------------------------------------------------------------------------


def place(path: str, digest: str) -> str:
    """Where this machine has what the driver has at `path`."""

    def make(place: str) -> None:
        os.makedirs(place, mode=0o700)
        _unpack(_fetch(path, digest), place)

    kept = _cache.ensure("folders", digest, make, FOLDERS_MAX)
    return os.path.join(kept, os.path.basename(path))


def _fetch(path: str, digest: str) -> Any:
    from aktis import _objects
    from aktis._engine import native
    from aktis.util import debug

    binary = debug.kv_get(_key(digest), namespace=KEYS)
    if binary is None:
        raise FolderError(f"{path!r} is not known to the cluster any more: has its driver ended?")
    archive = _objects.get(native.object_from_id(binary), timeout=FETCH_SECONDS_MAX)
    # Others may have written that key; what is unpacked is kept for other jobs.
    if _digest_of(archive) != digest:
        raise FolderError(f"{path!r} has come with another content than its driver has sent")
    return archive


# The name is a parameter of the function above.
_digest_of = digest


def _unpack(content: Any, place: str) -> None:
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(place, filter="data")
        else:
            _extract_checked(archive, place)


def _extract_checked(archive: Any, place: str) -> None:
    """Does what the filter "data" does, on Python 3.11.0 to 3.11.3, which have no filters. It takes only what
    `pack` puts into an archive: files, folders, and links inside of it."""
    root = os.path.realpath(place)

    def is_inside(path: str) -> bool:
        # Links that were unpacked before are followed.
        return os.path.commonpath([root, os.path.realpath(path)]) == root

    for member in archive:
        target = os.path.join(root, member.name)
        is_known = member.isreg() or member.isdir() or member.issym()
        leads_out = member.issym() and (
            os.path.isabs(member.linkname)
            or not is_inside(os.path.join(os.path.dirname(target), member.linkname))
        )
        if os.path.isabs(member.name) or not is_known or leads_out or not is_inside(target):
            raise FolderError(f"{member.name!r} in the archive leads out of it, or is no file")
        if os.path.islink(target):
            raise FolderError(f"{member.name!r} is twice in the archive")
        member.mode = member.mode & 0o755 | (0o700 if member.isdir() else 0o600)
        member.uid, member.gid = os.getuid(), os.getgid()
        archive.extract(member, root)
