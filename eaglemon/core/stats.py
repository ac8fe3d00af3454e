"""Statistics of comparisons: standard library only, randomness passed in.

Speeds are compared on the log scale, paired by prompt: ``log(B / A)`` per prompt, mean over
prompts. Sources: Hesterberg, *What teachers should know about the bootstrap* (2015), for the
expanded percentile interval; Student's closed forms for the t distribution of whole degrees.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

LEVEL = 0.95
"""Coverage of the intervals shown."""
DRAWS = 10_000
"""Bootstrap draws of a final figure; an end of the interval then wanders by about 2 % of its
half-width from seed to seed."""
POWER = 0.80
"""Power at which "the smallest effect that could be seen" is stated."""
TYPICAL_SD = 0.2
"""Standard deviation over prompts of the log speed-up under EAGLE, where nothing was measured
yet; 0.15 to 0.3 is usual, since acceptance differs by prompt."""
FEW = 8
"""Below so many prompts resampling them says too little, and Student's interval is used."""

_NORMAL = statistics.NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its interval, all in the same unit."""

    value: float
    low: float
    high: float
    level: float = LEVEL

    @property
    def half_width(self) -> float:
        """Half of the interval's length."""
        return (self.high - self.low) / 2.0

    def exp(self) -> "Interval":
        """Return the interval of ``exp`` of the quantity: from logs to ratios."""
        return Interval(
            value=math.exp(self.value),
            low=math.exp(self.low),
            high=math.exp(self.high),
            level=self.level,
        )


def t_cdf(x: float, df: int) -> float:
    """Return Student's distribution function at ``x`` for ``df`` whole degrees of freedom."""
    theta = math.atan2(abs(x), math.sqrt(df))
    cos = math.cos(theta)
    if df % 2:
        total, term = 0.0, cos
        for k in range(1, (df - 1) // 2 + 1):
            total += term
            term *= cos * cos * 2 * k / (2 * k + 1)
        inside = 2.0 / math.pi * (theta + math.sin(theta) * total)
    else:
        total, term = 0.0, 1.0
        for k in range(1, df // 2 + 1):
            total += term
            term *= cos * cos * (2 * k - 1) / (2 * k)
        inside = math.sin(theta) * total
    return 0.5 + math.copysign(inside, x) / 2.0


def t_quantile(probability: float, df: int) -> float:
    """Return the value that Student's t stays below with this probability.

    Raises ``ValueError`` for a probability outside of (0, 1) or less than one degree of freedom.
    """
    if not 0.0 < probability < 1.0 or df < 1:
        raise ValueError(f"no quantile {probability} for {df} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < probability:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if t_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2.0


def t_interval(values: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Return the mean with Student's interval; ``None`` of fewer than two values."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = t_quantile((1 + level) / 2, len(values) - 1) * statistics.stdev(values)
    half /= math.sqrt(len(values))
    return Interval(value=mean, low=mean - half, high=mean + half, level=level)


def mean_interval(
    values: Sequence[float], *, rng: Random, level: float = LEVEL, draws: int = DRAWS
) -> Interval | None:
    """Return the mean with its bootstrap interval; ``None`` of fewer than two values.

    The percentiles are moved outwards so that the interval is as wide as Student's would be for
    normal values: the plain percentile interval is too narrow for small samples.
    """
    count = len(values)
    if count < FEW:
        return t_interval(values, level=level)
    choose = rng.choices
    means = sorted(math.fsum(choose(values, k=count)) / count for _ in range(draws))
    low, high = _expanded(means, count, level)
    return Interval(value=statistics.fmean(values), low=low, high=high, level=level)


def ratio_interval(
    parts: Sequence[tuple[float, float]],
    *,
    rng: Random,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> Interval | None:
    """Return sum over sum of (numerator, denominator) pairs with its bootstrap interval.

    ``None`` of fewer than two pairs, or where the denominators sum to nothing.
    """
    count = len(parts)
    whole = math.fsum(below for _, below in parts)
    if count < 2 or whole <= 0:
        return None
    found = []
    for _ in range(draws):
        drawn = rng.choices(parts, k=count)
        below = sum(part[1] for part in drawn)
        if below > 0:
            found.append(sum(part[0] for part in drawn) / below)
    if not found:
        return None
    found.sort()
    low, high = _expanded(found, count, level)
    value = math.fsum(above for above, _ in parts) / whole
    return Interval(value=value, low=low, high=high, level=level)


def pooled_variance(groups: Sequence[Sequence[float]]) -> tuple[float, int] | None:
    """Return the variance within groups and its degrees of freedom.

    Each group holds the repeats of one arm. ``None`` where no arm was repeated.
    """
    df = sum(len(group) - 1 for group in groups if len(group) > 1)
    if df < 1:
        return None
    square = math.fsum(
        (value - statistics.fmean(group)) ** 2
        for group in groups
        if len(group) > 1
        for value in group
    )
    return square / df, df


def block_variance(table: Sequence[Sequence[float]]) -> tuple[float, int] | None:
    """Return the variance left of arms by rounds once both are taken out, and its freedom.

    ``table`` has a row for each arm and a column for each round. What makes a whole round slow
    makes all arms slow and is no noise of their comparison. ``None`` below two rows or columns.
    """
    rows, columns = len(table), len(table[0]) if table else 0
    df = (rows - 1) * (columns - 1)
    if df < 1:
        return None
    by_row = [statistics.fmean(row) for row in table]
    by_column = [statistics.fmean(row[place] for row in table) for place in range(columns)]
    whole = statistics.fmean(by_row)
    square = math.fsum(
        (value - by_row[row] - by_column[place] + whole) ** 2
        for row, values in enumerate(table)
        for place, value in enumerate(values)
    )
    return square / df, df


def widened(interval: Interval, extra_half: float) -> Interval:
    """Return the interval with an independent uncertainty added, as squares are."""
    return Interval(
        value=interval.value,
        low=interval.value - math.hypot(interval.value - interval.low, extra_half),
        high=interval.value + math.hypot(interval.high - interval.value, extra_half),
        level=interval.level,
    )


def restart_half(variance: float, df: int, repeats: Sequence[int], *, level: float) -> float:
    """Return the half-width that restarts add to a difference of means over ``repeats``."""
    share = sum(1.0 / count for count in repeats if count > 0)
    return t_quantile((1 + level) / 2, df) * math.sqrt(variance * share)


def smallest_effect(interval: Interval) -> float:
    """Return the smallest log effect seen with 80 % power, given the interval's width."""
    return interval.half_width * (1.0 + _NORMAL.inv_cdf(POWER) / _z(interval.level))


def expected_effect(prompts: int, *, sd: float = TYPICAL_SD) -> float | None:
    """Return the smallest log effect that ``prompts`` could show, before anything is measured."""
    if prompts < 2:
        return None
    t = t_quantile((1 + LEVEL) / 2, prompts - 1)
    return (t + _NORMAL.inv_cdf(POWER)) * sd / math.sqrt(prompts)


def _z(level: float) -> float:
    return _NORMAL.inv_cdf((1 + level) / 2)


def _expanded(ordered: Sequence[float], count: int, level: float) -> tuple[float, float]:
    t = t_quantile((1 + level) / 2, count - 1) * math.sqrt(count / (count - 1))
    share = _NORMAL.cdf(-t)
    return _quantile(ordered, share), _quantile(ordered, 1.0 - share)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 2)
    part = place - below
    return ordered[below] * (1 - part) + ordered[below + 1] * part
