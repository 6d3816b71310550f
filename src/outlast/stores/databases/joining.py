"""Run an op inside the caller's own transaction."""

from __future__ import annotations

from typing import TypeVar

from outlast.errors import IsolationRefused, NotATransaction, OutlastError
from outlast.ports.database import MakeOp
from outlast.ports.operation import Op, pump, pump_awaiting
from outlast.stores.basis import Basis
from outlast.stores.databases.kinds.kind import AwaitingTransaction, BlockingTransaction, Transaction
from outlast.stores.databases.kinds.registry import recognise
from outlast.stores.databases.origin import Origin

T = TypeVar("T")


async def join(tx: object, make: MakeOp[T], basis: Basis, *, read_committed: bool, origin: Origin | None = None) -> T:
    """Run an op in the transaction behind `tx`. Blocking transactions are taken too; each of their statements holds the loop
    for as long as the database needs, as the caller's own statements on it do."""
    transaction = recognise(tx, basis.dialect)
    op = _checked(_on_ours(transaction, make, origin), basis, read_committed=read_committed)
    match transaction:
        case AwaitingTransaction(enter=enter):
            awaited = await enter()
            try:
                return await pump_awaiting(op, awaited)
            except Exception as error:
                if origin is not None and _may_lack_tables(error, basis):
                    await pump_awaiting(origin.check_tables(transaction), awaited)
                raise
        case BlockingTransaction():
            return _pumped(op, transaction, basis, origin)


def join_blocking(
    tx: object, make: MakeOp[T], basis: Basis, *, read_committed: bool, origin: Origin | None = None
) -> T:
    """Run an op in the blocking transaction behind `tx`."""
    transaction = recognise(tx, basis.dialect)
    if isinstance(transaction, AwaitingTransaction):
        raise NotATransaction(
            f"tx= is {transaction.what}, which has to be awaited; a blocking call cannot do that. "
            "Use `await app.<verb>(...)`, or pass a Session or a Connection."
        )
    op = _checked(_on_ours(transaction, make, origin), basis, read_committed=read_committed)
    return _pumped(op, transaction, basis, origin)


def _pumped(op: Op[T], transaction: BlockingTransaction, basis: Basis, origin: Origin | None) -> T:
    execute = transaction.enter()
    try:
        return pump(op, execute)
    except Exception as error:
        if origin is not None and _may_lack_tables(error, basis):
            pump(origin.check_tables(transaction), execute)
        raise


def _may_lack_tables(error: Exception, basis: Basis) -> bool:
    """Tell whether the lock, which comes before the look at the tables, may have failed for want of them; or any statement,
    when the caller has switched a connection that is known. In both cases an error takes back its own statement alone, so
    that the transaction can still be asked."""
    if isinstance(error, OutlastError):
        return False
    if basis.dialect.absent(error) is not None:
        return True
    if basis.dialect.write_lock(basis.tables) is None:
        return False
    return basis.dialect.trouble(error) is None and basis.dialect.refusal(error) is None


def _on_ours(transaction: Transaction, make: MakeOp[T], origin: Origin | None) -> MakeOp[T]:
    """Return the op after a check that the transaction is on our database."""
    if origin is None:
        return make
    known: Origin = origin

    def checked() -> Op[T]:
        yield from known.check(transaction)
        return (yield from make())

    return checked


def _checked(make: MakeOp[T], basis: Basis, *, read_committed: bool) -> Op[T]:
    look = basis.dialect.isolation() if read_committed else None
    if look is not None:
        found = yield look
        isolation: str = found.rows[0][0]
        if isolation != "read committed":
            raise IsolationRefused(
                f"The transaction given as tx= is {isolation!r}. It may not see a run that began to wait after the "
                "transaction's first statement, so the signal could miss it. Use READ COMMITTED, or send the signal in "
                "another transaction."
            )
    lock = basis.dialect.write_lock(basis.tables)
    if lock is not None:
        yield lock
    return (yield from make())
