"""Flags that only some releases of an engine know."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from eaglemon.core.problems import Problem, Severity
from eaglemon.core.profiles import Profile

Release = tuple[int, ...]
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpan:
    """In which releases a flag exists, as far as it was looked at.

    Between ``last_seen`` and ``gone_in`` (or ``missing_in`` and ``first_seen``) nobody looked.
    """

    hint: str
    """What to write instead."""
    last_seen: Release | None = None
    """Newest release that was seen to take it."""
    gone_in: Release | None = None
    """Oldest release that was seen to refuse it."""
    missing_in: Release | None = None
    """Newest release that does not know it yet."""
    first_seen: Release | None = None
    """Oldest release that was seen to take it."""


def release_of(version: str | None) -> Release | None:
    """Return the numbers of a version (``0.5.23.post1`` gives 0, 5, 23), ``None`` for none."""
    match = _NUMBERS.match(version or "")
    return tuple(int(part) for part in match[1].split(".")) if match else None


def dotted(release: Release) -> str:
    """Return a release as people write it."""
    return ".".join(str(part) for part in release)


def span_problems(
    profile: Profile, spans: Mapping[str, FlagSpan], *, engine: str, version: str | None
) -> list[Problem]:
    """Return a problem for each flag that ``version`` refuses, or may refuse where unknown.

    An error where the release was seen to refuse the flag, a warning where nobody looked or the
    version is not known.
    """
    here = release_of(version)
    problems = []
    for name in profile.flags:
        span = spans.get(name)
        if span is None:
            continue
        gone, young = _is_gone(here, span), _is_young(here, span)
        for refused, words, slug in (
            (gone, _gone_words(engine, name, span), "flag-removed"),
            (young, _young_words(engine, name, span), "flag-too-new"),
        ):
            if refused is None:
                continue
            problems.append(
                Problem(
                    where=f"flags.{name}",
                    message=words,
                    hint=span.hint,
                    severity=Severity.ERROR if refused else Severity.WARNING,
                    slug=slug,
                )
            )
    return problems


def _is_gone(here: Release | None, span: FlagSpan) -> bool | None:
    """Return whether it was seen to be gone, or only may be; ``None`` where it is there."""
    if span.gone_in is None:
        return None
    if here is None:
        return False
    if here >= span.gone_in:
        return True
    seen = span.last_seen is not None and here[: len(span.last_seen)] <= span.last_seen
    return None if seen else False


def _is_young(here: Release | None, span: FlagSpan) -> bool | None:
    """Return whether the release is too old for it, or only may be; ``None`` where it is not."""
    if span.missing_in is None or here is None:
        return None
    if here[: len(span.missing_in)] <= span.missing_in:
        return True
    return None if span.first_seen is not None and here >= span.first_seen else False


def _gone_words(engine: str, name: str, span: FlagSpan) -> str:
    return f"{engine} {dotted(span.gone_in or ())} and newer do not take --{name}, and exit with 2"


def _young_words(engine: str, name: str, span: FlagSpan) -> str:
    return f"{engine} {dotted(span.missing_in or ())} and older do not know --{name}"
