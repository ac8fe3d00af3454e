"""An engine that only the environment of its profile leads to is found, with its release."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from eaglemon.app.environment import RELEASE_PROGRAM
from eaglemon.app.requirements import examine
from eaglemon.core.hosts import HostSpec
from eaglemon.core.profiles import Profile
from eaglemon.engines import ENGINES
from eaglemon.io.connect import open_link, transport_to


def bundle(folder: Path, package: str) -> Mapping[str, str]:
    about = folder / "site" / f"{package}-9.8.7.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 9.8.7\n")
    return {"PYTHONPATH": str(folder / "site")}


@pytest.mark.parametrize("engine", sorted(ENGINES))
async def test_the_check_looks_with_the_environment_of_profiles(
    tmp_path: Path, engine: str
) -> None:
    env = bundle(tmp_path, ENGINES[engine].package)
    spec = HostSpec(name="here", transport="local", env={"XDG_STATE_HOME": str(tmp_path)})
    profile = Profile(name="bundled", engine=engine, model="m", port=1, env=env)
    for profiles, version in (((), None), ((profile,), "9.8.7")):
        report = await examine(spec, profiles, connect=transport_to)
        (found,) = [one for one in report.requirements if one.name == engine]
        assert (version is not None) == ("9.8.7" in found.detail), found
        if version is not None:
            assert found.met


async def test_the_release_is_found_with_the_environment(tmp_path: Path) -> None:
    env = bundle(tmp_path, "an_engine")
    spec = HostSpec(name="here", transport="local", env={"XDG_STATE_HOME": str(tmp_path)})
    transport = transport_to(spec)
    await transport.connect()
    link = await open_link(transport, spec)
    try:
        program = link.run_program(
            RELEASE_PROGRAM, input={"package": "an_engine"}, python="python3", env=env
        )
        async with aclosing(program) as told:
            answers = [json.dumps(one) async for one in told]
    finally:
        await link.close()
        await transport.close()
    assert answers == ['{"version": "9.8.7", "revision": null}']
