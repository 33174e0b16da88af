"""The shop of the tests of syncs."""

from tests.sync.conftest import quick_folder, shop

__all__ = ["quick_folder", "shop"]
