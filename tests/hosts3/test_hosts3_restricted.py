"""``hosts check`` on logins that may not do all, and on homes with unusual names."""

from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.forwarding import forwarding_refusal
from eaglemon.app.requirements import examine
from eaglemon.core.host_report import Requirement
from eaglemon.core.hosts import HostSpec
from eaglemon.errors import ForwardingRefusedError, TimeLimitError
from eaglemon.io.connect import transport_to
from eaglemon.io.http import HttpClient, HttpError, HttpLimits
from eaglemon.sim.host import SimHost
from tests.cases4.conftest import Desk, console
from tests.ports import free_port
from tests.sshd import sshd


async def look(spec: HostSpec) -> dict[str, Requirement]:
    report = await examine(spec, (), connect=transport_to)
    return {one.name: one for one in report.requirements}


@pytest.mark.parametrize(
    ("extra", "row", "found", "fix"),
    [
        ("ForceCommand echo only git here >&2; exit 128", "python", "only git here", "ForceCom"),
        ("ForceCommand internal-sftp", "python", "sftp connections only", "sftp-only account"),
        ("MaxSessions 0", "python", "cannot open a channel", "MaxSessions"),
        ("AllowTcpForwarding no", "forwarding", "refuses to connect to 127.0.0.1", "AllowTcpFor"),
        ("PermitOpen 127.0.0.1:1", "forwarding", "refuses to connect to 127.0.0.1", "PermitOpen"),
        ("MaxSessions 1", "write access", "cannot open a channel", "MaxSessions"),
    ],
)
async def test_what_a_login_lacks_comes_with_its_fix(
    tmp_path: Path, extra: str, row: str, found: str, fix: str
) -> None:
    async with sshd(tmp_path / "sshd", extra=[extra]) as server:
        one = (await look(server.spec()))[row]
        assert one.met is False
        assert found in one.detail
        assert fix in one.fix


async def test_a_port_that_sshd_keeps_from_us_is_not_taken_for_a_closed_one(tmp_path: Path) -> None:
    extra = ["PermitOpen 127.0.0.1:1 127.0.0.1:9"]
    async with sshd(tmp_path / "sshd", extra=extra) as server:
        transport = transport_to(server.spec())
        await transport.connect()
        try:
            # Nothing listens there, which is known because it may be asked.
            assert await forwarding_refusal(transport, [30000, 9]) is None
            refusal = await forwarding_refusal(transport, [30000, 8000])
            assert refusal is not None
            assert "AllowTcpForwarding" in refusal.hint
            for port, expected in ((9, HttpError), (30000, ForwardingRefusedError)):
                http = HttpClient(transport, address="127.0.0.1", port=port)
                with pytest.raises(expected):
                    await http.request("GET", "/health", limits=HttpLimits())
                await http.close()
        finally:
            await transport.close()


async def test_a_server_that_sshd_keeps_from_us_says_why_it_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "launch_server.py").write_text("import time; time.sleep(600)\n")
    settings = {"env.PYTHONPATH": str(tmp_path), "port": str(free_port())}
    why = f"sshd refuses to connect to 127.0.0.1:{settings['port']} on "
    async with sshd(tmp_path / "sshd", extra=["AllowTcpForwarding no"]) as server:
        spec = replace(server.spec(), env={"XDG_STATE_HOME": str(tmp_path / "state")})
        async with console(spec) as hub:
            await hub.settle()
            plan = hub.plan("sglang-eagle3", spec.name, settings)
            (told,) = [one for one in await hub.check(plan) if one.slug == "forwarding-refused"]
            assert told.message.count(f"on {spec.name}") == 1
            started = await hub.launch(plan, force=True)
            try:
                desk = Desk(hub, spec, SimHost())
                view = await desk.until(started, lambda one: why in one.detail or one.state.ended)
                assert "set AllowTcpForwarding to yes" in view.detail
                with pytest.raises(TimeLimitError, match=why):
                    await hub.wait(started, timeout_s=0.0)
            finally:
                await hub.stop(started, grace_s=2.0)


@pytest.mark.parametrize("name", ["my home", "a'b", 'a"b', "a$b*"])
async def test_a_home_with_any_name_is_written_to_and_left_clean(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    spec = HostSpec(name="here", transport="local", env={"XDG_STATE_HOME": str(home)})
    access = (await look(spec))["write access"]
    assert access.met, access
    assert [path.name for path in (home / "eaglemon" / "runs").iterdir()] == []
