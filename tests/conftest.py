"""What every test may ask for lives in `support`, one plugin a subject."""

pytest_plugins = [
    # A plugin stands after those it imports from.
    "support.time_limit",
    "support.asyncio_plugin",
    "support.fix_hypothesis",
    "support.fix_missing",
    "support.fix_postgres",
    "support.fix_mysql",
    "support.fix_pgbouncer",
    "support.fix_stores",
    "support.fix_servers",
    "support.fix_callers",
    "support.fix_django",
    "support.processes",
    "support.colours",
    "support.nursery",
    "support.untried",
]
