"""Version 1 for MySQL and MariaDB. The same tables as in `v0001_initial`, in what these two have.

There are no indexes of some rows only. Those that every worker reads begin with what tells live rows from finished ones
(`ready`, `due_at`, `owner`), so that history lies in a part of them that nobody reads.

`again` is changed by an insert that finds its key taken, which is how the two are told apart (see the dialect). The rows of
`locks` are what senders and waiting runs of one topic lock. Texts are compared byte by byte and trailing blanks count: each
server has a collation of its own for that, and executes the comment that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import DDL
from sqlalchemy.schema import ExecutableDDLElement

_TABLE = "engine=InnoDB default charset=utf8mb4 collate=/*!80017 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */"
_STATEMENTS = """
create table if not exists {name}_runs (
  id varchar(255) not null,
  workflow varchar(255) not null,
  version int not null,
  status varchar(32) not null,
  priority int not null,
  input longtext not null,
  output longtext,
  error longtext,
  custom_status longtext,
  held longtext,
  owner varchar(255),
  ready smallint not null,
  due_at bigint,
  deadline_at bigint,
  stop_kind varchar(32),
  stop_reason longtext,
  stop_at bigint,
  stop_unseen smallint not null,
  signal_cursor bigint not null,
  turns int not null,
  lapses int not null,
  created_at bigint not null,
  started_at bigint,
  updated_at bigint not null,
  finished_at bigint,
  again tinyint not null default 0,
  primary key (id),
  index {name}_runs_ready (ready, priority, due_at, id),
  index {name}_runs_sleeping (ready, due_at),
  index {name}_runs_owned (owner),
  index {name}_runs_created (created_at, id),
  index {name}_runs_status (status, created_at, id)
) {table};

create table if not exists {name}_journal (
  run_id varchar(255) not null,
  seq int not null,
  kind varchar(32) not null,
  phase varchar(32) not null,
  name longtext not null,
  attempt int not null,
  due_at bigint,
  payload longtext,
  recorded_at bigint not null,
  again tinyint not null default 0,
  primary key (run_id, seq)
) {table};

create table if not exists {name}_waits (
  run_id varchar(255) not null,
  position int not null,
  topic varchar(511) not null,
  after_id bigint not null,
  after_at bigint,
  primary key (run_id, position),
  index {name}_waits_topic (topic)
) {table};

create table if not exists {name}_signals (
  id bigint not null auto_increment,
  topic varchar(511) not null,
  name varchar(255) not null,
  dedupe_id varchar(255) not null,
  payload longtext not null,
  created_at bigint not null,
  again tinyint not null default 0,
  primary key (id),
  index {name}_signals_topic (topic, id),
  unique index {name}_signals_dedupe (name, dedupe_id)
) {table};

create table if not exists {name}_workers (
  id varchar(255) not null,
  epoch int not null,
  lease_until bigint not null,
  started_at bigint not null,
  host longtext not null,
  again tinyint not null default 0,
  primary key (id)
) {table};

create table if not exists {name}_locks (
  id int not null,
  primary key (id)
) {table};

insert into {name}_locks (id)
select a.n + 16 * b.n + 256 * c.n
from {digits} a, {digits} b, {digits} c
on duplicate key update {name}_locks.id = {name}_locks.id
"""
_DIGITS = "(select 0 as n " + " ".join(f"union all select {digit}" for digit in range(1, 16)) + ")"
_BOOKKEEPING = """
create table if not exists {name}_migrations (
  version int not null,
  name varchar(255) not null,
  applied_at bigint not null,
  primary key (version)
) {table}
"""


def statements(name: str) -> Sequence[ExecutableDDLElement]:
    """Return what makes the tables of the installation `name`. Each may be repeated, and each commits by itself, so that a
    migration which was cut short goes on where it stopped."""
    filled = _STATEMENTS.format(name=name, table=_TABLE, digits=_DIGITS)
    return [_ddl(statement) for statement in filled.split(";")]


def bookkeeping(name: str) -> ExecutableDDLElement:
    """Return what makes the table of the versions that were applied."""
    return _ddl(_BOOKKEEPING.format(name=name, table=_TABLE))


def _ddl(statement: str) -> ExecutableDDLElement:
    return DDL(statement.strip())  # type: ignore[no-untyped-call]  # untyped in SQLAlchemy
