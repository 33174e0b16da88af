"""An example of each command, for its help. A test runs all of them past the parser."""

EXAMPLES = {
    "certify": "certify shop.yaml --html certificate.html --junit certificate.xml",
    "check": "check shop.yaml",
    "completion": 'eval "$(airbyte-proto completion bash)"',
    "config history": "config history shop",
    "config reset": "config reset shop",
    "connectors search": "connectors search postgres",
    "connectors show": "connectors show source-postgres",
    "containers list": "containers list",
    "containers reap": "containers reap",
    "discover": "discover shop.yaml --save",
    "doctor": "doctor connections/shop.yaml",
    "envs list": "envs list",
    "envs prune": "envs prune --unused-days 90 --dry-run",
    "import": "import meltano.yml --into connections --state tap-github=state.json",
    "init": "init shop --pypi airbyte-source-faker==7.2.1",
    "loads list": "loads list shop --limit 5",
    "loads resolve": "loads resolve 1f0c2a9b --as landed",
    "loads show": "loads show 1f0c2a9b",
    "push": "push crm.yaml --plan",
    "query": 'query "SELECT count(*) FROM lake.shop.users"',
    "record": "record shop.yaml recordings/shop --streams users",
    "recover": "recover shop",
    "spec": "spec shop.yaml",
    "state copy": "state copy postgresql://dagster@db.internal/dagster",
    "state history": "state history shop --limit 20 --partition 2026-11-01",
    "state list": "state list",
    "state reset": "state reset shop users --partition 2026-11-01",
    "state rollback": "state rollback shop --to 12 --tables",
    "state set": """state set shop users '{"updated_at": "2026-11-01"}'""",
    "state show": "state show shop users --partition 2026-11-01",
    "status": "status",
    "sync": "sync shop.yaml --streams users,orders",
    "sync-all": "sync-all connections/shop.yaml connections/crm.yaml",
    "table changes": "table changes shop.users",
    "table compact": "table compact shop",
    "table expire": "table expire shop --keep 30d",
    "table history": "table history shop.users --limit 5",
    "table rollback": "table rollback shop.users --to 4358109269898192134",
    "table show": "table show shop.users",
    "version": "version --json",
}
"""By the words of the command. A line that begins with another program stands as it is."""


def example_line(command_path: str) -> str:
    """The example of a command, named as `airbyte-proto state show`; empty if it has none."""
    program, _, words = command_path.partition(" ")
    line = EXAMPLES.get(words, "")
    return f"{program} {line}" if line.startswith(words) else line
