"""Carries out a task of the draft doctor on a host, over a connection of its own."""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from eaglemon.core.draft_views import CheckStage
from eaglemon.core.hosts import HostSpec
from eaglemon.draft.elsewhere import PROGRAM, hint_for, program_input, result_of, stage_of
from eaglemon.errors import AgentError, EaglemonError
from eaglemon.io.connect import open_link, transport_to
from eaglemon.io.transport import Asker

_NEEDS_TORCH = frozenset({"check", "capture"})
_MATERIAL = ("hidden", "prompts")
"""With these a diagnosis runs the draft."""


async def perform_on(
    spec: HostSpec,
    request: Mapping[str, Any],
    *,
    python: str | None = None,
    ask: Asker | None = None,
    told: Callable[[CheckStage], None] = lambda _: None,
) -> Any:
    """Carry out a request of ``draft.task.perform`` on a host, in its Python ``python``.

    Without one it is the agent's own, or for what needs torch its ``python3``. Cancelling ends it
    there too; ``told`` hears what a diagnosis is at. Raises ``HostError`` where the host cannot be
    reached, else as the task does.
    """
    needs_torch = request["do"] in _NEEDS_TORCH or any(request.get(key) for key in _MATERIAL)
    used = python or ("python3" if needs_torch else None)
    transport = transport_to(spec, ask=ask)
    try:
        link = await open_link(transport, spec)
        try:
            running = link.run_program(PROGRAM, input=program_input(request), python=used)
            async with aclosing(running) as answers:
                async for found in answers:
                    stage = stage_of(found)
                    if stage is not None:
                        told(stage)
                        continue
                    return result_of(request, found, spec.name)
        except AgentError as error:
            needs = "torch" if needs_torch else "no package"
            last = _last_line(error.message)
            wanted = f"name a Python of the host with --python: 3.11 or newer, with {needs}"
            raise EaglemonError(f"{spec.name}: {last}", hint=hint_for(last, wanted)) from error
        finally:
            await link.close()
    finally:
        await transport.close()
    raise EaglemonError(f"{spec.name}: the task ended without an answer")


def _last_line(text: str) -> str:
    head, *rest = text.strip().splitlines() or ["no answer"]
    return f"{head.partition(': ')[0]}: {rest[-1]}" if rest else head
