"""All topics of the suite, and which of them a backend binds."""

from __future__ import annotations

from dalsegno.testing.contract.archive_definitions import ArchiveAliases, ArchiveDefinitions
from dalsegno.testing.contract.archive_executions import ArchiveHistory, ArchiveListing, ArchiveRetention
from dalsegno.testing.contract.archive_kinds import ArchiveKinds
from dalsegno.testing.contract.archive_removal import ArchiveRemovedDefinitions
from dalsegno.testing.contract.archive_schedules import ArchiveSchedules
from dalsegno.testing.contract.archive_search import ArchiveText, ArchiveTimes, ArchiveToldHistory
from dalsegno.testing.contract.blobs import BlobStorage
from dalsegno.testing.contract.broker import BrokerDelivery, BrokerHints
from dalsegno.testing.contract.capabilities import Capabilities, Topic
from dalsegno.testing.contract.clock import SharedClock
from dalsegno.testing.contract.durable import DurableStore, SharedStore
from dalsegno.testing.contract.durable_scripts import DurableScripts, SharedScripts
from dalsegno.testing.contract.ledger_barriers import LedgerAnyBarriers, LedgerBarriers, LedgerSkippedSlots
from dalsegno.testing.contract.ledger_cancelling import LedgerCancelling
from dalsegno.testing.contract.ledger_children import LedgerArrivals, LedgerDeliveries, LedgerNotices
from dalsegno.testing.contract.ledger_ending import LedgerEndIfLast, LedgerEnding
from dalsegno.testing.contract.ledger_fused import LedgerFusedCommits
from dalsegno.testing.contract.ledger_gates import LedgerGates
from dalsegno.testing.contract.ledger_handover import LedgerHandOver
from dalsegno.testing.contract.ledger_history import LedgerHistory
from dalsegno.testing.contract.ledger_ids import LedgerIds
from dalsegno.testing.contract.ledger_isolation import LedgerClaims, LedgerIsolation
from dalsegno.testing.contract.ledger_items import LedgerItemEnding
from dalsegno.testing.contract.ledger_leases import LedgerFences, LedgerLostWorkers, LedgerNamedLeases
from dalsegno.testing.contract.ledger_limits import LedgerLimits, LedgerSlots, SharedLimits
from dalsegno.testing.contract.ledger_machines import LedgerCompletions, LedgerMachines
from dalsegno.testing.contract.ledger_once import LedgerOnce
from dalsegno.testing.contract.ledger_pause import LedgerPause, LedgerPauseAndLeases, LedgerPauseAndTime
from dalsegno.testing.contract.ledger_payloads import LedgerNames, LedgerPayloads
from dalsegno.testing.contract.ledger_pending import (
    DurablePending,
    LedgerPending,
    LedgerPendingReconciling,
    LedgerPendingScripts,
    SharedPending,
)
from dalsegno.testing.contract.ledger_pending_in_line import LedgerPendingInLine
from dalsegno.testing.contract.ledger_queues import LedgerQueues
from dalsegno.testing.contract.ledger_rates import LedgerRates, LedgerTurns
from dalsegno.testing.contract.ledger_requests import (
    LedgerCancelRequests,
    LedgerDroppedTokens,
    LedgerOrders,
    LedgerScriptSweep,
)
from dalsegno.testing.contract.ledger_shares import LedgerObsoleteLeases, LedgerPassedOver
from dalsegno.testing.contract.ledger_signals import LedgerSignalledTokens, LedgerSignals
from dalsegno.testing.contract.ledger_sleeping_joins import LedgerSleepingJoins
from dalsegno.testing.contract.ledger_split import LedgerSplitBarriers
from dalsegno.testing.contract.ledger_sweep import LedgerReconciling, LedgerSweep
from dalsegno.testing.contract.ledger_tags import LedgerTags
from dalsegno.testing.contract.ledger_time import (
    LedgerDeadlines,
    LedgerLateTimers,
    LedgerMovedTokens,
    LedgerTimers,
)
from dalsegno.testing.contract.ledger_waking import LedgerWaking
from dalsegno.testing.contract.ledger_whole import LedgerOutbox, LedgerWhole
from dalsegno.testing.contract.limits_model import LimitsComparison
from dalsegno.testing.contract.model import ModelComparison, ScriptComparison
from dalsegno.testing.contract.pending_twins import PendingComparison
from dalsegno.testing.contract.records import RecordsAndLogs

TOPICS: tuple[type[Topic], ...] = (
    LedgerOnce,
    LedgerWhole,
    LedgerOutbox,
    LedgerEnding,
    LedgerEndIfLast,
    LedgerItemEnding,
    LedgerBarriers,
    LedgerSkippedSlots,
    LedgerAnyBarriers,
    LedgerSplitBarriers,
    LedgerIds,
    LedgerFences,
    LedgerLostWorkers,
    LedgerNamedLeases,
    LedgerObsoleteLeases,
    LedgerPassedOver,
    LedgerQueues,
    LedgerTimers,
    LedgerLateTimers,
    LedgerMovedTokens,
    LedgerDeadlines,
    LedgerSleepingJoins,
    LedgerPause,
    LedgerPauseAndTime,
    LedgerPauseAndLeases,
    LedgerPending,
    LedgerPendingInLine,
    LedgerPendingReconciling,
    LedgerPendingScripts,
    LedgerGates,
    LedgerCancelling,
    LedgerSweep,
    LedgerReconciling,
    LedgerHistory,
    LedgerIsolation,
    LedgerClaims,
    LedgerLimits,
    LedgerSlots,
    LedgerRates,
    LedgerTurns,
    LedgerPayloads,
    LedgerNames,
    LedgerMachines,
    LedgerCompletions,
    LedgerWaking,
    LedgerFusedCommits,
    LedgerSignals,
    LedgerSignalledTokens,
    LedgerHandOver,
    LedgerNotices,
    LedgerDeliveries,
    LedgerArrivals,
    LedgerCancelRequests,
    LedgerDroppedTokens,
    LedgerOrders,
    LedgerScriptSweep,
    LedgerTags,
    BrokerDelivery,
    BrokerHints,
    ArchiveDefinitions,
    ArchiveAliases,
    ArchiveSchedules,
    ArchiveHistory,
    ArchiveListing,
    ArchiveKinds,
    ArchiveTimes,
    ArchiveText,
    ArchiveToldHistory,
    ArchiveRetention,
    ArchiveRemovedDefinitions,
    BlobStorage,
    RecordsAndLogs,
    SharedClock,
    DurableStore,
    SharedStore,
    DurableScripts,
    SharedScripts,
    SharedLimits,
    DurablePending,
    SharedPending,
    ModelComparison,
    ScriptComparison,
    LimitsComparison,
    PendingComparison,
)


def bind(capabilities: Capabilities) -> dict[str, type[Topic]]:
    """Test classes for the topics these capabilities cover, under names that pytest collects."""
    covered = [topic for topic in TOPICS if capabilities.cover(topic)]
    return {f"Test{topic.__name__}": type(f"Test{topic.__name__}", (topic,), {}) for topic in covered}
