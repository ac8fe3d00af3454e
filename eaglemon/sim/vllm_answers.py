"""One generation of a simulated vLLM server, and the shapes its answer takes."""

import time
from dataclasses import dataclass, field

from eaglemon.sim.asked import Asked
from eaglemon.sim.link import Inbox
from eaglemon.sim.text import Answer
from eaglemon.sim.vllm_args import VERSION, VllmArgs

Event = dict[str, object]
_FINGERPRINT = f"vllm-{VERSION}-8effadba"


@dataclass(slots=True, kw_only=True)
class Generation:
    """One request as the API server follows it."""

    id: str
    prompt_tokens: int
    answer: Answer
    inbox: Inbox
    received: float
    """Monotonic seconds."""
    draft_tokens: int
    tokens: int = 0
    steps: list[int] = field(default_factory=list)
    """Accepted drafts of each verify step."""
    finish: str | None = None
    failed: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.failed or self.finish is not None

    async def next(self) -> int:
        """Wait for the next step and return how many tokens it gave."""
        output = await self.inbox.next()
        if output is None:
            self.failed = True
            return 0
        self.tokens += output.new_tokens
        if output.accepted is not None:
            self.steps.append(output.accepted)
        self.finish = output.finish
        return output.new_tokens

    def usage(self) -> Event:
        """Return OpenAI's ``usage``."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
            "completion_tokens": self.tokens,
        }

    def speculative(self, detail: str) -> Event | None:
        """Return the per-request speculation figures that ``detail`` asks for."""
        if detail == "none" or not self.draft_tokens:
            return None
        count, accepted = len(self.steps), sum(self.steps)
        drafted = count * self.draft_tokens
        found: Event = {
            "mean_acceptance_length": 1 + accepted / count if count else None,
            "draft_acceptance_rate": accepted / drafted if drafted else None,
            "acceptance_histogram": [
                self.steps.count(accepted) for accepted in range(self.draft_tokens + 1)
            ],
            "num_spec_steps": count,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": self.draft_tokens,
        }
        if detail == "detailed":
            found["per_step_accepted"] = self.steps
            found["per_step_drafted"] = [self.draft_tokens] * count
        return {
            "time_to_first_token_ms": None,
            "generation_time_ms": None,
            "queue_time_ms": None,
            "mean_itl_ms": None,
            "tokens_per_second": None,
            "speculative_decoding": found,
        }


class VllmAnswer:
    """Writes one generation for OpenAI's two paths."""

    def __init__(self, path: str, asked: Asked, generation: Generation, args: VllmArgs) -> None:
        self._chat = path.endswith("/chat/completions")
        self._asked = asked
        self._generation = generation
        self._args = args
        self._id = f"{'chatcmpl' if self._chat else 'cmpl'}-{generation.id}"
        self._created = int(time.time())

    def opening(self) -> list[Event]:
        """Return what a stream begins with, before the first token."""
        if not self._chat:
            return []
        choice: Event = {"index": 0, "delta": {"role": "assistant", "content": ""}}
        choice.update(logprobs=None, finish_reason=None)
        event = self._envelope([choice])
        event.update(prompt_token_ids=None, prompt_text=None)
        if self._asked.continuous_usage:
            event["usage"] = self._generation.usage()
        return [event]

    def chunk(self, before: int) -> list[Event]:
        """Return the events of one step that took the answer on from ``before`` tokens."""
        generation = self._generation
        text = generation.answer.text(before, generation.tokens)
        choice: Event = {"index": 0}
        choice["delta" if self._chat else "text"] = {"content": text} if self._chat else text
        choice.update(logprobs=None, finish_reason=generation.finish)
        if not self._chat:
            choice.update(stop_reason=None, prompt_token_ids=None)
        elif generation.finish:
            choice["stop_reason"] = None
        choice["token_ids"] = None
        event = self._envelope([choice])
        if self._asked.continuous_usage:
            event["usage"] = generation.usage()
        events = [event]
        if generation.finish:
            if self._asked.include_usage:
                last = self._envelope([])
                last["usage"] = generation.usage()
                events.append(last)
            events[-1]["system_fingerprint"] = _FINGERPRINT
            figures = generation.speculative(self._args.spec_metrics)
            if figures is not None:
                events[-1]["metrics"] = figures
        return events

    def whole(self) -> Event:
        """Return the answer of a request that does not stream."""
        generation = self._generation
        text = generation.answer.text(0, generation.tokens)
        choice: Event = {"index": 0}
        choice["message" if self._chat else "text"] = (
            {"role": "assistant", "content": text} if self._chat else text
        )
        choice.update(logprobs=None, finish_reason=generation.finish, stop_reason=None)
        choice["token_ids"] = None
        if not self._chat:
            choice.update(prompt_logprobs=None, prompt_token_ids=None, routed_experts=None)
        answer = self._envelope([choice])
        answer["object"] = "chat.completion" if self._chat else "text_completion"
        answer.update(
            service_tier=None,
            system_fingerprint=_FINGERPRINT,
            usage={
                **generation.usage(),
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
            kv_transfer_params=None,
            ec_transfer_params=None,
            metrics=generation.speculative(self._args.spec_metrics),
        )
        return answer

    def _envelope(self, choices: list[Event]) -> Event:
        return {
            "id": self._id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": self._created,
            "model": self._args.served_name,
            "choices": choices,
        }
