"""Checks a config against a spec in a process of its own, which its parent ends after a deadline.

Reads `[config, spec schema]` as JSON from stdin, and writes `[[[path, problem], …], reason]` to stdout.
"""

import json
import resource
import sys

from dagster_airbyte_proto.sync.connector.config_check import find_faults

# Should the parent die, so does this one. Both are more than a check within the deadline can take.
_MAX_CPU_SECONDS = 60
_MAX_MEMORY_BYTES = 4 << 30


def main() -> None:
    """Answers one request."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    found = find_faults(*json.load(sys.stdin.buffer), is_apart=True)
    if found is not None:
        json.dump([[[fault.path, fault.problem] for fault in found.faults], found.reason], sys.stdout)


if __name__ == "__main__":
    main()
