"""Makes trials of given speeds, as a probe would have seen them."""

import math
from collections.abc import Sequence
from random import Random

from eaglemon.core.probe import Arrival, RequestRecord, RequestStatus
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.verdict import Trial


def record(number: int, tok_s: float, *, accepted: int | None = None) -> RequestRecord:
    """A request whose decode speed is ``tok_s``."""
    end_s = round(0.1 + 100 / tok_s, 6)
    return RequestRecord(
        number=number,
        prompt_id=f"p{number}",
        status=RequestStatus.OK,
        sent_at=float(number),
        took_s=end_s,
        arrivals=(Arrival(at_s=0.1, tokens=1), Arrival(at_s=end_s, tokens=100)),
        completion_tokens=101,
        counts=None
        if accepted is None
        else AcceptCounts(steps=100, accepted=accepted, proposed=500, per_position=(accepted,)),
    )


def trial(arm: int, round_: int, speeds: Sequence[float], *, accepted: int | None = None) -> Trial:
    """One measurement of an arm, one request a prompt."""
    records = tuple(record(i, speed, accepted=accepted) for i, speed in enumerate(speeds))
    return Trial(arm=arm, round=round_, records=records)


def simulated(
    rng: Random,
    *,
    ratio: float,
    prompts: int,
    rounds: int,
    prompt_sd: float,
    restart_sd: float,
    noise_sd: float = 0.02,
) -> list[Trial]:
    """Two arms of true speeds 100 and 100 x ratio, with prompts, restarts and noise."""
    base = [rng.gauss(0, 0.3) for _ in range(prompts)]
    own = [[0.0] * prompts, [rng.gauss(0, prompt_sd) for _ in range(prompts)]]
    trials = []
    for number in range(rounds):
        for arm, speed in enumerate((100.0, 100.0 * ratio)):
            drift = rng.gauss(0, restart_sd)
            logs = [
                math.log(speed) + base[i] + own[arm][i] + drift + rng.gauss(0, noise_sd)
                for i in range(prompts)
            ]
            trials.append(trial(arm, number, [math.exp(value) for value in logs]))
    return trials
