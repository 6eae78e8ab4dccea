"""Copy third-party scripts from `frontend/node_modules` to `static/vendor`, and list them.

`make vendor` runs it after `npm ci`. The files are committed, so that neither running nor installing needs Node.
"""

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MODULES = ROOT / "frontend" / "node_modules"
VENDOR = ROOT / "static" / "vendor"
LIST = VENDOR / "VENDOR.json"
# Static file names contain a hash, so a reference to a source map that does not exist must be removed.
_SOURCE_MAP = re.compile(rb"\n?//# sourceMappingURL=[^\n]*\n?")


class Foreign(NamedTuple):
    """A third-party file that pages load. `licence` is the chosen one if there are several."""

    name: str
    package: str
    file: str
    licence: str


FOREIGN = (
    Foreign("dompurify", "dompurify", "dist/purify.min.js", "Apache-2.0"),
    Foreign("highlight", "@highlightjs/cdn-assets", "highlight.min.js", "BSD-3-Clause"),
    Foreign("marked", "marked", "lib/marked.umd.js", "MIT"),
)


def main() -> int:
    listed = json.loads(LIST.read_text())
    kept = [entry for entry in listed if entry["name"] not in {each.name for each in FOREIGN}]
    entries = kept + [copy(each) for each in FOREIGN]
    LIST.write_text(json.dumps(sorted(entries, key=lambda entry: str(entry["name"])), indent=2) + "\n")
    print(f"{len(FOREIGN)} files in {VENDOR.relative_to(ROOT)}")
    return 0


def copy(foreign: Foreign) -> dict[str, str]:
    source = MODULES / foreign.package
    version = json.loads((source / "package.json").read_text())["version"]
    for old in VENDOR.glob(f"{foreign.name}-[0-9]*"):
        shutil.rmtree(old)
    folder = VENDOR / f"{foreign.name}-{version}"
    folder.mkdir(parents=True)
    content = _SOURCE_MAP.sub(b"\n", (source / foreign.file).read_bytes())
    (folder / Path(foreign.file).name).write_bytes(content)
    shutil.copyfile(source / "LICENSE", folder / "LICENSE")
    return {
        "name": foreign.name,
        "version": version,
        "licence": foreign.licence,
        "licence_file": f"vendor/{folder.name}/LICENSE",
        "file": f"vendor/{folder.name}/{Path(foreign.file).name}",
        "from": f"npm {foreign.package} {version}, {foreign.file}",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


if __name__ == "__main__":
    sys.exit(main())
