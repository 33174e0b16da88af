"""The lock of a package: a requirements file with the version of each dependency, and the hashes of its files.

It is written at the first installation and used by all later ones: what an index delivers under the same version later,
or a mirror in its place, is not installed if it is another file. uv writes the hashes of all files of a version, pip
that of the file which it would install here.
"""

import json

_HASH = " \\\n    --hash="


def lock_of_pip_report(report: bytes) -> bytes:
    """Returns the lock that a report of `pip install --dry-run --report` describes."""
    lines = []
    for each in json.loads(report)["install"]:
        about, archive = each["metadata"], each["download_info"].get("archive_info", {})
        hashes = [f"{name}:{value}" for name, value in sorted(archive.get("hashes", {}).items())]
        lines.append(_HASH.join([f"{about['name']}=={about['version']}", *hashes]) + "\n")
    return "".join(sorted(lines)).encode()


def has_all_hashes(lock: bytes) -> bool:
    """False for locks of older versions, and where an index gives no hashes."""
    lines = lock.decode().replace("\\\n", " ").splitlines()
    requirements = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return bool(requirements) and all("--hash=" in line for line in requirements)
