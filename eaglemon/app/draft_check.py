"""What a draft's own files say against the way it is to be served."""

from collections.abc import Mapping
from contextlib import aclosing

from eaglemon.core.problems import Problem, Severity
from eaglemon.core.profiles import Profile
from eaglemon.errors import AgentError
from eaglemon.io.host_link import HostLink

_EAGLE = frozenset({"EAGLE", "NEXTN"})
_CONTEXT_FLAGS = ("context-length", "max-model-len")
_PROGRAM = b"""
import json, os
path = os.path.join(os.path.expanduser(json.loads(EAGLEMON_INPUT)), "config.json")
try:
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
except (OSError, ValueError) as error:
    print(json.dumps({"error": str(error)[:200]}))
else:
    print(json.dumps({
        "architectures": config.get("architectures") or [],
        "positions": config.get("max_position_embeddings"),
    }))
"""


async def draft_problems(link: HostLink, profile: Profile) -> list[Problem]:
    """Return what the configuration of a draft in a folder of the host says against the launch.

    A draft of a repository, or in a container, cannot be looked at. Raises ``LinkLostError``.
    """
    draft, speculation = profile.draft, profile.speculation
    local = draft is not None and draft.startswith(("/", "~"))
    if draft is None or speculation is None or not local or profile.container is not None:
        return []
    try:
        async with aclosing(link.run_program(_PROGRAM, input=draft)) as answers:
            async for answer in answers:
                return _problems(profile, draft, speculation.algorithm, answer)
    except AgentError:
        return []  # The host cannot run programs: the engine will tell.
    return []


def _problems(
    profile: Profile, draft: str, algorithm: str, answer: Mapping[str, object]
) -> list[Problem]:
    problems = []
    named = answer.get("architectures")
    architectures = [str(name) for name in named] if isinstance(named, list) else []
    eagle3 = next((name for name in architectures if "eagle3" in name.lower()), None)
    if eagle3 is not None and algorithm.upper() in _EAGLE:
        problems.append(
            Problem(
                where="speculation.algorithm",
                message=f"{draft} is an EAGLE-3 draft ({eagle3}); as {algorithm} it runs without "
                "error and accepts almost nothing",
                hint="use EAGLE3",
                slug="eagle-for-eagle3-draft",
            )
        )
    positions = answer.get("positions")
    for flag in _CONTEXT_FLAGS:
        wanted = profile.flags.get(flag)
        if isinstance(positions, int) and isinstance(wanted, int) and positions < wanted:
            problems.append(
                Problem(
                    where=f"flags.{flag}",
                    message=f"{draft} knows {positions} positions, and the context is {wanted}",
                    hint=f"lower it to {positions}, or expect long requests to be slow or to fail",
                    severity=Severity.WARNING,
                    slug="draft-context-short",
                )
            )
    return problems
