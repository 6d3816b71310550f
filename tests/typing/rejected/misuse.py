"""Every line that says so must be refused by both type checkers, and no other."""

from __future__ import annotations

from dataclasses import dataclass

from outlast import CompensationContext, Context, Outlast, Signal, StepContext, step, workflow


@dataclass
class Order:
    id: str


@dataclass
class Charge:
    id: str


approve = Signal("approve", Charge)


@step
async def charge(s: StepContext, order: Order, cents: int = 1) -> Charge:
    return Charge(s.idempotency_key)


async def awaits_conditions(ctx: Context) -> None:
    await ctx.signal(approve)  # refused: it is waited for by a name
    await ctx.timer("1s")  # refused: so is a time


@charge.compensate  # refused: what undoes a charge takes a charge
async def refund(s: CompensationContext, order: Order) -> None: ...


@step
def count(order: Order) -> int:
    return 1


@step(on_cancel="ignore")  # refused: no such choice
async def ignores() -> None: ...


@step(retry="3")  # refused: a number of attempts, or a policy
async def retried() -> None: ...


@step(attempts=3)  # refused: no such option
async def attempts() -> None: ...


class Shop:
    @step
    async def reserve(self, s: StepContext, order: Order) -> Charge:
        return Charge(order.id)


def takes_number(s: CompensationContext, number: int) -> None: ...


async def with_context(s: StepContext) -> Charge:
    return Charge(s.run_id)


@workflow("misuse")
async def misuse(ctx: Context, order: Order) -> str:
    await charge("seven")  # refused: not an order
    await charge(order, cents="2")  # refused: not a number
    await charge()  # refused: an order is missing
    await charge(StepContext("run", "step"), order)  # refused: the context is passed by the library
    charged = await charge(order)
    charged.amount  # refused: a charge has no amount
    number: str = await count(order)  # refused: it is a number
    await Shop().reserve("seven")  # refused: not an order
    await ctx.step("five", 5)  # refused: no function
    await ctx.step("undo", with_context, compensate=takes_number)  # refused: it is given a charge
    await ctx.step("timeout", with_context, timeout=5)  # refused: seconds or minutes?
    await ctx.sleep("pause", 5)  # refused: seconds or minutes?
    approved = ctx.signal(approve, key=7)  # refused: a key is a text
    ctx.signal("approve")  # refused: the declared signal, not its name
    (await ctx.wait_for("wait", approved, timeout="1h")).id  # refused: None when the time has passed
    await ctx.first("race", approve)  # refused: a signal is no condition
    approved.value.amount  # refused: a charge has no amount
    return number


@workflow("plain")  # refused: a plain function
def plain(ctx: Context) -> None: ...


@workflow("two")  # refused: two inputs
async def two(ctx: Context, a: int, b: int) -> None: ...


@workflow("no-context")  # refused: no context
async def no_context() -> None: ...


@workflow("alone")
async def alone(ctx: Context) -> int:
    return 1


@workflow("class")
class ClassBased:
    async def run(self, ctx: Context, order: Order) -> str:
        return order.id


async def client(app: Outlast) -> None:
    await app.start(misuse, 3)  # refused: not an order
    await app.start(misuse)  # refused: an order is missing
    await app.start(alone, 3)  # refused: it takes no input
    await app.start(ClassBased, "seven")  # refused: not an order
    await app.start(count, Order("7"))  # refused: a step is no workflow
    handle = await app.start(misuse, Order("7"))
    number: int = await handle.result()  # refused: it is a text
    known: int = await app.handle(misuse, "7").result()  # refused: it is a text
    app.handle(count, "7")  # refused: a step is no workflow
    app.handle("misuse", "7")  # refused: the workflow, not its name, says what type the result has
    await app.signal(approve, "yes")  # refused: not a charge
    print(number, known)
