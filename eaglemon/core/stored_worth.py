"""What an experiment that was kept says of a server that is running now. Pure."""

from eaglemon.core.experiment import Arm
from eaglemon.core.experiment_records import ExperimentRecord
from eaglemon.core.verdict import Findings, sentence
from eaglemon.core.views import ServerView
from eaglemon.core.worth import StoredWorth


def is_about(server: ServerView, record: ExperimentRecord) -> bool:
    """Tell whether an experiment measured a server that was started as this one was."""
    return any(_is(server, arm) for arm in record.plan.arms)


def stored_worth(
    server: ServerView, record: ExperimentRecord, findings: Findings
) -> StoredWorth | None:
    """Return what the experiment has shown of the server, ``None`` where nothing.

    Of several comparisons the one with a break-even length is told: that is with a server that
    does not speculate.
    """
    arms = record.plan.arms
    mine = [
        one
        for one in findings.comparisons
        if one.ratio is not None
        and (_is(server, arms[one.arm]) or _is(server, arms[one.reference]))
    ]
    if not mine:
        return None
    best = min(mine, key=lambda one: one.overhead is None)
    speculates = _is(server, arms[best.arm])
    return StoredWorth(
        run=record.plan.id,
        told=sentence(best, record.names),
        concurrency=arms[best.arm].request.concurrency,
        break_even=best.overhead if speculates else None,
        at=record.ended_at or record.created_at,
    )


def _is(server: ServerView, arm: Arm) -> bool:
    return (arm.host, arm.shell_line) == (server.host, server.command_line)
