"""Processes of others: connectors and JVMs."""

import psutil


def has_ended(pid: str | int) -> bool:
    """True once the process runs no more. Its parent may not have taken notice yet, above all as the first process."""
    try:
        return psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
