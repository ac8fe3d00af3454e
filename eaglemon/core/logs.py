"""Logs: bytes into events, by an engine's rules.

A log is read while it is written: the reader gives the same events for any split of the bytes.
Most lines of a long log mean nothing, or the same as the one before: all rules' texts are
searched for at once in the raw bytes, and only lines that have one are cut out and decoded.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeAlias

from eaglemon.core.lines import MAX_LINE_BYTES, Line, LineSplitter, clean
from eaglemon.core.phases import (
    PHASE_ORDER,
    LogEvent,
    LogReady,
    NoteSeen,
    Phase,
    PhaseEntered,
    PhaseProgress,
)

_RANK = re.compile(r"[\[(][^\])]*?((?:[ _](?:DP|PP|TP|EP|ATTN_CP|MOE_DP)\d+)+)")
_LOADS = (Phase.LOAD_TARGET, Phase.LOAD_DRAFT)

_Tree: TypeAlias = dict[str, "_Tree"]


def _nothing(match: re.Match[str] | None, line: Line) -> LogEvent | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """What one kind of line means."""

    name: str
    contains: str
    """Text that every such line has; all of ASCII, and best begun with a capital or another
    rare character, since all rules' texts are searched for at once."""
    pattern: re.Pattern[str] | None = None
    """Must match somewhere in the line; ``None`` means that ``contains`` is enough."""
    build: Callable[[re.Match[str] | None, Line], LogEvent | None] = _nothing
    """The event of a matching line; ``None`` of it means nothing to tell."""
    frequent: re.Pattern[bytes] | None = None
    """For the lines that make up a long log: matched in the raw bytes from ``contains`` on, in
    place of ``pattern`` and ``build``; no other rule applies to such a line."""
    read: Callable[[re.Match[bytes]], LogEvent | None] | None = None
    """The event of a ``frequent`` match."""
    marks: str | None = None
    """Name under which such a line is remembered for the ``after`` of other rules."""
    after: str | None = None
    """The rule applies only after a line with this mark, or once this phase was told."""
    again: Phase | None = None
    """Phase that a second such line of the same rank begins, where one text serves for both."""
    bar: bool = False
    """A progress bar: the pattern is applied again and again along the line, and already
    before the line is complete, since a bar that stands still has no end yet."""


class LogReader:
    """Turns chunks of a log into events, with what single lines cannot tell filled in.

    A second load of weights is the draft's; a shard bar belongs to the load in progress and a
    capture bar to the stage in progress; what several ranks report, and what a bar repeats, is
    told once.
    """

    def __init__(self, rules: Sequence[LogRule], *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._rules = tuple(rules)
        self._limit = max_line_bytes
        self._splitter = LineSplitter(max_line_bytes)
        self._search = re.compile(_any_of([rule.contains for rule in rules])).search
        self._frequent = {
            rule.contains.encode(): (rule.frequent, rule.read)
            for rule in rules
            if rule.frequent is not None and rule.read is not None
        }
        self._by_text = {
            found.contains.encode(): frozenset(
                index for index, rule in enumerate(self._rules) if rule.contains in found.contains
            )
            for found in rules
        }
        self._number = 1
        self._bars_told = 0
        """Bars of the incomplete line that were told already."""
        self._context = _Context()
        self.events_told = 0
        self.garbled = 0
        """Lines that looked like a rule's, and held no value that could be read."""

    @property
    def bytes_read(self) -> int:
        """Bytes fed so far."""
        return self._splitter.read

    @property
    def lines_read(self) -> int:
        """Complete lines so far."""
        return self._number - 1

    def feed(self, data: bytes) -> list[LogEvent]:
        """Take the next bytes and return the events of the lines that they complete."""
        events = self._scan(self._splitter.feed(data))
        self._peek(events)
        self.events_told += len(events)
        return events

    def close(self) -> list[LogEvent]:
        """Return the events of a last line without terminator."""
        events = self._scan(self._splitter.close())
        self.events_told += len(events)
        return events

    def _scan(self, region: bytes) -> list[LogEvent]:
        events: list[LogEvent] = []
        self._begin(events)
        start = 0
        counted = 0
        told = self._bars_told
        first_end = _line_end(region, 0) if told else -1
        if region:
            self._bars_told = 0
        while match := self._search(region, start):
            at = match.start()
            end = _line_end(region, at)
            frequent = self._frequent.get(match.group())
            if frequent is not None and end - start <= self._limit:
                # Most lines of a long log end here: no more is done than needed.
                start = end
                found = frequent[0].match(region, at, end)
                event = self._read(frequent[1], found) if found else None
                if event is not None:
                    events.append(event)
                continue
            begin = max(region.rfind(b"\n", start, at) + 1, start)
            begin = max(region.rfind(b"\r", begin, at) + 1, begin)
            start = end
            stop = min(end, begin + self._limit)
            if match.end() > stop:
                continue
            if frequent is not None:
                found = frequent[0].match(region, at, stop)
                event = self._read(frequent[1], found) if found else None
                if event is not None:
                    events.append(event)
                continue
            self._number += region.count(b"\n", counted, begin)
            counted = begin
            line = Line(
                text=clean(region[begin:stop]),
                number=self._number,
                end_offset=self._splitter.offset + _after(region, end),
                transient=region[end : end + 1] == b"\r" and region[end + 1 : end + 2] != b"\n",
            )
            rules = self._rules_on(match, region, stop)
            self._tell_bars(rules, line, told if end == first_end else 0, events)
            for rule in rules:
                self._apply(rule, line, events)
        self._number += region.count(b"\n", counted)
        return events

    def _begin(self, events: list[LogEvent]) -> None:
        if self._splitter.read and not self._context.told:
            # Whatever it is that was printed, the interpreter runs.
            self._context.enter(PhaseEntered(phase=Phase.IMPORT), events)

    def _rules_on(self, match: re.Match[bytes], region: bytes, stop: int) -> list[LogRule]:
        """Return the rules whose text is in the line that ``match`` found the first one in."""
        found = self._by_text[match.group()]
        following = self._search(region, match.start() + 1, stop)
        while following:
            found = found | self._by_text[following.group()]
            following = self._search(region, following.start() + 1, stop)
        return [self._rules[index] for index in sorted(found)]

    def _peek(self, events: list[LogEvent]) -> None:
        """Tell the bars of the incomplete line, and remember how many were told."""
        head = self._splitter.head
        match = self._search(head)
        if match is None or match.group() in self._frequent:
            return
        line = Line(
            text=clean(head),
            number=self._number,
            end_offset=self._splitter.offset + len(head),
            transient=True,
        )
        rules = self._rules_on(match, head, len(head))
        self._bars_told = self._tell_bars(rules, line, self._bars_told, events)

    def _tell_bars(
        self, rules: list[LogRule], line: Line, told: int, events: list[LogEvent]
    ) -> int:
        """Add the events of the line's bars but the first ``told``; return how many there are."""
        bars = [
            (match.end(), match, rule)
            for rule in rules
            if rule.bar and rule.pattern is not None
            for match in rule.pattern.finditer(line.text)
        ]
        bars.sort(key=itemgetter(0))
        for _, match, rule in bars[told:]:
            self._context.add(self._build(rule, match, line), line, rule.again, events)
        return len(bars)

    def _apply(self, rule: LogRule, line: Line, events: list[LogEvent]) -> None:
        if rule.bar or (rule.after is not None and rule.after not in self._context.told):
            return
        found = rule.pattern.search(line.text) if rule.pattern is not None else None
        if rule.pattern is None or found is not None:
            if rule.marks is not None:
                self._context.told.add(rule.marks)
            self._context.add(self._build(rule, found, line), line, rule.again, events)

    def _build(self, rule: LogRule, match: re.Match[str] | None, line: Line) -> LogEvent | None:
        """Return the event of a line; one that cannot be read tells nothing, and is counted."""
        try:
            return rule.build(match, line)
        except (ValueError, ArithmeticError):
            self.garbled += 1
            return None

    def _read(
        self, read: Callable[[re.Match[bytes]], LogEvent | None], match: re.Match[bytes]
    ) -> LogEvent | None:
        """Return the event of a frequent line, as ``_build`` does."""
        try:
            return read(match)
        except (ValueError, ArithmeticError):
            self.garbled += 1
            return None


class _Context:
    """What earlier lines say about a later one."""

    __slots__ = (
        "_load",
        "_load_full",
        "_loads_told",
        "_progress",
        "_ranks_loaded",
        "_seen",
        "_stage",
        "told",
    )

    def __init__(self) -> None:
        self.told: set[str] = set()
        """Marks, phases and slugs of notes so far."""
        self._ranks_loaded: set[str] = set()
        self._load: Phase | None = None
        self._loads_told = False
        self._load_full = False
        self._stage: str | None = None
        self._seen: set[tuple[Phase, str | None]] = set()
        self._progress: PhaseProgress | None = None

    def add(
        self, event: LogEvent | None, line: Line, again: Phase | None, events: list[LogEvent]
    ) -> None:
        """Resolve ``event`` and append what it comes to."""
        if isinstance(event, PhaseEntered):
            self.enter(self._which_load(event, line, again), events)
        elif isinstance(event, PhaseProgress):
            self._advance(event, events)
        elif isinstance(event, NoteSeen):
            # Every rank and every restart of a part says it again.
            if event.slug not in self.told:
                self.told.add(event.slug)
                events.append(event)
        elif event is not None:
            if isinstance(event, LogReady):
                self.told.add(Phase.READY)
            events.append(event)

    def _which_load(self, event: PhaseEntered, line: Line, again: Phase | None) -> PhaseEntered:
        if event.phase not in _LOADS:
            return event
        self._loads_told = True
        if again is not None:
            rank = rank_of(line.text)
            if rank in self._ranks_loaded:
                event = replace(event, phase=again)
            self._ranks_loaded.add(rank)
        if self._load is not Phase.LOAD_DRAFT:
            self._load = event.phase
        return event

    def enter(self, event: PhaseEntered, events: list[LogEvent]) -> None:
        """Append ``event`` unless it was told before, by another rank or in another round."""
        key = (event.phase, event.stage)
        if event.phase is Phase.GRAPH_CAPTURE:
            self._stage = event.stage
        if key not in self._seen:
            self._seen.add(key)
            self.told.add(event.phase)
            events.append(event)

    def _advance(self, event: PhaseProgress, events: list[LogEvent]) -> None:
        if event.phase in _LOADS:
            # Without lines that tell, a new bar after a full one is the draft's.
            if self._load is None:
                self._load = event.phase
            elif not self._loads_told and self._load_full and event.done < event.total:
                self._load = Phase.LOAD_DRAFT
            self._load_full = event.done == event.total
            event = replace(event, phase=self._load)
        elif event.phase is Phase.GRAPH_CAPTURE and event.stage is None:
            event = replace(event, stage=self._stage)
        if not any(phase is event.phase for phase, _ in self._seen):
            self.enter(PhaseEntered(phase=event.phase, stage=event.stage), events)
        if event != self._progress:
            self._progress = event
            events.append(event)


def rank_of(text: str) -> str:
    """Return the rank marks in a line's prefix (`` TP1``, ``_TP0``), ``""`` without any."""
    match = _RANK.match(text)
    return match.group(1).replace("_", " ") if match else ""


def phase_rank(phase: Phase) -> int:
    """Return the position of ``phase`` in the order of a start-up."""
    return PHASE_ORDER.index(phase)


def _line_end(region: bytes, at: int) -> int:
    end = region.find(b"\n", at)
    if end < 0:
        end = len(region)
    turn = region.find(b"\r", at, end)
    return end if turn < 0 else turn


def _after(region: bytes, end: int) -> int:
    """Return the position behind the terminator at ``end``."""
    if region[end : end + 2] == b"\r\n":
        return end + 2
    return min(end + 1, len(region))


def _any_of(texts: Sequence[str]) -> bytes:
    """Return a pattern that finds any of ``texts``, shared starts written once.

    Of texts that begin at the same place the longest is found.
    """
    tree: _Tree = {}
    for text in texts:
        node = tree
        for character in text:
            node = node.setdefault(character, {})
        node.setdefault("", {})
    return _tree_pattern(tree).encode()


def _tree_pattern(tree: _Tree) -> str:
    ends = "" in tree
    branches = [
        re.escape(character) + _tree_pattern(below)
        for character, below in tree.items()
        if character
    ]
    if not branches:
        return ""
    body = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{body}?" if ends else body
