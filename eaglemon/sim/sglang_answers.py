"""One generation of a simulated SGLang server, and the shapes its answer takes."""

import time
from dataclasses import dataclass, field

from eaglemon.sim.asked import Asked
from eaglemon.sim.link import Inbox
from eaglemon.sim.sglang_args import SglangArgs
from eaglemon.sim.text import Answer

Event = dict[str, object]


@dataclass(slots=True, kw_only=True)
class Generation:
    """One request as the tokenizer process follows it."""

    id: str
    prompt_tokens: int
    answer: Answer
    inbox: Inbox
    received: float
    proposed: int
    """Drafts proposed per verify step; 0 without speculation."""
    tokens: int = 0
    verifies: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    first_at: float | None = None
    finish: dict[str, object] | None = None

    @property
    def done(self) -> bool:
        """Whether the last token has come."""
        return self.finish is not None

    async def next(self) -> int:
        """Wait for the next step and return how many tokens it gave; 0 when the engine died."""
        output = await self.inbox.next()
        if output is None:
            self.finish = {"type": "abort", "message": "Scheduler died", "status_code": 500}
            return 0
        self.first_at = self.first_at or time.time()
        self.tokens += output.new_tokens
        if output.accepted is not None:
            self.verifies += 1
            self.accepted += output.accepted
            self.histogram[output.accepted] += 1
        if output.finish == "length":
            self.finish = {"type": "length", "length": self.tokens}
        elif output.finish:
            self.finish = {"type": "stop", "matched": 2}
        return output.new_tokens

    def meta(self) -> dict[str, object]:
        """Return ``meta_info`` as it stands: complete once finished."""
        found: dict[str, object] = {
            "id": self.id,
            "finish_reason": self.finish,
            "prompt_tokens": self.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "queue_time": 0.0,
            "reasoning_tokens": 0,
            "completion_tokens": self.tokens,
            "cached_tokens": 0,
            "cached_tokens_details": {"device": 0, "host": 0},
            "dp_rank": None,
        }
        if self.finish is None:
            return found
        now = time.time()
        found["e2e_latency"] = now - self.received
        if self.proposed and self.verifies:
            rate = self.accepted / (self.verifies * self.proposed)
            found.update(
                spec_accept_rate=rate,
                spec_accept_length=self.tokens / self.verifies,
                spec_num_correct_drafts=self.accepted,
                spec_num_proposed_drafts=self.verifies * self.proposed,
                spec_verify_ct=self.verifies,
                spec_accepted_drafts=self.accepted,
                spec_proposed_drafts=self.verifies * self.proposed,
                spec_correct_drafts_histogram=self.histogram,
                spec_accept_histogram=self.histogram,
            )
        decoding = max(now - (self.first_at or now), 1e-6)
        found.update(
            request_received_ts=self.received,
            api_server_dispatch_finish_ts=self.received + 0.0006,
            response_sent_to_client_ts=self.first_at,
            request_finished_ts=now,
            decode_throughput=(self.tokens - 1) / decoding,
        )
        return found

    def usage(self) -> dict[str, object]:
        """Return OpenAI's ``usage``."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
            "completion_tokens": self.tokens,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
        }


class SglangAnswer:
    """Writes one generation for ``/generate`` or for OpenAI's two paths."""

    def __init__(self, path: str, asked: Asked, generation: Generation, args: SglangArgs) -> None:
        self._native = path == "/generate"
        self._chat = path.endswith("/chat/completions")
        self._asked = asked
        self._generation = generation
        self._incremental = args.incremental
        self._created = int(time.time())

    def opening(self) -> list[Event]:
        """Return what a stream begins with, before the first token."""
        if not self._chat:
            return []
        return [self._openai({"reasoning_content": None, "role": "assistant", "content": ""})]

    def chunk(self, before: int) -> list[Event]:
        """Return the events of one step that took the answer on from ``before`` tokens."""
        generation = self._generation
        begin = before if self._incremental or not self._native else 0
        text = generation.answer.text(begin, generation.tokens)
        if self._native:
            event = self._native_answer(begin, text)
            if not before and generation.finish is None:
                event["meta_info"] = {
                    **generation.meta(),
                    "response_sent_to_client_ts": generation.first_at,
                }
            return [event]
        reason = generation.finish["type"] if generation.finish else None
        if self._chat:
            events = [self._openai({"reasoning_content": None, "content": text})]
            if reason:
                events.append(self._openai({"reasoning_content": None}, reason))
        else:
            events = [self._openai(text, reason)]
        if self._asked.continuous_usage:
            events[0]["usage"] = generation.usage()
        if reason and self._asked.include_usage:
            events.append({**self._openai("", None), "choices": [], "usage": generation.usage()})
        return events

    def whole(self) -> Event:
        """Return the answer of a request that does not stream."""
        generation = self._generation
        text = generation.answer.text(0, generation.tokens)
        if self._native:
            return self._native_answer(0, text)
        reason = generation.finish["type"] if generation.finish else None
        choice: Event = {"index": 0, "logprobs": None, "finish_reason": reason}
        choice["matched_stop"] = None
        if self._chat:
            choice["message"] = {
                "role": "assistant",
                "content": text,
                "reasoning_content": None,
                "tool_calls": None,
            }
            if self._asked.return_meta:
                choice["meta_info"] = generation.meta()
        else:
            choice["text"] = text
        return {
            "id": generation.id,
            "object": "chat.completion" if self._chat else "text_completion",
            "created": self._created,
            "model": self._asked.model,
            "choices": [choice],
            "usage": generation.usage(),
            "metadata": {"weight_version": "default"},
        }

    def _native_answer(self, begin: int, text: str) -> Event:
        generation = self._generation
        return {
            "text": text,
            "output_ids": generation.answer.ids(begin, generation.tokens),
            "meta_info": generation.meta(),
        }

    def _openai(self, content: object, reason: object = None) -> Event:
        choice: Event = {"index": 0, ("delta" if self._chat else "text"): content}
        choice.update(logprobs=None, finish_reason=reason, matched_stop=None)
        event: Event = {
            "id": self._generation.id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": self._created,
            "model": self._asked.model,
            "choices": [choice],
        }
        if not self._chat:
            event["usage"] = None
        return event
