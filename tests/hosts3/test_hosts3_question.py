"""The console's dialog for what a connection has to ask."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from eaglemon.core.hosts import HostQuestion
from eaglemon.tui.screens.question import HostQuestionScreen, ask_on

KEY = HostQuestion(
    host="gpu-a",
    kind="host-key",
    text="is this the key of 10.0.0.1:22?",
    detail="ssh-ed25519 SHA256:abc; yes writes it to ~/.ssh/known_hosts",
)
PASSPHRASE = HostQuestion(host="gpu-a", kind="passphrase", text="passphrase of ~/.ssh/id_ed25519")


@asynccontextmanager
async def asked(
    question: HostQuestion,
) -> AsyncIterator[tuple[Pilot[None], "asyncio.Task[str | None]"]]:
    app: App[None] = App()
    async with app.run_test() as pilot:
        # As a connection asks: from a task that is none of the app's.
        answer = asyncio.ensure_future(ask_on(app, question))
        while not isinstance(app.screen, HostQuestionScreen):
            await pilot.pause()
        await pilot.pause()
        yield pilot, answer


@pytest.mark.parametrize(
    ("keys", "answer"),
    [(["y"], "yes"), (["n"], None), (["escape"], None), (["enter"], None)],
)
async def test_a_host_key_is_accepted_on_purpose_only(keys: list[str], answer: str | None) -> None:
    async with asked(KEY) as (pilot, told):
        await pilot.press(*keys)
        async with asyncio.timeout(30.0):
            assert await told == answer


async def test_a_passphrase_is_typed_unseen() -> None:
    async with asked(PASSPHRASE) as (pilot, told):
        field = pilot.app.screen.query_one("#answer", Input)
        assert field.password
        await pilot.press("y", "n", "1", "enter")
        async with asyncio.timeout(30.0):
            assert await told == "yn1"


async def test_a_passphrase_may_be_refused() -> None:
    async with asked(PASSPHRASE) as (pilot, told):
        await pilot.press("a", "escape")
        async with asyncio.timeout(30.0):
            assert await told is None


async def test_questions_come_one_after_the_other() -> None:
    async with asked(PASSPHRASE) as (pilot, told):
        first = pilot.app.screen
        other = asyncio.ensure_future(ask_on(pilot.app, KEY))
        await pilot.press("y", "y")
        await pilot.pause()
        assert pilot.app.screen is first
        await pilot.press("enter")
        async with asyncio.timeout(30.0):
            assert await told == "yy"
            while pilot.app.screen is first or not isinstance(pilot.app.screen, HostQuestionScreen):
                await pilot.pause()
            await pilot.pause()
            await pilot.press("y")
            assert await other == "yes"
