"""Workflows that outlast the process that runs them: ordinary async functions, journaled in your own SQL database.

Everything an application needs is imported from here; `outlast.testing` holds what its tests need.
"""

from outlast.app import Outlast
from outlast.client.blocking import BlockingClient
from outlast.client.handle import BlockingHandle, BlockingKnownRun, Handle, KnownRun
from outlast.client.publishing import Published
from outlast.engine.conditions import Condition
from outlast.engine.context import Context
from outlast.engine.definition import Workflow, workflow
from outlast.engine.plain import BlockingContext
from outlast.engine.step import Step, step
from outlast.engine.stepcontext import CompensationContext, StepContext
from outlast.engine.transactional import TransactionalStep, transactional_step
from outlast.errors import (
    AppClosed,
    CompensationFailed,
    ConditionNotWon,
    DatabaseBusy,
    DatabaseUnavailable,
    DefinitionError,
    DriverMissing,
    Failure,
    InvalidArgument,
    InvalidDuration,
    InvalidName,
    IsolationRefused,
    JournalMismatch,
    LeaseLost,
    NonRetryable,
    NotATransaction,
    OutlastError,
    ResultTimeout,
    RetryAfter,
    RunCancelled,
    RunFailed,
    RunIdConflict,
    RunNotFound,
    RunTerminated,
    RunTimedOut,
    SchemaBehind,
    SchemaConflict,
    SignalIdConflict,
    StepFailed,
    TransactionAborted,
    TransactionEnded,
    UnknownWorkflow,
    ValueNotStorable,
    ValueUnreadable,
    WorkflowFailed,
    WorkflowIOError,
    WrongColour,
)
from outlast.events.mappings import signals_on, starts_on
from outlast.model.connections import ConnectionOptions, Credentials
from outlast.model.ids import RunId
from outlast.model.journal import Entry, Kind, Phase
from outlast.model.options import Retry, WorkerOptions
from outlast.model.run import Page, Run, Status, StopKind, StopReceipt
from outlast.model.signal import Signal, SignalReceipt

__all__ = [
    "AppClosed",
    "BlockingClient",
    "BlockingContext",
    "BlockingHandle",
    "BlockingKnownRun",
    "CompensationContext",
    "CompensationFailed",
    "Condition",
    "ConditionNotWon",
    "ConnectionOptions",
    "Context",
    "Credentials",
    "DatabaseBusy",
    "DatabaseUnavailable",
    "DefinitionError",
    "DriverMissing",
    "Entry",
    "Failure",
    "Handle",
    "InvalidArgument",
    "InvalidDuration",
    "InvalidName",
    "IsolationRefused",
    "JournalMismatch",
    "Kind",
    "KnownRun",
    "LeaseLost",
    "NonRetryable",
    "NotATransaction",
    "Outlast",
    "OutlastError",
    "Page",
    "Phase",
    "Published",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunId",
    "RunIdConflict",
    "RunNotFound",
    "RunTerminated",
    "RunTimedOut",
    "SchemaBehind",
    "SchemaConflict",
    "Signal",
    "SignalIdConflict",
    "SignalReceipt",
    "Status",
    "Step",
    "StepContext",
    "StepFailed",
    "StopKind",
    "StopReceipt",
    "TransactionAborted",
    "TransactionEnded",
    "TransactionalStep",
    "UnknownWorkflow",
    "ValueNotStorable",
    "ValueUnreadable",
    "WorkerOptions",
    "Workflow",
    "WorkflowFailed",
    "WorkflowIOError",
    "WrongColour",
    "signals_on",
    "starts_on",
    "step",
    "transactional_step",
    "workflow",
]
