"""Arms for tests of experiments."""

from eaglemon.core.experiment import Arm
from eaglemon.core.profiles import ProbeDefaults, Profile, Speculation


def arm(
    name: str,
    *,
    port: int = 30000,
    gpus: tuple[int, ...] | None = (0,),
    steps: int | None = None,
    host: str = "gpu-a",
    concurrency: int = 1,
    requests: int = 8,
    **flags: str,
) -> Arm:
    speculation = None
    if steps is not None:
        speculation = Speculation(steps=steps, topk=1, draft_tokens=steps + 1)
    profile = Profile(
        name=name,
        engine="sglang",
        model="m",
        draft=None if steps is None else "d",
        speculation=speculation,
        port=port,
        gpus=gpus,
        flags=flags,
        probe=ProbeDefaults(requests=requests, concurrency=concurrency),
    )
    return Arm(name=name, host=host, profile=profile, shell_line=f"serve {name} {steps}")
