"""The rules of version 4 of Rapidbyte's protocol for sources, which are WebAssembly components.

Some of the rules of other protocols have nothing to judge here: each line is our launcher's, a batch belongs to the
stream that runs, and it is the host that ends a component.
"""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import (
    discover_rules,
    manifest_rules,
    read_rules,
    secret_rules,
    state_rules,
)
from dagster_airbyte_proto.certification.rules.component_rules import CURSORS, HOST, PROTOCOL, config_rules

RAPIDBYTE_RULES = (
    Rule(
        "manifest_fits",
        "spec",
        "The manifest has the role `source`, and the version 4.",
        "Host validates connector manifest role compatibility before run/check/discover",
        f"{PROTOCOL}, Manifest Compatibility",
        manifest_rules.manifest_is_there,
        "Name `roles: {source: {}}` and `protocol_version: 4` in the section `rapidbyte_manifest_v1`.",
    ),
    *config_rules("Source"),
    Rule(
        "discover_answered",
        "discover",
        "`discover` answers with a catalog of at least one stream.",
        "optional `discover()`",
        f"{PROTOCOL}, Source",
        discover_rules.discover_is_answered,
        "Return an object with `streams` as JSON.",
    ),
    Rule(
        "discover_stable",
        "discover",
        "Two discovers of an unchanged source agree.",
        "",
        "what hosts do with a catalog",
        discover_rules.discover_is_stable,
        "Sort what comes from sets and maps, and infer columns from more than a sample that changes.",
    ),
    Rule(
        "discover_valid",
        "discover",
        "Each stream is there once, and its columns have its primary key and cursor.",
        "",
        "what hosts do with a catalog",
        discover_rules.catalog_is_valid,
        "Mend the columns of these streams.",
    ),
    Rule(
        "read_ends",
        "read",
        "`run` of each stream ends by itself, without an error and without a trap.",
        "`run(session, request)` (one stream at a time)",
        f"{PROTOCOL}, Source",
        read_rules.read_ends,
        "Look at the samples and the component's log.",
    ),
    Rule(
        "read_types",
        "read",
        "Batches have the columns of their stream, of the declared types, and nulls where they may be.",
        "Batch payloads are Arrow IPC stream fragments written into host-managed frames",
        f"{PROTOCOL}, Data Exchange",
        read_rules.batches_fit_their_schema,
        "Declare what the batches have, or convert it.",
    ),
    Rule(
        "read_keys",
        "read",
        "Each record has its primary key.",
        "",
        "`source_defined_primary_key` of the catalog",
        read_rules.keys_are_there,
        "Name a key that every record has.",
    ),
    Rule(
        "states_come",
        "states",
        "Streams that are read incrementally have checkpoints.",
        CURSORS,
        f"{PROTOCOL}, Checkpoint Coordination",
        state_rules.states_come,
        "Take a checkpoint after the last batch of each stream, and in between if the stream is large.",
    ),
    Rule(
        "state_resumes",
        "states",
        "A run that resumes from a checkpoint in the middle brings all records behind it, and no others beyond the "
        "boundary.",
        CURSORS,
        f"{PROTOCOL}, Checkpoint Coordination",
        state_rules.read_resumes,
        "Put the cursor of the last record before the checkpoint into it, and go on from `last_value`.",
    ),
    Rule(
        "last_state_resumes",
        "states",
        "A run that resumes from the last checkpoint brings nothing again beyond the boundary.",
        CURSORS,
        f"{PROTOCOL}, Checkpoint Coordination",
        state_rules.read_resumes_at_the_end,
        "Put the cursor of the last record before the checkpoint into it, and go on from `last_value`.",
    ),
    Rule(
        "cancel_resumes",
        "cancelling",
        "A run that was cancelled goes on from its last checkpoint, without loss or repeat beyond the boundary.",
        CURSORS,
        f"{PROTOCOL}, Checkpoint Coordination",
        state_rules.cancelled_read_resumes,
        "Emit the batches before the checkpoint that covers them.",
    ),
    Rule(
        "secrets_not_written",
        "security",
        "No secret of the config is in batches, logs, metrics or errors.",
        "",
        HOST,
        secret_rules.secrets_are_not_written,
        "Mask secrets before you log requests, URLs and configs.",
    ),
)
