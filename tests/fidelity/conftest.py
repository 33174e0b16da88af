"""The shop of the tests of syncs."""

from tests.sync.conftest import shop

__all__ = ["shop"]
