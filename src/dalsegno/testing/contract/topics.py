"""All topics of the suite, and the selection for a backend."""

from __future__ import annotations

from dalsegno.testing.contract.archive.definitions import (
    ArchiveAliases,
    ArchiveDefinitions,
    ArchiveRemovedDefinitions,
)
from dalsegno.testing.contract.archive.executions import (
    ArchiveHandedOverTasks,
    ArchiveHistory,
    ArchiveKinds,
    ArchiveListing,
    ArchiveRetention,
    ArchiveUnfinishedCleanups,
)
from dalsegno.testing.contract.archive.search import (
    ArchiveHistoryText,
    ArchiveSchedules,
    ArchiveText,
    ArchiveTimes,
)
from dalsegno.testing.contract.broker import BrokerDelivery, BrokerHints
from dalsegno.testing.contract.clock import SharedClock
from dalsegno.testing.contract.durable import DurableScripts, DurableStore, SharedScripts, SharedStore
from dalsegno.testing.contract.ledger.barriers import LedgerAnyBarriers, LedgerBarriers, LedgerSkippedSlots
from dalsegno.testing.contract.ledger.children import LedgerArrivals, LedgerDeliveries, LedgerNotices
from dalsegno.testing.contract.ledger.commits import (
    LedgerIds,
    LedgerNames,
    LedgerOnce,
    LedgerOutbox,
    LedgerPayloads,
    LedgerTags,
    LedgerWhole,
)
from dalsegno.testing.contract.ledger.ending import (
    LedgerCancelling,
    LedgerEndIfLast,
    LedgerEnding,
    LedgerReconciling,
    LedgerSweep,
)
from dalsegno.testing.contract.ledger.fairness import (
    LedgerClaims,
    LedgerIsolation,
    LedgerObsoleteLeases,
    LedgerPassedOver,
)
from dalsegno.testing.contract.ledger.history import LedgerExamination, LedgerHistory
from dalsegno.testing.contract.ledger.joins import (
    LedgerGates,
    LedgerItemEnding,
    LedgerSleepingJoins,
    LedgerSplitBarriers,
)
from dalsegno.testing.contract.ledger.leases import LedgerFences, LedgerLostWorkers, LedgerNamedLeases
from dalsegno.testing.contract.ledger.limits import (
    LedgerLimits,
    LedgerQueues,
    LedgerRates,
    LedgerSlots,
    LedgerTurns,
    SharedLimits,
)
from dalsegno.testing.contract.ledger.machines import (
    LedgerCompletions,
    LedgerFusedCommits,
    LedgerHandOver,
    LedgerMachines,
)
from dalsegno.testing.contract.ledger.pending import (
    DurablePending,
    LedgerPending,
    LedgerPendingInLine,
    LedgerPendingReconciling,
    LedgerPendingScripts,
    SharedPending,
)
from dalsegno.testing.contract.ledger.requests import (
    LedgerByHand,
    LedgerCancelRequests,
    LedgerDroppedTokens,
    LedgerOrders,
    LedgerScriptSweep,
    LedgerStartedRuns,
)
from dalsegno.testing.contract.ledger.signals import LedgerAnswers, LedgerSignalledTokens, LedgerSignals
from dalsegno.testing.contract.ledger.time import (
    LedgerDeadlines,
    LedgerHurriedTokens,
    LedgerLateTimers,
    LedgerMovedTokens,
    LedgerPause,
    LedgerPauseAndLeases,
    LedgerPauseAndTime,
    LedgerTimers,
)
from dalsegno.testing.contract.ledger.waking import LedgerMoves, LedgerWaking
from dalsegno.testing.contract.messages import LedgerDeadlinesFromOutside, LedgerMessages, PublicationMarks
from dalsegno.testing.contract.published import PublishedStreams, PublishedValues
from dalsegno.testing.contract.random.interleavings import (
    ModelComparison,
    PendingComparison,
    ScriptComparison,
)
from dalsegno.testing.contract.random.limits import LimitsComparison
from dalsegno.testing.contract.records import BlobStorage, RecordsAndLogs
from dalsegno.testing.contract.stack import Capabilities, Topic

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
    LedgerByHand,
    LedgerLostWorkers,
    LedgerNamedLeases,
    LedgerObsoleteLeases,
    LedgerPassedOver,
    LedgerQueues,
    LedgerExamination,
    LedgerTimers,
    LedgerLateTimers,
    LedgerMovedTokens,
    LedgerHurriedTokens,
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
    LedgerMoves,
    LedgerWaking,
    LedgerFusedCommits,
    LedgerSignals,
    LedgerSignalledTokens,
    LedgerAnswers,
    LedgerHandOver,
    LedgerNotices,
    LedgerDeliveries,
    LedgerArrivals,
    LedgerCancelRequests,
    LedgerDroppedTokens,
    LedgerStartedRuns,
    LedgerOrders,
    LedgerScriptSweep,
    LedgerMessages,
    LedgerDeadlinesFromOutside,
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
    ArchiveHistoryText,
    ArchiveRetention,
    ArchiveUnfinishedCleanups,
    ArchiveHandedOverTasks,
    ArchiveRemovedDefinitions,
    BlobStorage,
    RecordsAndLogs,
    PublicationMarks,
    PublishedValues,
    PublishedStreams,
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
    """Return the test classes for these capabilities, under names that pytest collects."""
    covered = [topic for topic in TOPICS if capabilities.cover(topic)]
    return {f"Test{topic.__name__}": type(f"Test{topic.__name__}", (topic,), {}) for topic in covered}
