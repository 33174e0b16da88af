"""Tables over the channel are tables."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.tables.writer import SupportsBranches, SupportsKeyLookup, TableWriter
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.conformance.table_branches import BranchConformance
from tests.conformance.table_rows import Bench
from tests.conformance.table_slices import SlicedTableConformance
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance
from tests.sync.cluster.conftest import Serving

_INTERFACES = (TableWriter, SupportsKeyLookup, SupportsBranches)


@pytest.mark.nightly
class TestRemoteTables(TableWriterConformance, WitnessConformance, SlicedTableConformance, BranchConformance):
    @pytest.fixture
    def bench(self, serving: Serving, tmp_path: Path) -> Bench:
        tables = FolderTables(tmp_path)
        remote = serving.stub(tables, *_INTERFACES, abilities=tables.abilities, storage=tables.storage)
        return Bench(remote, FolderTables(tmp_path), lambda target: list(tables.rows(target.name).to_pylist()))
