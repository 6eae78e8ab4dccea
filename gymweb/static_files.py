"""Storage of collected static files."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class ModuleStaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Add hashes to file names, also in imports of our JavaScript modules.

    Django's own option rewrites every script, and fails on examples in comments of third-party scripts.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        ("js/*.js", ((r"""(?P<matched>(?P<word>from|import) "(?P<url>\./[^"]+)")""", '%(word)s "%(url)s"'),)),
    )
