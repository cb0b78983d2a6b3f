"""What `importlib.metadata` says of the package `ray`."""

from importlib.metadata import Distribution
from importlib.metadata._meta import SimplePath
from os import PathLike

from aktis.compat._environment import RAY_VERSION


class RayDistribution(Distribution):
    """Aktis in the place of Ray: a name and a version, no files."""

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            return f"Metadata-Version: 2.1\nName: ray\nVersion: {RAY_VERSION}\n"
        return None

    def locate_file(self, path: str | PathLike[str]) -> SimplePath:
        raise FileNotFoundError(f"ray is provided by aktis.compat and has no file {path!r}")
